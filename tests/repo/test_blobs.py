"""Tables with Lance blob columns. Scans return where blobs are stored, so that bytes are read to compare them."""

from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError, SchemaMismatchError
from anabranch.repo.history.diff import RowChangeKind
from tests.repo.conftest import nothing_changes

T = "s.t"
LARGE = 200_000  # in a file beside the data file
NOTE = {"lance-encoding:blob": "true"}
Row = tuple[int, int, bytes | None]


@pytest.fixture(params=["extension", "note"])
def blob(request: pytest.FixtureRequest) -> pa.Field:
    """The field of a blob column, as it is written today, and as it was written for older files."""
    return (
        lance.blob_field("blob") if request.param == "extension" else pa.field("blob", pa.large_binary(), metadata=NOTE)
    )


def table(blob: pa.Field, *rows: Row) -> pa.Table:
    ids, numbers, values = zip(*rows, strict=True)
    blobs = pa.array(values, blob.type) if pa.types.is_large_binary(blob.type) else lance.blob_array(list(values))
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), blob])
    return pa.table([pa.array(ids), pa.array(numbers), blobs], schema=schema)


def begin(repo: ab.Repository, blob: pa.Field) -> None:
    rows: list[Row] = [(1, 0, b"a"), (2, 0, b"b" * LARGE), (3, 0, None), (4, 0, b"d"), (5, 0, b"e")]
    repo.load(T, table(blob, *rows), primary_key=["id"])
    repo.branch_create("dev")


def content(repo: ab.Repository) -> dict[int, tuple[int, bytes | None]]:
    """Read the blobs as another Lance program would."""
    repo.settle(T)
    dataset = lance.dataset(repo.table(T).uri, storage_options=dict(repo.storage_options))
    rows = dataset.to_table(columns=["id", "n"]).to_pylist()
    blobs = dataset.take_blobs("blob", indices=list(range(len(rows))))
    return {
        row["id"]: (row["n"], None if found is None else found.readall())
        for row, found in zip(rows, blobs, strict=True)
    }


def changes(repo: ab.Repository, before: str, after: str) -> dict[int, tuple[str, tuple[str, ...], Any, Any]]:
    found = {}
    for row in repo.diff(before, after).iter_rows():
        old, new = (None if side is None else side["blob"] for side in (row.before, row.after))
        found[(row.after or row.before or {})["id"]] = (str(row.change), row.columns, old, new)
    return found


def test_merge_takes_blobs_that_one_side_changed(repo: ab.Repository, blob: pa.Field) -> None:
    begin(repo, blob)
    repo.upsert(T, table(blob, (1, 0, b"x" * LARGE), (3, 0, b""), (4, 0, None), (6, 0, b"new")), branch="dev")
    # The same rows, with their blobs as they were.
    repo.upsert(T, table(blob, (1, 7, b"a"), (2, 7, b"b" * LARGE)))
    assert list(repo.conflicts("dev")) == []
    repo.merge("dev")
    assert content(repo) == {
        1: (7, b"x" * LARGE),
        2: (7, b"b" * LARGE),
        3: (0, b""),
        4: (0, None),
        5: (0, b"e"),
        6: (0, b"new"),
    }


def test_blobs_that_both_sides_changed_conflict_and_are_decided_on(repo: ab.Repository, blob: pa.Field) -> None:
    begin(repo, blob)
    # The blobs of each side are stored at the same position of their files.
    repo.upsert(T, table(blob, (1, 0, b"x"), (2, 0, b"same"), (5, 0, b"f")), branch="dev")
    repo.upsert(T, table(blob, (1, 0, b"y"), (2, 0, b"same")))
    repo.delete(T, "id = 5")
    cell, row = sorted(repo.conflicts("dev"), key=lambda found: found.key["id"] if found.key else 0)
    assert (cell.key, cell.column, cell.base, cell.source, cell.target) == ({"id": 1}, "blob", b"a", b"x", b"y")
    assert row.source == {"id": 5, "n": 0, "blob": b"f"}
    with nothing_changes(repo), pytest.raises(MergeConflictError):
        repo.merge("dev")
    repo.merge("dev", resolvers={T: {"blob": lambda found: found.source + found.target}}, strategy="source")
    found = content(repo)
    assert (found[1], found[2], found[5]) == ((0, b"xy"), (0, b"same"), (0, b"f"))


