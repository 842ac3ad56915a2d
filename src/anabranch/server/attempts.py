"""What a commit says about the request that made it, and how a request finds the commit of an earlier try."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.log.once import Once
from anabranch.repo.repository import Repository

__all__ = ["IDEMPOTENCY_KEY", "JOB_ID", "Attempt", "find_commit_of_job"]

# Names in the metadata of commits.
IDEMPOTENCY_KEY = "idempotency_key"
JOB_ID = "job_id"

# The clock of the commits and that of the service's rows are read one after the other.
_SLACK = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt of a request that has a key. Commits name the request by its `digest`.

    For a repeated attempt, `since` is the time of the first one, and `commit` its commit if only the answer was lost.
    """

    digest: str
    since: datetime | None = None
    commit: GraphCommit | None = None

    def once(self, branch: str) -> Once | None:
        """Return the mark by which a repeated request is done once on a branch; None for the first attempt."""
        return None if self.since is None else _once(IDEMPOTENCY_KEY, self.digest, branch=branch, since=self.since)

    def find_commit(self, repository: Repository, branch: str) -> GraphCommit | None:
        """Return the commit of an earlier attempt on a branch, or None."""
        once = self.once(branch)
        return None if once is None else once.find(repository.iter_commits(branch))


def find_commit_of_job(repository: Repository, branch: str, job_id: str, *, since: datetime) -> GraphCommit | None:
    """Return the commit that a job has made on a branch, or None. The job was created at `since`."""
    return _once(JOB_ID, job_id, branch=branch, since=since).find(repository.iter_commits(branch))


def _once(key: str, value: str, *, branch: str, since: datetime) -> Once:
    return Once(
        key=key,
        value=value,
        is_relevant=lambda commit: commit.branch == branch,
        since=int((since - _SLACK).timestamp() * 1_000_000),
    )
