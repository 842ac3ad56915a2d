"""What a commit says about the request that made it, and how a request finds the commit of an earlier try."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.log.once import Once
from anabranch.repo.repository import Repository

__all__ = ["IDEMPOTENCY_KEY", "JOB_ID", "Attempt", "find_commit"]

# Names in the metadata of commits.
IDEMPOTENCY_KEY = "idempotency_key"
JOB_ID = "job_id"

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
    """Return the commit of an earlier try on a branch, found by its metadata, or None. The first try was at `since`."""
    once = Once(
        key=name,
        value=value,
        is_relevant=lambda commit: commit.branch == branch,
        since=int((since - _SLACK).timestamp() * 1_000_000),
    )
    return once.find(repository.iter_commits(branch))
