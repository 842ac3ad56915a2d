"""Every public write of a repository and of a run, as something that can be done to the lake."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.errors import BranchExistsError, BranchNotFoundError, RepositoryNotFoundError
from anabranch.ids import TableKey
from anabranch.repo.log.commits import Once
from anabranch.repo.run import Run
from anabranch.repo.runs.engine_access import EngineAccess, StreamBatch
from tests.faults.lakes import RIVAL, STRANGE, State, look, read_heads
from tests.repo.conftest import CUSTOMERS, ORDERS, append, table
from tests.repo.gc.object_ages import pass_time
from tests.repo.io.moving import copy_objects

Act = Callable[[ab.Repository], object]
Look = Callable[[ab.Repository], State]


def do_nothing(_repo: ab.Repository) -> None:
    """For writes that need nothing before."""


def commit_on_main(repo: ab.Repository) -> None:
    """Commit to a table that no other process writes."""
    _commit(repo, "main")


def _commit_on_dev(repo: ab.Repository) -> None:
    _commit(repo, "dev")


def _commit_on_dev_if_there(repo: ab.Repository) -> None:
    with suppress(BranchNotFoundError):
        _commit_on_dev(repo)


def _commit(repo: ab.Repository, branch: str) -> None:
    with repo.transaction(branch, message=RIVAL) as tx:
        tx.append(RIVAL, table(99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write, what is done before it without faults, what of the lake it must bring from one state to another, and
    what a rival does while a request takes long.

    One of a dataset by itself has no log to roll it back with: it `may_be_done` though it raised, when what fails is
    reading what it made. So may the deletion of a branch when what fails is to free its space, and a file that is
    to be overwritten: both can be done again. One that `is_local` is never on a remote store. No request of a disk is
    carried out after the caller has given up.
    """

    act: Act
    prepare: Act = do_nothing
    look: Look = look
    rival: Act = commit_on_main
    may_be_done: bool = False
    is_local: bool = False


def names(words: str) -> frozenset[str]:
    return frozenset(words.split())


def in_transaction(change: Callable[[ab.Transaction], object], *, branch: str | None = None) -> Write:
    def act(repo: ab.Repository) -> None:
        with repo.transaction(branch, message="written") as tx:
            change(tx)

    return Write(act=act)


def open_run(repo: ab.Repository) -> Run:
    return repo.run_get(next(info.id for info in repo.run_list() if info.message == "an open run"))


def _step(repo: ab.Repository) -> None:
    with open_run(repo).transaction(message="another step") as tx:
        tx.append(CUSTOMERS, table(52))


def _read_run(repo: ab.Repository) -> State:
    """The lake, and what the run alone shows while it is open."""
    run = open_run(repo)
    inside = {} if run.info().commit_id is not None else {key: table.count_rows() for key, table in _items(run)}
    return {**look(repo), "inside": inside}


def _items(run: Run) -> list[tuple[str, Any]]:
    snapshot = run.snapshot()
    return [(key, snapshot[key]) for key in snapshot]


def _run_with_block(repo: ab.Repository) -> None:
    with repo.begin_run("main", message="whole run") as run, run.transaction(message="step") as tx:
        tx.append(ORDERS, table(60))
        tx.append(CUSTOMERS, table(60))


def _begin(repo: ab.Repository) -> None:
    repo.begin_run("dev", message="begun")


def _stream(repo: ab.Repository) -> None:
    batch = StreamBatch(query="q", epoch=1, table=TableKey.parse(ORDERS))
    EngineAccess(repo).publish_batch(batch, lambda tx: tx.append(ORDERS, table(70)), message="batch")


def _create_together(repo: ab.Repository) -> None:
    # One branch: a put that arrives after the caller has given up leaves one of several. The service deletes it.
    if not EngineAccess(repo).create_live_branches({"new": "first"}):
        repo.branch_create("new", mode="live", description="first")


def _append_once(repo: ab.Repository) -> None:
    with EngineAccess(repo).transaction_once(Once(key="import", value="a", since=0)) as tx:
        tx.append(ORDERS, table(70))


def _schema(repo: ab.Repository) -> None:
    state = repo.schema_show().to_yaml()
    assert "v:" in state
    wanted = repo.schema_show().to_dict()
    wanted["tables"]["in_c_sales"]["orders"]["columns"]["w"] = "int64"
    repo.schema_apply(wanted)


def _two_tables(tx: ab.Transaction) -> None:
    tx.append(ORDERS, table(7))
    tx.append(CUSTOMERS, table(80))


def _aside(repo: ab.Repository, name: str) -> str:
    return f"{repo.uri}-{name}"


def _file_aside(repo: ab.Repository) -> None:
    Path(_aside(repo, "rows.csv")).write_text("id,v\n80,x\n81,y\n")


