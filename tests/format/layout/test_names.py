"""Names of files: what is accepted, what is refused, and that each comes back as it was."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidNameError
from anabranch.format.layout.listing import (
    DeletionFileName,
    DeletionKind,
    ManifestName,
    ManifestScheme,
    branch_of_ref_path,
    branch_ref_path,
    is_data_file,
    is_transaction_file,
    manifest_of_path,
    manifest_path,
    tag_of_ref_path,
    tag_ref_path,
)

U64 = 2**64 - 1
U64S = st.integers(min_value=0, max_value=U64)
SEGMENTS = st.text("abcXYZ019._-", min_size=1, max_size=12)
UUID_TEXT = "550e8400-e29b-41d4-a716-446655440000"
BITS = "101100101101010011010110"
HEX = "a1b2c3d4e5f60718293a4b5c6d"


@given(st.uuids())
def test_a_data_file_is_named_by_a_uuid(uuid: UUID) -> None:
    assert is_data_file(f"{int.from_bytes(uuid.bytes[:3]):024b}{uuid.bytes[3:].hex()}.lance")


@given(U64S, U64S, st.text("0123456789abcdef", min_size=1, max_size=20), st.sampled_from(DeletionKind))
def test_deletion_file_name_survives_a_round_trip(fragment: int, version: int, number: str, kind: DeletionKind) -> None:
    name = DeletionFileName(fragment_id=fragment, read_version=version, id=number, kind=kind)
    assert DeletionFileName.parse(str(name)) == name


@given(U64S, st.uuids())
def test_a_transaction_file_is_named_by_a_version_and_a_uuid(version: int, uuid: UUID) -> None:
    assert is_transaction_file(f"{version}-{uuid}.txn")


@given(st.integers(min_value=1, max_value=U64), st.booleans())
def test_manifest_name_survives_a_round_trip(version: int, prefers_v1: bool) -> None:  # noqa: FBT001 - drawn, not called
    name = manifest_of_path(manifest_path(version))
    assert name is not None
    if prefers_v1 and name.scheme is ManifestScheme.V2:
        name = ManifestName(version=version, scheme=ManifestScheme.V1)
    assert ManifestName.parse(str(name)) == name


@given(st.text())
def test_accepted_names_have_one_spelling(text: str) -> None:
    for kind in (DeletionFileName, ManifestName):
        found = kind.find(text)
        assert found is None or str(found) == text


@given(st.lists(SEGMENTS, min_size=1, max_size=4))
def test_a_branch_is_found_by_the_path_of_its_metadata(segments: list[str]) -> None:
    name = "/".join(segments)
    path = branch_ref_path(name)
    assert path.count("/") == 2
    assert branch_of_ref_path(path) == name


@given(SEGMENTS)
def test_a_tag_is_found_by_the_path_of_its_metadata(name: str) -> None:
    assert tag_of_ref_path(tag_ref_path(name)) == name
    assert branch_of_ref_path(tag_ref_path(name)) is None


@pytest.mark.parametrize(
    ("version", "path"),
    [
        (1, "_versions/18446744073709551614.manifest"),
        (300, "_versions/18446744073709551315.manifest"),
        (2**63 - 1, "_versions/09223372036854775808.manifest"),
        (2**63, "_versions/d9223372036854775808.manifest"),
        (U64, "_versions/d18446744073709551615.manifest"),
    ],
)
def test_manifests_are_written_in_the_second_scheme_or_detached(version: int, path: str) -> None:
    assert manifest_path(version) == path


@pytest.mark.parametrize(
    ("name", "version", "scheme"),
    [
        ("1.manifest", 1, ManifestScheme.V1),
        ("9223372036854775807.manifest", 2**63 - 1, ManifestScheme.V1),
        ("18446744073709551614.manifest", 1, ManifestScheme.V2),
        ("09223372036854775808.manifest", 2**63 - 1, ManifestScheme.V2),
        ("d16815692789315022987.manifest", 16815692789315022987, ManifestScheme.DETACHED),
    ],
)
def test_manifest_names_of_all_schemes_are_read(name: str, version: int, scheme: ManifestScheme) -> None:
    assert ManifestName.parse(name) == ManifestName(version=version, scheme=scheme)


def test_the_examples_of_the_specification_are_read() -> None:
    deletion = DeletionFileName.parse("42-10-a1b2c3d4.arrow")
    assert (deletion.fragment_id, deletion.read_version, deletion.kind) == (42, 10, DeletionKind.ARROW)
    assert is_transaction_file(f"5-{UUID_TEXT}.txn")
    assert branch_ref_path("bugfix/issue-123") == "_refs/branches/bugfix%2Fissue-123.json"
    assert tag_ref_path("v1.0.0") == "_refs/tags/v1.0.0.json"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".lance",
        f"{BITS}{HEX}",
        f"{BITS}{HEX}.lance ",
        f"{BITS}{HEX}.lance\n",
        f"{BITS}{HEX}.LANCE",
        f"{BITS}{HEX.upper()}.lance",
        f"{BITS}{HEX[:-1]}.lance",
        f"{BITS}{HEX}0.lance",
        f"2{BITS[1:]}{HEX}.lance",
        f"{BITS[:-1]}{HEX}.lance",
        f"x/{BITS}{HEX}.lance",
        # The specification's own example: letters that are not hex, and only 20 of them.
        "101100101101010011010110a1b2c3d4e5f6g7h8i9j0.lance",
        f"{BITS}٣{HEX[1:]}.lance",
        "part-0.parquet",
    ],
)
def test_what_is_not_a_data_file_is_refused(name: str) -> None:
    assert not is_data_file(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0-1.arrow",
        "0-1-2-3.arrow",
        "0-1-2",
        "0-1-2.parquet",
        "00-1-2.bin",
        "0-01-2.bin",
        "-1-1-2.bin",
        "0-1-x.bin",
        "0-1-.bin",
        f"{U64 + 1}-1-2.bin",
        f"1-{U64 + 1}-2.bin",
        "0-1-2.bin\n",
        "a/0-1-2.bin",
    ],
)
def test_what_is_not_a_deletion_file_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="is not the name of a deletion file") as refused:
        DeletionFileName.parse(name)
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        f"{UUID_TEXT}.txn",
        f"5-{UUID_TEXT}",
        f"5-{UUID_TEXT.upper()}.txn",
        f"5-{UUID_TEXT.replace('-', '')}.txn",
        f"05-{UUID_TEXT}.txn",
        f"{U64 + 1}-{UUID_TEXT}.txn",
        f"5-{UUID_TEXT}.txn.tmp",
    ],
)
def test_what_is_not_a_transaction_file_is_refused(name: str) -> None:
    assert not is_transaction_file(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".manifest",
        "0.manifest",
        "01.manifest",
        "-1.manifest",
        "1.manifest.tmp",
        f"18446744073709551614.manifest-{UUID_TEXT}",
        "18446744073709551615.manifest",  # version 0
        "00000000000000000001.manifest",  # a staged version in the ordinary scheme
        "99999999999999999999.manifest",  # more than 64 bits
        "d1.manifest",  # an ordinary version in the detached scheme
        "d018446744073709551614.manifest",
        f"d{U64 + 1}.manifest",
        "latest_version_hint.json",
    ],
)
def test_what_is_not_a_manifest_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="is not the name of a manifest"):
        ManifestName.parse(name)


@pytest.mark.parametrize(
    ("path", "branch", "tag"),
    [
        ("_refs/branches/dev.json", "dev", None),
        ("_refs/branches/a%2Fb.json", "a/b", None),
        ("_refs/branches/a%2fb.json", "a/b", None),
        ("_refs/branches/%C3%A9.json", "é", None),
        ("_refs/branches/a/b.json", None, None),
        ("_refs/branches/.json", None, None),
        ("_refs/branches/dev", None, None),
        ("_refs/branches/dev.json.tmp", None, None),
        ("_refs/tags/v1.json", None, "v1"),
        ("_refs/tags/%C3%A9.json", None, "é"),
        ("_refs/tags/x/v1.json", None, None),
        ("tree/a/_refs/branches/dev.json", None, None),
        ("branches/dev.json", None, None),
    ],
)
def test_refs_are_recognized_by_their_path(path: str, branch: str | None, tag: str | None) -> None:
    assert (branch_of_ref_path(path), tag_of_ref_path(path)) == (branch, tag)
