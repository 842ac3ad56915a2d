"""The final state of a repository when all processes are done: its logs, its commits, their rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch import testing
from anabranch.errors import CollectedError
from anabranch.repo.log.entries import BranchEvent, CommitKind, GraphCommit
from anabranch.repo.repository import Repository
from tests.concurrency import marked_tables
from tests.concurrency.marked_tables import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a branch's log."""

    branch: str
    number: int
    event: BranchEvent
    actor: str | None
    at: int
    commit_id: str
    is_deleted: bool = False
    is_live: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit and the rows of each of its tables, None if they were collected."""

    id: str
    parent: str | None
    branch: str
    version: int
    kind: CommitKind
    message: str
    contents: Mapping[str, Rows] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Logs are by branch, oldest entry first, and deleted branches have theirs, too; tags are the commits they name."""

    logs: Mapping[str, tuple[Entry, ...]]
    commits: Mapping[str, Commit]
    tags: Mapping[str, str] = field(default_factory=dict)


def gather(repo: Repository) -> Evidence:
    heads = testing.repo_store_of(repo).heads
    logs: dict[str, tuple[Entry, ...]] = {}
    commits: dict[str, Commit] = {}
    for branch in heads.names.list_all():
        if branch.is_internal:
            continue
        last = heads.find(branch)
        assert last is not None
        entries = [heads.get_numbered(branch, number) for number in range(1, last.number + 1)]
        logs[str(branch)] = tuple(
            Entry(
                branch=str(branch),
                number=entry.number,
                event=entry.event,
                actor=entry.actor,
                at=entry.at,
                commit_id=entry.head.commit.graph_commit_id,
                is_deleted=entry.state.is_deleted,
                is_live=entry.state.mode == "live",
            )
            for entry in entries
        )
        for entry in entries:
            commit = entry.head.commit
            if commit.graph_commit_id not in commits:
                commits[commit.graph_commit_id] = _describe(repo, commit)
    tags = {tag.name: tag.commit_id for tag in repo.tag_list()}
    return Evidence(logs=logs, commits=commits, tags=tags)


def _describe(repo: Repository, commit: GraphCommit) -> Commit:
    try:
        contents = marked_tables.read(repo.snapshot_of(commit.graph_commit_id))
    except CollectedError:
        contents = None
    return Commit(
        id=commit.graph_commit_id,
        parent=commit.parent_commit_id,
        branch=commit.branch,
        version=commit.manifest_version,
        kind=commit.kind,
        message=commit.message,
        contents=contents,
    )
