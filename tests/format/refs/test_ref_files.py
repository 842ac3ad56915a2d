"""Ref files that Lance refuses: judged as it judges them, listed around, and written again by a repair."""

import json
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import errors
from anabranch.format.doctor.findings_and_repairs import FindingKind
from anabranch.format.refs.ref_files import RefKind, ref_problem
from anabranch.warnings import UnreadableRefWarning

NOW = timedelta(0)
Change = Callable[[dict[str, Any]], dict[str, Any] | bytes]


def without(key: str) -> Change:
    return lambda ref: {name: value for name, value in ref.items() if name != key}


def given(**fields: Any) -> Change:
    return lambda ref: {**ref, **fields}


def in_snake_case(ref: dict[str, Any]) -> dict[str, Any]:
    """Spell a ref as the specification does, without the fields that it does not have."""
    names = {"parentBranch": "parent_branch", "parentVersion": "parent_version", "createAt": "create_at"}
    names |= {"manifestSize": "manifest_size", "branch": "branch", "version": "version"}
    return {names[key]: value for key, value in ref.items() if key in names}


def raw(change: Callable[[bytes], bytes]) -> Change:
    return lambda ref: change(json.dumps(ref).encode())


def noise(_ref: dict[str, Any]) -> bytes:
    return b"noise"


def empty(_ref: dict[str, Any]) -> bytes:
    return b""


