"""What a commit says about the request that made it, and how a request finds the commit of an earlier try."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.repository import Repository

__all__ = ["IDEMPOTENCY_KEY", "JOB_ID", "Attempt", "find_commit"]

# Names in the metadata of commits.
IDEMPOTENCY_KEY = "idempotency_key"
JOB_ID = "job_id"

_PAGE = 100
# The clock of the commits and that of the service's rows are read one after the other.
_SLACK = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A try of a request that has a key, which commits know by its digest.

    `commit` is what an earlier try made whose answer was lost.
    """

    digest: str
    commit: GraphCommit | None = None


def find_commit(repository: Repository, branch: str, *, since: datetime, name: str, value: str) -> GraphCommit | None:
    """The commit on a branch, not older than something else, whose metadata says so."""
    earliest = (since - _SLACK).timestamp() * 1e6
    for commit in _iter_commits(repository, branch):
        if commit.created_at < earliest:
            return None
        if commit.branch == branch and commit.metadata.get(name) == value:
            return commit
    return None


def _iter_commits(repository: Repository, branch: str) -> Iterator[GraphCommit]:
    page = repository.list_commits(branch, limit=_PAGE)
    while page:
        yield from page
        page = repository.list_commits(branch, limit=_PAGE, before=page[-1].graph_commit_id)
