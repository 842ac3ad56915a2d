"""Pairs of changes to the columns and the key of a table, under every strategy, with the expected results."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.repo.merge.conflict_types import ConflictKind
from anabranch.repo.transaction import Transaction
from tests.repo.conftest import nothing_changes

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())])
BASE = "id, a, b: 1 1 x, 2 2 y"
BIG = 2**40

Step = Callable[[Transaction, str], object]


def add(name: str, kind: pa.DataType) -> Step:
    return lambda tx, key: tx.add_columns(key, pa.schema([(name, kind)]))


def compute(name: str, expression: str) -> Step:
    return lambda tx, key: tx.add_columns(key, {name: expression})


def alter(path: str, **change: Any) -> Step:
    return lambda tx, key: tx.alter_columns(key, [ab.ColumnChange(path=path, **change)])


def put(column: str, value: str) -> Step:
    return lambda tx, key: tx.update(key, {column: value}, where="id = 1")


def drop(column: str) -> Step:
    return lambda tx, key: tx.drop_columns(key, [column])


def key_is(*columns: str) -> Step:
    return lambda tx, key: tx.set_primary_key(key, columns)


def insert(tx: Transaction, key: str) -> None:
    tx.append(key, pa.table([[7], [7], ["w"]], schema=SCHEMA))


def insert_c(tx: Transaction, key: str) -> None:
    """Insert a row after the key was renamed to c."""
    tx.append(key, [{"c": 7, "a": 7, "b": "w"}])


def delete(tx: Transaction, key: str) -> None:
    tx.delete(key, "id = 1")


NOTHING: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """What both sides do, and what comes of it, or the conflicts, and what strategies make of them.

    Where a strategy leaves the conflict, `source_taken` and `target_taken` are what a resolver of the table decides.
    """

    source: tuple[Step, ...]
    target: tuple[Step, ...]
    merged: str = ""
    conflicts: tuple[tuple[ConflictKind, str | None], ...] = ()
    source_wins: str = ""
    target_wins: str = ""
    source_taken: str = ""
    target_taken: str = ""


def schema(column: str | None) -> tuple[tuple[ConflictKind, str | None], ...]:
    return ((ConflictKind.SCHEMA, column),)


CASES = {
    # Columns that come
    "add_add": Case(
        source=(compute("c", "a * 10"),),
        target=(compute("d", "'q'"),),
        merged="id, a, b, d, c: 1 1 x q 10, 2 2 y q 20",
    ),
    "add_rows": Case(
        source=(compute("c", "a * 10"),),
        target=(put("a", "5"), insert),
        merged="id, a, b, c: 1 5 x 10, 2 2 y 20, 7 7 w None",
    ),
    "rows_add": Case(
        source=(put("a", "5"), insert),
        target=(compute("c", "a * 10"),),
        merged="id, a, b, c: 1 5 x 10, 2 2 y 20, 7 7 w None",
    ),
    "add_delete": Case(source=(compute("c", "a * 10"),), target=(delete,), merged="id, a, b, c: 2 2 y 20"),
    "delete_add": Case(source=(delete,), target=(compute("c", "a * 10"),), merged="id, a, b, c: 2 2 y 20"),
    "add_same": Case(
        source=(compute("c", "a * 10"),),
        target=(compute("c", "a * 10"),),
        merged="id, a, b, c: 1 1 x 10, 2 2 y 20",
    ),
    "add_same_empty": Case(
        source=(add("c", pa.int64()),),
        target=(compute("c", "a * 10"),),
        merged="id, a, b, c: 1 1 x 10, 2 2 y 20",
    ),
    "add_same_filled": Case(
        source=(compute("c", "a * 10"),),
        target=(add("c", pa.int64()),),
        merged="id, a, b, c: 1 1 x 10, 2 2 y 20",
    ),
    "add_other_values": Case(
        source=(compute("c", "a * 10"),),
        target=(compute("c", "a * 20"),),
        conflicts=((ConflictKind.DIVERGENT_UPDATE, "c"),) * 2,
        source_wins="id, a, b, c: 1 1 x 10, 2 2 y 20",
        target_wins="id, a, b, c: 1 1 x 20, 2 2 y 40",
    ),
    "add_other_type": Case(
        source=(compute("c", "a * 10"), insert),
        target=(compute("c", "b"), put("b", "'z'")),
        conflicts=schema("c"),
        source_wins="id, a, b, c: 1 1 z 10, 2 2 y 20, 7 7 w None",
        target_wins="id, a, b, c: 1 1 z x, 2 2 y y, 7 7 w None",
    ),
    # Columns that go by another name
    "rename_rows": Case(
        source=(alter("a", name="z"),), target=(put("a", "5"), insert), merged="id, z, b: 1 5 x, 2 2 y, 7 7 w"
    ),
    "rows_rename": Case(
        source=(put("a", "5"), insert), target=(alter("a", name="z"),), merged="id, z, b: 1 5 x, 2 2 y, 7 7 w"
    ),
    "rename_same": Case(
        source=(alter("a", name="z"),), target=(alter("a", name="z"),), merged="id, z, b: 1 1 x, 2 2 y"
    ),
    "rename_other": Case(
        source=(alter("a", name="z"), put("z", "5")),
        target=(alter("a", name="w"),),
        conflicts=schema("a"),
        source_wins="id, z, b: 1 5 x, 2 2 y",
        target_wins="id, w, b: 1 5 x, 2 2 y",
    ),
    "rename_key": Case(
        source=(alter("id", name="nr"),), target=(put("a", "5"), insert), merged="nr, a, b: 1 5 x, 2 2 y, 7 7 w"
    ),
    "rename_both": Case(
        source=(alter("a", name="z"),), target=(alter("b", name="w"),), merged="id, z, w: 1 1 x, 2 2 y"
    ),
    # Two columns would have one name: that of the losing side gets back its name, or is left out if it is new.
    "rename_onto_added": Case(
        source=(alter("a", name="c"),),
        target=(add("c", pa.int64()), put("c", "9")),
        conflicts=schema("c"),
        source_wins="id, c, b: 1 1 x, 2 2 y",
        target_wins="id, a, b, c: 1 1 x 9, 2 2 y None",
    ),
    "added_onto_rename": Case(
        source=(add("c", pa.int64()), put("c", "9"), insert),
        target=(alter("a", name="c"), put("b", "'q'")),
        conflicts=schema("c"),
        source_wins="id, a, b, c: 1 1 q 9, 2 2 y None, 7 7 w None",
        target_wins="id, c, b: 1 1 q, 2 2 y, 7 7 w",
    ),
    "renames_onto_one_name": Case(
        source=(alter("a", name="z"), put("z", "9")),
        target=(alter("b", name="z"), put("z", "'q'")),
        conflicts=schema("z"),
        source_wins="id, z, b: 1 9 q, 2 2 y",
        target_wins="id, a, z: 1 9 q, 2 2 y",
    ),
    "renames_in_a_row": Case(
        source=(alter("a", name="c"), alter("b", name="a")),
        target=(add("c", pa.int64()),),
        conflicts=schema("c"),
        source_wins="id, c, a: 1 1 x, 2 2 y",
        target_wins="id, a, b, c: 1 1 x None, 2 2 y None",
    ),
    "rename_of_the_key": Case(
        source=(alter("id", name="c"), insert_c),
        target=(add("c", pa.int64()), put("b", "'q'")),
        conflicts=schema("c"),
        source_wins="c, a, b: 1 1 q, 2 2 y, 7 7 w",
        target_wins="id, a, b, c: 1 1 q None, 2 2 y None, 7 7 w None",
    ),
    # Columns that go
    "drop_untouched": Case(source=(drop("a"),), target=NOTHING, merged="id, b: 1 x, 2 y"),
    "drop_other": Case(source=(drop("a"),), target=(put("b", "'q'"),), merged="id, b: 1 q, 2 y"),
    "other_drop": Case(source=(put("b", "'q'"),), target=(drop("a"),), merged="id, b: 1 q, 2 y"),
    "drop_drop": Case(source=(drop("a"),), target=(drop("a"),), merged="id, b: 1 x, 2 y"),
    "drop_used": Case(
        source=(drop("a"),),
        target=(put("a", "5"), insert),
        conflicts=schema("a"),
        source_wins="id, b: 1 x, 2 y, 7 w",
        target_wins="id, a, b: 1 5 x, 2 2 y, 7 7 w",
    ),
    "used_drop": Case(
        source=(put("a", "5"), insert),
        target=(drop("a"),),
        conflicts=schema("a"),
        source_wins="id, b, a: 1 x 5, 2 y 2, 7 w 7",
        target_wins="id, b: 1 x, 2 y, 7 w",
    ),
    "drop_rename": Case(
        source=(drop("a"),),
        target=(alter("a", name="z"),),
        conflicts=schema("a"),
        source_wins="id, b: 1 x, 2 y",
        target_wins="id, z, b: 1 1 x, 2 2 y",
    ),
    "rename_drop": Case(
        source=(alter("a", name="z"),),
        target=(drop("a"),),
        conflicts=schema("a"),
        source_wins="id, b, z: 1 x 1, 2 y 2",
        target_wins="id, b: 1 x, 2 y",
    ),
    # Types
    "type_rows": Case(
        source=(alter("a", type=pa.float64()),),
        target=(put("a", "5"), insert),
        merged="id, a, b: 1 5.0 x, 2 2.0 y, 7 7.0 w",
    ),
    "rows_type": Case(
        source=(put("a", "5"), insert),
        target=(alter("a", type=pa.float64()),),
        merged="id, a, b: 1 5.0 x, 2 2.0 y, 7 7.0 w",
    ),
    "type_same": Case(
        source=(alter("a", type=pa.int32()),), target=(alter("a", type=pa.int32()),), merged="id, a, b: 1 1 x, 2 2 y"
    ),
    "type_other": Case(
        source=(alter("a", type=pa.float64()),),
        target=(alter("a", type=pa.int32()),),
        conflicts=schema("a"),
        source_wins="id, a, b: 1 1.0 x, 2 2.0 y",
        target_wins="id, a, b: 1 1 x, 2 2 y",
    ),
    # Values that do not fit are not a second conflict, because the first one decides on their type.
    "type_other_misfit": Case(
        source=(alter("a", type=pa.float64()), put("a", "0.5")),
        target=(alter("a", type=pa.int32()),),
        conflicts=schema("a"),
        source_wins="id, a, b: 1 0.5 x, 2 2.0 y",
        target_taken="id, a, b: 1 1 x, 2 2 y",
    ),
    # No strategy decides on values that do not fit: the whole table would have to be taken from one side.
    "type_misfit": Case(
        source=(alter("a", type=pa.int32()),),
        target=(put("a", str(BIG)), insert),
        conflicts=schema(None),
        source_taken="id, a, b: 1 1 x, 2 2 y",
        target_taken=f"id, a, b: 1 {BIG} x, 2 2 y, 7 7 w",
    ),
    "misfit_type": Case(
        source=(put("a", str(BIG)), insert),
        target=(alter("a", type=pa.int32()),),
        conflicts=schema(None),
        source_taken=f"id, a, b: 1 {BIG} x, 2 2 y, 7 7 w",
        target_taken="id, a, b: 1 1 x, 2 2 y",
    ),
    # Nulls
    "strict_rows": Case(
        source=(alter("a", nullable=False),), target=(put("a", "5"), insert), merged="id, a, b: 1 5 x, 2 2 y, 7 7 w"
    ),
    # Only the side without nulls can decide: a null must not stay.
    "strict_nulls": Case(
        source=(alter("a", nullable=False),),
        target=(put("a", "NULL"),),
        conflicts=((ConflictKind.DIVERGENT_UPDATE, "a"),),
        source_wins="id, a, b: 1 1 x, 2 2 y",
    ),
    "nulls_strict": Case(
        source=(put("a", "NULL"),),
        target=(alter("a", nullable=False),),
        conflicts=((ConflictKind.DIVERGENT_UPDATE, "a"),),
        target_wins="id, a, b: 1 1 x, 2 2 y",
    ),
    "strict_deleted": Case(
        source=(delete, alter("a", nullable=False)),
        target=(put("b", "'q'"), put("a", "a")),
        conflicts=((ConflictKind.DELETE_VS_UPDATE, None),),
        source_wins="id, a, b: 2 2 y",
        target_wins="id, a, b: 1 1 q, 2 2 y",
    ),
    "strict_new": Case(
        source=(compute("c", "a * 10"), alter("c", nullable=False)),
        target=(insert,),
        conflicts=((ConflictKind.DIVERGENT_INSERT, "c"),),
        source_wins="id, a, b, c: 1 1 x 10, 2 2 y 20",
    ),
    "new_strict": Case(
        source=(insert,),
        target=(compute("c", "a * 10"), alter("c", nullable=False)),
        conflicts=((ConflictKind.DIVERGENT_INSERT, "c"),),
        target_wins="id, a, b, c: 1 1 x 10, 2 2 y 20",
    ),
    "strict_new_fits": Case(
        source=(compute("c", "a * 10"), alter("c", nullable=False)),
        target=(put("b", "'q'"),),
        merged="id, a, b, c: 1 1 q 10, 2 2 y 20",
    ),
    # Keys
    "key_untouched": Case(source=(key_is("a"),), target=NOTHING, merged="id, a, b: 1 1 x, 2 2 y; a"),
    "key_rows": Case(source=(key_is("a"),), target=(put("b", "'q'"),), merged="id, a, b: 1 1 q, 2 2 y; a"),
    "rows_key": Case(source=(put("b", "'q'"),), target=(key_is("a"),), merged="id, a, b: 1 1 q, 2 2 y; a"),
    "key_cell_of_key": Case(source=(key_is("a"),), target=(put("a", "9"),), merged="id, a, b: 1 9 x, 2 2 y; a"),
    # No strategy decides on rows that repeat a value of the new key.
    "key_repeated": Case(
        source=(key_is("a"),),
        target=(put("a", "2"),),
        conflicts=schema(None),
        source_taken="id, a, b: 1 1 x, 2 2 y; a",
        target_taken="id, a, b: 1 2 x, 2 2 y",
    ),
    "key_not_in_target": Case(
        source=(compute("c", "a * 10"), key_is("c")),
        target=(insert,),
        conflicts=schema(None),
        source_taken="id, a, b, c: 1 1 x 10, 2 2 y 20; c",
        target_taken="id, a, b: 1 1 x, 2 2 y, 7 7 w",
    ),
    "repeated_key": Case(
        source=(put("a", "2"),),
        target=(key_is("a"),),
        conflicts=schema(None),
        source_taken="id, a, b: 1 2 x, 2 2 y",
        target_taken="id, a, b: 1 1 x, 2 2 y; a",
    ),
    # A column that one side dropped, and the other one made the key
    "key_dropped": Case(
        source=(key_is("a"), insert),
        target=(drop("a"), put("b", "'q'")),
        conflicts=schema("a"),
        source_wins="id, b, a: 1 q 1, 2 y 2, 7 w 7; a",
        target_wins="id, b: 1 q, 2 y, 7 w",
    ),
    "key_dropped_unused": Case(
        source=(key_is("a"),),
        target=(drop("a"), put("b", "'q'")),
        conflicts=schema("a"),
        source_wins="id, b, a: 1 q 1, 2 y 2; a",
        target_wins="id, b: 1 q, 2 y",
    ),
    "dropped_key": Case(
        source=(drop("a"), put("b", "'q'")),
        target=(key_is("a"),),
        conflicts=schema("a"),
        source_wins="id, b: 1 q, 2 y",
        target_wins="id, a, b: 1 1 q, 2 2 y; a",
    ),
    "key_other": Case(
        source=(key_is("a"),),
        target=(key_is("b"),),
        conflicts=schema(None),
        source_wins="id, a, b: 1 1 x, 2 2 y; a",
        target_wins="id, a, b: 1 1 x, 2 2 y; b",
    ),
    "key_same": Case(
        source=(key_is("a"), put("b", "'s'")), target=(key_is("a"), insert), merged="id, a, b: 1 1 s, 2 2 y, 7 7 w; a"
    ),
    "key_same_clash": Case(
        source=(put("b", "'s'"), key_is("a")),
        target=(key_is("a"), put("b", "'t'"), insert),
        conflicts=((ConflictKind.DIVERGENT_UPDATE, "b"),),
        source_wins="id, a, b: 1 1 s, 2 2 y, 7 7 w; a",
        target_wins="id, a, b: 1 1 t, 2 2 y, 7 7 w; a",
    ),
    "key_same_delete": Case(
        source=(key_is("a", "b"), delete), target=(key_is("a", "b"), insert), merged="id, a, b: 2 2 y, 7 7 w; a, b"
    ),
    # The base does not have the new key, so that rows are matched by the old one.
    "key_same_new": Case(
        source=(compute("c", "a * 10"), key_is("c"), put("b", "'s'")),
        target=(compute("c", "a * 10"), key_is("c"), put("a", "5")),
        merged="id, a, b, c: 1 5 s 10, 2 2 y 20; c",
    ),
    # A deleted row against a change of a column that the deleting side dropped
    "delete_drop_used": Case(
        source=(delete, drop("a")),
        target=(put("a", "5"),),
        conflicts=(*schema("a"), (ConflictKind.DELETE_VS_UPDATE, None)),
        source_wins="id, b: 2 y",
        target_wins="id, a, b: 1 5 x, 2 2 y",
    ),
    "used_delete_drop": Case(
        source=(put("a", "5"),),
        target=(delete, drop("a")),
        conflicts=(*schema("a"), (ConflictKind.DELETE_VS_UPDATE, None)),
        source_wins="id, b, a: 1 x 5, 2 y 2",
        target_wins="id, b: 2 y",
    ),
    # Shape and rows at once: all conflicts are reported.
    "both_kinds": Case(
        source=(alter("a", name="z"), put("b", "'s'")),
        target=(alter("a", name="w"), put("b", "'t'")),
        conflicts=((ConflictKind.SCHEMA, "a"), (ConflictKind.DIVERGENT_UPDATE, "b")),
        source_wins="id, z, b: 1 1 s, 2 2 y",
        target_wins="id, w, b: 1 1 t, 2 2 y",
    ),
}


def begin(repo: ab.Repository, *, is_clean: bool) -> dict[str, Case]:
    """The cases without conflicts, or those with, each done to a table of its own on two branches."""
    cases = {f"s.{name}": case for name, case in CASES.items() if is_clean is not bool(case.conflicts)}
    with repo.transaction() as tx:
        for key in cases:
            tx.create_table(key, SCHEMA, primary_key=["id"])
            tx.append(key, pa.table([[1, 2], [1, 2], ["x", "y"]], schema=SCHEMA))
    for branch in ("source", "target"):
        repo.branch_create(branch)
        with repo.transaction(branch) as tx:
            for key, case in cases.items():
                for step in getattr(case, branch):
                    step(tx, key)
    return cases


def reported_table(repo: ab.Repository, branch: str, key: str) -> str:
    """A table's columns and rows, and its key if that is another one."""
    table = repo.snapshot_of(branch)[key]
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: next(iter(row.values())))
    reported = f"{', '.join(table.schema.names)}: " + ", ".join(" ".join(map(str, row.values())) for row in rows)
    first = table.schema.names[0]
    return reported if table.primary_key == (first,) else f"{reported}; {', '.join(table.primary_key)}"


