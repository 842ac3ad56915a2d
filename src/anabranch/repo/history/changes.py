"""The changes of one table, commit by commit, along the first parents of a commit.

Each step is the difference between a commit and its first parent, so that the steps between two commits turn the one
into the other. Commit summaries list the changed tables, so commits that did not change the table are not read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Protocol

import pyarrow as pa

from anabranch.errors import AnabranchError, InvalidInputError, NotInHistoryError, TableNotFoundError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.history.comparer import RowComparer, TableCounts
from anabranch.repo.history.diff import RowChange, TableDiff
from anabranch.repo.history.table_history import CommitStep, TableChange, find_renames
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, TableEntry, is_same_state
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.snapshot import Table
from anabranch.storage.requests import in_parallel

# The number of commits that are read in parallel.
_BATCH_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChanges(CommitStep):
    """The change of one table in one commit. Rows are compared only when they are read.

    If the commit renamed the table, `renamed_from` or `renamed_to` is its other name.
    """

    diff: TableDiff
    renamed_from: str | None = None
    renamed_to: str | None = None

    @property
    def counts(self) -> TableCounts:
        """The number of rows that this commit inserted, updated and deleted."""
        return self.diff.counts

    def iter_rows(self) -> Iterator[RowChange]:
        """Read the rows that this commit changed, in no particular order."""
        return self.diff.iter_rows()

    def iter_batches(self) -> "pa.RecordBatchReader":
        """Return a reader of the changed rows: `commit`, `version` and `time`, then the columns of `TableDiff`."""
        rows = self.diff.iter_batches()
        constants = {
            "commit": pa.scalar(self.commit.graph_commit_id),
            "version": pa.scalar(self.commit.manifest_version, pa.int64()),
            "time": pa.scalar(self.changed, pa.timestamp("us", "UTC")),
        }
        schema = pa.schema([*((name, value.type) for name, value in constants.items()), *rows.schema])
        batches = (
            pa.record_batch([*(pa.repeat(value, len(batch)) for value in constants.values()), *batch.columns], schema)
            for batch in rows
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_arrow(self) -> "pa.Table":
        """Return the rows that this commit changed as one table."""
        return self.iter_batches().read_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFeed:
    """The changes of one table. They are planned from commit summaries. Any process can read a single step."""

    repo_store: RepoStore
    key: TableKey
    resolve: Callable[[str], CommitRecord]
    load_comparer: Callable[[], RowComparer]

    def list_commits(self, *, since: str | None, until: str) -> list[GraphCommit]:
        """Return the commits after `since` and up to `until` that may have changed the table, oldest first."""
        _, _, commits = self._plan(since, until)
        return commits

    def iter_states(self, *, since: str | None, until: str) -> Iterator[TableChange]:
        """Yield the table before and after each of these commits, oldest first, without opening a table."""
        before, _, commits = self._plan(since, until)
        return self._iter_states(before, commits)

    def state_at(self, ref: str) -> TableChange:
        """Return the table at a ref, as if its commit had created it."""
        record = self.resolve(ref)
        return TableChange(commit=record.commit, before=None, after=self._find(record))

    def iter_changes(self, *, since: str | None, until: str) -> Iterator[CommitChanges]:
        """Yield the change of each of these commits, without commits that only rewrote files.

        Raise TableNotFoundError if the table does not exist in this range.
        """
        before, after, commits = self._plan(since, until)
        # A table that was created and dropped within the range is at neither end of it, but has changes.
        is_named = any(str(self.key) in commit.tables for commit in commits)
        if before is None and after is None and not is_named:
            where = f"up to '{until}'" if since is None else f"from '{since}' to '{until}'"
            hint = "list the commits to see the tables that they changed"
            raise TableNotFoundError(f"there is no table '{self.key}' {where}", hint=hint)
        steps = map(self.compare, self._iter_states(before, commits))
        return (self._with_names(step) for step in steps if not step.diff.is_empty)

    def newest_common(self, one: str, other: str) -> GraphCommit:
        """Return the newest commit that is in the history of both refs."""
        return self._newest_common(self.resolve(one), self.resolve(other))

    def compare(self, change: TableChange) -> CommitChanges:
        """Return the change between the two states of a step."""
        # Name the parent as the commit of the state before, so that errors about collected data name it.
        before = self._table(change.before, change.commit.parent_commit_id)
        after = self._table(change.after, change.commit.graph_commit_id)
        diff = TableDiff(str(self.key), before=before, after=after, load_comparer=self.load_comparer)
        return CommitChanges(commit=change.commit, diff=diff)

    def _with_names(self, step: CommitChanges) -> CommitChanges:
        """Add the other name of the table if the commit renamed it."""
        before, after = step.diff.before, step.diff.after
        if before is not None and after is not None and before.entry.dataset == after.entry.dataset:
            return step
        old_names = {str(now): str(was) for now, was in find_renames(self.repo_store, step.commit).items()}
        new_name = next((now for now, was in old_names.items() if was == str(self.key)), None)
        return replace(step, renamed_from=old_names.get(str(self.key)), renamed_to=new_name)

    def _table(self, entry: TableEntry | None, commit_id: str | None) -> Table | None:
        return None if entry is None else Table(self.repo_store.config, self.key, entry, commit_id=commit_id)

    def _find(self, record: CommitRecord | None) -> TableEntry | None:
        return None if record is None else self.repo_store.commits.find_table(record, self.key)

    def _plan(self, since: str | None, until: str) -> tuple[TableEntry | None, TableEntry | None, list[GraphCommit]]:
        """Return the table before and after a range, and the commits that may have changed it, oldest first."""
        last = self.resolve(until)
        first = None if since is None else self.resolve(since)
        oldest = -1 if first is None else first.commit.generation
        commits = []
        for commit in self.repo_store.commits.iter_history(last):
            # Generations decrease along first parents: this is `since`, or the walk has passed it.
            if commit.generation <= oldest:
                break
            commits.append(commit)
        else:
            # Only without `since`: the first commit of a history has generation 0, at which any other search ends.
            commit = None
        if first is not None and (commit is None or commit.graph_commit_id != first.commit.graph_commit_id):
            raise self._not_before(first, last, since=str(since), until=until)
        return self._find(first), self._find(last), self._select(commits[::-1])

    def _not_before(self, first: CommitRecord, last: CommitRecord, *, since: str, until: str) -> AnabranchError:
        common = self._newest_common(first, last)
        if common.graph_commit_id == last.commit.graph_commit_id:
            hint = "pass the older ref as `since` and the newer one as `until`"
            return InvalidInputError(f"'{since}' comes after '{until}'", hint=hint)
        commit_id = first.commit.graph_commit_id
        shown = "" if since == commit_id else f" ('{since}')"
        return NotInHistoryError(
            f"commit {commit_id}{shown} is not in the history of '{until}'",
            hint=f"the branch was reset, or it is another branch: pass `since='{common.graph_commit_id}'`, the newest "
            "common commit, or compare the two with `diff()`",
        )

    def _newest_common(self, one: CommitRecord, other: CommitRecord) -> GraphCommit:
        # This ends, because every history begins with the first commit of the repository.
        left, right = (self.repo_store.commits.iter_history(record) for record in (one, other))
        mine, theirs = next(left), next(right)
        while mine.graph_commit_id != theirs.graph_commit_id:
            # The side with the higher generation cannot be an ancestor of the other one, so that it steps first.
            if mine.generation >= theirs.generation:
                mine = next(left)
            else:
                theirs = next(right)
        return mine

    def _select(self, commits: Sequence[GraphCommit]) -> list[GraphCommit]:
        """Return the commits that may have changed the table."""
        name, live = str(self.key), self._list_live(commits)
        return [
            commit
            for commit in commits
            if name in commit.tables or commit.kind is CommitKind.FREEZE or commit.graph_commit_id in live
        ]

    def _list_live(self, commits: Sequence[GraphCommit]) -> frozenset[str]:
        """Return the commits of a live branch. They may show a change of main that no commit of the branch lists.

        A live branch is always created from main, so that its commits directly follow those of main.
        """
        rest = iter(commits)
        first = next((commit for commit in rest if commit.branch != MAIN), None)
        if first is None or self.repo_store.commits.get(first.graph_commit_id).main_id is None:
            return frozenset()

        def is_live(commit: GraphCommit) -> bool:
            # A renamed branch has commits under several names. A pinned branch made from it has no commit of main.
            is_same = commit.branch == first.branch or self.repo_store.commits.get(commit.graph_commit_id).main_id
            return bool(is_same) and commit.kind is not CommitKind.FREEZE

        others = takewhile(is_live, rest)
        return frozenset(commit.graph_commit_id for commit in (first, *others))

    def _iter_states(self, before: TableEntry | None, commits: list[GraphCommit]) -> Iterator[TableChange]:
        for start in range(0, len(commits), _BATCH_SIZE):
            ids = [commit.graph_commit_id for commit in commits[start : start + _BATCH_SIZE]]
            for record in in_parallel(self.repo_store.commits.get, ids):
                after = self._find(record)
                # A selected commit need not have changed the table: it may be a freeze, or one of a live branch.
                if not is_same_state(before, after):
                    yield TableChange(commit=record.commit, before=before, after=after)
                before = after


class _Repository(Protocol):
    """The part of a repository that is needed here. It is private to the package."""

    def _change_feed(self, table: str) -> TableFeed: ...


def change_feed(repository: _Repository, table: str) -> TableFeed:
    """Return the changes of a table for engines that plan which commits to read, and read them elsewhere."""
    return repository._change_feed(table)
