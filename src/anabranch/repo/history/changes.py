"""What happened to the rows of one table, commit by commit, along the first parents of a commit.

Each step is what a commit has against its first parent, so that the steps between two commits make the one out of the
other. Which commits touched the table, the commits before a later one tell; others are not read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, InvalidInputError, NotInHistoryError, TableNotFoundError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.history.comparing import RowComparer
from anabranch.repo.history.diff import RowChange, TableCounts, TableDiff, find_renamed
from anabranch.repo.history.table_line import TableChange
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.snapshot import Table
from anabranch.storage.parallel import in_parallel

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CommitChanges", "TableFeed"]

# So many commits are read together.
_AT_A_TIME = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChanges:
    """What one commit did to one table. Rows are compared when somebody asks for them.

    Where the table came or went by a rename, its other name is told.
    """

    commit: GraphCommit
    diff: TableDiff
    renamed_from: str | None = None
    renamed_to: str | None = None

    @property
    def counts(self) -> TableCounts:
        """How many rows came, changed and went by this commit."""
        return self.diff.counts

    @property
    def time(self) -> datetime:
        """When the commit was made."""
        return _EPOCH + timedelta(microseconds=self.commit.created_at)

    def iter_rows(self) -> Iterator[RowChange]:
        """Read the rows that this commit changed, in no order."""
        return self.diff.iter_rows()

    def iter_batches(self) -> "pa.RecordBatchReader":
        """The rows that the commit changed, as a `TableDiff` has them, behind `commit`, `version` and `time`."""
        import pyarrow as pa

        rows = self.diff.iter_batches()
        spec = {
            "commit": pa.scalar(self.commit.graph_commit_id),
            "version": pa.scalar(self.commit.manifest_version, pa.int64()),
            "time": pa.scalar(self.time, pa.timestamp("us", "UTC")),
        }
        schema = pa.schema([*((name, value.type) for name, value in spec.items()), *rows.schema])
        batches = (
            pa.record_batch([*(pa.repeat(value, len(batch)) for value in spec.values()), *batch.columns], schema)
            for batch in rows
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_arrow(self) -> "pa.Table":
        """The rows that this commit changed as one table."""
        return self.iter_batches().read_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The table before and after some commits, and those of them that may have changed it, oldest first."""

    before: TableEntry | None
    after: TableEntry | None
    commits: list[GraphCommit]