def _read_demo(repo: ab.Repository) -> State:
    """The lake, and the demo beside it: nothing at all, or what a user can see of it."""
    folder = Path(_aside(repo, "demo"))
    shown = None
    if folder.exists():
        shown = {**look(ab.open(folder / "lake")), "files": sorted(path.name for path in folder.iterdir())}
    return {**look(repo), "demo": shown}


def _read_export(repo: ab.Repository) -> State:
    """The lake, and the exported file: none, or a whole one."""
    file = Path(_aside(repo, "out.csv"))
    return {**look(repo), "file": file.read_text() if file.exists() else None}


def _other_table(repo: ab.Repository) -> None:
    import lance

    lance.write_dataset(table(90), _aside(repo, "other.lance"), enable_stable_row_ids=True)


def _read_clone(repo: ab.Repository) -> State:
    """The lake's heads, and the clone: none, or one with all tables."""
    return {**read_heads(repo), "clone": _look_if_there(_aside(repo, "clone"))}


def _read_new(repo: ab.Repository) -> State:
    return {"new": _look_if_there(_aside(repo, "new"))}


def _look_if_there(uri: str) -> State | None:
    try:
        return read_heads(ab.open(uri))
    except RepositoryNotFoundError:
        return None


def _copy_aside(repo: ab.Repository) -> None:
    copy_objects(repo.uri, _aside(repo, "copy"), repo.storage_options)


def _read_copy(repo: ab.Repository) -> State:
    """The lake, which a copy that is relocated has nothing to do with."""
    return read_heads(repo)


def _relocate(repo: ab.Repository) -> None:
    assert ab.relocate(_aside(repo, "copy")).is_complete
    assert read_heads(ab.open(_aside(repo, "copy"))) == read_heads(repo)


def _damage(repo: ab.Repository) -> None:
    """Lose what doctor can make again: a commit's object and a hint, both of which the log has."""
    commit = repo.head_commit_id_for_branch("dev")
    Path(repo.uri, "_commits", f"{commit}.json").unlink()
    Path(repo.uri, "_versions", "dev", "hint").write_text("torn")


def _rename(repo: ab.Repository) -> None:
    """Rename a branch. If an interrupted rename has left the new name, delete it first, as the error asks for."""
    try:
        repo.branch_rename("dev", "new")
    except BranchExistsError as err:
        if "delete 'new', then rename again" not in err.hint:
            raise
        repo.branch_delete("new")
        repo.branch_rename("dev", "new")


def _read_renamed(repo: ab.Repository) -> State:
    """The lake. While both names exist, the branch has not been renamed, and the new one shows the same (ADR 23)."""
    state = look(repo)
    branches = state["branches"]
    if "dev" in branches and "new" in branches:
        assert branches.pop("new") == branches["dev"]
    return state


def _clone_first(repo: ab.Repository) -> None:
    ab.clone(repo.uri, _aside(repo, "clone"))


def _two_more(repo: ab.Repository) -> None:
    append(repo, 7)
    append(repo, 8)


def _two_more_undone(repo: ab.Repository) -> None:
    _two_more(repo)
    repo.undo("main")
    repo.undo("main")


MODULE_WRITES: dict[str, list[Write]] = {
    "demo": [Write(act=lambda repo: ab.demo(_aside(repo, "demo")), look=_read_demo, is_local=True)],
    "init": [Write(act=lambda repo: ab.init(_aside(repo, "new")), look=_read_new)],
    "clone": [
        Write(act=lambda repo: ab.clone(repo.uri, _aside(repo, "clone")), look=_read_clone),
        Write(act=lambda repo: ab.clone(repo.uri, _aside(repo, "clone"), shallow=False), look=_read_clone),
    ],
    "relocate": [Write(act=_relocate, prepare=_copy_aside, look=_read_copy)],
}

