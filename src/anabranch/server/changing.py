"""Writes: each is one commit of a branch, tried again while others are faster."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.repo.models import CommitKind
from anabranch.repo.transaction import Transaction
from anabranch.server.branches import Branches, OpenBranch
from anabranch.server.retrying import retried
from anabranch.server.settings import Settings

__all__ = ["Changed", "Changing"]

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Generic[_Result]):
    """What a change answered, and its commit, if there was anything to change."""

    result: _Result
    commit_id: str | None


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

        def attempt() -> Changed[_Result]:
            tx = branch.repository.transaction(
                branch.name, message=message, metadata={"token_id": branch.token.id}, kind=kind
            )
            with tx:
                result = change(tx)
            return Changed(result=result, commit_id=None if tx.commit is None else tx.commit.graph_commit_id)

        done = retried(attempt, seconds=self._settings.limits.retry_seconds)
        self._branches.note_copies(branch)
        return done