def test_changes_that_fit_together_are_all_made(repo: ab.Repository) -> None:
    cases = begin(repo, is_clean=True)
    planned = repo.merge("source", into="target", dry_run=True).plan
    assert planned.conflicts == ()
    assert repo.merge("source", into="target").plan == planned
    for key, case in cases.items():
        assert reported_table(repo, "target", key) == case.merged, key
    merged = repo.snapshot_of("target")
    assert not merged["s.strict_rows"].schema.field("a").nullable
    assert not merged["s.strict_new_fits"].schema.field("c").nullable
    assert merged["s.type_same"].schema.field("a").type == pa.int32()


def test_changes_that_do_not_fit_are_reported_or_decided(repo: ab.Repository) -> None:
    cases = begin(repo, is_clean=False)
    conflicts = list(repo.conflicts("source", into="target"))
    for key, case in cases.items():
        reported = [(conflict.kind, conflict.column) for conflict in conflicts if conflict.table == key]
        assert reported == list(case.conflicts), key
    assert all(conflict.problem for conflict in conflicts)
    assert repo.merge("source", into="target", dry_run=True).plan.conflicts == tuple(conflicts)
    with nothing_changes(repo), pytest.raises(MergeConflictError) as caught:
        repo.merge("source", into="target")
    assert caught.value.conflicts == tuple(conflicts)
    # Without a strategy, only those are named that none decides.
    gaps = repo.merge("source", into="target", dry_run=True).plan.strategy_gaps
    assert [gap.table for gap in gaps] == sorted(
        key for key, case in cases.items() if not case.source_wins and not case.target_wins
    )
    for strategy in ("source_wins", "target_wins"):
        repo.branch_create_from("target", strategy)
        check_strategy(repo, cases, strategy)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("how", ["resolver", "resolution"])
