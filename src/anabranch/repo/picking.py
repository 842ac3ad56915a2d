"""One commit's change taken back, or made once more elsewhere, by moving whole tables.

Where a table has changed since, only a merge of rows can tell what is meant; that is refused.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from anabranch.errors import CommitNotFoundError, InvalidInputError, MergeNeededError, WriteConflictError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.models import BranchMode, CommitKind, CommitRecord, LogEntry, TableEntry
from anabranch.repo.publish import Changes, Description, publish
from anabranch.repo.records import Records
from anabranch.repo.views import shown, view

__all__ = ["cherry_pick", "revert_commit"]

Tables = Mapping[TableKey, TableEntry | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """The tables that a commit changed, before and after it; `followed` are those that followed main before it."""

    before: Tables
    after: Tables
    followed: frozenset[TableKey]


def revert_commit(records: Records, branch: BranchName, commit: CommitRecord, *, message: str | None) -> LogEntry:
    """Publish the tables of a commit as they were before it; where they followed main before, they do again."""
    sides = _sides(records, commit)
    text = message or f"Revert {commit.commit.message or commit.commit.graph_commit_id}"
    about = _about(commit, message=text, kind=CommitKind.REVERT)
    expected = records.heads.get(branch)
    if expected.state.mode is BranchMode.LIVE and commit.commit.branch == str(branch):
        about = replace(about, released=sides.followed)
    return _replace(records, expected, found=sides.after, wanted=sides.before, about=about)


def cherry_pick(records: Records, branch: BranchName, commit: CommitRecord, *, message: str | None) -> LogEntry:
    """Publish the tables of a commit of another branch as it left them."""
    sides = _sides(records, commit)
    about = _about(commit, message=message or commit.commit.message, kind=CommitKind.CHERRY_PICK)
    return _replace(records, records.heads.get(branch), found=sides.before, wanted=sides.after, about=about)


def _about(commit: CommitRecord, *, message: str, kind: CommitKind) -> Description:
    return Description(message=message, kind=kind, metadata={"commit": commit.commit.graph_commit_id})


def _sides(records: Records, record: CommitRecord) -> _Sides:
    """Look into the log: it alone has a branch just as the commit found it, be it live or made from a live one."""
    commit = record.commit
    if not commit.tables:
        raise InvalidInputError(
            f"commit {commit.graph_commit_id} changed no tables", hint="choose one that changed tables"
        )
    branch = BranchName(commit.branch)
    after = records.heads.get_numbered(branch, commit.manifest_version)
    if after.head.commit.graph_commit_id != commit.graph_commit_id:
        raise CommitNotFoundError(
            f"commit {commit.graph_commit_id} was never published", hint="list the commits to see which exist"
        )
    before = records.heads.get_numbered(branch, commit.manifest_version - 1)
    found = before.head
    if before.state.mode is BranchMode.LIVE and after.head.saw is not None:
        found = shown(before, records.commits.get(after.head.saw)).head
    keys = [TableKey.parse(key) for key in commit.tables]
    is_live = before.state.mode is BranchMode.LIVE
    return _Sides(
        before={key: records.commits.find_table(found, key) for key in keys},
        after={key: records.commits.find_table(after.head, key) for key in keys},
        followed=frozenset(key for key in keys if is_live and key not in before.state.own),
    )


def _replace(records: Records, expected: LogEntry, *, found: Tables, wanted: Tables, about: Description) -> LogEntry:
    changes = {key: entry for key, entry in wanted.items() if key not in about.released}

    def changes_on(entry: LogEntry) -> Changes:
        if entry.state.mode is not expected.state.mode:
            raise WriteConflictError(
                f"branch '{entry.branch}' became {entry.state.mode} meanwhile", hint="look at it and try again"
            )
        tables = records.commits.tables_of(view(records, entry).head)
        for key, state in found.items():
            if tables.get(key) != state:
                raise MergeNeededError(
                    f"table '{key}' on '{entry.branch}' is not as commit {about.metadata['commit']} has it",
                    hint="this needs a merge of rows; make the change by hand in a transaction",
                )
        _refuse_shared_home({**tables, **changes}, changes)
        return changes

    return publish(records, expected=expected, changes=changes_on(expected), about=about, rebase=changes_on)


def _refuse_shared_home(tables: Tables, changes: Changes) -> None:
    """Refuse to bring back a table whose folder another one, renamed meanwhile, has now."""
    places = Counter((entry.dataset, entry.home) for entry in tables.values() if entry is not None)
    for key, entry in changes.items():
        if entry is not None and places[entry.dataset, entry.home] > 1:
            raise MergeNeededError(
                f"the place of table '{key}' belongs to another table now", hint="make the change by hand"
            )
