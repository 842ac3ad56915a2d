"""Protobuf messages of Lance: unknown fields, damage, bytes as Lance writes them."""

import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.errors import DamagedFileError
from anabranch.format.layout.manifest import join_manifest, read_manifest, read_parts, with_message
from anabranch.format.layout.messages import DataFile, Fragment, Manifest, find_unknown_fields

# Field 15, a text, and field 200, a number: neither is described.
UNKNOWN = bytes([15 << 3 | 2, 1, 65, 0xC0, 0x0C, 7])


def test_unknown_fields_survive_a_change() -> None:
    fragment = Fragment.parse(Fragment(id=7, files=[DataFile(path="a")]).SerializeToString() + UNKNOWN, "fragment")
    assert find_unknown_fields(fragment) == {15, 200}
    fragment.physical_rows = 3
    assert fragment.SerializeToString().endswith(UNKNOWN)


def test_unknown_fields_survive_inside_of_other_messages() -> None:
    # Field 2 of a fragment: a data file with an unknown field.
    fragment = Fragment.parse(bytes([2 << 3 | 2, len(UNKNOWN)]) + UNKNOWN, "fragment")
    fragment.id = 1
    assert UNKNOWN in fragment.SerializeToString()


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x7f", b"\x0f", b"\x62\x02\xff\xfe", b"\x18" + b"\xff" * 11])
def test_damaged_message_is_an_error_of_our_own(data: bytes) -> None:
    with pytest.raises(DamagedFileError, match="manifest 'x' is damaged") as caught:
        Manifest.parse(data, "manifest 'x'")
    assert caught.value.hint


def test_fragments_are_written_as_lance_writes_them(tmp_path: Path) -> None:
    """Settling compares fragments by their bytes, so those of Lance and of ours must be the same."""
    rows = pa.table({"id": range(10), "s": [{"a": 1}] * 10})
    made = lance.write_dataset(rows, tmp_path / "t.lance", enable_stable_row_ids=True, max_rows_per_file=5)
    made.delete("id = 3")
    for path in sorted((tmp_path / "t.lance" / "_versions").glob("*.manifest")):
        data = path.read_bytes()
        for described in read_manifest(data).fragments:
            fragment = Fragment.parse(described, "fragment")
            assert fragment.SerializeToString() == described
            assert not find_unknown_fields(fragment)
        # Fields that are not described come last, so the order differs, but nothing is lost.
        assert len(with_message(data, read_manifest(data), name="x")) == len(data)
        parts = read_parts(join_manifest(read_parts(data, name="x")), name="x")
        assert list(parts.fragments.values()) == list(read_manifest(data).fragments)


def test_messages_are_generated_once_in_many_threads() -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
from anabranch.format.layout.messages import DataFile, Fragment
with ThreadPoolExecutor(16) as pool:
    made = list(pool.map(lambda n: Fragment(files=[DataFile(path=str(n))]).SerializeToString(), range(64)))
print(len(set(made)))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "64"
