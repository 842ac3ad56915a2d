"""The lake that writes are tried on, and what any reader can see of it."""

from typing import Any

import lance
import pyarrow as pa

import anabranch as ab
from anabranch.format.staging.schema_notes import COLUMN_ID
from anabranch.ids import BranchName
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import RunPhase, TableEntry
from anabranch.storage.options import lance_options
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, raw, rows, table

STRANGE = "in_c_sales.strange"
RIVAL = "in_c_sales.rival"
STEP = "a step of the run"

State = dict[str, Any]
# Runs that failed stay listed, for callers that ask how they ended.
_ALIVE = {RunPhase.RUNNING, RunPhase.PUBLISHING, RunPhase.PUBLISHED}
Known = dict[TableEntry, tuple[Any, ...]]


def fill(repo: ab.Repository) -> None:
    """Branches pinned, live, protected and deleted, a tag, a run, an index, an external write; nothing large."""
    with repo.transaction(message="first") as tx:
        for key in (ORDERS, STRANGE, RIVAL):
            tx.create_table(key, SCHEMA, primary_key=["id"])
            tx.append(key, table(1, 2, 3))
        tx.create_table(CUSTOMERS, SCHEMA)
        tx.append(CUSTOMERS, table(10, 20))
    repo.tag_create("v1")
    append(repo, 4)
    repo.index(ORDERS, "v")
    repo.branch_create("dev")
    with repo.transaction("dev", message="on dev") as tx:
        tx.update(ORDERS, {"v": "'dev'"}, where="id = 2")
        tx.append(ORDERS, table(5))
    append(repo, 30, key=CUSTOMERS)
    repo.branch_create_from("main", "live", mode="live")
    append(repo, 40, branch="live", key=CUSTOMERS)
    repo.branch_create("gone")
    append(repo, 6, branch="gone")
    repo.branch_delete("gone")
    repo.branch_create("guarded")
    repo.branch_protect("guarded", checks=["SELECT 1 FROM in_c_sales.orders WHERE id < 0"])
    with repo.begin_run("main", message="a run") as run:
        with run.transaction(message=STEP) as tx:
            tx.append(ORDERS, table(50))
        run.abort()
    run = repo.begin_run("main", message="an open run")
    with run.transaction(message=STEP) as tx:
        tx.append(ORDERS, table(51))
    strange_append(repo)


def strange_append(repo: ab.Repository) -> None:
    """Append to a table behind the repository's back."""
    options = repo.storage_options
    lance.write_dataset(
        table(9), raw(repo, STRANGE).uri, mode="append", storage_options=lance_options(options) if options else None
    )


def look(repo: ab.Repository) -> State:
    """Everything that a user can see, but for what a rival did, and for ids and times."""
    known: Known = {}
    return {
        "branches": {info.name: _branch(repo, info, known) for info in repo.branch_list()},
        "tags": {info.name: repo.get_commit(info.commit_id).message for info in repo.tag_list() if info.name != "late"},
        "runs": [(info.message, info.state, info.tables) for info in repo.run_list(limit=None) if info.state in _ALIVE],
        "clones": [(info.target.rpartition("/")[2], info.kind, info.is_held) for info in repo.clone_list()],
    }


def read_heads(repo: ab.Repository) -> State:
    """What branches and tags show: all that housekeeping must leave alone at any moment."""
    known: Known = {}
    branches = {info.name: _tables(repo, info.name, known) for info in repo.branch_list()}
    return {"branches": branches, "tags": {info.name: _tables(repo, info.name, known) for info in repo.tag_list()}}


def _branch(repo: ab.Repository, info: Any, known: Known) -> State:
    commits = repo.list_commits(info.name, limit=None)
    messages = [commit.message.replace(repo.uri, "") for commit in commits if commit.message != RIVAL]
    return {
        "is": (info.mode, info.parent, info.is_protected, info.description),
        "commits": messages,
        "tables": _tables(repo, info.name, known),
    }


def _tables(repo: ab.Repository, ref: str, known: Known) -> State:
    """The tables of a ref; what several refs share is read once."""
    snapshot = repo.snapshot_of(ref)
    for key in snapshot:
        if key != RIVAL and snapshot[key].entry not in known:
            known[snapshot[key].entry] = _table(snapshot[key])
    return {key: known[snapshot[key].entry] for key in snapshot if key != RIVAL}


def _table(found: Any) -> tuple[Any, ...]:
    return found.primary_key, _shown_schema(found.schema), rows(found), tuple(index.name for index in found.indices)


def look_raw(repo: ab.Repository) -> dict[str, list[dict[str, Any]]]:
    """What any Lance tool sees of main, external branches left out."""
    snapshot = repo.snapshot_of("main")
    keys = [key for key in snapshot if key not in (STRANGE, RIVAL)]
    return {key: rows(raw(repo, key, "main")) for key in keys if owns(BranchName("main"), snapshot[key].entry.home)}


def _shown_schema(schema: pa.Schema) -> str:
    """Return the columns and notes without the identities of columns, which are random for added ones."""
    shown = schema
    for number, field in enumerate(schema):
        notes = {name: text for name, text in (field.metadata or {}).items() if name != COLUMN_ID.encode()}
        shown = shown.set(number, field.with_metadata(notes))
    return str(shown)
