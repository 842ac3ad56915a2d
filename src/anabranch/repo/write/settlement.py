"""The tables of a commit on a local disk: durable before the commit is published, settled right after.

The disk is waited for twice, whatever the number of tables: once for all files of the commit and the bytes of its
settled manifests, then for the name of its log entry. The settled manifests get their names after that, without a sync.
They follow from the log, so a power loss may take the names, and the next writer settles again. But a manifest that has
its name is never torn, because its bytes were durable before.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from anabranch.errors import AnabranchError, ObjectExistsError, StorageError
from anabranch.format import staging
from anabranch.format.staging import PreparedSettle
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import Changes, LogEntry, TableEntry, TableMap, owns
from anabranch.repo.log.store import RepoStore
from anabranch.storage import PreparedObject, in_parallel
from anabranch.storage.options import Durability, durability_of
from anabranch.storage.uris import is_local

__all__ = ["Settlement", "prepare_settlement"]

_Prepared: TypeAlias = tuple[PreparedSettle, PreparedObject | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What has to be durable before a commit (`files`), and the manifests to link after it."""

    files: tuple[str, ...] = ()
    manifests: tuple[tuple[PreparedSettle, PreparedObject], ...] = ()

    def link(self) -> None:
        """Give the settled manifests their names. What cannot be linked is left to `settle_published`."""
        for prepared, manifest in self.manifests:
            try:
                prepared.home.store().put_prepared(manifest)
            except (ObjectExistsError, StorageError):
                continue
            staging.remember_settled(prepared)

    def discard(self) -> None:
        """Remove the manifests of a commit that was not published."""
        for prepared, manifest in self.manifests:
            prepared.home.store().discard(manifest)


def prepare_settlement(
    repo_store: RepoStore, head: LogEntry, changes: Changes, *, created: Collection[TableKey]
) -> Settlement:
    """Prepare the tables that a commit on top of a head changes. Nothing is prepared where no sync is needed.

    The tables of a run are made durable with each of its commits, but settled only when the run is published. The
    `created` tables, on which nothing was staged, need no settling.
    """
    config = repo_store.config
    if not is_local(config.root) or durability_of(config.storage_options) is Durability.NONE:
        return Settlement()
    written = _written(head.home_branch, changes)
    entries = [entry for key, entry in written.items() if key not in created]
    answers = in_parallel(
        lambda entry: _try_to_prepare(repo_store, entry, settles=head.state.run is None),
        entries,
        at_a_time=config.tables_at_a_time,
    )
    found = [answer for answer in answers if answer is not None]
    if len(found) < len(entries):
        # An external write is pending, or a manifest is damaged. The commit does not depend on either, so wait for
        # the whole disk instead of single files.
        Settlement(manifests=_manifests(found)).discard()
        config.store.sync_all()
        return Settlement()
    files = [file for prepared, manifest in found for file in _iter_files(prepared, manifest)]
    new = [(config.home_of(entry), entry.version) for key, entry in written.items() if key in created]
    files += [file for home, version in new for file in staging.list_created_files(home, version)]
    return Settlement(files=tuple(dict.fromkeys(files)), manifests=_manifests(found))


def _manifests(found: Sequence[_Prepared]) -> tuple[tuple[PreparedSettle, PreparedObject], ...]:
    return tuple((prepared, manifest) for prepared, manifest in found if manifest is not None)


def _written(branch: BranchName, changes: Changes) -> TableMap:
    """Return the tables that were written; one that was taken over from another branch is durable already."""
    return {key: entry for key, entry in changes.items() if entry is not None and owns(branch, entry.home)}


def _try_to_prepare(repo_store: RepoStore, entry: TableEntry, *, settles: bool) -> _Prepared | None:
    try:
        return _prepare(repo_store, entry, settles=settles)
    except AnabranchError:
        return None


def _prepare(repo_store: RepoStore, entry: TableEntry, *, settles: bool) -> _Prepared:
    home = repo_store.config.home_of(entry)
    prepared = staging.prepare_settle(home, entry.version, expected_head=entry.head)
    # If other commits were settled since, only the branch knows which version is the newest: see `settle_published`.
    if not settles or prepared.is_settled or prepared.between:
        return prepared, None
    return prepared, home.store().prepare(prepared.path, prepared.data)


def _iter_files(prepared: PreparedSettle, manifest: PreparedObject | None) -> Iterator[str]:
    yield from (file for file in prepared.list_new_files() if is_local(file))
    if manifest is not None and manifest.file is not None:
        yield manifest.file
