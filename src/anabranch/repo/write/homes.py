"""The homes of tables: new datasets, forks of them, and what plain Lance readers see there.

A published version is settled: it becomes the newest ordinary version of its home. Readers of the repository do not
need that, and a failure does not change what is published: the next writer settles. Where commits wait for the disk,
`publish` prepares the settled manifests, and links them right after the commit.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from anabranch.errors import (
    AnabranchError,
    DamagedFileError,
    DatasetExistsError,
    ExternalWriteError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    WriteConflictError,
)
from anabranch.format import staging
from anabranch.format.arguments import listed_columns, require_names
from anabranch.format.home import Home
from anabranch.format.refs.refs import mark_managed
from anabranch.format.staging import VersionRef
from anabranch.hints import suggest
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.config import RepoConfig, owns
from anabranch.repo.log.entries import Changes, LogEntry, TableEntry, TableMap
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.reset_and_undo import changed_tables
from anabranch.repo.write.staged_table import StagedTable, Step, fork_home
from anabranch.storage import in_parallel
from anabranch.warnings import warn_of_external_write

REMOVING = "_gc/removing"


@contextmanager
def being_removed(config: RepoConfig, dataset: str) -> Iterator[None]:
    """Announce the removal of a folder before it is checked, so that one of the two sides sees the other.

    If the process dies or a request fails, the notice stays, and new tables of that name use another folder until the
    notice is collected: a deletion whose answer was lost may still be carried out.
    """
    config.store.put(_path(dataset), b"\n")
    # Not in `finally`: see above.
    yield
    config.store.delete(_path(dataset))


def is_being_removed(config: RepoConfig, dataset: str) -> bool:
    """Whether a folder may be removed now; to be called after something was written into it."""
    return config.store.find_info(_path(dataset)) is not None


def _path(dataset: str) -> str:
    return f"{REMOVING}/{dataset}"


def stage_new(
    config: RepoConfig,
    branch: BranchName,
    key: TableKey,
    *,
    schema: pa.Schema,
    primary_key: Sequence[str],
    is_taken: Callable[[str], bool],
) -> StagedTable:
    """Make an empty table: a new dataset, or one that an earlier table of that name left behind.

    `is_taken` returns whether another table has a folder, for example one that was renamed and has kept its folder.
    """
    if not isinstance(schema, pa.Schema):
        raise InvalidInputError(
            f"the schema of '{key}' is {schema!r} ({type(schema).__name__})", hint="pass a pyarrow.Schema"
        )
    check_primary_key(key, schema, primary_key)
    dataset = f"{key.bucket}/{key.table}.lance"
    # A renamed table keeps its folder, so that the folder of a name may belong to another table.
    if is_taken(dataset):
        dataset = free_dataset(config, key)
    try:
        version_ref = _create(config, branch, dataset, schema)
    except DatasetExistsError:
        taken_over = _take_over(config, branch, dataset, schema)
        # Write first, then look for the notice. A collection announces the removal first and lists the folder then, so
        # that one of the two sees the other.
        if taken_over is not None and not is_being_removed(config, dataset):
            left, emptied = taken_over
            return _new_staged_table(key, dataset, left, primary_key).then(Step("create", emptied))
        dataset = free_dataset(config, key)
        version_ref = _create(config, branch, dataset, schema)
    except DamagedFileError:
        # A creation that a power loss cut off left a torn manifest. No commit names the folder, and gc removes it.
        dataset = free_dataset(config, key)
        version_ref = _create(config, branch, dataset, schema)
    return _new_staged_table(key, dataset, home_for_writing(config, branch, version_ref), primary_key)


def _create(config: RepoConfig, branch: BranchName, dataset: str, schema: pa.Schema) -> VersionRef:
    version_ref = staging.create_empty(config.dataset_root(dataset), staging.without_column_ids(schema))
    mark_managed(
        version_ref.home,
        version_ref.version,
        at=datetime.fromtimestamp(config.clock() / 1e6, UTC),
        # In the root of the dataset, the commit makes the mark durable together with the first version.
        durable=not owns(branch, version_ref.home.branch),
    )
    return version_ref


def _take_over(
    config: RepoConfig, branch: BranchName, dataset: str, schema: pa.Schema
) -> tuple[VersionRef, VersionRef] | None:
    """Return what an earlier table left behind, as it is and emptied; None if it cannot be used."""
    root = config.dataset_root(dataset)
    try:
        version_ref = VersionRef(home=root, version=root.head_version())
        # They cannot be switched on later, and without them rows cannot be matched between versions.
        if not version_ref.open().has_stable_row_ids:
            return None
        left = home_for_writing(config, branch, version_ref)
        return left, staging.overwrite(left, schema.empty_table(), is_another_table=True)
    except (NotFoundError, DamagedFileError):
        return None


def _new_staged_table(key: TableKey, dataset: str, version_ref: VersionRef, primary_key: Sequence[str]) -> StagedTable:
    return StagedTable(
        key=key,
        origin=None,
        dataset=dataset,
        version_ref=version_ref,
        head=version_ref.version,
        primary_key=tuple(primary_key),
        forked_from=None,
        rows=0,
    )


def check_primary_key(key: TableKey, schema: pa.Schema, primary_key: Sequence[str]) -> None:
    require_names(primary_key, "primary_key")
    for name in primary_key:
        if name not in schema.names:
            raise SchemaMismatchError(
                f"the primary key of '{key}' names the column {name!r}, which is not there",
                hint=suggest(name, schema.names, listed_columns(schema.names)),
            )
        if not _can_be_key(schema.field(name).type):
            raise InvalidInputError(
                f"column {name!r} of '{key}' is {schema.field(name).type} and cannot be a key",
                hint="use columns of whole numbers, text, dates or bytes",
            )
    if len(set(primary_key)) != len(primary_key):
        raise InvalidInputError(f"the primary key of '{key}' names a column twice", hint="name each once")


def _can_be_key(kind: pa.DataType) -> bool:
    """Whether equal values of a type have one form, and Arrow can look them up."""
    types = pa.types
    # Of floats, 0.0 and -0.0 are equal in two forms, and NaN is not equal to itself.
    is_odd = types.is_nested(kind) or types.is_floating(kind) or types.is_null(kind) or types.is_dictionary(kind)
    return not is_odd and not isinstance(kind, pa.BaseExtensionType)


def free_dataset(config: RepoConfig, key: TableKey) -> str:
    """Return a folder that no table has or had."""
    return f"{key.bucket}/{key.table}-{config.new_id().lower()}.lance"


def taken_homes(tables: TableMap, *, besides: Container[TableKey]) -> frozenset[tuple[str, str | None]]:
    """Return the folder and home of each table other than the ones in `besides`."""
    return frozenset((entry.dataset, entry.home) for key, entry in tables.items() if key not in besides)


def refuse_shared_home(key: TableKey, entry: TableEntry, taken: Container[tuple[str, str | None]]) -> None:
    """Refuse a folder that another table has taken, which was created and renamed concurrently."""
    if (entry.dataset, entry.home) in taken:
        raise WriteConflictError(
            f"another table took the folder of table '{key}' at the same time", hint="do it again on the new state"
        )


def home_for_writing(config: RepoConfig, branch: BranchName, version_ref: VersionRef) -> VersionRef:
    """The root of a dataset as a branch may write to it: main at the root itself, others in a fork."""
    return version_ref if owns(branch, version_ref.home.branch) else fork_home(config, branch, version_ref)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalWrite:
    """A write to a managed table by another tool. It is kept and waits for a decision."""

    table: str
    home: str
    problem: str


def warn_of_external_writes(writes: Sequence[ExternalWrite]) -> None:
    """Warn of external writes that a commit met; the commit is published, and plain Lance readers do not see it."""
    for write in writes:
        called = f"'{write.table}', branch='{write.home}'"
        warn_of_external_write(
            f"the commit is published, but another Lance tool wrote to '{write.table}' on branch '{write.home}', and "
            f"plain Lance readers see its version: merge it with `adopt({called})`, "
            f"or set it aside with `settle({called}, force=True)`"
        )


def settle_published(repo_store: RepoStore, branch: BranchName, changes: Changes) -> tuple[ExternalWrite, ...]:
    """Settle the tables of a commit; return the external writes that were found.

    Every other failure is left to the next writer: the commit is published, and readers of the repository see it.
    """
    found: list[ExternalWrite] = []
    # A table taken from another branch is in that branch's home, which this one does not write to.
    pending = {key: entry for key, entry in changes.items() if entry is not None and owns(branch, entry.home)}
    # Until the branch has no newer version of these tables: a writer that overtook this one may have settled before
    # it, and its version would stay below an older one.
    while pending:
        settle = partial(_try_to_settle, repo_store, branch)
        answers = in_parallel(settle, pending.items(), at_a_time=repo_store.config.tables_at_a_time)
        settled: dict[TableKey, TableEntry] = {}
        for (key, entry), answer in zip(pending.items(), answers, strict=True):
            if isinstance(answer, ExternalWrite):
                found.append(answer)
            elif answer:
                settled[key] = entry
        try:
            pending = find_newer(repo_store, branch, settled)
        except AnabranchError:
            break
    return tuple(found)


def _try_to_settle(
    repo_store: RepoStore, branch: BranchName, table: tuple[TableKey, TableEntry]
) -> bool | ExternalWrite:
    """Settle one table; return whether that succeeded, or the external write that is in the way."""
    key, entry = table
    try:
        home = repo_store.config.home_of(entry)
        # The writer of a later commit may have settled it.
        if not staging.is_newest(home, entry.version):
            _settle(repo_store, branch, key, entry, home)
    except ExternalWriteError as err:
        return ExternalWrite(table=str(key), home=str(branch), problem=err.problem)
    except AnabranchError:
        return False
    return True


def settle_movement(repo_store: RepoStore, after: LogEntry) -> tuple[ExternalWrite, ...]:
    """Settle the tables that a reset, undo, redo or rebase changed.

    Another writer may have moved the branch between the caller's last read and this entry, so what counts is the entry
    before it.
    """
    try:
        before = repo_store.heads.get_numbered(after.branch, after.number - 1)
        changes = changed_tables(repo_store, before, after)
    except AnabranchError:
        return ()  # the branch has moved; the next writer settles its tables
    return settle_published(repo_store, after.branch, changes)


def settle_head(repo_store: RepoStore, branch: BranchName) -> tuple[ExternalWrite, ...]:
    """Settle the tables of the newest commit, whose writer may have been killed right after it."""
    head = repo_store.heads.get(branch).head
    keys = [TableKey.parse(key) for key in head.commit.tables]
    return settle_published(repo_store, branch, {key: repo_store.commits.find_table(head, key) for key in keys})


def settle_table(repo_store: RepoStore, branch: BranchName, key: TableKey, *, force: bool = False) -> None:
    """Make the newest published version of a table its home's newest ordinary one."""
    entry = repo_store.find_table(branch, key)
    while entry is not None and owns(branch, entry.home):
        if force:
            staging.settle_by_force(repo_store.config.home_of(entry), entry.version)
        else:
            _settle(repo_store, branch, key, entry, repo_store.config.home_of(entry))
        entry = find_newer(repo_store, branch, {key: entry}).get(key)


