"""Writes: each is one commit of a branch, tried again while others are faster."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.repo.log.entries import CommitKind
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.transaction import Transaction
from anabranch.server.attempts import IDEMPOTENCY_KEY
from anabranch.server.branches import Branches, OpenBranch
from anabranch.server.retrying import retried
from anabranch.server.settings import Settings

__all__ = ["Changed", "Changing", "metadata_of"]

_Result = TypeVar("_Result")
# The name in the metadata of a commit under which a request that may come again finds what it answered.
_RESULT = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Generic[_Result]):
    """What a change answered, and its commit, if there was anything to change."""

    result: _Result
    commit_id: str | None


def metadata_of(branch: OpenBranch) -> dict[str, str]:
    """What a commit is to say about the request that makes it."""
    found = {"token_id": branch.token.id}
    if branch.attempt is not None:
        found[IDEMPOTENCY_KEY] = branch.attempt.digest
    return found


class Changing:
    def __init__(self, settings: Settings, branches: Branches) -> None:
        self._settings = settings
        self._branches = branches

    def apply(
        self,
        branch: OpenBranch,
        change: Callable[[Transaction], _Result],
        *,
        message: str,
        kind: CommitKind = CommitKind.CHANGE,
    ) -> Changed[_Result]:
        """Commit a change; on a dev branch it is made to the branch's own copies of the tables."""

        if branch.attempt is not None and (made := branch.attempt.commit) is not None:
            # An earlier try of this request got so far, and no further.
            self._branches.note_copies(branch)
            return Changed(result=json.loads(made.metadata[_RESULT]), commit_id=made.graph_commit_id)

        # A put of an earlier attempt that timed out may still arrive. Then publishing finds it and changes nothing.
        once = None if branch.attempt is None else branch.attempt.once(branch.name)

        def attempt() -> Changed[_Result]:
            metadata = metadata_of(branch)
            access = EngineAccess(branch.repository)
            tx = access.transaction_once(once, branch=branch.name, message=message, metadata=metadata, kind=kind)
            with tx:
                result = change(tx)
                if branch.attempt is not None:
                    tx.add_metadata({_RESULT: json.dumps(result)})
            return Changed(result=result, commit_id=None if tx.published is None else tx.published.graph_commit_id)

        done = retried(attempt, seconds=self._settings.limits.retry_seconds)
        self._branches.note_copies(branch)
        return done
