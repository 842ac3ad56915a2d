"""Histories of two tables on branches that merge, in a repository and in the tables of the model side by side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from tests.model.outcome import Conflicts, UnclearError
from tests.model.table import ModelTable, Row
from tests.model.table_graph import Node, TableGraph
from tests.model.table_merge import Strategy

__all__ = ["BRANCHES", "COLUMNS", "TABLES", "History", "rows_of"]

TABLES = ("s.t", "s.u")
BRANCHES = ("main", "dev", "child", "live")
COLUMNS = ("n", "m", "o", "p")


@dataclass(frozen=True)
class Merging:
    """The expected result of a merge of all tables."""

    results: Mapping[str, ModelTable]
    conflicts: frozenset[tuple[str, object, str | None]]


class History:
    """Each state of a table is a node of the model's graph. A live branch has the nodes of main until it writes."""

    def __init__(self, uri: str) -> None:
        self.repo = ab.init(uri, actor="ada")
        self.graphs = {key: TableGraph() for key in TABLES}
        self.tips: dict[str, dict[str, Node]] = {"main": {}}
        with self.repo.transaction() as tx:
            for key in TABLES:
                schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("m", pa.int64())])
                tx.create_table(key, schema, primary_key=["id"])
                tx.append(key, pa.table([range(6), [0] * 6, [0] * 6], schema=schema))
        for key in TABLES:
            rows = [{"id": number, "n": 0, "m": 0} for number in range(6)]
            empty = ModelTable(columns=("id", "n", "m"), primary_key=("id",), dataset=key)
            self._node("main", key, empty.append(empty.columns, rows))
        self.repo.branch_create("dev")
        self.tips["dev"] = dict(self.tips["main"])
        self.repo.branch_create_from("dev", "child")
        self.tips["child"] = dict(self.tips["dev"])
        self.repo.branch_create_from("main", "live", mode="live")
        self.tips["live"] = {}

    def tip(self, branch: str, key: str) -> Node:
        own = self.tips[branch]
        return own[key] if key in own else self.tips["main"][key]

    def state(self, branch: str, key: str) -> ModelTable:
        return self.graphs[key].states[self.tip(branch, key)]

    def _node(self, branch: str, key: str, state: ModelTable, *parents: Node) -> None:
        self.tips[branch][key] = self.graphs[key].add(state, *parents)

    def check(self, branches: Iterable[str] = BRANCHES) -> None:
        """Check that all branches have the expected rows."""
        for branch in branches:
            snapshot = self.repo.snapshot_of(branch)
            for key in TABLES:
                assert rows_of(snapshot[key].to_arrow()) == _by_id(self.state(branch, key)), (branch, key)

    # Changes

    def upsert(self, branch: str, key: str, rows: Mapping[int, Mapping[str, int | None]]) -> None:
        before = self.state(branch, key)
        known = _by_id(before)
        columns = sorted({name for row in rows.values() for name in row} & {*before.columns})
        if not rows or not columns:
            return
        given: list[Row] = [
            {"id": number} | {name: row.get(name, known.get(number, {}).get(name)) for name in columns}
            for number, row in rows.items()
        ]
        schema = pa.schema([(name, pa.int64()) for name in ("id", *columns)])
        with self.repo.transaction(branch) as tx:
            tx.upsert(key, pa.Table.from_pylist(given, schema=schema))
        self._node(branch, key, before.upsert(schema.names, given), self.tip(branch, key))

    def delete(self, branch: str, key: str, numbers: Iterable[int]) -> None:
        before = self.state(branch, key)
        gone = {*numbers} & _by_id(before).keys()
        if gone:
            with self.repo.transaction(branch) as tx:
                tx.delete(key, f"id IN ({', '.join(map(str, sorted(gone)))})")
            self._node(branch, key, before.delete(lambda row: row["id"] in gone), self.tip(branch, key))

    def add_column(self, branch: str, key: str, name: str, value: int | None) -> None:
        before = self.state(branch, key)
        if name in before.columns:
            return
        with self.repo.transaction(branch) as tx:
            tx.add_columns(key, pa.schema([(name, pa.int64())]) if value is None else {name: str(value)})
        self._node(branch, key, before.add_column(name, lambda _: value), self.tip(branch, key))

    def compact(self, branch: str) -> None:
        done = self.repo.compact(branch=branch).commit
        for key in () if done is None else done.tables:
            self._node(branch, key, self.state(branch, key), self.tip(branch, key))

    def pull(self, branch: str, key: str) -> None:
        parent = {"dev": "main", "child": "dev", "live": "main"}.get(branch)
        if parent is None:
            return
        self.repo.branch_pull(branch, key)
        if branch == "live":
            self.tips[branch].pop(key, None)
        else:
            self.tips[branch][key] = self.tip(parent, key)

    def merge(self, source: str, into: str, *, strategy: Strategy) -> None:
        """Merge without a strategy if there are no conflicts, else with one. Check the conflicts and the result."""
        try:
            wanted = self.plan(source, into, "fail")
        except UnclearError:
            return
        conflicts = list(self.repo.conflicts(source, into=into))
        reported = [(found.table, ((found.key or {})["id"],), found.column) for found in conflicts]
        assert sorted(reported, key=repr) == sorted(wanted.conflicts, key=repr)
        dry = self.repo.merge(source, into=into, dry_run=True)
        assert dry.plan.conflict_count == len(conflicts)
        if conflicts:
            with pytest.raises(MergeConflictError) as caught:
                self.repo.merge(source, into=into)
            assert caught.value.count == len(conflicts)
            self.check([into])
            wanted = self.plan(source, into, strategy)
        done = self.repo.merge(source, into=into, strategy=strategy if conflicts else "fail")
        if done.commit is None:
            return
        for key in TABLES:
            ours, theirs = self.tip(source, key), self.tip(into, key)
            if into != "live" or key in self.tips[into] or key in done.commit.tables:
                self._node(into, key, wanted.results[key], theirs, ours)
            else:
                assert _by_id(wanted.results[key]) == _by_id(self.state(into, key))

    # Expected results

    def plan(self, source: str, into: str, strategy: Strategy) -> Merging:
        results: dict[str, ModelTable] = {}
        conflicts: set[tuple[str, object, str | None]] = set()
        for key in TABLES:
            merged = self.graphs[key].merge(self.tip(source, key), self.tip(into, key), strategy)
            if isinstance(merged, Conflicts):
                conflicts |= {(key, *cell) for cell in merged.cells}
            else:
                results[key] = merged
        return Merging(results, frozenset(conflicts))


def rows_of(table: pa.Table) -> dict[int, dict[str, Any]]:
    found = {row.pop("id"): row for row in table.to_pylist()}
    assert len(found) == len(table), "a key is there twice"
    return found


def _by_id(table: ModelTable) -> dict[object, Row]:
    return {row["id"]: {name: row[name] for name in table.columns if name != "id"} for row in table.rows}
