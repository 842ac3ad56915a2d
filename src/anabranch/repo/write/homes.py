"""The homes of tables: new datasets, and forks of them."""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pyarrow as pa

from anabranch.column_types import show_type
from anabranch.errors import (
    DamagedFileError,
    DatasetExistsError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    WriteConflictError,
)
from anabranch.format import staging
from anabranch.format.arguments import listed_columns, require_names
from anabranch.format.refs.refs import mark_managed
from anabranch.format.staging import VersionRef
from anabranch.hints import suggest
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.config import RepoConfig, owns
from anabranch.repo.log.entries import TableEntry, TableMap
from anabranch.repo.write.staged_table import StagedTable, Step, fork_home

REMOVING = "_gc/removing"


@contextmanager
def being_removed(config: RepoConfig, dataset: str) -> Iterator[None]:
    """Announce the removal of a folder before it is checked, so that one of the two sides sees the other.

    If the process dies or a request fails, the notice stays, and new tables of that name use another folder until the
    notice is collected: a deletion whose answer was lost may still be carried out.
    """
    config.store.put(_path(dataset), b"\n")
    # Not in `finally`: a request that failed may still be carried out, so its notice stays.
    yield
    config.store.delete(_path(dataset))


def is_being_removed(config: RepoConfig, dataset: str) -> bool:
    """Return whether another process may be removing a folder. Call this after a write into the folder."""
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
    """Make an empty table: a new dataset, or the dataset of an earlier table of that name.

    `is_taken` returns whether another table has a folder, for example one that was renamed and has kept its folder.
    """
    if not isinstance(schema, pa.Schema):
        hint = "pass a pyarrow.Schema"
        raise InvalidInputError(f"the schema of '{key}' is {schema!r} ({type(schema).__name__})", hint=hint)
    check_primary_key(key, schema, primary_key)
    dataset = f"{key.bucket}/{key.table}.lance"
    # A renamed table keeps its folder, so that the folder of a name may belong to another table.
    if is_taken(dataset):
        dataset = free_dataset(config, key)
    try:
        version_ref = _create(config, branch, dataset, schema)
    except (DamagedFileError, DatasetExistsError) as err:
        # A torn manifest is left by a creation that a power loss cut off. No commit names its folder: gc removes it.
        is_torn = isinstance(err, DamagedFileError)
        taken_over = None if is_torn else _take_over(config, branch, dataset, schema)
        # Write first, then look for the notice. A collection announces the removal first and lists the folder then, so
        # that one of the two sees the other.
        if taken_over is not None and not is_being_removed(config, dataset):
            left, emptied = taken_over
            return _new_staged_table(key, dataset, left, primary_key).then(Step("create", emptied))
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
    """Return the newest version of an earlier table's dataset, and an empty one on it. None if it cannot be used."""
    root = config.dataset_root(dataset)
    try:
        version_ref = VersionRef(home=root, version=root.head_version())
        # Stable row ids cannot be enabled later, and without them rows cannot be matched between versions.
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
            problem = f"the primary key of '{key}' names the column {name!r}, which is not there"
            raise SchemaMismatchError(problem, hint=suggest(name, schema.names, listed_columns(schema.names)))
        if not _can_be_key(schema.field(name).type):
            raise InvalidInputError(
                f"column {name!r} of '{key}' is {show_type(schema.field(name).type)} and cannot be a key",
                hint="use columns of whole numbers, text, dates or bytes",
            )
    if len(set(primary_key)) != len(primary_key):
        raise InvalidInputError(f"the primary key of '{key}' names a column twice", hint="name each once")


def _can_be_key(kind: pa.DataType) -> bool:
    """Return whether equal values of a type have one form, and Arrow can search for them."""
    types = pa.types
    # Floats: 0.0 and -0.0 are equal but differ in form, and NaN is not equal to itself.
    is_odd = types.is_nested(kind) or types.is_floating(kind) or types.is_null(kind) or types.is_dictionary(kind)
    return not is_odd and not isinstance(kind, pa.BaseExtensionType)


def free_dataset(config: RepoConfig, key: TableKey) -> str:
    """Return a folder that no present or former table uses."""
    return f"{key.bucket}/{key.table}-{config.new_id().lower()}.lance"


def taken_homes(tables: TableMap, *, besides: Container[TableKey]) -> frozenset[tuple[str, str | None]]:
    """Return the folder and home of each table other than the ones in `besides`."""
    return frozenset((entry.dataset, entry.home) for key, entry in tables.items() if key not in besides)


def refuse_shared_home(key: TableKey, entry: TableEntry, taken: Container[tuple[str, str | None]]) -> None:
    """Refuse a folder that another table uses, because that table was created and renamed concurrently."""
    if (entry.dataset, entry.home) in taken:
        hint = "do it again on the new state"
        raise WriteConflictError(f"another table took the folder of table '{key}' at the same time", hint=hint)


def home_for_writing(config: RepoConfig, branch: BranchName, version_ref: VersionRef) -> VersionRef:
    """Return a version in a home to which a branch may write: itself if the branch owns its home, else a fork."""
    return version_ref if owns(branch, version_ref.home.branch) else fork_home(config, branch, version_ref)
