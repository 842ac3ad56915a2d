"""Conflicts as data: all of them, page by page, with few in memory."""

import gc
from itertools import islice

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind
from tests.repo.conftest import nothing_changes

T = "s.t"
ROWS = 20_000
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])


@pytest.fixture
def contested(repo: ab.Repository) -> ab.Repository:
    """A table of which main and dev changed every row, each in its own way; a third of the rows dev deleted."""
    with repo.transaction() as tx:
        tx.create_table(T, SCHEMA, primary_key=["id", "part"])
        tx.append(T, pa.table([range(ROWS), ["p"] * ROWS, [0] * ROWS], schema=SCHEMA))
    repo.branch_create("dev")
    with repo.transaction("dev") as tx:
        tx.delete(T, "id % 3 = 0")
        tx.update(T, {"n": "id + 1"}, where="true")
    with repo.transaction("main") as tx:
        tx.update(T, {"n": "-id - 1"}, where="true")
    return repo


def alive() -> list[Conflict]:
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is Conflict]


def test_twenty_thousand_conflicts_are_paged_while_few_are_in_memory(contested: ab.Repository) -> None:
    before = alive()  # Caches may hold conflicts of other tests. As they are held here too, no new one gets their ids.
    others = {id(found) for found in before}

    def count() -> int:
        return sum(id(found) not in others for found in alive())

    conflicts = contested.conflicts("dev")
    seen: set[int] = set()
    most = 0
    while page := list(islice(conflicts, 500)):
        for found in page:
            assert found.key is not None
            number = found.key["id"]
            assert found.key == {"id": number, "part": "p"}
            assert (found.kind, found.column, found.base, found.source, found.target) == expected(number)
            seen.add(number)
        if len(seen) % 5000 == 0:
            most = max(most, count())
    assert seen == set(range(ROWS))
    assert 0 < most < ROWS // 2
    del page, found
    assert count() == 0


def expected(number: int) -> tuple[ConflictKind, str | None, object, object, object]:
    if number % 3 == 0:
        base, target = ({"id": number, "part": "p", "n": n} for n in (0, -number - 1))
        return ConflictKind.DELETE_VS_UPDATE, None, base, None, target
    return ConflictKind.DIVERGENT_UPDATE, "n", 0, number + 1, -number - 1


def test_a_merge_counts_all_conflicts_and_names_the_first(contested: ab.Repository) -> None:
    planned = contested.merge("dev", dry_run=True).plan
    assert planned.conflict_count == ROWS
    assert [(table.table, table.conflicts) for table in planned.tables] == [(T, ROWS)]
    with nothing_changes(contested), pytest.raises(MergeConflictError, match=f"{ROWS} conflicts") as caught:
        contested.merge("dev")
    first = list(islice(contested.conflicts("dev"), 100))
    assert (caught.value.count, caught.value.conflicts) == (ROWS, tuple(first))
    assert planned.conflicts == tuple(first)


def test_conflicts_that_are_not_read_cost_nothing(contested: ab.Repository) -> None:
    conflicts = contested.conflicts("dev")
    next(conflicts)
    del conflicts
    contested.merge("dev", strategy="target")
    assert contested.snapshot()[T].count_rows("n < 0") == ROWS


def test_a_merge_of_many_batches_puts_every_row_where_it_belongs(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        for key in (T, "s.bare"):
            tx.create_table(key, SCHEMA, primary_key=["id"] if key == T else [])
            tx.append(key, pa.table([range(ROWS), ["p"] * ROWS, [0] * ROWS], schema=SCHEMA))
    repo.branch_create("dev")
    new = range(ROWS, ROWS + 10_000)
    for branch, where, value in (("dev", "id % 2 = 0", 1), ("main", "id % 3 = 0", 2)):
        with repo.transaction(branch) as tx:
            for key in (T, "s.bare"):
                tx.update(key, {"n": "1"} if branch == "dev" else {"part": "'2'"}, where=where)
                tx.delete(key, f"id % 100 = {value + 50}")
    with repo.transaction("dev") as tx:
        for key in (T, "s.bare"):
            tx.append(key, pa.table([new, ["new"] * len(new), [3] * len(new)], schema=SCHEMA))
    repo.merge("dev", strategy="source")
    expected = dict.fromkeys(new, ("new", 3))
    for number in range(ROWS):
        if number % 100 != 51:  # dev deleted that; main deleted 52, which dev changed, since it is even
            is_mains = number % 3 == 0 and number % 100 != 52
            expected[number] = ("2" if is_mains else "p", 1 if number % 2 == 0 else 0)
    for key in (T, "s.bare"):
        table = repo.snapshot()[key]
        found = {row["id"]: (row["part"], row["n"]) for row in table.to_arrow().to_pylist()}
        assert found == expected
        row_ids = table.version_ref.open().scanner(columns=[], with_row_id=True).to_table()["_rowid"].to_pylist()
        assert len(set(row_ids)) == len(row_ids) == len(expected)


def test_a_new_key_of_the_source_meets_the_rows_of_a_target_that_changed_other_rows(repo: ab.Repository) -> None:
    # Both sides touched different rows of the base, and the target has as many rows as before.
    with repo.transaction() as tx:
        tx.create_table(T, SCHEMA, primary_key=["id", "part"])
        tx.append(T, pa.table([range(5), ["p"] * 5, [0] * 5], schema=SCHEMA))
    repo.branch_create("dev")
    repo.upsert(T, pa.table([[1, 7], ["p"] * 2, [10, 70]], schema=SCHEMA), branch="dev")
    with repo.transaction("main") as tx:
        tx.delete(T, "id = 4")
        tx.append(T, pa.table([[7], ["p"], [71]], schema=SCHEMA))
    [found] = repo.conflicts("dev")
    assert (found.kind, found.key, found.source, found.target) == (
        ConflictKind.DIVERGENT_INSERT,
        {"id": 7, "part": "p"},
        70,
        71,
    )
    repo.merge("dev", strategy="source")
    assert {row["id"]: row["n"] for row in repo[T].to_arrow().to_pylist()} == {0: 0, 1: 10, 2: 0, 3: 0, 7: 70}
