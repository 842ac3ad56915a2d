"""States of branches that requests read: as they are now, or as they were."""

from datetime import datetime

from anabranch.errors import CommitNotFoundError, InvalidNameError, TagNotFoundError
from anabranch.ids import MAIN, CommitId, TagName
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot
from anabranch.server.branches import OpenBranch

__all__ = ["is_visible", "snapshot_at"]


def snapshot_at(branch: OpenBranch, at: str | None) -> Snapshot:
    """The tables of a branch now, or at a commit of its own or of main, a tag of such a one, or a moment."""
    repository = branch.repository
    if at is None:
        return repository.snapshot_of(branch.name)
    commit_id = _find_commit_id(branch, at)
    if commit_id is None:
        return repository.snapshot_of(f"{branch.name}@{{{at}}}")
    snapshot = EngineAccess(repository).published_snapshot_of(commit_id)
    if not is_visible(branch, snapshot.commit):
        raise CommitNotFoundError(
            f"commit {commit_id} was made on another branch", hint="list the commits of this branch"
        )
    return snapshot


def is_visible(branch: OpenBranch, commit: GraphCommit) -> bool:
    """Whether a commit is one of the branch or of main, which it shows; others may be none of the reader's business."""
    return commit.branch in (branch.name, MAIN)


def _find_commit_id(branch: OpenBranch, at: str) -> str | None:
    """The commit that is meant; None if it is a moment."""
    try:
        return str(CommitId.parse(at))
    except InvalidNameError:
        pass
    try:
        return branch.repository.tag_get(str(TagName.parse(at))).commit_id
    except (InvalidNameError, TagNotFoundError):
        if _is_moment(at):
            return None
        raise CommitNotFoundError(
            f"there is no commit, tag or moment {at!r}",
            hint="give a commit id, a tag or a time like 2026-11-15T10:00:00Z",
        ) from None


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
