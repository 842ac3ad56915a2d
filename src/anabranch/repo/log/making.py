"""Make the commit that follows a head: what it records about itself, and the record that is stored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anabranch.ids import MAIN, TableKey
from anabranch.repo.log.commits import FEW_CHANGES, is_due_for_full_map, next_page
from anabranch.repo.log.entries import (
    Changes,
    CommitKind,
    CommitRecord,
    GraphCommit,
    LogEntry,
    TableMap,
)
from anabranch.repo.log.once import Once
from anabranch.repo.log.store import RepoStore
from anabranch.repo.log.view import View

__all__ = ["CommitSpec", "Guard", "Inspect", "make_record", "pin_view"]

# Read a commit before it is published, and raise to refuse it.
Inspect = Callable[[CommitRecord, TableMap], None]
# The same with the checks of a protected branch.
Guard = Callable[[tuple[tuple[str, str], ...], CommitRecord, TableMap], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSpec:
    """What a commit will record, and the checks to run before it is published.

    On a live branch, `released` tables follow main again, and a commit that `freezes` makes the branch pinned. A pull
    gives the commit that its tables are `taken_from`; a merge of a live branch gives the commit of main under it. Only
    a commit with a `guard` may go to a protected branch. A commit with `once` is not published if the branch has it
    already; its metadata are added to those of the commit. Nothing of the commit was staged before `staged_since`, in
    microseconds, if the caller knows that. Nothing was staged on the `created` tables since they were created.
    """

    message: str
    kind: CommitKind
    metadata: Mapping[str, str]
    merged_parent: GraphCommit | None = None
    taken_from: GraphCommit | None = None
    released: frozenset[TableKey] = frozenset()
    freezes: bool = False
    inspect: Inspect | None = None
    guard: Guard | None = None
    once: Once | None = None
    staged_since: int = 0
    created: frozenset[TableKey] = frozenset()


def make_record(
    repo_store: RepoStore, before: LogEntry, view: View, changes: Changes, spec: CommitSpec
) -> tuple[CommitRecord, TableMap | None]:
    """Return the commit that changes the tables of a view, and its table map if it stores the full one.

    `before` is the entry that the commit follows. Its branch may be another one than that of the view.
    """
    config, parent = repo_store.config, view.record
    main = None if view.main is None else view.main.commit
    made_from = [made for made in (parent.commit, spec.merged_parent, spec.taken_from, main) if made is not None]
    commit = GraphCommit(
        graph_commit_id=config.new_id(),
        manifest_branch=None if before.branch.value == MAIN else before.branch.value,
        manifest_version=before.number + 1,
        parent_commit_id=parent.commit.graph_commit_id,
        merged_parent_commit_id=spec.merged_parent.graph_commit_id if spec.merged_parent else None,
        actor_id=config.actor,
        # Times never decrease along a branch or from a parent to its child. Refs by time bisect over them, and
        # `keep_newer_than` stops at the first commit that is too old.
        created_at=max(config.clock(), before.at, *(made.created_at for made in made_from)),
        message=spec.message,
        kind=spec.kind,
        metadata={**spec.metadata, **({} if spec.once is None else spec.once.metadata)},
        tables=tuple(sorted(str(key) for key in {*changes, *spec.released})),
        # Sources of tables count like parents. Otherwise a walk by generation could meet such a source before a commit
        # that was made from it.
        generation=1 + max(made.generation for made in made_from),
    )
    recent, older = next_page(parent)
    is_live = before.state.is_live and not spec.freezes
    record = CommitRecord(
        commit=commit,
        base=parent.base,
        changes={**parent.changes, **changes},
        recent=recent,
        older=older,
        main_id=view.main_id if is_live else None,
        made_on=main.graph_commit_id if main else None,
        taken_from=spec.taken_from.graph_commit_id if spec.taken_from else None,
    )
    if is_live:
        return record, None  # it builds on main's base, and main renews that
    if len(record.changes) <= FEW_CHANGES:
        return record, None  # before all tables are read
    full_map = repo_store.commits.tables_of(record)
    if not is_due_for_full_map(new=len(changes), since_base=len(record.changes), tables=len(full_map)):
        return record, None
    return replace(record, base=commit.graph_commit_id, changes={}), full_map


def pin_view(repo_store: RepoStore, entry: LogEntry, view: View, *, message: str) -> LogEntry:
    """Return a planned entry with a view as its head.

    If no commit holds the tables of the view, because main has moved below a live branch, store one that does.
    """
    if view.is_recorded:
        return replace(entry, head=view.record.pinned())
    # `make_record` numbers a commit after the entry that it follows, and this commit belongs to the planned entry
    # itself.
    before = replace(entry, number=entry.number - 1)
    spec = CommitSpec(message=message, kind=CommitKind.FREEZE, metadata={})
    record, full_map = make_record(repo_store, before, view, {}, spec)
    repo_store.commits.put(record, full_map)
    return replace(entry, at=record.commit.created_at, head=record)
