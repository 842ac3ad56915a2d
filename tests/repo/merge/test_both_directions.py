"""Random histories of two branches of one table, merged in both directions, with the same result.

Each branch makes a few changes of rows, columns, defaults and nullability. The branches are merged into copies of each
other. Both directions have the same conflicts, with the sides exchanged, or the same rows and columns. A strategy for
the source in one direction has the same result as a strategy for the target in the other one.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.format.staging import DEFAULT
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.repo.transaction import Transaction

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
STEPS = 4
Outcome = tuple[Any, ...]


class History:
    """Makes random changes of one table on two branches."""

    def __init__(self, seed: int) -> None:
        self.table, self.log = f"s.t{seed}", [f"seed {seed}"]
        self._random = random.Random(seed)
        self._steps = {branch: self._random.randint(1, STEPS) for branch in ("main", "dev")}
        self._is_keyed = self._random.random() < 0.7

    def create(self, tx: Transaction) -> None:
        rows = [{"id": number, "a": number, "b": 10 * number} for number in range(4)]
        tx.create_table(self.table, SCHEMA, primary_key=["id"] if self._is_keyed else [])
        for part in (rows[:2], rows[2:]):
            tx.append(self.table, pa.Table.from_pylist(part, schema=SCHEMA))

    def change(self, tx: Transaction, number: int) -> None:
        """Make the change with this number on the branch of a transaction, if the history has one."""
        if number < self._steps[tx.branch]:
            self._change(tx)

    # Changes

    def _change(self, tx: Transaction) -> None:
        steps = (
            *(self._insert, self._insert, self._update, self._update, self._update_to_null, self._delete),
            *(self._rename, self._add, self._add_with_default, self._drop, self._retype, self._make_strict),
            *(self._make_nullable, self._set_default, self._compact, self._rewrite),
        )
        self._random.choice(steps)(tx)

    def _note(self, tx: Transaction, *what: object) -> None:
        self.log.append(" ".join(map(str, (tx.branch, *what))))

    def _fields(self, tx: Transaction) -> list[pa.Field]:
        return [field for field in tx[self.table].schema if field.name != "id"]

    def _field(self, tx: Transaction) -> pa.Field | None:
        fields = self._fields(tx)
        return self._random.choice(fields) if fields else None

    def _insert(self, tx: Transaction) -> None:
        # Both sides may insert the same key.
        number = self._random.randint(4, 9)
        table = tx[self.table]
        if table.count_rows(f"id = {number}"):
            return
        row: dict[str, Any] = {"id": number}
        for field in self._fields(tx):
            has_default = DEFAULT.encode() in (field.metadata or {})
            if has_default and self._random.random() < 0.5:
                continue
            is_null = field.nullable and self._random.random() < 0.2
            row[field.name] = None if is_null else self._random.randint(0, 2)
        self._note(tx, "insert", row)
        tx.append(self.table, [row])

    def _update(self, tx: Transaction) -> None:
        field = self._field(tx)
        if field is not None:
            self._set(tx, field.name, str(self._random.randint(0, 2)))

    def _update_to_null(self, tx: Transaction) -> None:
        field = self._field(tx)
        if field is not None and field.nullable:
            self._set(tx, field.name, "NULL")

    def _set(self, tx: Transaction, column: str, value: str) -> None:
        where = f"id = {self._random.randint(0, 5)}"
        self._note(tx, "set", column, value, where)
        tx.update(self.table, {column: value}, where=where)

    def _delete(self, tx: Transaction) -> None:
        where = f"id = {self._random.randint(0, 5)}"
        self._note(tx, "delete", where)
        tx.delete(self.table, where)

    def _alter(self, tx: Transaction, **change: Any) -> None:
        self._note(tx, "alter", change)
        tx.alter_columns(self.table, [ab.ColumnChange(**change)])

    def _rename(self, tx: Transaction) -> None:
        field, name = self._field(tx), self._random.choice("abcde")
        if field is not None and name not in [one.name for one in self._fields(tx)]:
            self._alter(tx, path=field.name, name=name)

    def _add(self, tx: Transaction, *, default: int | None = None) -> None:
        name, value = self._random.choice("cde"), self._random.randint(0, 2)
        if name in [one.name for one in self._fields(tx)]:
            return
        self._note(tx, "add", name, value, "default", default)
        tx.add_columns(self.table, {name: str(value)})
        if default is not None:
            tx.annotate(self.table, {}, columns={name: {DEFAULT: str(default)}})
            if self._random.random() < 0.5:
                tx.alter_columns(self.table, [ab.ColumnChange(path=name, nullable=False)])

    def _add_with_default(self, tx: Transaction) -> None:
        self._add(tx, default=self._random.randint(0, 2))

    def _drop(self, tx: Transaction) -> None:
        field = self._field(tx)
        if field is not None:
            self._note(tx, "drop", field.name)
            tx.drop_columns(self.table, [field.name])

    def _retype(self, tx: Transaction) -> None:
        field = self._field(tx)
        if field is not None:
            self._alter(tx, path=field.name, type=self._random.choice([pa.int32(), pa.float64()]))

    def _make_strict(self, tx: Transaction) -> None:
        field = self._field(tx)
        if field is not None:
            tx.update(self.table, {field.name: "2"}, where=f"`{field.name}` IS NULL")
            self._alter(tx, path=field.name, nullable=False)

    def _make_nullable(self, tx: Transaction) -> None:
        field = self._field(tx)
        if field is not None:
            self._alter(tx, path=field.name, nullable=True)

    def _set_default(self, tx: Transaction) -> None:
        field, default = self._field(tx), self._random.choice(["0", "1", None])
        if field is not None:
            self._note(tx, "default", field.name, default)
            tx.annotate(self.table, {}, columns={field.name: {DEFAULT: default}})

    def _compact(self, tx: Transaction) -> None:
        self._note(tx, "compact")
        tx.compact(self.table)

    def _rewrite(self, tx: Transaction) -> None:
        field = self._field(tx)
        if field is not None:
            self._note(tx, "rewrite")
            tx.update(self.table, {field.name: f"`{field.name}`"}, where="true")


def _state(table: ab.Table) -> Outcome:
    """Return the columns by name, with type, nullability and default, the key, and the rows."""
    columns = {
        field.name: (field.type, field.nullable, (field.metadata or {}).get(DEFAULT.encode())) for field in table.schema
    }
    rows = table.to_arrow().select(sorted(columns)).to_pylist()
    return columns, table.primary_key, Counter(tuple(row.values()) for row in rows)


def _described(conflict: Conflict, *, is_swapped: bool) -> Outcome:
    """Return what both directions report alike: rows without a key may have addresses of the target."""
    sides = conflict.source, conflict.target
    key = conflict.key if conflict.key is not None and conflict.key.keys() == {"id"} else None
    return conflict.kind, conflict.column, key, conflict.base, *(sides[::-1] if is_swapped else sides)


def merge(repo: ab.Repository, source: str, target: str, strategy: str) -> dict[str, Outcome]:
    """Merge copies of two branches. Return the conflicts or the state of each table.

    Tables with conflicts are left out of the merge.
    """
    outcomes: dict[str, Outcome] = {}
    for conflict in repo.conflicts(source, target, strategy=strategy):
        outcomes[conflict.table] = (*outcomes.get(conflict.table, ()), _described(conflict, is_swapped=source == "dev"))
    copies = [f"{branch}-of-{source}-{strategy}" for branch in (source, target)]
    for branch, copy in zip((source, target), copies, strict=True):
        repo.branch_create(copy, branch)
        with repo.transaction(copy) as tx:
            for table in outcomes:
                tx.drop_table(table)
    outcomes = {table: ("conflicts", *sorted(found, key=repr)) for table, found in outcomes.items()}
    repo.merge(*copies, strategy=strategy)
    return outcomes | {key: _state(table) for key, table in repo.snapshot_of(copies[1]).items()}


def check_histories(repo: ab.Repository, histories: Sequence[History], strategies: dict[str, str]) -> None:
    """Check that both directions come to the same. The strategies of one direction have those of the other one."""
    with repo.transaction() as tx:
        for history in histories:
            history.create(tx)
    repo.branch_create("dev")
    for branch in ("main", "dev"):
        for number in range(STEPS):
            with repo.transaction(branch) as tx:
                for history in histories:
                    history.change(tx, number)
    counts: Counter[str] = Counter()
    for strategy, other in strategies.items():
        one, two = merge(repo, "dev", "main", strategy), merge(repo, "main", "dev", other)
        for history in histories:
            assert one[history.table] == two[history.table], "\n".join([strategy, *history.log])
            counts[f"{strategy}: {'conflicts' if one[history.table][0] == 'conflicts' else 'merged'}"] += 1
    # The histories are of use only if many of them merge, and many have conflicts.
    for outcome in ("fail: merged", "fail: conflicts"):
        assert counts[outcome] >= len(histories) // 10, counts


def test_both_directions_have_the_same_result(repo: ab.Repository) -> None:
    check_histories(repo, [History(seed) for seed in range(100)], {"fail": "fail"})


@pytest.mark.local
@pytest.mark.proof
@pytest.mark.parametrize("start", range(1000, 2000, 100))
def test_both_directions_have_the_same_result_in_many_histories(repo: ab.Repository, start: int) -> None:
    histories = [History(seed) for seed in range(start, start + 100)]
    check_histories(repo, histories, {"fail": "fail", "source": "target", "target": "source"})