BOTH: dict[str, Change] = {
    "as Lance writes it": lambda ref: ref,
    "snake case": in_snake_case,
    "byte order mark": raw(lambda data: b"\xef\xbb\xbf" + data),
    "UTF-16": raw(lambda data: data.decode().encode("utf-16")),
    "leading space": raw(lambda data: b" \n" + data),
    "something after it": raw(lambda data: data + b" x"),
    "half of it": raw(lambda data: data[: len(data) // 2]),
    "empty": empty,
    "NaN": raw(lambda data: data[:-1] + b', "x": NaN}'),
    "half a surrogate pair": given(metadata={"a": "\ud800"}),
    "another field": given(other=1),
    "manifest size as text": given(manifestSize="3"),
    "no manifest size": without("manifestSize"),
    "negative manifest size": given(manifestSize=-1),
    "no metadata": without("metadata"),
    "metadata null": given(metadata=None),
    "metadata of numbers": given(metadata={"a": 1}),
}
BRANCHES: dict[str, Change] = BOTH | {
    "no parent branch": without("parentBranch"),
    "parent branch is a number": given(parentBranch=7),
    "parent branch spelled out": given(parentBranch="main"),
    "no parent version": without("parentVersion"),
    "parent version as text": given(parentVersion="2"),
    "parent version as a fraction": given(parentVersion=2.0),
    "parent version as a truth value": given(parentVersion=True),
    "negative parent version": given(parentVersion=-2),
    "parent version of 65 bits": given(parentVersion=1 << 64),
    "parent version twice": raw(lambda data: data[:-1] + b', "parentVersion": 9}'),
    "negative time": given(createAt=-1),
    "time of 65 bits": given(createAt=1 << 64),
    "time as a fraction": given(createAt=1.5),
    "time as text": given(createAt="1"),
    "no identifier": without("identifier"),
    "identifier null": given(identifier=None),
    "empty identifier": given(identifier={}),
    "identifier without ids": given(identifier={"version_mapping": [[1]]}),
}
TAGS: dict[str, Change] = BOTH | {
    "no branch": without("branch"),
    "branch is a number": given(branch=7),
    "branch spelled out": given(branch="main"),
    "version as text": given(version="1"),
    "version as a fraction": given(version=1.0),
    "negative version": given(version=-1),
    "no times": lambda ref: without("createdAt")({key: ref[key] for key in ref if key != "updatedAt"}),
    "time null": given(createdAt=None),
    "time of words": given(createdAt="yesterday"),
    "time without a zone": given(createdAt="2026-01-01T00:00:00"),
    "time that is a date": given(createdAt="2026-01-01"),
    "time that is a number": given(updatedAt=1),
    "time out of range": given(createdAt="+10000-01-01T00:00:00Z"),
    "time far out of range": given(updatedAt="+300000-01-01T00:00:00Z"),
    "time with a space": given(createdAt="2026-01-01 00:00:00+02:00"),
}
CASES = [
    *(pytest.param(RefKind.BRANCH, change, id=f"branch: {name}") for name, change in BRANCHES.items()),
    *(pytest.param(RefKind.TAG, change, id=f"tag: {name}") for name, change in TAGS.items()),
]


# A repair asks what a ref still records of its location, and of each other field. One case of each answer
# runs in `make test`.
REPAIRED = {
    "as Lance writes it",
    "snake case",
    "byte order mark",
    "UTF-16",
    "empty",
    "half a surrogate pair",
    "no manifest size",
    "negative manifest size",
    "metadata of numbers",
    "parent branch is a number",
    "parent branch spelled out",
    "no parent version",
    "parent version as text",
    "parent version as a fraction",
    "parent version as a truth value",
    "negative parent version",
    "parent version twice",
    "time of 65 bits",
    "no identifier",
    "identifier without ids",
    "branch is a number",
    "branch spelled out",
    "version as text",
    "version as a fraction",
    "negative version",
    "time of words",
    "time out of range",
}
REPAIRS = [
    pytest.param(
        *case.values, id=case.id, marks=[] if str(case.id).partition(": ")[2] in REPAIRED else pytest.mark.proof
    )
    for case in CASES
]


@pytest.fixture
def dataset(tmp_path: Path) -> ab.Dataset:
    return build(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> ab.Dataset:
    """A dataset for tests that leave it as they found it."""
    return build(tmp_path_factory.mktemp("shared"))


def build(folder: Path) -> ab.Dataset:
    """Make two versions, the branches dev and other, and a child of dev; the tags v1 and v2."""
    plain = lance.write_dataset(rows(1, 2), str(folder / "t.lance"))
    plain.insert(rows(3))
    for name in ("dev", "other"):
        plain.create_branch(name)
    lance.dataset(f"{plain.uri}/tree/dev").insert(rows(4))
    plain.create_branch("child", ("dev", None))
    for name in ("v1", "v2"):
        plain.tags.create(name, 1)
    return ab.dataset(plain.uri)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def path_of(kind: RefKind) -> str:
    return "_refs/branches/dev.json" if kind is RefKind.BRANCH else "_refs/tags/v1.json"


def change_ref(dataset: ab.Dataset, kind: RefKind, change: Change) -> bytes:
    """Change the ref of the branch dev or of the tag v1."""
    store, path = dataset.home.store(), path_of(kind)
    changed = change(json.loads(store.get(path)))
    data = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
    store.put(path, data)
    return data


def lance_lists(dataset: ab.Dataset, kind: RefKind) -> bool:
    plain = lance.dataset(dataset.uri)
    try:
        plain.branches.list() if kind is RefKind.BRANCH else plain.tags.list()
    except (RuntimeError, ValueError):
        return False
    return True


@pytest.fixture
def unchanged(shared: ab.Dataset) -> Iterator[ab.Dataset]:
    """The shared dataset. Refs that a test changes or deletes are put back, and so are the files of `other`."""
    store = shared.home.store()
    before = {info.path: store.get(info.path) for top in ("_refs", "tree/other") for info in store.list(top)}
    yield shared
    for path, data in before.items():
        store.put(path, data)


@pytest.mark.parametrize(("kind", "change"), CASES)
def test_a_ref_is_judged_as_lance_judges_it(unchanged: ab.Dataset, kind: RefKind, change: Change) -> None:
    data = change_ref(unchanged, kind, change)
    is_good = lance_lists(unchanged, kind)
    assert (ref_problem(data, kind) is None) == is_good
    found = [finding for finding in unchanged.doctor().findings if finding.kind is FindingKind.DAMAGED_REF]
    assert [finding.subject for finding in found] == ([] if is_good else [path_of(kind)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreadableRefWarning)
        branches, tags = unchanged.branch_list(), unchanged.tag_list()
    # The others are listed, and deleted.
    assert {"child", "other"} <= {branch.name for branch in branches}
    assert "v2" in {tag.name for tag in tags}
    unchanged.branch_delete("other")


@pytest.mark.parametrize(("kind", "change"), REPAIRS)
def test_a_repair_writes_a_ref_as_lance_does(dataset: ab.Dataset, kind: RefKind, change: Change) -> None:
    change_ref(dataset, kind, change)
    was_good = lance_lists(dataset, kind)
    report = ab.doctor(dataset.uri, repair=True)
    assert was_good or not report.repaired, "younger than the grace period"
    report = dataset.doctor(repair=True, grace=NOW)
    lost = kind is RefKind.TAG and not report.is_clean
    assert lost or lance_lists(dataset, kind)
    assert dataset.branch_get("dev").parent_version == 2
    assert not lost or [finding.kind for finding in report.open] == [FindingKind.DAMAGED_REF]
    if not lost:
        assert dataset.doctor().findings == ()
        assert lance.dataset(dataset.uri, version="v1").count_rows() == 2
        lance.dataset(dataset.uri).create_branch("again", ("dev", None))
        lance.dataset(dataset.uri).branches.delete("other")


def test_a_repair_keeps_the_metadata_of_a_ref(dataset: ab.Dataset) -> None:
    dataset.open().branches.replace_metadata("dev", {"owner": "ada"})
    change_ref(dataset, RefKind.BRANCH, given(parentVersion="2", createAt=1 << 70))
    assert dataset.doctor(repair=True, grace=NOW).is_clean
    assert dataset.branch_get("dev").metadata == {"owner": "ada"}
    dataset.open().tags.replace_metadata("v1", {"owner": "ada"})
    change_ref(dataset, RefKind.TAG, given(version="1"))
    assert dataset.doctor(repair=True, grace=NOW).is_clean
    assert dataset.tag_get("v1").metadata == {"owner": "ada"}


def test_lists_name_what_cannot_be_read(dataset: ab.Dataset) -> None:
    for kind in RefKind:
        change_ref(dataset, kind, noise)
    with pytest.warns(UnreadableRefWarning, match=r"'_refs/branches/dev\.json' in .* cannot be read: it is not JSON"):
        branches = dataset.branch_list()
    with pytest.warns(UnreadableRefWarning, match=r"'_refs/tags/v1\.json' in .* cannot be read: it is not JSON"):
        tags = dataset.tag_list()
    assert [branch.name for branch in branches] == ["child", "other"]
    assert [(ref.name, ref.path) for ref in branches.unreadable] == [("dev", "_refs/branches/dev.json")]
    assert [(ref.name, ref.path) for ref in tags.unreadable] == [("v1", "_refs/tags/v1.json")]


@pytest.mark.parametrize("seconds", [10**12, 10**17, (1 << 64) - 1])
def test_a_time_that_no_date_can_show_does_not_stop_the_list(dataset: ab.Dataset, seconds: int) -> None:
    change_ref(dataset, RefKind.BRANCH, given(createAt=seconds))
    assert [branch.name for branch in dataset.branch_list()] == ["child", "dev", "other"]
    assert [finding.kind for finding in dataset.doctor(repair=True, grace=NOW).repaired] == [FindingKind.DAMAGED_REF]
    assert dataset.branch_get("dev").created_at.year < 3000


@pytest.mark.parametrize("kind", RefKind)
def test_what_cannot_be_read_can_be_deleted(dataset: ab.Dataset, kind: RefKind) -> None:
    dataset.branch_delete("child")
    change_ref(dataset, kind, noise)
    if kind is RefKind.BRANCH:
        dataset.branch_delete("dev")
    else:
        dataset.tag_delete("v1")
    assert dataset.doctor().findings == ()
    assert list(dataset.home.store().list("tree/dev")) == [] or kind is RefKind.TAG


def test_a_branch_that_one_with_unreadable_metadata_reads_is_not_deleted(dataset: ab.Dataset) -> None:
    store = dataset.home.store()
    store.put("_refs/branches/child.json", b"noise")
    with pytest.raises(errors.BranchInUseError, match="'child', whose metadata cannot be read, reads files of 'dev'"):
        dataset.branch_delete("dev")
    store.put(f"tree/child/_versions/{(1 << 64) - 1 - 3}.manifest", b"noise")
    with pytest.raises(errors.BranchInUseError, match="cannot be read, and may need branch 'dev'"):
        dataset.branch_delete("dev")
    dataset.branch_delete("child")
    dataset.branch_delete("dev")


def test_a_tag_that_cannot_be_read_protects_a_branch_that_it_names(dataset: ab.Dataset) -> None:
    store = dataset.home.store()
    dataset.tag_create("keep", ("other", None))
    store.put("_refs/tags/keep.json", store.get("_refs/tags/keep.json")[:-10])
    with pytest.raises(errors.BranchInUseError, match=r"'_refs/tags/keep\.json' cannot be read, and may name"):
        dataset.branch_delete("other")
    dataset.tag_delete("keep")
    dataset.branch_delete("other")


def test_a_parent_that_lance_cannot_read_is_named_with_the_repair(dataset: ab.Dataset) -> None:
    change_ref(dataset, RefKind.BRANCH, in_snake_case)
    with pytest.raises(errors.DamagedFileError, match=r"branch 'dev' in .*: it has no field 'parentVersion'") as caught:
        dataset.branch_create("new", "dev")
    assert "doctor" in caught.value.hint
    dataset.doctor(repair=True, grace=NOW)
    assert dataset.branch_create("new", "dev").parent_branch == "dev"


def test_a_tag_with_other_letters_stops_nothing(dataset: ab.Dataset) -> None:
    dataset.open().tags.create("é", 1)
    assert [tag.name for tag in dataset.tag_list()] == ["v1", "v2", "é"]
    dataset.branch_delete("other")
    (finding,) = dataset.doctor(repair=True, grace=NOW).findings
    assert (finding.kind, finding.subject) == (FindingKind.DAMAGED_REF, "_refs/tags/%C3%A9.json")
    assert "beside a tag named 'é'" in finding.explanation
    dataset.tag_delete("é")
    assert dataset.doctor().findings == ()
    assert set(dataset.open().tags.list()) == {"v1", "v2"}


def test_a_ref_under_another_file_name_is_reported_and_moved(dataset: ab.Dataset) -> None:
    dataset.open().create_branch("été", 1)
    store = dataset.home.store()
    ref = store.get("_refs/branches/%C3%A9t%C3%A9.json")
    store.delete("_refs/branches/%C3%A9t%C3%A9.json")
    (Path(dataset.uri) / "_refs/branches/%c3%a9t%c3%a9.json").write_bytes(ref)
    with pytest.warns(UnreadableRefWarning, match="Lance looks for the branch 'été' in"):
        assert [branch.name for branch in dataset.branch_list()] == ["child", "dev", "other"]
    assert dataset.doctor(repair=True, grace=NOW).is_clean
    assert "été" in dataset.open().branches.list()
    assert dataset.branch_get("été").parent_version == 1


def test_a_damaged_hold_of_a_clone_protects_every_branch_until_it_is_released(
    dataset: ab.Dataset, tmp_path: Path
) -> None:
    clone = dataset.shallow_clone(tmp_path / "clone.lance", ("other", None))
    assert clone.tag is not None
    dataset.home.store().put(f"_refs/tags/{clone.tag}.json", b"noise")
    with pytest.raises(errors.BranchInUseError, match="may name a version of branch 'other'"):
        dataset.branch_delete("other")
    with pytest.raises(errors.DamagedFileError):
        dataset.tag_delete(clone.tag)
    dataset.clone_release(clone.tag)
    dataset.branch_delete("other")
