"""Every pair of operations on one table, merged, with the expected outcomes.

Sources are down, targets across, in the same order. `.` merges: the table has both changes, as a plain model computes
them. Other marks are the kinds of conflict: I a cell of a new row, U both sides updated a cell, D one side deleted a
row that the other updated, T one side dropped the table that the other changed, S the schemas do not agree.
"""

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.format.staging import DEFAULT, notes_of
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind
from tests.repo.merge.grids import parse_square
from tests.repo.merge.operations import BASE_ROWS, NEW, OPERATIONS, SCHEMA, TABLE, Column, Work, base_state, rows

KEYS: dict[str, tuple[str, ...]] = {"keyed": ("id",), "keyless": ()}
KEYED = parse_square("""
nothing  . . . . . . . . . . . . . . . . . . . . . . .
insert   . . . . . . . . . . S . . . . . T . . . . . .
same     . . . . . . . . . . S . . . . . T . . . . . .
null     . . . . . . . . . . . . . . I . T . . . . . .
update   . . . . U U . D . . . . . . . . T . U . . . .
equal    . . . . U . . D . . . . . . . . T . U . . . .
number   . . . . . . . D . . S . . . . . T . . . . . .
delete   . . . . D D D . . . . . . . . . T . D . . . .
key      . . . . . . . . . . . . . . . . T . . . . . .
add      . . . . . . . . . . . . . . . . T . . . . . .
drop     . S S . . . S . . . . S S . S . T . S . . . .
rename   . . . . . . . . . . S . . . . . T . . . . . .
retype   . . . . . . . . . . S . . . . . T . . . . . .
default  . . . . . . . . . . . . . . . . T . . . . . .
notnull  . . . I . . . . . . S . . . . . T . . . . . .
+table   . . . . . . . . . . . . . . . . . . . . . . .
-table   . T T T T T T T T T T T T T T . . T T . . . T
retable  . . . . . . . . . . . . . . . . T . . . . . .
over     . . . . U U . D . . S . . . . . T . . . . . .
compact  . . . . . . . . . . . . . . . . . . . . . . .
index    . . . . . . . . . . . . . . . . . . . . . . .
unindex  . . . . . . . . . . . . . . . . . . . . . . .
note     . . . . . . . . . . . . . . . . T . . . . . .
""")
KEYLESS = parse_square("""
nothing  . . . . . . . . . . . . . . . . . . . . . . .
insert   . . . . . . . . . . S . . . . . T . . . . . .
same     . . . . . . . . . . S . . . . . T . . . . . .
null     . . . . . . . . . . . . . . I . T . . . . . .
update   . . . . U U . D . . . . . . . . T . D . . . .
equal    . . . . U . . D . . . . . . . . T . D . . . .
number   . . . . . . . D . . S . . . . . T . D . . . .
delete   . . . . D D D . . . . . . . . . T . . . . . .
key      . . . . . . . . . . . . . . . . T . . . . . .
add      . . . . . . . . . . . . . . . . T . . . . . .
drop     . S S . . . S . . . . S S . S . T . S . . . .
rename   . . . . . . . . . . S . . . . . T . . . . . .
retype   . . . . . . . . . . S . . . . . T . . . . . .
default  . . . . . . . . . . . . . . . . T . . . . . .
notnull  . . . I . . . . . . S . . . . . T . . . . . .
+table   . . . . . . . . . . . . . . . . . . . . . . .
-table   . T T T T T T T T T T T T T T . . T T . . . T
retable  . . . . . . . . . . . . . . . . T . . . . . .
over     . . . . D D D . . . S . . . . . T . . . . . .
compact  . . . . . . . . . . . . . . . . . . . . . . .
index    . . . . . . . . . . . . . . . . . . . . . . .
unindex  . . . . . . . . . . . . . . . . . . . . . . .
note     . . . . . . . . . . . . . . . . T . . . . . .
""")
GRIDS = {"keyed": KEYED, "keyless": KEYLESS}

