"""Merges of unusual tables: names, types and keys, rows without a key, indices."""

import datetime as dt
import uuid
from collections import Counter
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.format.arrow_types import python_values
from anabranch.repo.merge.conflict_types import ConflictKind
from tests.duck.test_comparer import CASES, column
from tests.repo.conftest import nothing_changes, raw, rows

T = "s.t"
NAMES = [
    "Key",
    "key",
    "KEY",
    'quo"ted',
    "quo'ted",
    "sp ace",
    "__position",
    "row_id",
    "address",
    "base",
    "c0",
    "[0]",
    "é",
]
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def begin(repo: ab.Repository, data: pa.Table, *, key: list[str]) -> None:
    with repo.transaction() as tx:
        tx.create_table(T, data.schema, primary_key=key)
        tx.append(T, data)
    repo.branch_create("dev")


def upsert(repo: ab.Repository, branch: str, data: pa.Table) -> None:
    with repo.transaction(branch) as tx:
        tx.upsert(T, data)


def append(repo: ab.Repository, branch: str, *ids: int, n: int = 0) -> None:
    with repo.transaction(branch) as tx:
        tx.append(T, pa.table([ids, [n] * len(ids)], schema=SCHEMA))


def content(repo: ab.Repository, branch: str = "main") -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in repo.snapshot_of(branch)[T].to_arrow().to_pylist())


def test_large_blobs_of_a_new_table_are_merged(repo: ab.Repository) -> None:
    blobs = [b"inline", b"p" * 200_000, b"d" * 5_000_000]
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("blob")])
    repo.branch_create("dev")
    repo.load(T, pa.table([[1, 2, 3], lance.blob_array(blobs)], schema=schema), primary_key=["id"], branch="dev")
    repo.load("s.other", [{"id": 1}])  # not a fast-forward
    repo.merge("dev")
    repo.branch_delete("dev", purge=True)
    assert [blob and blob.read() for blob in raw(repo, T).take_blobs("blob", indices=[0, 1, 2])] == blobs


# Names and types


def test_columns_may_have_any_name(repo: ab.Repository) -> None:
    def table(*values: tuple[int, int]) -> pa.Table:
        """Rows by their key, with the same value in all other columns."""
        keys, others = zip(*values, strict=True)
        return pa.table({name: keys if name == "key" else others for name in NAMES})

    begin(repo, table((1, 0), (2, 0), (3, 0), (4, 0)), key=["key"])
    upsert(repo, "dev", table((1, 1), (3, 1), (5, 1)))
    upsert(repo, "main", table((2, 2), (3, 2), (6, 2)))
    conflicts = list(repo.conflicts("dev"))
    assert [found.column for found in conflicts] == [name for name in NAMES if name != "key"]
    assert all((found.key, found.source, found.target) == ({"key": 3}, 1, 2) for found in conflicts)
    resolvers = {"Key": "max", "KEY": "min", "[0]": "sum_delta", "é": "latest_by([0])", "c0": 'latest_by(quo"ted)'}
    repo.merge("dev", resolvers=resolvers, strategy="source")
    found = {row["key"]: row for row in repo.snapshot()[T].to_arrow().to_pylist()}
    assert found[3] == {**dict.fromkeys(NAMES, 1), "key": 3, "Key": 2, "[0]": 3, "é": 2, "c0": 2}
    for key, value in ((1, 1), (2, 2), (4, 0), (5, 1), (6, 2)):
        assert found[key] == {**dict.fromkeys(NAMES, value), "key": key}


def test_values_of_every_type_conflict_and_are_decided_on(repo: ab.Repository) -> None:
    names = [f"c{number}" for number in range(len(CASES))]

    def table(which: int | None) -> pa.Table:
        arrays = [column(case[0], None if which is None else case[which]) for case in CASES]
        return pa.table({"id": pa.array([1], pa.int64()), **dict(zip(names, arrays, strict=True))})

    begin(repo, table(None), key=["id"])
    upsert(repo, "dev", table(1))
    upsert(repo, "main", table(2))
    conflicts = list(repo.conflicts("dev"))
    assert [found.column for found in conflicts] == names
    for found in conflicts:
        assert found.column is not None
        wanted = [python_values(table(which).column(found.column))[0] for which in (1, 2)]
        assert [found.base, found.source, found.target] == [None, *wanted], found.column
    repo.merge("dev", resolvers={T: lambda found: found.source})
    assert repo.snapshot()[T].to_arrow().to_pylist() == table(1).to_pylist()
    with repo.transaction("main") as tx:
        tx.delete(T, "id = 1")
    upsert(repo, "dev", table(2))
    repo.merge("dev", resolvers={T: lambda found: found.source})
    assert repo.snapshot()[T].to_arrow().to_pylist() == table(2).to_pylist()


KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "a", "A", "é\0", "b"]),
    (pa.binary(), [b"", b"\0", b"\0\1", b"a", b"b"]),
    (pa.uint64(), [2**64 - number for number in range(1, 6)]),
    (pa.decimal128(38, 2), [Decimal(f"{number}.10") for number in range(5)]),
    (pa.date32(), [dt.date(2026, 1, number) for number in range(1, 6)]),
    (pa.timestamp("ns", "Europe/Prague"), [pa.scalar(n, pa.timestamp("ns", "Europe/Prague")) for n in range(5)]),
    (pa.binary(16), [uuid.UUID(int=number).bytes for number in range(5)]),
    (pa.bool_(), [True, False]),
]


@pytest.mark.parametrize(("kind", "keys"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_keys_may_have_any_type(repo: ab.Repository, kind: pa.DataType, keys: list[Any]) -> None:
    schema = pa.schema([("k", kind), ("n", pa.int64()), ("m", pa.int64())])
    array = pa.array(keys, kind)
    number = len(keys)
    begin(repo, pa.table([array, [0] * number, [0] * number], schema=schema), key=["k"])
    with repo.transaction("dev") as tx:
        tx.upsert(T, pa.table([array.slice(0, 2), [1, 1]], names=["k", "n"]))
    with repo.transaction("main") as tx:
        tx.upsert(T, pa.table([array.slice(1), [2] * (number - 1)], names=["k", "m"]))
    repo.merge("dev")
    found = {row["k"]: (row["n"], row["m"]) for row in repo.snapshot()[T].to_arrow().to_pylist()}
    wanted = [(1, 0), (1, 2), *[(0, 2)] * (number - 2)]
    assert found == dict(zip(array.to_pylist(), wanted, strict=True))


# Without a key


def test_equal_rows_without_a_key_are_as_many_as_both_sides_made_them(repo: ab.Repository) -> None:
    begin(repo, pa.table([[1, 1, 1, 2], [0, 0, 0, 0]], schema=SCHEMA), key=[])
    append(repo, "dev", 1, 1)
    append(repo, "main", 1, 2)
    with repo.transaction("main") as tx:
        tx.delete(T, "id = 2 AND n = 0")
    repo.merge("dev")
    assert content(repo) == Counter({(1, 0): 6})


@pytest.mark.parametrize("mode", ["pinned", "live"])
def test_rows_are_added_to_a_table_without_a_key_again_and_again(repo: ab.Repository, mode: str) -> None:
    begin(repo, pa.table([[1], [0]], schema=SCHEMA), key=[])
    repo.branch_create_from("main", "log", mode=mode)
    for turn in range(3):
        append(repo, "log", 10 + turn)
        append(repo, "main", 20 + turn)
        repo.merge("log", into="main")
    assert sorted(content(repo).elements()) == [(number, 0) for number in (1, 10, 11, 12, 20, 21, 22)]


def test_rows_without_a_key_that_cannot_be_distinguished_any_more_are_a_conflict(repo: ab.Repository) -> None:
    begin(repo, pa.table([[1, 2], [0, 0]], schema=SCHEMA), key=[])
    append(repo, "dev", 3)
    repo.merge("dev")
    with repo.transaction("dev") as tx:
        tx.update(T, {"n": "1"}, where="id = 1")
    append(repo, "main", 4)
    (conflict,) = repo.conflicts("dev")
    assert (conflict.kind, conflict.table) == (ConflictKind.KEYLESS, T)
    with nothing_changes(repo), pytest.raises(MergeConflictError):
        repo.merge("dev")
    for strategy, wanted in (
        ("source", [(1, 1), (2, 0), (3, 0)]),
        ("target", [(1, 0), (2, 0), (3, 0), (4, 0)]),
    ):
        repo.branch_create_from("main", strategy)
        repo.merge("dev", into=strategy, strategy=strategy)
        assert sorted(content(repo, strategy).elements()) == wanted


def test_rows_without_a_key_are_themselves_after_a_compaction(repo: ab.Repository) -> None:
    begin(repo, pa.table([[1, 2], [0, 0]], schema=SCHEMA), key=[])
    for number in (3, 4):
        append(repo, "main", number)
    for branch in ("one", "two"):
        repo.branch_create(branch)
    for branch, number in (("one", 1), ("two", 3)):
        with repo.transaction(branch) as tx:
            tx.update(T, {"n": "9"}, where=f"id = {number}")
    repo.compact(branch="one")
    repo.merge("one")
    repo.compact(branch="main")
    with repo.transaction("main") as tx:
        tx.delete(T, "id = 4")
    repo.merge("two")
    assert sorted(content(repo).elements()) == [(1, 9), (2, 0), (3, 9)]


def test_ids_of_rows_that_a_reset_undid_match_nothing(repo: ab.Repository) -> None:
    begin(repo, pa.table([[1, 2], [0, 0]], schema=SCHEMA), key=[])
    append(repo, "dev", 3)
    repo.branch_create_from("dev", "child")
    repo.reset("dev", to="dev~1")
    append(repo, "dev", 4)  # under the id that 3 has
    with repo.transaction("child") as tx:
        tx.update(T, {"n": "9"}, where="id = 3")
    repo.merge("child", into="dev", strategy="source")
    assert (4, 9) not in content(repo, "dev")
    assert (3, 9) in content(repo, "dev")


# Indices, and what plain Lance sees


def test_a_table_with_an_index_is_found_by_it_after_a_merge(repo: ab.Repository) -> None:
    begin(repo, pa.table([range(1000), [0] * 1000], schema=SCHEMA), key=["id"])
    with repo.transaction() as tx:
        tx.index(T, "n")
        tx.index(T, "id")
    append(repo, "main", 1000)
    for branch in ("rows", "whole", "compacted"):
        repo.branch_create_from("main", branch)
    append(repo, "compacted", 1001)
    repo.compact(branch="compacted")
    with repo.transaction("rows") as tx:
        tx.update(T, {"n": "7"}, where="id < 10")
        tx.delete(T, "id = 20")
        tx.append(T, pa.table([[2000], [7]], schema=SCHEMA))
    with repo.transaction("whole") as tx:
        tx.overwrite(T, pa.table([range(100), [8] * 100], schema=SCHEMA))
    for into in ("a", "b", "c"):
        repo.branch_create_from("main", into)
    with repo.transaction("a") as tx:
        tx.update(T, {"n": "5"}, where="id = 30")
    for source, into in (("rows", "a"), ("whole", "b"), ("compacted", "c")):
        names = [found.columns for found in repo.snapshot_of(source)[T].indices]
        repo.merge(source, into=into)
        assert [found.columns for found in repo.snapshot_of(into)[T].indices] == names
        assert plain(repo, into) == rows(repo.snapshot_of(into)[T])
    merged = repo.snapshot_of("a")[T]
    assert sorted(merged.to_arrow(where="n = 7")["id"].to_pylist()) == [*range(10), 2000]
    assert merged.to_arrow(where="id = 20").num_rows == 0
    assert merged.to_arrow(where="n = 5").to_pylist() == [{"id": 30, "n": 5}]
    assert merged.to_arrow(where="id = 2000").to_pylist() == [{"id": 2000, "n": 7}]
    assert repo.snapshot_of("b")[T].count_rows("n = 8") == 100
    assert repo.snapshot_of("c")[T].to_arrow(where="id > 998")["id"].to_pylist() == [999, 1000, 1001]
    assert len(repo.snapshot_of("c")[T].indices) == 2


def plain(repo: ab.Repository, branch: str) -> list[dict[str, Any]]:
    """What plain Lance reads at the table's home."""
    found = raw(repo, T, branch)
    found.validate()  # type: ignore[no-untyped-call]
    return rows(found)


def test_only_column_is_replaced(repo: ab.Repository) -> None:
    """The old column was dropped before the new one was added, and a table must have a column."""
    with repo.transaction() as tx:
        tx.create_table("s.t", pa.schema([("x", pa.int64())]))
        tx.append("s.t", pa.table({"x": [1, 2]}))
    repo.branch_create("dev")
    with repo.transaction("dev") as tx:
        tx.add_columns("s.t", {"y": "x + 1"})
        tx.drop_columns("s.t", ["x"])
        tx.add_columns("s.t", {"x": "concat('now ', arrow_cast(y, 'Utf8'))"})
        tx.drop_columns("s.t", ["y"])
    repo.branch_create("later", "main")
    with repo.transaction("later") as tx:
        tx.annotate("s.t", {"owner": "ada"})
    for target in ("main", "later"):
        repo.merge("dev", target, strategy="source")
        table = repo.snapshot_of(target)["s.t"].to_arrow()
        assert table.column_names == ["x"]
        assert table["x"].to_pylist() == ["now 2", "now 3"]