class TableFeed:
    """The changes of one table: planned from the commits alone, and read step by step, by whoever has the step."""

    def __init__(
        self,
        records: RepoStore,
        key: TableKey,
        *,
        resolve: Callable[[str], CommitRecord],
        load_comparer: Callable[[], RowComparer],
    ) -> None:
        self._records = records
        self._key = key
        self._resolve = resolve
        self._load_comparer = load_comparer

    def list_commits(self, *, since: str | None, until: str) -> list[GraphCommit]:
        """The commits after one ref and up to another that may have changed the table, oldest first."""
        return self._plan(since, until).commits

    def iter_states(self, *, since: str | None, until: str) -> Iterator[TableChange]:
        """The table before and after each of these commits, oldest first; no table is opened."""
        return self._iter_states(self._plan(since, until))

    def state_at(self, ref: str) -> TableChange:
        """The table as a ref has it, as if its commit had made it out of nothing."""
        record = self._resolve(ref)
        return TableChange(commit=record.commit, before=None, after=self._find(record))

    def iter_changes(self, *, since: str | None, until: str) -> Iterator[CommitChanges]:
        """What each of these commits did to the table, without those that only rewrote it."""
        plan = self._plan(since, until)
        is_named = any(str(self._key) in commit.tables for commit in plan.commits)
        if plan.before is None and plan.after is None and not is_named:
            where = f"up to '{until}'" if since is None else f"from '{since}' to '{until}'"
            raise TableNotFoundError(
                f"there is no table '{self._key}' {where}", hint="list the commits to see the tables they changed"
            )
        steps = map(self.compare, self._iter_states(plan))
        return (self._with_names(step) for step in steps if not step.diff.is_empty)

    def newest_common(self, one: str, other: str) -> GraphCommit:
        """The newest commit that two refs both have in their history."""
        return self._newest_common(self._resolve(one), self._resolve(other))

    def compare(self, change: TableChange) -> CommitChanges:
        # A state before a commit is its parent's, whichever commit made it.
        before = self._table(change.before, change.commit.parent_commit_id)
        after = self._table(change.after, change.commit.graph_commit_id)
        diff = TableDiff(str(self._key), before=before, after=after, load_comparer=self._load_comparer)
        return CommitChanges(commit=change.commit, diff=diff)

    def _with_names(self, step: CommitChanges) -> CommitChanges:
        commit, commits = step.commit, self._records.commits
        came_or_went = step.diff.before is None or step.diff.after is None
        if commit.parent_commit_id is None or not came_or_went or len(commit.tables) < 2:
            return step
        old, new = (commits.tables_of(commits.get(each)) for each in (commit.parent_commit_id, commit.graph_commit_id))
        names = {str(now): str(was) for now, was in find_renamed(old, new).items()}
        left = next((now for now, was in names.items() if was == str(self._key)), None)
        return replace(step, renamed_from=names.get(str(self._key)), renamed_to=left)

    def _table(self, entry: TableEntry | None, commit_id: str | None) -> Table | None:
        return None if entry is None else Table(self._records.context, self._key, entry, commit_id=commit_id)

    def _find(self, record: CommitRecord | None) -> TableEntry | None:
        return None if record is None else self._records.commits.find_table(record, self._key)

    def _plan(self, since: str | None, until: str) -> _Plan:
        last = self._resolve(until)
        first = None if since is None else self._resolve(since)
        oldest = -1 if first is None else first.commit.generation
        commits = []
        for commit in self._records.commits.iter_history(last):
            if commit.generation <= oldest:
                break
            commits.append(commit)
        else:
            commit = None
        if first is not None and (commit is None or commit.graph_commit_id != first.commit.graph_commit_id):
            raise self._not_before(first, last, since=str(since), until=until)
        return _Plan(before=self._find(first), after=self._find(last), commits=self._choose(commits[::-1]))

    def _not_before(self, first: CommitRecord, last: CommitRecord, *, since: str, until: str) -> AnabranchError:
        common = self._newest_common(first, last)
        if common.graph_commit_id == last.commit.graph_commit_id:
            return InvalidInputError(
                f"'{since}' comes after '{until}'", hint="changes are told from the older to the newer: swap the two"
            )
        wanted = first.commit.graph_commit_id
        shown = "" if since == wanted else f" ('{since}')"
        return NotInHistoryError(
            f"commit {wanted}{shown} is not in the history of '{until}'",
            hint=f"the branch was reset, or it is another one: begin after {common.graph_commit_id}, the newest commit "
            "that both have, or see by a diff how they differ",
        )

    def _newest_common(self, one: CommitRecord, other: CommitRecord) -> GraphCommit:
        # Every history begins with the repository's first commit, so that they meet there at the latest.
        left, right = (self._records.commits.iter_history(record) for record in (one, other))
        mine, theirs = next(left), next(right)
        while mine.graph_commit_id != theirs.graph_commit_id:
            if mine.generation >= theirs.generation:
                mine = next(left)
            else:
                theirs = next(right)
        return mine

    def _choose(self, commits: Sequence[GraphCommit]) -> list[GraphCommit]:
        """Those that may have changed the table."""
        name, live = str(self._key), self._list_live(commits)
        return [
            commit
            for commit in commits
            if name in commit.tables or commit.kind is CommitKind.FREEZE or commit.graph_commit_id in live
        ]

    def _list_live(self, commits: Sequence[GraphCommit]) -> frozenset[str]:
        """The commits made on a live branch, where main moves tables that no commit of the branch names.

        Such a branch is made from main and from nothing else, so that its commits come right after main's.
        """
        rest = iter(commits)
        first = next((commit for commit in rest if commit.branch != MAIN), None)
        if first is None or self._records.commits.get(first.graph_commit_id).saw is None:
            return frozenset()
        others = takewhile(lambda each: each.branch == first.branch and each.kind is not CommitKind.FREEZE, rest)
        return frozenset(commit.graph_commit_id for commit in (first, *others))

    def _iter_states(self, plan: _Plan) -> Iterator[TableChange]:
        commits, before = plan.commits, plan.before
        for start in range(0, len(commits), _AT_A_TIME):
            for record in in_parallel(self._read, commits[start : start + _AT_A_TIME]):
                after = self._find(record)
                if after != before:
                    yield TableChange(commit=record.commit, before=before, after=after)
                before = after

    def _read(self, commit: GraphCommit) -> CommitRecord:
        return self._records.commits.get(commit.graph_commit_id)
