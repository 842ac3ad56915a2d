"""Differences between any two states of random histories, compared with dicts of all their rows."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import event, given

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.repo.history.diff import RowChange, RowChangeKind, TableChangeKind, TableDiff
from anabranch.repo.snapshot import Table
from tests.model.operations import TYPES
from tests.model.strategies import operations

Row = Mapping[str, Any]
Frozen = frozenset[tuple[str, Any]]

INVERSE = {
    RowChangeKind.INSERTED: RowChangeKind.DELETED,
    RowChangeKind.DELETED: RowChangeKind.INSERTED,
    RowChangeKind.UPDATED: RowChangeKind.UPDATED,
}


@given(st.data())
def test_a_diff_of_any_two_states_has_all_differences_and_nothing_else(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repo = begin(f"{folder}/lake")
        first = repo.snapshot().id
        states = {first}
        for _ in range(data.draw(st.integers(2, 6), label="steps")):
            try:
                take_step(repo, data)
            except AnabranchError as err:
                event(err.code)
            states |= {repo.snapshot_of(branch.name).id for branch in repo.branch_list()}
        names = [branch.name for branch in repo.branch_list()]
        known = st.sampled_from([*names, *sorted(states)])
        check(repo, first, data.draw(st.sampled_from(names), label="since the first"))
        check(repo, data.draw(known, label="before"), data.draw(known, label="after"))
        assert repo.diff("main", "main").tables == ()


def begin(uri: str) -> ab.Repository:
    """Rows with a key and without, some of these twice; a pinned branch and a live one."""
    repo = ab.init(uri, actor="ada")
    with repo.transaction() as tx:
        for key, names in (("s.a", ["id"]), ("s.b", [])):
            tx.create_table(key, pa.schema([(name, TYPES[name]) for name in ("id", "n", "s")]), primary_key=names)
            for start in (0, 6):
                ids = range(start, start + 6)
                tx.append(key, pa.table({"id": ids, "n": [1, 2, None] * 2, "s": ["x", None, "yy", "x", "", "Ž"]}))
        tx.append("s.b", pa.table({"id": [1, 1, 7], "n": [2, 2, 2], "s": pa.nulls(3, pa.string())}))
    repo.branch_create("dev")
    repo.branch_create_from("main", "live", mode="live")
    return repo


def take_step(repo: ab.Repository, data: st.DataObject) -> None:
    branches = [branch.name for branch in repo.branch_list()]
    branch = data.draw(st.sampled_from(branches), label="branch")
    kind = data.draw(
        st.sampled_from(["write"] * 6 + ["fork", "fork", "compact", "reset", "alter", "pull"]), label="step"
    )
    tables = {key: table.schema.names for key, table in repo.snapshot_of(branch).items()}
    key = data.draw(st.sampled_from(sorted(tables)), label="table") if tables else "s.a"
    match kind:
        case "write":
            with repo.transaction(branch) as tx:
                for operation in data.draw(st.lists(operations(tables), min_size=2, max_size=5), label="operations"):
                    try:
                        operation.do(tx)
                    except AnabranchError as err:
                        event(f"{operation.method}: {err.code}")
        case "fork":
            mode = data.draw(st.sampled_from(["pinned", "live"]), label="mode")
            repo.branch_create_from(branch, f"{branch}/x" if branch != "main" else f"b{len(branches)}", mode=mode)
        case "compact":
            repo.compact(branch=branch)
        case "reset":
            repo.reset(branch, to=data.draw(st.sampled_from([f"{branch}~1", f"{branch}~2", *branches]), label="to"))
        case "pull":
            repo.branch_pull(branch, key)
        case "alter":
            has_key = bool(tables) and bool(repo.snapshot_of(branch)[key].primary_key)
            kind = data.draw(st.sampled_from([None, pa.float64(), pa.int32()]), label="type")
            with repo.transaction(branch) as tx:
                if kind is None:
                    tx.set_primary_key(key, [] if has_key else ["id"])
                else:
                    tx.alter_columns(key, [ab.ColumnChange(path="n", type=kind)])


def check(repo: ab.Repository, before: str, after: str) -> None:
    forth, back = repo.diff(before, after), repo.diff(after, before)
    inverted = {table.renamed_from or table.key: table for table in back.tables}
    for table in forth.tables:
        event(table.change.value)
        changes = list(table.iter_rows())
        check_applied(table, changes)
        check_counts(table, changes)
        check_inverted(table, changes, inverted.pop(table.key))
    assert not inverted
    assert forth.is_empty == back.is_empty
    if forth.is_empty:
        assert {key: rows_of(table) for key, table in repo.snapshot_of(before).items()} == {
            key: rows_of(table) for key, table in repo.snapshot_of(after).items()
        }


def check_applied(table: TableDiff, changes: Sequence[RowChange]) -> None:
    """What was there, and the changes, make what is there now."""
    renamed = names_of(table)
    rows = rows_of(table.before)
    gone = Counter(freeze(change.before) for change in changes if change.before is not None)
    assert gone <= rows, "a row was changed that was not there"
    kept = rows - gone
    moved = Counter({rename(row, renamed): number for row, number in kept.items()})
    come = Counter(freeze(change.after) for change in changes if change.after is not None)
    assert padded(moved + come, table.after) == rows_of(table.after)
    for change in changes:
        assert (change.before is None, change.after is None) == (
            change.change is RowChangeKind.INSERTED,
            change.change is RowChangeKind.DELETED,
        )
        if change.before is not None and change.after is not None:
            old, new = dict(rename(freeze(change.before), renamed)), change.after
            gone_too = {name for name in change.before if name not in renamed and change.before[name] is not None}
            differing = {name for name in new if old.get(name) != new[name]} | gone_too
            assert set(change.columns) == differing != set()
    if table.before is not None and table.after is not None and table.before.primary_key == table.after.primary_key:
        check_keyed(table, changes)


def check_keyed(table: TableDiff, changes: Sequence[RowChange]) -> None:
    """With a key each row is reported once, and as what happened to its key."""
    assert table.after is not None
    names = table.after.primary_key
    if not names or names_of(table).get("id") != "id":
        return
    keys = [tuple((change.after or change.before or {})[name] for name in names) for change in changes]
    assert len(set(keys)) == len(keys)
    old, new = ({row["id"] for row in map(dict, rows_of(side))} for side in (table.before, table.after))
    for key, change in zip(keys, changes, strict=True):
        expected = RowChangeKind.UPDATED if key[0] in old & new else None
        assert change.change is (expected or (RowChangeKind.INSERTED if key[0] in new else RowChangeKind.DELETED))


def check_counts(table: TableDiff, changes: Sequence[RowChange]) -> None:
    found = Counter(change.change for change in changes)
    counts = table.counts
    assert (counts.inserted, counts.updated, counts.deleted) == tuple(found[kind] for kind in RowChangeKind)
    assert table.to_arrow().num_rows == len(changes)
    assert table.rows_to_compare >= len(changes)


def check_inverted(table: TableDiff, changes: Sequence[RowChange], other: TableDiff) -> None:
    turned = {TableChangeKind.ADDED: TableChangeKind.REMOVED, TableChangeKind.REMOVED: TableChangeKind.ADDED}
    assert other.change is turned.get(table.change, table.change)
    found = Counter((change.change, freeze(change.before), freeze(change.after)) for change in changes)
    expected = Counter(
        (INVERSE[change.change], freeze(change.after), freeze(change.before)) for change in other.iter_rows()
    )
    assert found == expected


def names_of(table: TableDiff) -> dict[str, str]:
    """The columns that both sides have, {older: newer}."""
    if table.before is None or table.after is None:
        return {}
    renamed = {str(change.before): change.column for change in table.columns if change.change == "renamed"}
    added = {change.column for change in table.columns if change.change == "added"}
    gone = {change.column for change in table.columns if change.change == "removed"}
    kept = [name for name in table.before.schema.names if name not in renamed and name not in gone]
    assert sorted([*renamed.values(), *kept, *added]) == sorted(table.after.schema.names)
    return {**renamed, **{name: name for name in kept}}


def rows_of(table: Table | None) -> Counter[Frozen]:
    return Counter(_iter_frozen(table))


def _iter_frozen(table: Table | None) -> Iterator[Frozen]:
    for row in [] if table is None else table.to_arrow().to_pylist():
        yield freeze(row)


def freeze(row: Row | None) -> Frozen:
    return frozenset() if row is None else frozenset(row.items())


def rename(row: Frozen, names: Mapping[str, str]) -> Frozen:
    return frozenset((names[name], value) for name, value in row if name in names)


def padded(rows: Counter[Frozen], table: Table | None) -> Counter[Frozen]:
    """The rows with nulls in columns that they do not have."""
    found: Counter[Frozen] = Counter()
    for row, number in rows.items():
        values = dict(row)
        found[freeze({name: values.get(name) for name in (table.schema.names if table else values)})] += number
    return found
