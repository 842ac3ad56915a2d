"""Recipes chained in random order, with a plain dict as the judge."""

import shutil
import tempfile
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.format.home import Home
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    VersionRef,
    add_columns,
    alter_columns,
    append,
    compact,
    create_empty,
    delete,
    drop_columns,
    find_existing_keys,
    fork,
    index,
    list_external_versions,
    overwrite,
    settle,
    update,
    upsert,
)

Row = dict[str, Any]

NESTED = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.float64()),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("st", NESTED),
        ("l", pa.list_(pa.int64())),
    ]
)
IDS = st.integers(0, 12)
NUMBERS = st.sampled_from([None, -3, 0, 1, 7])
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.float64(): st.sampled_from([None, -1.5, 0.0, 0.5, 2.0]),
    pa.int32(): NUMBERS,
    pa.int64(): NUMBERS,
    pa.string(): st.sampled_from([None, "", "a", "b c", "é"]),
    NESTED: st.sampled_from([None, {"a": None, "b": None}, {"a": 1, "b": []}, {"a": 2, "b": ["x", None]}]),
    pa.list_(pa.int64()): st.sampled_from([None, [], [1], [2, None]]),
}
INDEXABLE = {pa.float64(): "BTREE", pa.int32(): "BITMAP", pa.int64(): "BTREE", pa.string(): "BITMAP"}


@dataclass
class Model:
    """What the table should hold, and the row id under which each key was first seen."""

    schema: pa.Schema = SCHEMA
    rows: dict[int, Row] = field(default_factory=dict)
    row_ids: dict[int, int] = field(default_factory=dict)
    used_row_ids: set[int] = field(default_factory=set)
    indexed: set[str] = field(default_factory=set)


def read(version_ref: VersionRef) -> tuple[dict[int, Row], dict[int, int]]:
    found = version_ref.open().scanner(with_row_id=True).to_table().to_pylist()
    ids = {row["id"]: row.pop("_rowid") for row in found}
    assert len(ids) == len(found) == version_ref.count_rows()
    return {row["id"]: row for row in found}, ids