# Each method of a transaction that changes a table, and the operations that call it.
METHODS = {
    "create_table": {"+table"},
    "drop_table": {"-table"},
    "rename_table": {"retable"},
    "append": {"insert", "same", "null"},
    "upsert": {"number"},
    "update": {"update", "equal"},
    "delete": {"delete"},
    "overwrite": {"over"},
    "add_columns": {"add"},
    "alter_columns": {"rename", "retype", "notnull"},
    "drop_columns": {"drop"},
    "set_primary_key": {"key"},
    "index": {"index"},
    "drop_index": {"unindex"},
    "compact": {"compact"},
    "annotate": {"default", "note"},
}
OTHER_METHODS = {"add_metadata", "commit", "rollback"}


def fill(repo: ab.Repository, key: tuple[str, ...]) -> None:
    """Create the table in two fragments, and two branches for each operation."""
    with repo.transaction() as tx:
        tx.create_table(TABLE, SCHEMA, primary_key=key)
        tx.append(TABLE, rows(BASE_ROWS[:2]))
    repo.append(TABLE, rows(BASE_ROWS[2:]))
    # After both fragments: a compaction does not join fragments of which an index covers only some.
    repo.index(TABLE, "v")
    for name, operation in OPERATIONS.items():
        for side in ("source", "target"):
            branch = branch_of(name, side)
            before = repo.branch_create(branch).head_commit_id
            with repo.transaction(branch) as tx:
                operation.apply(Work(tx, side))
            # An operation without a commit would test nothing.
            assert (repo.head_commit_id_for_branch(branch) == before) is (name == "nothing"), name


def branch_of(operation: str, side: str) -> str:
    return f"{side}_{list(OPERATIONS).index(operation)}"


def state_of(repo: ab.Repository, branch: str) -> dict[str, Any]:
    """Return what the model knows, of a branch."""
    snapshot = repo.snapshot_of(branch)
    names = [name for name in snapshot if name != NEW]
    if not names:
        return {"name": None, "tables": set(snapshot)}
    (name,) = names
    table = snapshot[name]
    schema = table.schema
    columns = {f.name: Column(f.type, f.nullable, notes_of(f.metadata).get(DEFAULT)) for f in schema}
    return {
        "name": name,
        "rows": sorted(table.to_arrow().to_pylist(), key=repr),
        "columns": columns,
        "key": table.primary_key,
        "indices": {found.name for found in table.indices},
        "notes": dict(notes_of(schema.metadata)),
        "tables": set(snapshot) - {name},
    }


def expected_state(source: str, target: str, key: tuple[str, ...]) -> dict[str, Any]:
    """Return the state after both operations, by the model."""
    state = base_state(key)
    state = OPERATIONS[source].expect(state, "source")
    state = OPERATIONS[target].expect(state, "target")
    if state.name is None:
        return {"name": None, "tables": set(state.tables)}
    found = [{name: row.get(name) for name in state.columns} for row in state.rows.values()]
    return {
        "name": state.name,
        "rows": sorted(found, key=repr),
        "columns": state.columns,
        "key": state.key,
        "indices": set(state.indices),
        "notes": state.notes,
        "tables": set(state.tables),
    }


def mark_of(conflict: Conflict) -> str:
    if conflict.kind is ConflictKind.DELETE_VS_UPDATE:
        return "T" if conflict.key is None else "D"
    return {
        ConflictKind.DIVERGENT_INSERT: "I",
        ConflictKind.DIVERGENT_UPDATE: "U",
        ConflictKind.SCHEMA: "S",
        ConflictKind.KEYLESS: "K",
    }[conflict.kind]