REPOSITORY_WRITES: dict[str, list[Write]] = {
    "adopt": [
        Write(act=lambda repo: repo.adopt(STRANGE)),
        Write(act=lambda repo: repo.adopt("in_c_sales.other", _aside(repo, "other.lance")), prepare=_other_table),
    ],
    "append": [Write(act=lambda repo: repo.append(ORDERS, [{"id": 7, "v": "x"}]))],
    "begin_run": [Write(act=_begin), Write(act=_run_with_block)],
    "branch_create": [Write(act=lambda repo: repo.branch_create("new"))],
    "branch_create_from": [Write(act=lambda repo: repo.branch_create_from("main", "new", mode="live"))],
    "branch_delete": [
        Write(act=lambda repo: repo.branch_delete("dev")),
        Write(act=lambda repo: repo.branch_delete("dev", purge=True), may_be_done=True),
    ],
    "branch_freeze": [Write(act=lambda repo: repo.branch_freeze("live"))],
    "merge": [
        Write(act=lambda repo: repo.merge("dev", into="main")),
        Write(act=lambda repo: repo.merge("main", into="guarded"), prepare=lambda repo: append(repo, 7)),
    ],
    "branch_protect": [Write(act=lambda repo: repo.branch_protect("dev"))],
    "branch_pull": [Write(act=lambda repo: repo.branch_pull("live", CUSTOMERS))],
    "branch_rename": [Write(act=_rename, look=_read_renamed, rival=_commit_on_dev_if_there)],
    "branch_restore": [Write(act=lambda repo: repo.branch_restore("gone"))],
    "branch_unprotect": [Write(act=lambda repo: repo.branch_unprotect("guarded"))],
    "cherry_pick": [Write(act=lambda repo: repo.cherry_pick("dev", branch="main"))],
    "clone_release": [
        Write(act=lambda repo: repo.clone_release(repo.clone_list()[0].id), prepare=_clone_first),
    ],
    "compact": [Write(act=lambda repo: repo.compact([ORDERS]))],
    "decision_clear": [],  # deletes a hint for the next merge, and shows nothing
    "delete": [Write(act=lambda repo: repo.delete(ORDERS, "id < 3"))],
    "doctor": [Write(act=lambda repo: repo.doctor(repair=True), prepare=_damage, look=read_heads)],
    "export": [
        Write(
            act=lambda repo: repo.export(ORDERS, _aside(repo, "out.csv"), overwrite=True),
            look=_read_export,
            may_be_done=True,
        )
    ],
    "gc": [Write(act=lambda repo: repo.gc(keep_last=1), prepare=pass_time, look=read_heads)],
    "history_rebuild": [Write(act=lambda repo: repo.history_rebuild())],
    "history_sync": [Write(act=lambda repo: repo.history_sync())],
    "index": [Write(act=lambda repo: repo.index(ORDERS, "id"))],
    "load": [
        Write(
            act=lambda repo: repo.load(ORDERS, _aside(repo, "rows.csv"), message="load", engine="local"),
            prepare=_file_aside,
        ),
        Write(act=lambda repo: repo.load("in_c_sales.loaded", pa.table({"id": [1]}), message="load")),
    ],
    "overwrite": [Write(act=lambda repo: repo.overwrite(ORDERS, {"id": [7], "v": ["x"]}))],
    "rebase": [Write(act=lambda repo: repo.rebase("dev", onto="main"))],
    "redo": [Write(act=lambda repo: repo.redo("main"), prepare=_two_more_undone, rival=_commit_on_dev)],
    "reset": [Write(act=lambda repo: repo.reset("main", to="v1"))],
    "revert": [Write(act=lambda repo: repo.revert("dev", branch="dev"))],
    "schema_apply": [Write(act=_schema)],
    "settle": [Write(act=lambda repo: repo.settle(STRANGE, force=True))],
    "tag_create": [Write(act=lambda repo: repo.tag_create("new"), rival=_commit_on_dev)],
    "tag_delete": [Write(act=lambda repo: repo.tag_delete("v1"))],
    "transact": [Write(act=lambda repo: repo.transact(_two_tables))],
    "transaction": [in_transaction(_two_tables)],
    "undo": [Write(act=lambda repo: repo.undo("main"), prepare=_two_more, rival=_commit_on_dev)],
    "update": [Write(act=lambda repo: repo.update(ORDERS, {"v": "'x'"}, "id > 2"))],
    "upsert": [Write(act=lambda repo: repo.upsert(ORDERS, table(2, 7, v="new")))],
}

ENGINE_WRITES: dict[str, list[Write]] = {
    "create_live_branches": [Write(act=_create_together)],
    "keep_files": [],  # keeps others from deleting, and shows nothing
    "publish_batch": [Write(act=_stream)],
    "transaction_once": [Write(act=_append_once)],
}

RUN_WRITES: dict[str, list[Write]] = {
    "abort": [Write(act=lambda repo: open_run(repo).abort())],
    "publish": [
        Write(act=lambda repo: open_run(repo).publish()),
        Write(act=lambda repo: open_run(repo).publish(), prepare=lambda repo: append(repo, 7)),
    ],
    "transaction": [Write(act=_step, look=_read_run)],
}

# What changes nothing, whatever happens to its requests.
REPOSITORY_READS = names(
    "actor ahead_behind blame branch branch_drift branch_get branch_list branch_names changes clone_list conflicts "
    "decision_list diff entity_at entity_history get_commit graph head_commit_id_for_branch iter_commits iter_graph "
    "lineage list_commits list_external_writes "
    "merge_base merge_bases reflog run_get run_list schema_plan schema_show snapshot snapshot_at_version snapshot_of "
    "sql sql_reader storage_options storage_report switch sync_branch table tables tag_get tag_list tag_names "
    "uri"
)
ENGINE_READS = names("list_written published_snapshot_of snapshot_at_begin")
RUN_READS = names("branch info snapshot sql")
MODULE_READS = names("dataset doctor open spark_session tables")
