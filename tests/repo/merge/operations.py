"""Every operation that a transaction can apply to a table, with a plain model of its effect.

A table has the rows 1, 2 and 3. An operation knows its side, so that both sides can change one cell to different
values. It finds a table or a column by its present name, because the other operation may have renamed it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.format.staging import DEFAULT

__all__ = [
    "NEW",
    "BASE_ROWS",
    "OPERATIONS",
    "SCHEMA",
    "TABLE",
    "Column",
    "Operation",
    "State",
    "Work",
    "base_state",
    "rows",
]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int32())])
TABLE = "s.things"
RENAMED = "s.renamed"
NEW = "s.new"

Row = tuple[int, str, int | None]
BASE_ROWS: tuple[Row, ...] = ((1, "a", 10), (2, "b", 20), (3, "c", 30))
OVERWRITTEN: tuple[Row, ...] = ((1, "a", 10), (2, "w", 20), (7, "g", 70))


def rows(values: Sequence[Row]) -> pa.Table:
    """Return rows with the columns of `SCHEMA`."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)


@dataclass(frozen=True)
class Column:
    """What the model knows of a column."""

    type: pa.DataType
    nullable: bool = True
    default: str | None = None


@dataclass(frozen=True, kw_only=True)
class State:
    """A table as the model has it. Each row has a tag, which is its identity where the table has no key."""

    name: str | None = TABLE
    rows: dict[str, dict[str, Any]]
    columns: dict[str, Column]
    key: tuple[str, ...]
    indices: frozenset[str] = frozenset({"v_idx"})
    notes: dict[str, str] = field(default_factory=dict)
    tables: frozenset[str] = frozenset()

    @property
    def number(self) -> str:
        """The present name of the column n."""
        return "m" if "m" in self.columns else "n"

    def with_row(self, tag: str, values: Row) -> "State":
        row = dict(zip(("id", "v", self.number), values, strict=True))
        return replace(self, rows={**self.rows, tag: row})

    def with_cell(self, tag: str, column: str, value: object) -> "State":
        if tag not in self.rows:
            return self
        return replace(self, rows={**self.rows, tag: {**self.rows[tag], column: value}})

    def without_row(self, tag: str) -> "State":
        return replace(self, rows={other: row for other, row in self.rows.items() if other != tag})

    def with_column(self, name: str, **changes: Any) -> "State":
        if name not in self.columns:
            return self
        return replace(self, columns={**self.columns, name: replace(self.columns[name], **changes)})


def base_state(key: tuple[str, ...]) -> State:
    """Return the state of the table before both sides change it."""
    columns = {name: Column(SCHEMA.field(name).type) for name in SCHEMA.names}
    state = State(rows={}, columns=columns, key=key)
    for row in BASE_ROWS:
        state = state.with_row(f"base {row[0]}", row)
    return state


@dataclass(frozen=True)
class Work:
    """A transaction in which an operation changes the table, and the side that it is for."""

    tx: ab.Transaction
    side: str

    def insert(self, row: Row) -> None:
        self.tx.append(TABLE, rows([row]))

    def alter(self, **change: Any) -> None:
        self.tx.alter_columns(TABLE, [ab.ColumnChange(path="n", **change)])


@dataclass(frozen=True)
class Operation:
    """A change of the table, and its effect on the model. Both get the side, as text or as part of the work."""

    apply: Callable[[Work], object]
    expect: Callable[[State, str], State]


def _new_row(side: str) -> Row:
    return (4, side, 40) if side == "source" else (5, side, 50)


def _null_row(side: str) -> Row:
    return (8, side, None) if side == "source" else (9, side, None)


def _add_table(work: Work) -> None:
    work.tx.create_table(NEW, SCHEMA, primary_key=["id"])
    work.tx.append(NEW, rows([(1, "new", 1)]))


def _expect_same_row(state: State, side: str) -> State:
    # Rows of a table without a key are never the same row.
    return state.with_row("same" if state.key else f"same {side}", (6, "f", 60))


def _expect_dropped_column(state: State, _side: str) -> State:
    dropped = state.number
    columns = {name: column for name, column in state.columns.items() if name != dropped}
    kept = {tag: {name: row[name] for name in row if name != dropped} for tag, row in state.rows.items()}
    return replace(state, rows=kept, columns=columns, indices=state.indices - {"n_idx"})


