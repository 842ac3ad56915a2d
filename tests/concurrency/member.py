"""One process among many: it does whatever a user may do, by chance, and writes down each call and its answer."""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anabranch as ab
from anabranch import testing
from anabranch.errors import BranchNotFoundError
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot
from tests.concurrency import marked_tables
from tests.concurrency.marked_tables import COMMON, FIRST_OWN, Change, Do
from tests.concurrency.recording import Answer, Recorder
from tests.handles import open_with

PINNED = ("b0", "b1", "b2", "b3")
LIVE = ("l0", "l1")
STRATEGIES = ("fail", "source", "target")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The repository that all work on, where they write down what they did, and what chance begins with."""

    uri: str
    storage_options: Mapping[str, str]
    folder: str
    seed: int
    lease: float

    def open(self, actor: str) -> Repository:
        """A handle whose movements carry the actor's name."""
        repo = ab.open(self.uri, storage_options=self.storage_options, actor=actor)
        return testing.open(repo, lease=timedelta(seconds=self.lease))


class Member:
    """Handles of one process, and all that it may do. Every write is made by a handle of its own actor."""

    def __init__(self, ground: Ground, number: int) -> None:
        self._number = number
        self._chance = random.Random(f"{ground.seed} {number}")
        self._recorder = Recorder(Path(ground.folder), number)
        self._kept = ground.open(f"{number}")  # keeps one branch open for long
        self._config = testing.config_of(self._kept)
        self._used = 0
        self._kinds: dict[Callable[[], None], int] = {
            self.commit: 26,
            self.run: 6,
            self.merge: 7,
            self.create_branch: 7,
            self.delete_branch: 3,
            self.restore_branch: 3,
            self.reset: 3,
            self.undo: 3,
            self.revert: 3,
            self.cherry_pick: 2,
            self.rebase: 2,
            self.freeze: 1,
            self.compact: 2,
            self.create_tag: 3,
            self.delete_tag: 1,
            self.collect: 1,
            self.read_head: 14,
            self.read_synced: 8,
            self.read_kept: 4,
            self.read_old: 4,
            self.read_then: 4,
            self.list_branches: 3,
            self.list_tags: 3,
        }

    def work(self, operations: int) -> int:
        for _ in range(operations):
            (operation,) = self._chance.choices(list(self._kinds), list(self._kinds.values()))
            operation()
        return operations

    # Writes

    def commit(self) -> None:
        branch, changes, is_crooked = self._branch(), self._changes(), self._chance.random() < 0.3
        reported = [change.to_dict() for change in changes]
        with self._recorder.calling("commit", branch=branch, changes=reported) as answer:
            repo = self._as(answer, branch)
            tx = repo.transaction(message=answer.actor)
            self._recorder.note_base(answer, tx.base_commit_id)
            with tx:
                marked_tables.write(tx, changes, answer.actor, is_crooked=is_crooked)
            self._moved(answer, branch, tx.published)
            # A live branch is read again, and may be gone by now.
            with suppress(BranchNotFoundError):
                answer.result |= {"own": repo.snapshot().version}

    def run(self) -> None:
        branch, changes, ends = self._branch(), self._changes(Do.APPEND, Do.UPSERT), self._chance.random() < 0.8
        reported = [change.to_dict() for change in changes]
        with self._recorder.calling("run", branch=branch, changes=reported, publishes=ends) as answer:
            run = self._as(answer).begin_run(branch, message=answer.actor)
            for change in changes:
                with run.transaction() as tx:
                    marked_tables.write(tx, [change], answer.actor, is_crooked=False)
            if ends:
                self._moved(answer, branch, run.publish())
            else:
                run.abort()
                answer.result |= {"moves": {}}

    def merge(self) -> None:
        source, into, strategy = self._branch(), self._branch(), self._chance.choice(STRATEGIES)
        with self._recorder.calling("merge", source=source, branch=into) as answer:
            merged = self._as(answer).merge(source, into=into, strategy=strategy, message=answer.actor)
            self._moved(answer, into, merged.commit)

    def create_branch(self) -> None:
        name, source, mode = self._chance.choice(PINNED), self._chance.choice(("main", *PINNED)), "pinned"
        if self._chance.random() < 0.2:
            name, source, mode = self._chance.choice(LIVE), "main", "live"
        with self._recorder.calling("create_branch", branch=name, source=source) as answer:
            self._as(answer).branch_create_from(source, name, mode=mode)
            answer.result |= {"moves": {name: 1}}

    def delete_branch(self) -> None:
        name = self._chance.choice((*PINNED, *LIVE))
        with self._recorder.calling("delete_branch", branch=name) as answer:
            self._as(answer).branch_delete(name)
            answer.result |= {"moves": {name: 1}}

    def restore_branch(self) -> None:
        name = self._chance.choice((*PINNED, *LIVE))
        with self._recorder.calling("restore_branch", branch=name) as answer:
            self._as(answer).branch_restore(name)
            answer.result |= {"moves": {name: 1}}

    def reset(self) -> None:
        name, back = self._chance.choice((*PINNED, "main")), self._chance.randint(1, 2)
        with self._recorder.calling("reset", branch=name) as answer:
            self._as(answer).reset(name, to=f"{name}~{back}")
            answer.result |= {"moves": {name: 1}}

    def undo(self) -> None:
        name = self._chance.choice((*PINNED, *LIVE))
        with self._recorder.calling("undo", branch=name) as answer:
            repo = self._as(answer)
            repo.sync_branch(name)
            repo.undo(name)
            answer.result |= {"moves": {name: 1}}

    def revert(self) -> None:
        name = self._branch()
        with self._recorder.calling("revert", branch=name) as answer:
            repo = self._as(answer)
            commit = repo.revert(repo.head_commit_id_for_branch(name), branch=name, message=answer.actor).commit
            self._moved(answer, name, commit)

    def cherry_pick(self) -> None:
        source, name, strategy = self._branch(), self._branch(), self._chance.choice(STRATEGIES)
        with self._recorder.calling("cherry_pick", branch=name, source=source) as answer:
            repo = self._as(answer)
            picked = repo.head_commit_id_for_branch(source)
            commit = repo.cherry_pick(picked, branch=name, message=answer.actor, strategy=strategy).commit
            self._moved(answer, name, commit)

    def rebase(self) -> None:
        name, onto, strategy = self._chance.choice(PINNED), self._branch(), self._chance.choice(STRATEGIES)
        with self._recorder.calling("rebase", branch=name, onto=onto) as answer:
            self._as(answer).rebase(name, onto=onto, strategy=strategy)
            answer.result |= {"may_move": name}

    def freeze(self) -> None:
        name = self._chance.choice(LIVE)
        with self._recorder.calling("freeze", branch=name) as answer:
            self._as(answer).branch_freeze(name)
            answer.result |= {"may_move": name}

    def compact(self) -> None:
        name = self._branch()
        with self._recorder.calling("compact", branch=name, changes=[]) as answer:
            done = self._as(answer).compact(branch=name)
            self._moved(answer, name, done.commit)

    def create_tag(self) -> None:
        branch = self._branch()
        with self._recorder.calling("create_tag", branch=branch) as answer:
            made = self._as(answer).tag_create(_tag_of(answer.actor), ref=branch)
            answer.result |= {"moves": {}, "tag": made.name, "commit": made.commit_id}

    def delete_tag(self) -> None:
        names = [tag.name for tag in self._kept.tag_list()]
        if names:
            name = self._chance.choice(names)
            with self._recorder.calling("delete_tag", tag=name) as answer:
                self._as(answer).tag_delete(name)
                answer.result |= {"moves": {}}

    def collect(self) -> None:
        with self._recorder.calling("gc") as answer:
            report = self._as(answer).gc(grace=self._config.leases.expiry)
            answer.result |= {"moves": {}, "damaged": [str(found) for found in report.damaged]}

    # Reads

    def read_head(self) -> None:
        branch, is_fresh = self._branch(), self._chance.random() < 0.3
        with self._recorder.calling("read_head", branch=branch) as answer:
            repo = self._as(answer) if is_fresh else self._kept
            self._seen(answer, branch, repo.snapshot_of(branch))

    def read_synced(self) -> None:
        branch = self._branch()
        with self._recorder.calling("read_synced", branch=branch) as answer:
            self._seen(answer, branch, self._kept.sync_branch(branch))
            answer.result |= {"handle": self._number}

    def read_kept(self) -> None:
        """What the handle shows without looking: as old as it may be, never older than before."""
        branch = self._kept.branch
        with self._recorder.calling("read_kept", branch=branch) as answer:
            self._seen(answer, branch, self._kept.snapshot())
            answer.result |= {"handle": self._number}

    def read_old(self) -> None:
        branch = self._branch()
        with self._recorder.calling("read_old", branch=branch) as answer:
            version = self._chance.randint(1, self._kept.branch_get(branch).version)
            self._seen(answer, branch, self._kept.snapshot_of(f"{branch}@v{version}"))

    def read_then(self) -> None:
        """Read a branch as of now, or as of a moment ago, by the clock."""
        then = datetime.now(UTC) - timedelta(seconds=self._chance.choice((0, 0.5, 2)))
        branch, at = self._branch(), int(then.timestamp() * 1_000_000)
        with self._recorder.calling("read_then", branch=branch, at=at) as answer:
            self._seen(answer, branch, self._kept.snapshot_of(f"{branch}@{{{then.isoformat()}}}"))

    def list_branches(self) -> None:
        with self._recorder.calling("list_branches") as answer:
            answer.result |= {"branches": {found.name: found.version for found in self._kept.branch_list()}}

    def list_tags(self) -> None:
        with self._recorder.calling("list_tags") as answer:
            answer.result |= {"tags": {found.name: found.commit_id for found in self._kept.tag_list()}}

    def _as(self, answer: Answer, branch: str = "main") -> Repository:
        return open_with(replace(self._config, actor=answer.actor), branch=branch)

    def _branch(self) -> str:
        return self._chance.choices(("main", *PINNED, *LIVE), (8, 3, 3, 2, 2, 2, 1))[0]

    def _changes(self, *allowed: Do) -> list[Change]:
        kinds = self._chance.choices(allowed or tuple(Do), k=self._chance.randint(1, 2))
        return [self._change(kind) for kind in kinds]

    def _change(self, kind: Do) -> Change:
        if kind is Do.PRUNE:
            return Change(kind)
        if kind is Do.APPEND:
            self._used += 2
            first = FIRST_OWN * (self._number + 1) * 100 + self._used
            return Change(kind, (first, first + 1))
        return Change(kind, tuple(self._chance.sample(range(COMMON), 2)))

    def _moved(self, answer: Answer, branch: str, commit: ab.GraphCommit | None) -> None:
        if commit is None:
            answer.result |= {"moves": {}}
        else:
            version = commit.manifest_version
            answer.result |= {"moves": {branch: 1}, "commit": commit.graph_commit_id, "version": version}

    def _seen(self, answer: Answer, branch: str, snapshot: Snapshot) -> None:
        answer.result |= {
            "branch": branch,
            "version": snapshot.version,
            "commit": snapshot.id,
            "main": snapshot.main_commit_id,
            "tables": marked_tables.digests(marked_tables.read(snapshot)),
        }


def _tag_of(actor: str) -> str:
    return f"t{actor.replace('.', '-')}"