class Chain(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.model = Model()
        self.version_ref = create_empty(Home.at(f"{self.folder}/t.lance"), SCHEMA)
        self.head, self.head_rows = self.version_ref.version, dict[int, Row]()
        self.seen: list[tuple[VersionRef, dict[int, Row]]] = []
        self.forks = self.names = 0

    def teardown(self) -> None:
        for version_ref, rows in getattr(self, "seen", []):
            assert read(version_ref)[0] == rows, "an earlier version changed"
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    def table(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self.model.schema)

    def draw_rows(self, data: st.DataObject, keys: list[int]) -> list[Row]:
        return [
            {f.name: key if f.name == "id" else data.draw(VALUES[f.type]) for f in self.model.schema} for key in keys
        ]

    def changed(self, version_ref: VersionRef, rows: dict[int, Row]) -> None:
        self.model.rows = rows
        self.version_ref = version_ref

    def column(self, data: st.DataObject, *kinds: pa.DataType) -> str | None:
        names = [f.name for f in self.model.schema if f.name != "id" and (not kinds or f.type in kinds)]
        return data.draw(st.sampled_from(names)) if names else None

    @rule(data=st.data(), keys=st.sets(IDS, max_size=4))
    def append_new_keys(self, data: st.DataObject, keys: set[int]) -> None:
        rows = self.draw_rows(data, sorted(keys - self.model.rows.keys()))
        table = self.table(rows)
        shuffled = table.select(list(reversed(table.column_names)))
        self.changed(append(self.version_ref, shuffled), self.model.rows | {row["id"]: row for row in rows})

    @rule(data=st.data(), keys=st.sets(IDS, max_size=4))
    def upsert_whole_rows(self, data: st.DataObject, keys: set[int]) -> None:
        rows = self.draw_rows(data, sorted(keys, reverse=True))
        there = find_existing_keys(self.version_ref, self.table(rows), ["id"]).column("id").to_pylist()
        assert set(there) == keys & self.model.rows.keys()
        result = upsert(self.version_ref, self.table(rows), ["id"])
        assert (result.updated, result.inserted) == (len(there), len(keys) - len(there))
        self.changed(result.version_ref, self.model.rows | {row["id"]: row for row in rows})

    @rule(data=st.data(), keys=st.sets(IDS, max_size=3))
    def upsert_one_column(self, data: st.DataObject, keys: set[int]) -> None:
        name = self.column(data)
        if name is None:
            return
        rows = [{"id": row["id"], name: row[name]} for row in self.draw_rows(data, sorted(keys))]
        nothing = dict.fromkeys(self.model.schema.names)
        after = {row["id"]: {**self.model.rows.get(row["id"], nothing), **row} for row in rows}
        schema = pa.schema([self.model.schema.field("id"), self.model.schema.field(name)])
        result = upsert(self.version_ref, pa.Table.from_pylist(rows, schema=schema), ["id"])
        self.changed(result.version_ref, self.model.rows | after)

    @rule(data=st.data(), above=IDS)
    def update_numbers(self, data: st.DataObject, above: int) -> None:
        name = self.column(data, pa.int32(), pa.int64())
        if name is None:
            return
        result = update(self.version_ref, {name: f"{name} + 1"}, where=f"id >= {above}")
        after = {
            key: row | {name: None if row[name] is None else row[name] + 1} if key >= above else row
            for key, row in self.model.rows.items()
        }
        assert result.updated == sum(key >= above for key in after)
        self.changed(result.version_ref, after)

    @rule(data=st.data())
    def update_every_row(self, data: st.DataObject) -> None:
        name = self.column(data, pa.string())
        if name is None:
            return
        result = update(self.version_ref, {name: "'b c'"})
        self.changed(result.version_ref, {key: row | {name: "b c"} for key, row in self.model.rows.items()})

    @rule(above=IDS)
    def delete_by_predicate(self, above: int) -> None:
        result = delete(self.version_ref, f"id > {above}")
        left = {key: row for key, row in self.model.rows.items() if key <= above}
        assert result.deleted == len(self.model.rows) - len(left)
        self.changed(result.version_ref, left)

    @rule(keys=st.lists(IDS, max_size=3))
    def delete_by_key(self, keys: list[int]) -> None:
        result = delete(self.version_ref, f"id IN ({', '.join(map(str, keys)) or 'NULL'})")
        self.changed(result.version_ref, {key: row for key, row in self.model.rows.items() if key not in keys})

    @rule()
    def add_computed_column(self) -> None:
        name = f"c{self.names}"
        self.names += 1
        version_ref = add_columns(self.version_ref, {name: "id * 2"})
        self.model.schema = self.model.schema.append(pa.field(name, pa.int64()))
        assert version_ref.schema.names == self.model.schema.names
        self.changed(version_ref, {key: row | {name: key * 2} for key, row in self.model.rows.items()})

    @rule(kind=st.sampled_from(list(VALUES)))
    def add_empty_column(self, kind: pa.DataType) -> None:
        name = f"c{self.names}"
        self.names += 1
        version_ref = add_columns(self.version_ref, pa.schema([(name, kind)]))
        self.model.schema = self.model.schema.append(pa.field(name, kind))
        self.changed(version_ref, {key: row | {name: None} for key, row in self.model.rows.items()})

    @rule(data=st.data())
    def rename_column(self, data: st.DataObject) -> None:
        old = self.column(data)
        if old is None:
            return
        new = f"c{self.names}"
        self.names += 1
        version_ref = alter_columns(self.version_ref, [ColumnChange(path=old, name=new)])
        fields = [f.with_name(new) if f.name == old else f for f in self.model.schema]
        self.model.schema = pa.schema(fields)
        if old in self.model.indexed:
            self.model.indexed = self.model.indexed - {old} | {new}
        renamed = {k: {new if n == old else n: v for n, v in row.items()} for k, row in self.model.rows.items()}
        self.changed(version_ref, renamed)

    @rule(data=st.data())
    def widen_column(self, data: st.DataObject) -> None:
        name = self.column(data, pa.int32())
        if name is None:
            return
        version_ref = alter_columns(self.version_ref, [ColumnChange(path=name, type=pa.int64())])
        fields = [f.with_type(pa.int64()) if f.name == name else f for f in self.model.schema]
        self.model.schema = pa.schema(fields)
        assert version_ref.schema.names == self.model.schema.names
        self.model.indexed -= {name}
        self.changed(version_ref, self.model.rows)

    @rule(data=st.data())
    def drop_column(self, data: st.DataObject) -> None:
        name = self.column(data)
        if name is None:
            return
        version_ref = drop_columns(self.version_ref, [name])
        self.model.schema = self.model.schema.remove(self.model.schema.get_field_index(name))
        self.model.indexed -= {name}
        self.changed(
            version_ref, {k: {n: v for n, v in row.items() if n != name} for k, row in self.model.rows.items()}
        )

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def build_index(self, data: st.DataObject) -> None:
        candidates = [f for f in self.model.schema if f.type in INDEXABLE]
        chosen = data.draw(st.sampled_from(candidates))
        self.version_ref = index(self.version_ref, chosen.name, IndexKind(INDEXABLE[chosen.type]))
        self.model.indexed.add(chosen.name)

    @rule(rows=st.sampled_from([2, 1000]))
    def compact_fragments(self, rows: int) -> None:
        self.version_ref = compact(self.version_ref, target_rows_per_fragment=rows)

    @rule(data=st.data(), keys=st.sets(IDS, max_size=3))
    def overwrite_all(self, data: st.DataObject, keys: set[int]) -> None:
        self.model.schema, self.model.indexed, self.model.row_ids = SCHEMA, set(), {}
        rows = self.draw_rows(data, sorted(keys))
        self.changed(overwrite(self.version_ref, self.table(rows)), {row["id"]: row for row in rows})

    @rule()
    def settle_home(self) -> None:
        settled = settle(self.version_ref.home, self.version_ref.version, expected_head=self.head)
        assert not list_external_versions(self.version_ref.home, since=self.head)
        self.head, self.head_rows = settled.number, self.model.rows

    @precondition(lambda self: self.forks < 3)
    @rule()
    def continue_in_a_fork(self) -> None:
        self.forks += 1
        home = fork(self.version_ref, f"dev/{self.forks}")
        self.head, self.head_rows = home.open().version, self.model.rows
        self.version_ref = VersionRef(home=home, version=self.head)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "version_ref"):
            return
        rows, row_ids = read(self.version_ref)
        assert rows == self.model.rows
        for key, row_id in row_ids.items():
            if key in self.model.row_ids:
                assert row_id == self.model.row_ids[key], "a row changed its id"
            else:
                assert row_id not in self.model.used_row_ids, "a row id was used again"
        self.model.row_ids = row_ids
        self.model.used_row_ids |= set(row_ids.values())
        if not self.seen or self.seen[-1][0] != self.version_ref:
            self.seen.append((self.version_ref, rows))

    @invariant()
    def indices_answer_right(self) -> None:
        if not hasattr(self, "version_ref"):
            return
        dataset = self.version_ref.open()
        for name in self.model.indexed:
            values = {row[name] for row in self.model.rows.values()} | {None}
            for value in values:
                literal = f"'{value}'" if isinstance(value, str) else value
                predicate = f"{name} IS NULL" if value is None else f"{name} = {literal}"
                found = dataset.to_table(columns=["id"], filter=predicate).column("id").to_pylist()
                expected = {key for key, row in self.model.rows.items() if row[name] == value}
                assert set(found) == expected, predicate
                assert len(found) == len(expected)

    @invariant()
    def raw_readers_see_the_settled_head_only(self) -> None:
        if not hasattr(self, "version_ref"):
            return
        head = self.version_ref.home.open()
        assert head.version == self.head
        assert {row["id"]: row for row in head.to_table().to_pylist()} == self.head_rows


TestChain = Chain.TestCase
TestChain.settings = settings(stateful_step_count=12)
