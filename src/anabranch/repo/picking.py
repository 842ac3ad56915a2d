"""One commit's change taken back, or made once more elsewhere, by moving whole tables.

Where a table has changed since, only a merge of rows can tell what is meant; that is refused.
"""

from collections.abc import Mapping

from anabranch.errors import InvalidInputError, WriteConflictError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.models import CommitKind, CommitRecord, LogEntry, TableEntry
from anabranch.repo.publish import Changes, Description, publish
from anabranch.repo.records import Records
from anabranch.repo.views import view

__all__ = ["cherry_pick", "revert_commit"]

Tables = Mapping[TableKey, TableEntry | None]


def revert_commit(records: Records, branch: BranchName, commit: CommitRecord, *, message: str | None) -> LogEntry:
    """Publish the tables of a commit as they were before it."""
    before, after = _sides(records, commit)
    text = message or f"Revert {commit.commit.message or commit.commit.graph_commit_id}"
    about = _about(commit, message=text, kind=CommitKind.REVERT)
    return _replace(records, branch, found=after, wanted=before, about=about)


def cherry_pick(records: Records, branch: BranchName, commit: CommitRecord, *, message: str | None) -> LogEntry:
    """Publish the tables of a commit of another branch as it left them."""
    before, after = _sides(records, commit)
    about = _about(commit, message=message or commit.commit.message, kind=CommitKind.CHERRY_PICK)
    return _replace(records, branch, found=before, wanted=after, about=about)


def _about(commit: CommitRecord, *, message: str, kind: CommitKind) -> Description:
    return Description(message=message, kind=kind, metadata={"commit": commit.commit.graph_commit_id})


def _sides(records: Records, commit: CommitRecord) -> tuple[Tables, Tables]:
    """The tables that a commit changed, before and after it."""
    parent_id = commit.commit.parent_commit_id
    if parent_id is None:
        raise InvalidInputError(
            f"commit {commit.commit.graph_commit_id} is the first one", hint="choose one that changed tables"
        )
    parent = records.commits.get(parent_id)
    keys = [TableKey.parse(key) for key in commit.commit.tables]
    before = {key: records.commits.find_table(parent, key) for key in keys}
    after = {key: records.commits.find_table(commit, key) for key in keys}
    return before, after


def _replace(records: Records, branch: BranchName, *, found: Tables, wanted: Tables, about: Description) -> LogEntry:
    def changes_on(entry: LogEntry) -> Changes:
        head = view(records, entry).head
        for key, expected in found.items():
            if records.commits.find_table(head, key) != expected:
                raise WriteConflictError(
                    f"table '{key}' on '{branch}' is not as commit {about.metadata['commit']} has it",
                    hint="this needs a merge of rows; make the change by hand in a transaction",
                )
        return wanted

    expected = records.heads.get(branch)
    return publish(records, expected=expected, changes=changes_on(expected), about=about, rebase=changes_on)