def _expect_renamed_column(state: State, _side: str) -> State:
    names = {"n": "m"}
    columns = {names.get(name, name): column for name, column in state.columns.items()}
    renamed = {tag: {names.get(name, name): row[name] for name in row} for tag, row in state.rows.items()}
    return replace(state, rows=renamed, columns=columns)


def _expect_overwritten(state: State, side: str) -> State:
    if state.key:
        return state.with_cell("base 2", "v", "w").without_row("base 3").with_row("over 7", OVERWRITTEN[2])
    for row in BASE_ROWS:
        state = state.without_row(f"base {row[0]}")
    for row in OVERWRITTEN:
        state = state.with_row(f"over {row[0]} {side}", row)
    return state


def _indices_of(state: State) -> set[str]:
    """Return the names of the indices that the columns of a state can have."""
    return {"v_idx", "n_idx"} if state.number in state.columns else {"v_idx"}


OPERATIONS: dict[str, Operation] = {
    "nothing": Operation(lambda _work: None, lambda state, _side: state),
    "insert": Operation(
        lambda work: work.insert(_new_row(work.side)),
        lambda state, side: state.with_row(f"new {side}", _new_row(side)),
    ),
    "same": Operation(lambda work: work.insert((6, "f", 60)), _expect_same_row),
    "null": Operation(
        lambda work: work.insert(_null_row(work.side)),
        lambda state, side: state.with_row(f"null {side}", _null_row(side)),
    ),
    "update": Operation(
        lambda work: work.tx.update(TABLE, {"v": f"'{work.side}'"}, where="id = 2"),
        lambda state, side: state.with_cell("base 2", "v", side),
    ),
    "equal": Operation(
        lambda work: work.tx.update(TABLE, {"v": "'B'"}, where="id = 2"),
        lambda state, _side: state.with_cell("base 2", "v", "B"),
    ),
    "number": Operation(
        lambda work: work.tx.upsert(TABLE, rows([(2, "b", 21)]), keys=["id"]),
        lambda state, _side: state.with_cell("base 2", state.number, 21),
    ),
    "delete": Operation(
        lambda work: work.tx.delete(TABLE, "id = 2"),
        lambda state, _side: state.without_row("base 2"),
    ),
    "key": Operation(
        lambda work: work.tx.set_primary_key(TABLE, ["v"]),
        lambda state, _side: replace(state, key=("v",)),
    ),
    "add": Operation(
        lambda work: work.tx.add_columns(TABLE, pa.schema([("extra", pa.string())])),
        lambda state, _side: replace(state, columns={**state.columns, "extra": Column(pa.string())}),
    ),
    "drop": Operation(lambda work: work.tx.drop_columns(TABLE, ["n"]), _expect_dropped_column),
    "rename": Operation(lambda work: work.alter(name="m"), _expect_renamed_column),
    "retype": Operation(
        lambda work: work.alter(type=pa.int64()),
        lambda state, _side: state.with_column(state.number, type=pa.int64()),
    ),
    "default": Operation(
        lambda work: work.tx.annotate(TABLE, {}, columns={"n": {DEFAULT: "7"}}),
        lambda state, _side: state.with_column(state.number, default="7"),
    ),
    "notnull": Operation(
        lambda work: work.alter(nullable=False),
        lambda state, _side: state.with_column(state.number, nullable=False),
    ),
    "+table": Operation(_add_table, lambda state, _side: replace(state, tables=frozenset({NEW}))),
    "-table": Operation(lambda work: work.tx.drop_table(TABLE), lambda state, _side: replace(state, name=None)),
    "retable": Operation(
        lambda work: work.tx.rename_table(TABLE, RENAMED), lambda state, _side: replace(state, name=RENAMED)
    ),
    "over": Operation(lambda work: work.tx.overwrite(TABLE, rows(OVERWRITTEN)), _expect_overwritten),
    "compact": Operation(lambda work: work.tx.compact(TABLE), lambda state, _side: state),
    "index": Operation(
        lambda work: work.tx.index(TABLE, "n", name="n_idx"),
        lambda state, _side: replace(state, indices=state.indices | ({"n_idx"} & _indices_of(state))),
    ),
    "unindex": Operation(
        lambda work: work.tx.drop_index(TABLE, "v_idx"),
        lambda state, _side: replace(state, indices=state.indices - {"v_idx"}),
    ),
    "note": Operation(
        lambda work: work.tx.annotate(TABLE, {"owner": "ada"}),
        lambda state, _side: replace(state, notes={"owner": "ada"}),
    ),
}
