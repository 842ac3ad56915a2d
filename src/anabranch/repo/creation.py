"""Make a repository, and find out whether there is one."""

from anabranch.errors import (
    ObjectNotFoundError,
    RepositoryExistsError,
    RepositoryNotFoundError,
)
from anabranch.ids import MAIN, BranchName
from anabranch.repo import codec
from anabranch.repo.commits import Commits
from anabranch.repo.context import Context
from anabranch.repo.heads import Heads
from anabranch.repo.models import BranchEvent, BranchMode, BranchState, CommitKind, CommitRecord, GraphCommit, LogEntry
from anabranch.repo.once import put_once

__all__ = ["check_repository", "create_repository"]

_MARK = "_repo.json"


def create_repository(context: Context) -> None:
    """Make main with an empty first commit, then the mark that says that there is a repository.

    The mark comes last, so that whoever dies halfway has made nothing, and may simply try again.
    """
    heads = Heads(context)
    if _has_mark(context):
        raise _exists(context)
    if heads.find(BranchName(MAIN)) is None:
        _put_first_entry(context, heads)
    mark = {"id": context.new_id(), "root": context.root, "created_at": context.clock()}
    if not put_once(context.store, _MARK, codec.dump(mark)):
        raise _exists(context)


def check_repository(context: Context) -> str:
    """Make sure that there is a repository that this version can read; return the root it was made at."""
    try:
        fields = codec.load(context.store.get(_MARK), path=_MARK)
    except ObjectNotFoundError:
        raise RepositoryNotFoundError(
            f"there is no repository at {context.root!r}", hint="make one there first, or check the path"
        ) from None
    return str(fields.get("root"))


def _has_mark(context: Context) -> bool:
    try:
        context.store.head(_MARK)
    except ObjectNotFoundError:
        return False
    return True


def _put_first_entry(context: Context, heads: Heads) -> None:
    now, commit_id = context.clock(), context.new_id()
    commit = GraphCommit(
        graph_commit_id=commit_id,
        manifest_branch=None,
        manifest_version=1,
        parent_commit_id=None,
        merged_parent_commit_id=None,
        actor_id=context.actor,
        created_at=now,
        message="Begin the repository",
        kind=CommitKind.INIT,
        metadata={},
        tables=(),
        generation=0,
    )
    record = CommitRecord(commit=commit, base=commit_id, changes={}, recent=(), older=None)
    Commits(context).put(record, {})
    heads.append(
        LogEntry(
            branch=BranchName(MAIN),
            number=1,
            event=BranchEvent.CREATED,
            at=now,
            actor=context.actor,
            state=BranchState(
                mode=BranchMode.PINNED, parent=None, created_at=now, created_by=context.actor, created_as=1
            ),
            head=record,
        )
    )


def _exists(context: Context) -> RepositoryExistsError:
    return RepositoryExistsError(f"there is a repository at {context.root!r} already", hint="open it")
