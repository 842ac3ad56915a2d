"""Random histories with everything in them that keeps, forgets or brings back commits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    AnabranchError,
    CorruptError,
    DamagedFileError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from tests.repo.gc.needed import is_collected, list_commit_ids, read_all
from tests.repo.gc.object_ages import DAY, pass_time

KEYS = ("s.keyed", "s.keyless", "s.other")
BRANCHES = ("main", "a", "a/b", "c")
TAGS = ("t", "u")
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])

# What no step may end with, whatever was collected: something is there by half.
_DAMAGE = (CorruptError, DamagedFileError, DatasetNotFoundError, ObjectNotFoundError, VersionNotFoundError)

# Two numbers choose whatever a step has to choose.
Step = tuple[str, int, int]


@dataclass
class History:
    """A repository with a history, and all that was ever to be read in it."""

    repo: Repository
    rows: dict[str, dict[str, list[dict[str, object]]]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    clones: list[tuple[str, str]] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    _used: int = 0

    def do(self, step: Step) -> None:
        name, one, other = step
        try:
            STEPS[name](self, one, other)
        except _DAMAGE:
            raise
        except AnabranchError as err:
            self.outcomes.append(f"{name}: {err.code}")
        else:
            self.outcomes.append(name)

    def remember(self) -> None:
        """Read every commit that was not read before; those of runs cannot be, from outside."""
        for commit_id in list_commit_ids(self.repo):
            commit = testing.repo_store_of(self.repo).commits.get(commit_id).commit
            if commit_id not in self.rows and not commit.branch.startswith("__") and not self._is_gone(commit_id):
                self.rows[commit_id] = read_all(self.repo, commit_id)

    def _is_gone(self, commit_id: str) -> bool:
        return is_collected(self.repo, commit_id)

    @property
    def branches(self) -> list[str]:
        return [branch.name for branch in self.repo.branch_list()]

    def branch(self, number: int) -> str:
        return self.branches[number % len(self.branches)]

    def side_branch(self, number: int) -> str:
        """A branch other than main, one that is not there if there is none."""
        names = [name for name in self.branches if name != "main"] or ["a"]
        return names[number % len(names)]

    def ref(self, number: int) -> str:
        """A branch, a tag, or one of its states before."""
        names = [*self.branches, *(tag.name for tag in self.repo.tag_list())]
        name = names[number % len(names)]
        return [name, f"{name}~1", f"{name}~2"][number // len(names) % 3]

    def new_rows(self, count: int) -> pa.Table:
        self._used += count
        ids = range(self._used - count, self._used)
        return pa.table({"id": ids, "v": [str(each) for each in ids]}, schema=SCHEMA)


def _change(history: History, one: int, other: int) -> None:
    """A commit of one or two steps."""
    with history.repo.transaction(history.branch(one)) as tx:
        for number in (other, other // 7)[: 1 + one % 2]:
            _change_table(history, tx, number)


def _change_table(history: History, tx: Any, number: int) -> None:
    key = KEYS[number % len(KEYS)]
    if key not in tx:
        tx.create_table(key, SCHEMA, primary_key=[] if key == "s.keyless" else ["id"])
        tx.append(key, history.new_rows(3))
        return
    match number // len(KEYS) % 9:
        case 0 | 1:
            tx.append(key, history.new_rows(2))
        case 2:
            tx.overwrite(key, history.new_rows(2))
        case 3:
            tx.delete(key, "id % 3 = 0")
        case 4:
            tx.update(key, {"v": "concat(v, 'x')"}, where="id % 2 = 0")
        case 5:
            tx.drop_table(key)
        case 6:
            tx.rename_table(key, "s.renamed")
        case 7:
            tx.compact(key)
        case _:
            tx.index(key, "id")


def _branch(history: History, one: int, other: int) -> None:
    name = BRANCHES[1:][one % 3]
    if other % 4 == 0:
        history.repo.branch_create_from("main", name, mode="live")
    else:
        history.repo.branch_create_from(history.ref(other), name)


def _delete(history: History, one: int, _: int) -> None:
    history.repo.branch_delete(history.side_branch(one))


def _restore(history: History, one: int, _: int) -> None:
    gone = [name for name in BRANCHES[1:] if name not in history.branches]
    history.repo.branch_restore(gone[one % len(gone)] if gone else "a")


def _reset(history: History, one: int, other: int) -> None:
    history.repo.reset(history.branch(one), to=history.ref(other))


def _undo(history: History, one: int, _: int) -> None:
    testing.open(history.repo).undo(BRANCHES[one % 4])


def _merge(history: History, one: int, other: int) -> None:
    strategy = ("fail", "source", "target")[other % 3]
    history.repo.merge(history.ref(one), into=history.branch(other), strategy=strategy)


def _rebase(history: History, one: int, other: int) -> None:
    history.repo.rebase(history.side_branch(one), onto=history.ref(other), strategy="source")


def _revert(history: History, one: int, other: int) -> None:
    history.repo.revert(history.ref(one), branch=history.branch(other), strategy="source")


def _pick(history: History, one: int, other: int) -> None:
    history.repo.cherry_pick(history.ref(one), branch=history.branch(other), strategy="source")


def _freeze(history: History, one: int, _: int) -> None:
    history.repo.branch_freeze(history.side_branch(one))


def _pull(history: History, one: int, other: int) -> None:
    history.repo.branch_pull(history.side_branch(one), KEYS[other % len(KEYS)])


def _tag(history: History, one: int, other: int) -> None:
    name = TAGS[one % 2]
    if name in [tag.name for tag in history.repo.tag_list()]:
        history.repo.tag_delete(name)
    else:
        history.repo.tag_create(name, ref=history.ref(other))


def _run(history: History, one: int, other: int) -> None:
    """Begin a run, or continue with one, or end it."""
    if not history.runs or one % 3 == 0:
        history.runs.append(history.repo.begin_run(history.branch(other)))
        return
    run = history.runs[other % len(history.runs)]
    with run.transaction() as tx:
        _change_table(history, tx, other)
    if one % 3 == 1:
        history.runs.remove(run)
        run.publish()


def _forget_run(history: History, one: int, _: int) -> None:
    if history.runs:
        run = history.runs.pop(one % len(history.runs))
        if one % 2:
            run.abort()


def _leave(history: History, one: int, other: int) -> None:
    """A transaction that no process publishes."""
    tx = history.repo.transaction(history.branch(one))
    try:
        _change_table(history, tx, other)
    finally:
        testing.abandon(tx)


def _clone(history: History, one: int, other: int) -> None:
    target = f"{history.repo.uri}-{len(history.repo.clone_list())}"
    ref = history.ref(one)
    commit_id = history.repo.snapshot_of(ref).id
    ab.clone(history.repo.uri, target, ref=ref, shallow=True)
    history.clones.append((target, commit_id))
    if other % 3 == 0:
        history.repo.clone_release(history.repo.clone_list()[-1].id)
        history.clones.pop()


def _wait(history: History, one: int, _: int) -> None:
    pass_time(history.repo, by=DAY * (one % 3) / 2)


def collect(history: History, one: int, other: int) -> None:
    """Collect with some policy, after everything that can be read was read."""
    history.remember()
    keep_last = (None, 1, 2, 3)[one % 4]
    newer = timedelta(days=other % 3) if other % 2 and one % 4 == 0 else None
    history.repo.gc(keep_last=keep_last, keep_newer_than=newer, grace=DAY / 2)


STEPS: dict[str, Callable[[History, int, int], None]] = {
    "change": _change,
    "branch": _branch,
    "delete": _delete,
    "restore": _restore,
    "reset": _reset,
    "undo": _undo,
    "merge": _merge,
    "rebase": _rebase,
    "revert": _revert,
    "pick": _pick,
    "freeze": _freeze,
    "pull": _pull,
    "tag": _tag,
    "run": _run,
    "forget run": _forget_run,
    "leave": _leave,
    "clone": _clone,
    "wait": _wait,
    "gc": collect,
}