@pytest.fixture(scope="module", params=list(GRIDS))
def lake_of_branches(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ab.Repository:
    """A repository with two branches for each operation, with or without a key."""
    kind = str(request.param)
    folder: Path = tmp_path_factory.mktemp(kind)
    repo = ab.init(folder / "lake", actor="ada")
    fill(repo, KEYS[kind])
    return repo


@pytest.mark.xdist_group("operation pairs")
@pytest.mark.parametrize("source", OPERATIONS)
def test_pair_of_operations_merges_as_it_is_written(lake_of_branches: ab.Repository, source: str) -> None:
    repo = lake_of_branches
    key = repo.table(TABLE).primary_key
    grid = KEYED if key else KEYLESS
    for target in OPERATIONS:
        branch = f"{branch_of(source, 'source')}_into_{branch_of(target, 'target')}"
        repo.branch_create_from(branch_of(target, "target"), branch)
        found, conflicts = ".", ()
        try:
            repo.merge(branch_of(source, "source"), into=branch)
        except MergeConflictError as err:
            found = "".join(sorted({mark_of(conflict) for conflict in err.conflicts}))
            conflicts = err.conflicts
        assert found == grid[source, target], (source, target, conflicts)
        if found == ".":
            assert state_of(repo, branch) == expected_state(source, target, key), (source, target)


def _rebase(repo: ab.Repository, source: str, target: str, branch: str) -> None:
    repo.branch_create_from(branch_of(source, "source"), branch)
    repo.rebase(branch, branch_of(target, "target"))


def _squash(repo: ab.Repository, source: str, target: str, branch: str) -> None:
    repo.branch_create_from(branch_of(target, "target"), branch)
    repo.merge(branch_of(source, "source"), into=branch, squash=True)


def _publish_run(repo: ab.Repository, source: str, target: str, branch: str) -> None:
    repo.branch_create(branch)
    with repo.begin_run(branch) as run:
        with run.transaction() as tx:
            OPERATIONS[source].apply(Work(tx, "source"))
        with repo.transaction(branch) as tx:
            OPERATIONS[target].apply(Work(tx, "target"))


def _merge_live(repo: ab.Repository, source: str, target: str, branch: str) -> None:
    repo.branch_create(f"live_{branch}", mode="live")
    with repo.transaction(f"live_{branch}") as tx:
        OPERATIONS[source].apply(Work(tx, "source"))
    repo.branch_create_from(branch_of(target, "target"), branch)
    repo.merge(f"live_{branch}", into=branch)


OTHER_WAYS = {"rebase": _rebase, "squash": _squash, "run": _publish_run, "live": _merge_live}


@pytest.mark.proof
@pytest.mark.xdist_group("operation pairs")
@pytest.mark.parametrize("way", OTHER_WAYS)
def test_pairs_of_operations_have_one_outcome_in_other_ways(lake_of_branches: ab.Repository, way: str) -> None:
    """A rebase, a squash, a run whose target moved and a merge of a live branch decide as a merge does."""
    repo = lake_of_branches
    key = repo.table(TABLE).primary_key
    grid = KEYED if key else KEYLESS
    for source, target in grid:
        branch = f"{way}_{branch_of(source, 'source')}_{branch_of(target, 'target')}"
        found = "."
        try:
            OTHER_WAYS[way](repo, source, target, branch)
        except MergeConflictError as err:
            found = "".join(sorted({mark_of(conflict) for conflict in err.conflicts}))
        assert found == grid[source, target], (source, target)
        if found == ".":
            assert state_of(repo, branch) == expected_state(source, target, key), (source, target)


@pytest.mark.parametrize("kind", GRIDS)
def test_both_directions_have_one_outcome(kind: str) -> None:
    grid = GRIDS[kind]
    assert set(grid) == {(source, target) for source in OPERATIONS for target in OPERATIONS}
    assert {pair: mark for pair, mark in grid.items() if grid[pair[::-1]] != mark} == {}


def test_every_method_of_a_transaction_has_an_operation() -> None:
    """A method that changes tables needs an operation, so that its merges are decided here."""
    # Methods of a base class too.
    known = {name: getattr(ab.Transaction, name) for name in dir(ab.Transaction) if not name.startswith("_")}
    public = {name for name, value in known.items() if callable(value)}
    assert public == {*METHODS, *OTHER_METHODS}
    assert {"nothing", *(name for names in METHODS.values() for name in names)} == set(OPERATIONS)
