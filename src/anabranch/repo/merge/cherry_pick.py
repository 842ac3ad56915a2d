"""Revert a commit, or apply its change to another branch.

A table that has not changed since then gets its other state by pointer. The rows of all other tables are merged.
"""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from anabranch.errors import CommitNotFoundError, InvalidInputError, WriteConflictError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.entries import Changes, CommitKind, CommitRecord, LogEntry, TableEntry, TableMap, is_same_state
from anabranch.repo.log.making import CommitSpec
from anabranch.repo.log.store import RepoStore
from anabranch.repo.log.view import View
from anabranch.repo.merge.combiner import DECIDE, Combiner, Sides
from anabranch.repo.refs.resolve import is_made_by
from anabranch.repo.write.homes import owns
from anabranch.repo.write.publish import Published, publish

__all__ = ["cherry_pick", "revert_commit"]

Tables = Mapping[TableKey, TableEntry | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """The tables that a commit changed, before and after it. `followed` are those that followed main before it."""

    before: Tables
    after: Tables
    followed: frozenset[TableKey]


def revert_commit(
    repo_store: RepoStore, branch: BranchName, commit: CommitRecord, *, message: str | None, combiner: Combiner
) -> Published:
    """Revert the changes of a commit.

    A table of a live branch that followed main before the commit follows it again, if it was not changed since.
    """
    sides = _sides(repo_store, commit)
    text = message or f"Revert {commit.commit.message or commit.commit.graph_commit_id}"
    spec = _spec(commit, message=text, kind=CommitKind.REVERT)
    expected = repo_store.heads.get(branch)
    if expected.state.is_live and commit.commit.branch == str(branch):
        tables = repo_store.commits.tables_of(expected.head)
        unchanged = (key for key in sides.followed if is_same_state(tables.get(key), sides.after[key]))
        spec = replace(spec, released=frozenset(unchanged))
    return _merge(repo_store, expected, sides=(sides.after, sides.before), spec=spec, combiner=combiner)


def cherry_pick(
    repo_store: RepoStore, branch: BranchName, commit: CommitRecord, *, message: str | None, combiner: Combiner
) -> Published:
    """Apply the changes of a commit to another branch."""
    sides = _sides(repo_store, commit)
    spec = _spec(commit, message=message or commit.commit.message, kind=CommitKind.CHERRY_PICK)
    expected = repo_store.heads.get(branch)
    return _merge(repo_store, expected, sides=(sides.before, sides.after), spec=spec, combiner=combiner)


def _spec(commit: CommitRecord, *, message: str, kind: CommitKind) -> CommitSpec:
    return CommitSpec(message=message, kind=kind, metadata={"commit": commit.commit.graph_commit_id})


def _sides(repo_store: RepoStore, record: CommitRecord) -> _Sides:
    """Return the tables before and after a commit.

    They come from the log of its branch: only the log has the view of a live branch at the time of the commit.
    """
    commit = record.commit
    if not commit.tables:
        raise InvalidInputError(
            f"commit {commit.graph_commit_id} changed no tables", hint="pass a commit that changed tables"
        )
    branch = BranchName(commit.branch)
    after = repo_store.heads.get_numbered(branch, commit.manifest_version)
    if not is_made_by(after, commit, repo_store):
        raise CommitNotFoundError(
            f"commit {commit.graph_commit_id} was never published", hint="list the commits of the branch"
        )
    if after.head.commit.graph_commit_id != commit.graph_commit_id:
        after = replace(
            after, head=repo_store.commits.get(commit.graph_commit_id)
        )  # A rebase published several commits in one log entry.
    before = repo_store.heads.get_numbered(branch, commit.manifest_version - 1)
    found = before.head
    if found.commit.graph_commit_id != commit.parent_commit_id and commit.parent_commit_id is not None:
        found = repo_store.commits.get(commit.parent_commit_id)
    elif before.state.is_live:
        found = View.of(before, View.of(after).find_main(repo_store.commits)).record
    # A table may get its old state by pointer, so the data of that state must not have been collected.
    require_uncollected(repo_store.config, found.commit.graph_commit_id)
    keys = [TableKey.parse(key) for key in commit.tables]
    return _Sides(
        before={key: repo_store.commits.find_table(found, key) for key in keys},
        after={key: repo_store.commits.find_table(after.head, key) for key in keys},
        followed=frozenset(filter(before.state.follows_main, keys)),
    )


def _merge(
    repo_store: RepoStore, expected: LogEntry, *, sides: tuple[Tables, Tables], spec: CommitSpec, combiner: Combiner
) -> Published:
    """Apply the difference between two states to the head of a branch, and publish the result."""
    before, after = sides

    def changes_on(entry: LogEntry) -> Changes:
        if entry.state.mode is not expected.state.mode:
            raise WriteConflictError(
                f"branch '{entry.branch}' became {entry.state.mode} concurrently", hint="read the branch and try again"
            )
        tables = View.now(repo_store, entry).tables(repo_store.commits)
        if not all(is_same_state(tables.get(key), before[key]) for key in spec.released):
            raise WriteConflictError(
                f"branch '{entry.branch}' moved concurrently", hint="read the branch and try again"
            )
        moved = _movable(entry.home_branch, tables, before, _without(after, spec.released))
        merged = {key for key in before if key not in moved and key not in spec.released}
        changes = {**moved, **_merge_rows(tables, sides, merged, combiner)}
        if not changes and not spec.released:
            raise InvalidInputError(
                f"commit {spec.metadata['commit']} would change nothing on branch '{entry.branch}'",
                hint="the branch already has the result, so no commit is needed",
            )
        return changes

    return publish(repo_store, expected=expected, changes=changes_on(expected), spec=spec, rebase=changes_on)


def _without(tables: Tables, released: Set[TableKey]) -> Tables:
    return {key: table for key, table in tables.items() if key not in released}


def _movable(branch: BranchName, tables: TableMap, before: Tables, after: Tables) -> dict[TableKey, TableEntry | None]:
    """Return the tables that are unchanged and only need a pointer to another version in a home of the branch."""
    unchanged = [key for key in after if is_same_state(tables.get(key), before[key])]
    found = {key: after[key] for key in unchanged if _can_hold(branch, after[key])}
    # The home may belong to another table by now, because tables can be renamed. Two tables must not share a home.
    homes = Counter((entry.dataset, entry.home) for entry in {**tables, **found}.values() if entry is not None)
    return {key: entry for key, entry in found.items() if entry is None or homes[entry.dataset, entry.home] == 1}


def _can_hold(branch: BranchName, entry: TableEntry | None) -> bool:
    """Return whether a branch can have a state without copying data: the version is in one of its own homes."""
    return entry is None or owns(branch, entry.home)


def _merge_rows(tables: TableMap, sides: tuple[Tables, Tables], keys: Set[TableKey], combiner: Combiner) -> Changes:
    if not keys:
        return {}
    base, source = ({key: table for key in keys if (table := side[key]) is not None} for side in sides)
    what = f"the change on '{combiner.branch}'"
    return combiner.merge(Sides(base=base, source=source, target=tables), what, hint=DECIDE)
