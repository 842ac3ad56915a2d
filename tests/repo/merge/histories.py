"""Histories of two tables on branches that merge, in a repository and as plain dicts side by side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from tests.repo.graphs import ancestors, lowest
from tests.repo.merge.plain_merge import Plain, merge_plain

__all__ = ["BRANCHES", "COLUMNS", "TABLES", "History", "rows_of"]

TABLES = ("s.t", "s.u")
BRANCHES = ("main", "dev", "child", "live")
COLUMNS = ("n", "m", "o", "p")

Node = str


@dataclass(frozen=True)
class Merging:
    """What a merge of all tables is meant to come to."""

    results: Mapping[str, Plain]
    conflicts: frozenset[tuple[str, int, str | None]]


class History:
    """Each state of each table is a node, made from others; a live branch has those of main until it writes."""

    def __init__(self, uri: str) -> None:
        self.repo = ab.init(uri, actor="ada")
        self.states: dict[Node, Plain] = {}
        self.parents: dict[Node, tuple[Node, ...]] = {}
        self.tips: dict[str, dict[str, Node]] = {"main": {}}
        with self.repo.transaction() as tx:
            for key in TABLES:
                schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("m", pa.int64())])
                tx.create_table(key, schema, primary_key=["id"])
                tx.append(key, pa.table([range(6), [0] * 6, [0] * 6], schema=schema))
        for key in TABLES:
            rows = {number: {"n": 0, "m": 0} for number in range(6)}
            self._node("main", key, Plain(frozenset({"n", "m"}), rows))
        self.repo.branch_create("dev")
        self.tips["dev"] = dict(self.tips["main"])
        self.repo.branch_create_from("dev", "child")
        self.tips["child"] = dict(self.tips["dev"])
        self.repo.branch_create_from("main", "live", mode="live")
        self.tips["live"] = {}

    def tip(self, branch: str, key: str) -> Node:
        return self.tips[branch].get(key) or self.tips["main"][key]

    def state(self, branch: str, key: str) -> Plain:
        return self.states[self.tip(branch, key)]

    def _node(self, branch: str, key: str, state: Plain, *parents: Node) -> None:
        node = str(len(self.parents))
        self.parents[node], self.states[node] = parents, state
        self.tips[branch][key] = node

    def check(self, branches: Iterable[str] = BRANCHES) -> None:
        """All branches have what they are meant to have."""
        for branch in branches:
            snapshot = self.repo.snapshot_of(branch)
            for key in TABLES:
                assert rows_of(snapshot[key].to_arrow()) == self.state(branch, key).padded(), (branch, key)

    # What can be done

    def upsert(self, branch: str, key: str, rows: Mapping[int, Mapping[str, int | None]]) -> None:
        before = self.state(branch, key)
        columns = sorted({name for row in rows.values() for name in row} & before.columns)
        if not rows or not columns:
            return
        whole = {
            number: {**before.padded().get(number, {}), **{name: row.get(name) for name in columns}}
            for number, row in rows.items()
        }
        data = pa.table(
            {"id": pa.array(list(whole), pa.int64())}
            | {name: pa.array([row.get(name) for row in whole.values()], pa.int64()) for name in columns}
        )
        with self.repo.transaction(branch) as tx:
            tx.upsert(key, data)
        self._node(branch, key, Plain(before.columns, {**before.rows, **whole}), self.tip(branch, key))

    def delete(self, branch: str, key: str, numbers: Iterable[int]) -> None:
        before = self.state(branch, key)
        gone = set(numbers) & set(before.rows)
        if gone:
            with self.repo.transaction(branch) as tx:
                tx.delete(key, f"id IN ({', '.join(map(str, sorted(gone)))})")
            rows = {number: row for number, row in before.rows.items() if number not in gone}
            self._node(branch, key, Plain(before.columns, rows), self.tip(branch, key))

    def add_column(self, branch: str, key: str, name: str, value: int | None) -> None:
        before = self.state(branch, key)
        if name in before.columns:
            return
        with self.repo.transaction(branch) as tx:
            tx.add_columns(key, pa.schema([(name, pa.int64())]) if value is None else {name: str(value)})
        rows = {number: {**row, name: value} for number, row in before.padded().items()}
        self._node(branch, key, Plain(before.columns | {name}, rows), self.tip(branch, key))

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

    def merge(self, source: str, into: str, *, strategy: str) -> None:
        """Merge without a strategy, if that can be, else with one; check either."""
        wanted = self.plan(source, into, side=None)
        conflicts = list(self.repo.conflicts(source, into=into))
        reported = [(found.table, (found.key or {})["id"], found.column) for found in conflicts]
        assert sorted(reported, key=repr) == sorted(wanted.conflicts, key=repr)
        dry = self.repo.merge(source, into=into, dry_run=True)
        assert dry.plan.conflict_count == len(conflicts)
        if conflicts:
            with pytest.raises(MergeConflictError) as caught:
                self.repo.merge(source, into=into)
            assert caught.value.count == len(conflicts)
            self.check([into])
        else:
            strategy = "fail"
        wanted = self.plan(source, into, side=None if strategy == "fail" else strategy)
        done = self.repo.merge(source, into=into, strategy=strategy)
        if done.commit is None:
            return
        for key in TABLES:
            ours, theirs = self.tip(source, key), self.tip(into, key)
            if into != "live" or key in self.tips[into] or key in done.commit.tables:
                self._node(into, key, wanted.results[key], theirs, ours)
            else:
                assert wanted.results[key].padded() == self.state(into, key).padded()

    # What is meant

    def plan(self, source: str, into: str, *, side: str | None) -> Merging:
        results, conflicts = {}, set()
        for key in TABLES:
            ours, theirs = self.tip(source, key), self.tip(into, key)
            if ours in ancestors(self.parents, theirs):
                results[key] = self.states[theirs]
                continue
            merged = merge_plain(self._base(ours, theirs), self.states[ours], self.states[theirs], side=side)
            results[key] = merged.result
            conflicts |= {(key, *conflict) for conflict in merged.conflicts}
        return Merging(results, frozenset(conflicts))

    def _base(self, ours: Node, theirs: Node) -> Plain | None:
        """The lowest common ancestor; several are merged, and what they do not agree on is unknown."""
        first, *others = sorted(lowest(self.parents, ours, theirs), key=int)
        state = self.states[first]
        for other in others:
            lower = self._base(other, first)
            state = merge_plain(lower, self.states[other], state, side="unknown").result
        return state


def rows_of(table: pa.Table) -> dict[int, dict[str, Any]]:
    found = {row.pop("id"): row for row in table.to_pylist()}
    assert len(found) == len(table), "a key is there twice"
    return found
