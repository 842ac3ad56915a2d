"""Random histories of one table, with everything that can change it, and the slow answers about its rows."""

import random
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.format.staging import ColumnChange

TABLE = "s.rows"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
KEYS = range(1, 9)


def rows(ids: list[int], value: str) -> pa.Table:
    return pa.table({"id": ids, "v": [value] * len(ids)}, schema=SCHEMA)


def begin(repo: ab.Repository) -> None:
    with repo.transaction(message="begin") as tx:
        tx.create_table(TABLE, SCHEMA, primary_key=["id"])
        tx.append(TABLE, rows([1, 2, 3, 4], "a"))


def change_rows(tx: Any, state: ab.Snapshot, chance: random.Random) -> None:
    there = set(state[TABLE].to_arrow(columns=["id"])["id"].to_pylist())
    schema = state[TABLE].schema
    names = schema.names
    some, value = chance.sample(KEYS, 2), chance.choice("abc")
    # A column of numbers may have been renamed to such a name, too.
    texts = [field.name for field in schema if field.name.startswith("v") and field.type == pa.string()]
    column = next(iter(texts), None)
    match chance.randrange(8):
        case 0:
            tx.delete(TABLE, f"id IN ({some[0]}, {some[1]})")
        case 1 if names == SCHEMA.names:
            tx.overwrite(TABLE, rows(some, value))
        case 2 if column is not None:
            tx.update(TABLE, {column: f"'{value}'"}, where=f"id <= {some[0]}")
        case 3:
            tx.compact(TABLE)
        case 4 if column is not None:
            new = sorted(set(some) - there)
            if new:
                tx.append(TABLE, pa.table({"id": new, column: [value] * len(new)}))
        case _ if column is not None:
            found = state[TABLE].to_arrow(where=f"id IN ({some[0]}, {some[1]})").to_pylist()
            kept = {row["id"]: row for row in found}
            full = [{**dict.fromkeys(names), **kept.get(key, {}), "id": key, column: value} for key in some]
            tx.upsert(TABLE, pa.Table.from_pylist(full, schema=state[TABLE].schema))
        case _:
            pass


def change_columns(tx: Any, state: ab.Snapshot, chance: random.Random) -> None:
    names = [name for name in state[TABLE].schema.names if name != "id"]
    number = chance.randrange(10**6)
    match chance.randrange(4):
        case 0:
            tx.add_columns(TABLE, {f"w{number}": "id * 2"})
        case 1:
            tx.add_columns(TABLE, pa.schema([(f"n{number}", pa.int64())]))
        case 2 if names:
            tx.alter_columns(TABLE, [ColumnChange(path=chance.choice(names), name=f"v{number}")])
        case 3 if len(names) > 1:
            tx.drop_columns(TABLE, [chance.choice(names)])
        case _:
            pass


def change_table(repo: ab.Repository, branch: str, chance: random.Random) -> None:
    """Make one commit, or a few where an operation needs them; an operation that is refused changes nothing."""
    state = repo.snapshot_of(branch)
    if TABLE not in state:
        with repo.transaction(branch, message="again") as tx:
            tx.create_table(TABLE, SCHEMA, primary_key=["id"])
            tx.append(TABLE, rows(chance.sample(KEYS, 3), "a"))
        return
    kind = chance.randrange(20)
    if kind == 0 and "s.away" not in state:
        for old, new in ((TABLE, "s.away"), ("s.away", TABLE)):
            with repo.transaction(branch, message="rename") as tx:
                tx.rename_table(old, new)
    elif kind == 1:
        with repo.transaction(branch, message="drop") as tx:
            tx.drop_table(TABLE)
    elif kind == 2:
        _try(lambda: repo.revert(f"{branch}~{chance.randrange(2)}", branch=branch))
    elif kind == 3:
        repo.reset(branch, f"{branch}~1")
    elif kind in (4, 5):
        _merge_side(repo, branch, chance)
    else:
        with repo.transaction(branch, message=f"step {kind}") as tx:
            (change_columns if kind in (6, 7) else change_rows)(tx, state, chance)


def _merge_side(repo: ab.Repository, branch: str, chance: random.Random) -> None:
    side = f"side{chance.randrange(10**9)}"
    repo.branch_create(side, branch)
    for name in (side, side, branch):
        state = repo.snapshot_of(name)
        with repo.transaction(name, message=f"on {name}") as tx:
            change_rows(tx, state, chance)
    _try(lambda: repo.merge(side, into=branch, strategy="source"))


def _try(operation: Any) -> None:
    try:
        operation()
    except AnabranchError:
        return


def changed_keys(repo: ab.Repository, commit: ab.GraphCommit) -> set[int]:
    """Return the keys of the rows that differ between a commit and its first parent."""
    after = repo.snapshot_of(commit.id)
    parent = commit.parent_commit_id
    before = None if parent is None else repo.snapshot_of(parent)
    there = [state[TABLE] for state in (before, after) if state is not None and TABLE in state]
    if before is None or len(there) < 2:
        return {key for table in there for key in table.to_arrow(columns=["id"])["id"].to_pylist()}
    found: set[int] = set()
    for table in repo.diff(before.id, after.id, tables=[TABLE]).tables:
        for row in table.iter_rows():
            found.add((row.after or row.before or {})["id"])
    return found
