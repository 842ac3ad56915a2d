"""A branch as a request uses it: read a state of it, and commit changes to it."""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from anabranch.errors import BusyError, CommitNotFoundError, InvalidNameError, TagNotFoundError
from anabranch.ids import MAIN, CommitId, TagName
from anabranch.repo.log.entries import CommitKind, GraphCommit
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction
from anabranch.server.auth import DEFAULT_BRANCH, Token
from anabranch.server.idempotency import IDEMPOTENCY_KEY, Attempt

_Result = TypeVar("_Result")
_LONGEST_PAUSE_SECONDS = 0.5
# The name in the metadata of a commit under which a repeated request finds the result of its first attempt.
_RESULT = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Generic[_Result]):
    """The result of a change, and its commit. The commit is None if nothing changed."""

    result: _Result
    commit_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBranch:
    """A branch of a project, its repository, and the token and attempt of the request.

    `note_copies` updates the rows of copied tables after a change.
    """

    project_id: str
    branch_id: str
    repository: Repository
    token: Token
    retry_seconds: float
    note_copies: Callable[["OpenBranch"], None]
    attempt: Attempt | None = None

    @property
    def is_main(self) -> bool:
        return self.branch_id == DEFAULT_BRANCH

    @property
    def name(self) -> str:
        """The name of the branch in the repository."""
        return MAIN if self.is_main else self.branch_id

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of commits of the request."""
        found = {"token_id": self.token.id}
        if self.attempt is not None:
            found[IDEMPOTENCY_KEY] = self.attempt.digest
        return found

    def snapshot(self, ref: str | None = None) -> Snapshot:
        """Return the tables now, or at a commit of the branch or of main, at a tag of such a commit, or at a time."""
        if ref is None:
            return self.repository.snapshot_of(self.name)
        commit_id = self._find_commit_id(ref)
        if commit_id is None:
            return self.repository.snapshot_of(f"{self.name}@{{{ref}}}")
        return self.snapshot_of_commit(commit_id)

    def snapshot_of_commit(self, commit_id: str) -> Snapshot:
        """Return the tables at a commit. Raise CommitNotFoundError if it was made on another branch than this or main.

        A token may be bound to a branch, and must not read the commits of others.
        """
        snapshot = EngineAccess(self.repository).published_snapshot_of(commit_id)
        if snapshot.commit.branch not in (self.name, MAIN):
            raise CommitNotFoundError(
                f"commit {commit_id} was made on another branch", hint="list the commits of this branch"
            )
        return snapshot

    def change(
        self, change: Callable[[Transaction], _Result], *, message: str, kind: CommitKind = CommitKind.CHANGE
    ) -> Changed[_Result]:
        """Commit a change, and retry while other writers are faster.

        On a dev branch the change is made to the branch's own copies of the tables.
        """
        # The first attempt was published, and only its answer was lost.
        if self.attempt is not None and self.attempt.commit is not None:
            return self._repeat(self.attempt.commit)
        # A put of an earlier attempt that timed out may still arrive. Then publishing finds it and changes nothing.
        once = None if self.attempt is None else self.attempt.once(self.name)

        def attempt() -> Changed[_Result]:
            access = EngineAccess(self.repository)
            tx = access.transaction_once(once, branch=self.name, message=message, metadata=self.metadata, kind=kind)
            with tx:
                result = change(tx)
                # The commit keeps the result, so that a repeated request can answer from it after a crash.
                if self.attempt is not None:
                    tx.add_metadata({_RESULT: json.dumps(result)})
            return Changed(result=result, commit_id=None if tx.published is None else tx.published.graph_commit_id)

        done = retried(attempt, seconds=self.retry_seconds)
        self.note_copies(self)
        return done

    def _repeat(self, commit: GraphCommit) -> Changed[_Result]:
        """Return the result of an earlier attempt that made its commit, and stopped before it was answered."""
        self.note_copies(self)
        return Changed(result=json.loads(commit.metadata[_RESULT]), commit_id=commit.graph_commit_id)

    def _find_commit_id(self, ref: str) -> str | None:
        """Return the id of the commit that a ref names, or None if the ref is a time."""
        try:
            return str(CommitId.parse(ref))
        except InvalidNameError:
            pass
        try:
            # A date is also a valid name of a tag. If both are possible, the tag wins.
            return self.repository.tag_get(str(TagName.parse(ref))).commit_id
        except (InvalidNameError, TagNotFoundError):
            if _is_time(ref):
                return None
            raise CommitNotFoundError(
                f"no commit, tag or time {ref!r} exists",
                hint="give a commit id, a tag or a time like 2026-11-15T10:00:00Z",
            ) from None


def retried(action: Callable[[], _Result], *, seconds: float) -> _Result:
    """Return the result of an action. Retry it for a bounded time while it raises BusyError."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        try:
            return action()
        except BusyError:
            if time.monotonic() >= deadline:
                raise
        # A random pause: writers that failed together would otherwise retry together.
        time.sleep(random.uniform(0, pause))  # noqa: S311 - not for security
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
