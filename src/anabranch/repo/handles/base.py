"""What every handle on a repository is bound to and remembers: a branch, and where it last saw it."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.ids import MAIN, BranchName, Ref
from anabranch.repo.engine import Parameters, SqlEngine
from anabranch.repo.history import tables
from anabranch.repo.history.choosing import choose_comparer
from anabranch.repo.history.comparing import RowComparer
from anabranch.repo.io.values import Choice
from anabranch.repo.log.arguments import checked_text
from anabranch.repo.log.config import Context
from anabranch.repo.log.entries import LogEntry
from anabranch.repo.log.store import Records
from anabranch.repo.refs import reflog
from anabranch.repo.refs.live import view
from anabranch.repo.refs.resolve import Resolved, refuse_internal, require_kept, require_published, resolve
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.write import settle
from anabranch.repo.write.publish import Changes

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.repo.repository import Repository

__all__ = ["Handle"]


class Handle:
    """A handle on one repository, bound to one branch."""

    def __init__(self, context: Context, *, branch: str = MAIN) -> None:
        if context.actor is not None:
            checked_text(context.actor, "actor's name")
        self._context = context
        self._records = Records.of(context)
        self._branch = BranchName.parse_public(branch)
        self._cached: Snapshot | None = None
        self._seen: dict[BranchName, int] = {}  # where this handle last looked at, or put, a branch
        self._moving = threading.Lock()
        self.foreign_writes: tuple[settle.ForeignWrite, ...] = ()

    def __repr__(self) -> str:
        return f"Repository({self.uri!r}, branch={self.branch!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the URI, branch, actor and storage options. The copy reads the branch again when it is first used."""
        return _restore, (type(self), self._context, self.branch)

    @property
    def uri(self) -> str:
        """Where the repository is."""
        return self._context.root

    @property
    def branch(self) -> str:
        """The branch that this handle is bound to."""
        return str(self._branch)

    @property
    def actor(self) -> str | None:
        """Who commits by this handle, for the record."""
        return self._context.actor

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What reaches the store, credentials among it: for engines that open the tables by themselves."""
        return self._context.storage_options

    def snapshot(self) -> Snapshot:
        """The bound branch as this handle last saw it; it moves by `sync_branch` and by own commits only.

        A live branch moves with main, so that both are looked at.
        """
        known = self._cached
        if known is not None and known.main_commit_id is None:
            return known
        found = Resolved.of_entry(view(self._records, self._records.heads.get(self._branch)))
        if known is None or (known.version, known.main_commit_id) != (found.version, found.record.saw):
            self._cached = known = self._snapshot(found)
        self._seen[self._branch] = found.version
        return known

    def snapshot_of(self, ref: str) -> Snapshot:
        """The state a ref stands for, read anew.

        >>> snapshot = repo.snapshot_of("main~1")
        >>> len(snapshot), "shop.orders" in snapshot
        (0, False)
        """
        return self._snapshot(self._resolve(ref))

    def published_snapshot_of(self, ref: str) -> Snapshot:
        """Like `snapshot_of`; a commit given by its id is looked up in the log too, which takes one more request.

        The object of a commit whose writer died before publishing can be read by whoever knows its id.
        """
        return self._snapshot(self._resolve_published(ref))

    def sync_branch(self, branch: str | None = None) -> Snapshot:
        """Bind this handle to the newest state of a branch."""
        target = self._named(branch)
        self._cached = self._snapshot(Resolved.of_entry(view(self._records, self._records.heads.get(target))))
        self._branch = target
        self._seen[target] = self._cached.version
        return self._cached

    def _on_published(self, entry: LogEntry, changes: Changes) -> None:
        self._move_to(entry)
        self.foreign_writes = settle.try_to_settle(self._records, entry.branch, changes)
        settle.warn_of_external_writes(self.foreign_writes)

    def _on_moved(self, after: LogEntry) -> None:
        """After a movement that was no transaction: show it, also to raw Lance readers.

        Others may have moved the branch between the caller's last look and this entry; what counts is the one before.
        """
        try:
            before = self._records.heads.get_numbered(after.branch, after.number - 1)
            changes = reflog.changed_tables(self._records, before, after)
        except AnabranchError:
            changes = {}  # it is done all the same; the next writer lets raw readers see it
        self._on_published(after, changes)

    def _move_to(self, entry: LogEntry) -> None:
        """Show an own commit; threads that share this handle may come here in another order than they published."""
        with self._moving:
            self._seen[entry.branch] = max(entry.number, self._seen.get(entry.branch, 0))
            is_newer = self._cached is None or self._cached.version < entry.number
            if entry.branch == self._branch and is_newer:
                self._cached = self._find_snapshot(entry)
        tables.follow_history(self._records, entry)

    def _find_snapshot(self, entry: LogEntry) -> Snapshot | None:
        """What was just published; None if it cannot be read now, which takes nothing back: who asks reads it then."""
        try:
            return self._snapshot(Resolved.of_entry(view(self._records, entry)))
        except AnabranchError:
            return None

    def _ref(self, ref: str | None) -> str:
        return self.branch if ref is None else str(Ref.parse(ref))

    def _named(self, branch: str | None) -> BranchName:
        """The branch a user names, or the bound one."""
        return self._branch if branch is None else BranchName.parse_public(branch)

    def _resolve_published(self, ref: str) -> Resolved:
        """What a ref stands for, where something is to be built on it."""
        return require_kept(require_published(self._resolve(ref), self._records), self._records)

    def _resolve(self, ref: str) -> Resolved:
        parsed = Ref.parse(ref)
        if parsed.name.startswith("__"):
            BranchName.parse_public(parsed.name)  # says why not
        found = resolve(parsed, self._records)
        refuse_internal(found)
        if found.is_head and found.branch is not None:
            self._seen[found.branch] = found.version
        return found

    def _snapshot(self, found: Resolved) -> Snapshot:
        require_kept(found, self._records)
        return Snapshot.of(self._records, found.record, version=found.version)

    def _engine(self) -> SqlEngine:
        if self._context.load_engine is None:
            raise InvalidInputError("this repository has no SQL engine", hint="open it with anabranch.open")
        return self._context.load_engine()

    def _query(self, sql: str, snapshot: Snapshot, params: Parameters | None) -> "pa.RecordBatchReader":
        """Answer a statement over a snapshot, whether others can see it or not."""
        repository = cast("Repository", self)
        return self._engine().query(repository, sql, ref=snapshot.id, params=params, snapshot=snapshot)

    def _comparer(self, engine: str = Choice.AUTO) -> RowComparer:
        if self._context.load_comparer is None:
            raise InvalidInputError("this repository cannot compare rows", hint="open it with anabranch.open")
        return choose_comparer(
            engine, load_local=self._context.load_comparer, find_large=self._context.find_large_comparer
        )


def _restore(kind: "type[Handle]", context: Context, branch: str) -> Handle:
    return kind(context, branch=branch)