def test_a_name_of_two_columns_is_decided_for_that_column(repo: ab.Repository, how: str, side: str) -> None:
    with repo.transaction() as tx:
        tx.create_table("s.t", SCHEMA, primary_key=["id"])
        tx.append("s.t", pa.table([[1, 2], [1, 2], ["x", "y"]], schema=SCHEMA))
    repo.branch_create("dev")
    for branch, steps in (("dev", (alter("a", name="c"),)), ("main", (add("c", pa.int64()), put("c", "9")))):
        with repo.transaction(branch) as tx:
            for step in steps:
                step(tx, "s.t")
    (found,) = repo.conflicts("dev", "main")
    assert (found.column, found.source, found.target) == ("c", "c int64 (was a)", "c int64")
    if how == "resolver":
        repo.merge("dev", "main", resolvers={"s.t.c": side})
    else:
        repo.merge("dev", "main", resolutions=[{**asdict(found), "take": side}])
    merged = {"source": "id, c, b: 1 1 x, 2 2 y", "target": "id, a, b, c: 1 1 x 9, 2 2 y None"}
    assert reported_table(repo, "main", "s.t") == merged[side]


def check_strategy(repo: ab.Repository, cases: dict[str, Case], name: str) -> None:
    """A strategy decides what it can; without the rest, which is still in conflict, it merges."""
    strategy = name.removesuffix("_wins")
    outcomes = {key: getattr(case, name) for key, case in cases.items()}
    left = sorted(key for key, outcome in outcomes.items() if not outcome)
    with pytest.raises(MergeConflictError) as caught:
        repo.merge("source", into=name, strategy=strategy)
    assert sorted(conflict.table for conflict in caught.value.conflicts) == left
    assert tuple(repo.conflicts("source", into=name, strategy=strategy)) == caught.value.conflicts
    # What the strategy does not decide is named, with what to do instead.
    open_plan = repo.merge("source", into=name, strategy=strategy, dry_run=True).plan
    assert [gap.table for gap in open_plan.strategy_gaps] == left
    assert {(gap.table, gap.hint) for gap in open_plan.strategy_gaps} == {
        (conflict.table, conflict.hint) for conflict in caught.value.conflicts
    }
    assert all(gap.hint and gap.hint in repr(open_plan) for gap in open_plan.strategy_gaps)
    part = f"{name}-source"
    repo.branch_create_from("source", part)
    taken = {key: value for key in left if (value := getattr(cases[key], f"{strategy}_taken"))}
    with repo.transaction(part) as tx:
        for key in left:
            if key not in taken:
                tx.drop_table(key)
    resolvers = dict.fromkeys(taken, strategy)
    planned = repo.merge(part, into=name, strategy=strategy, resolvers=resolvers, dry_run=True).plan
    assert repo.merge(part, into=name, strategy=strategy, resolvers=resolvers).plan == planned
    assert {table.table for table in planned.tables if table.taken_from == strategy} == taken.keys()
    for key, outcome in {**outcomes, **taken}.items():
        if outcome:
            assert reported_table(repo, name, key) == outcome, key