def test_rows_without_a_key_are_merged_with_their_blobs(repo: ab.Repository, blob: pa.Field) -> None:
    repo.load(T, table(blob, (1, 0, b"a"), (2, 0, b"b" * LARGE), (3, 0, None)))
    repo.branch_create("dev")
    repo.update(T, {"n": "1"}, where="id = 1", branch="dev")
    repo.append(T, table(blob, (4, 0, b"d")), branch="dev")
    repo.update(T, {"n": "2"}, where="id = 2")
    repo.merge("dev")
    assert content(repo) == {1: (1, b"a"), 2: (2, b"b" * LARGE), 3: (0, None), 4: (0, b"d")}


def test_writes_keep_blobs_that_they_do_not_bring(repo: ab.Repository, blob: pa.Field) -> None:
    begin(repo, blob)
    repo.upsert(T, [{"id": 2, "n": 1}, {"id": 3, "n": 1}, {"id": 7, "n": 1}])
    repo.upsert(T, [{"id": 8, "n": 1, "blob": b"plain bytes"}])
    repo.update(T, {"n": "n + 1"}, where="id IN (1, 2)")
    assert content(repo) == {
        1: (1, b"a"),
        2: (2, b"b" * LARGE),
        3: (1, None),
        4: (0, b"d"),
        5: (0, b"e"),
        7: (1, None),
        8: (1, b"plain bytes"),
    }
    # What a scan returns is not a value of the column.
    with nothing_changes(repo), pytest.raises(SchemaMismatchError, match="column 'blob' was expected to be"):
        repo.upsert(T, repo.table(T).to_arrow())


def test_history_has_the_bytes_of_blobs(repo: ab.Repository, blob: pa.Field) -> None:
    begin(repo, blob)
    repo.upsert(T, table(blob, (1, 0, b"A"), (2, 1, b"b" * LARGE), (4, 0, b"d"), (6, 0, b"new")), branch="dev")
    updated, inserted = str(RowChangeKind.UPDATED), str(RowChangeKind.INSERTED)
    wanted = {
        1: (updated, ("blob",), b"a", b"A"),
        2: (updated, ("n",), b"b" * LARGE, b"b" * LARGE),
        6: (inserted, (), None, b"new"),
    }
    assert changes(repo, "main", "dev") == wanted
    assert repo.diff("main", "dev").summary()[T].updated == 2
    newest = list(repo.changes(T, until="dev"))[-1]
    assert {row.after["id"] for row in newest.iter_rows() if row.after is not None} == {1, 2, 6}
    steps = repo.entity_history(T, 1, ref="dev")
    assert [(step.before and step.before["blob"], step.after and step.after["blob"]) for step in steps] == [
        (b"a", b"A"),
        (None, b"a"),
    ]
    cells = repo.blame(T, ref="dev", cells=True)
    assert len(cells) > 0
    repo.compact([T], branch="dev")
    assert changes(repo, "main", "dev") == wanted


def test_many_rows_are_compared_by_the_bytes_of_their_blobs(repo: ab.Repository) -> None:
    """A whole fragment is scanned, and its rows are compared by DuckDB if they are of other types."""
    rows: list[Row] = [(number, 0, str(number).encode()) for number in range(2_500)]
    field = lance.blob_field("blob")
    repo.load(T, table(field, *rows), primary_key=["id"])
    with repo.transaction("main") as tx:
        tx.overwrite(T, table(field, *((key, n, b"new" if key == 7 else value) for key, n, value in reversed(rows))))
    assert changes(repo, "main~1", "main") == {7: ("updated", ("blob",), b"7", b"new")}


class _Celsius(pa.ExtensionType):  # type: ignore[misc]
    """A type of a user. Like all extension types that are written in Python, it has no hash."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "_Celsius":
        return cls()


def test_extension_types_of_users_are_merged_and_compared(repo: ab.Repository) -> None:
    pa.register_extension_type(_Celsius())
    try:

        def warm(*values: tuple[int, float]) -> pa.Table:
            degrees = pa.ExtensionArray.from_storage(_Celsius(), pa.array([value for _, value in values]))
            return pa.table({"id": np.array([key for key, _ in values]), "t": degrees})

        repo.load(T, warm((1, 0.0), (2, 0.0)), primary_key=["id"])
        repo.branch_create("dev")
        repo.upsert(T, warm((1, 1.0)), branch="dev")
        repo.upsert(T, warm((2, 2.0)))
        repo.merge("dev")
        assert sorted(row["t"] for row in repo.table(T).to_arrow().to_pylist()) == [1.0, 2.0]
        assert repo.diff("main~1", "main").summary()[T].updated == 1
    finally:
        pa.unregister_extension_type("tests.celsius")