def _settle(repo_store: RepoStore, branch: BranchName, key: TableKey, entry: TableEntry, home: Home) -> None:
    prepared = staging.prepare_settle(home, entry.version, expected_head=entry.head)
    staging.link(prepared, is_current=lambda: not find_newer(repo_store, branch, {key: entry}))


def find_newer(repo_store: RepoStore, branch: BranchName, settled: Changes) -> dict[TableKey, TableEntry]:
    """Return what was published since of the tables that were just settled.

    A slow writer may have settled an older version after a newer one, so each reads the branch again afterwards.
    """
    head = repo_store.heads.find(branch) if settled else None
    if head is None:
        return {}
    tables = {key: repo_store.commits.find_table(head.head, key) for key in settled}
    return {
        key: entry
        for key, entry in tables.items()
        if entry is not None and entry != settled[key] and owns(branch, entry.home)
    }


def list_external_writes(repo_store: RepoStore, branch: BranchName) -> tuple[ExternalWrite, ...]:
    """List the external writes that were not adopted or set aside, by table. Each table of the branch is opened."""
    tables = repo_store.commits.tables_of(repo_store.heads.get(branch).head)
    owned = [key for key in sorted(tables) if owns(branch, tables[key].home)]
    found = in_parallel(lambda key: _find(repo_store, branch, key, tables[key]), owned)
    return tuple(write for write in found if write is not None)


def _find(repo_store: RepoStore, branch: BranchName, key: TableKey, entry: TableEntry) -> ExternalWrite | None:
    home = repo_store.config.home_of(entry)
    external = staging.list_external_versions(home, since=entry.head)
    if not external:
        return None
    versions = ", ".join(map(str, external))
    problem = f"an external writer changed {home.uri!r}: version {versions}"
    return ExternalWrite(table=str(key), home=str(branch), problem=problem)
