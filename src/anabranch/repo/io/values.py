"""Requests, options and reports of loads and exports."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from anabranch.errors import InvalidInputError
from anabranch.files.records import BadRecord
from anabranch.files.rows import Reading
from anabranch.files.sources import SourceFile
from anabranch.format.arguments import require_names
from anabranch.format.staging import VersionRef, WrittenFragment
from anabranch.repo.history.comparer import Choice
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.schema.types import to_arrow
from anabranch.storage.requests import OnProgress


class LoadMode(StrEnum):
    """What a load does with the existing rows of the table."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"


class OnBad(StrEnum):
    """What a load does with a record that cannot be parsed."""

    FAIL = "fail"
    REJECT = "reject"


class OnDuplicate(StrEnum):
    """What a load does with rows of the source that have the same primary key."""

    REFUSE = "refuse"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRequest:
    """A load of a frame into one table, with checked options.

    `schema` has all columns of the table, `types` only some of them. At most one of the two is set.
    """

    key: str
    mode: LoadMode
    schema: pa.Schema | None = None
    types: pa.Schema | None = None
    primary_key: tuple[str, ...] | None = None
    on_duplicate: OnDuplicate = OnDuplicate.REFUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest(FrameRequest):
    """A load of files into one table, with checked options."""

    files: tuple[SourceFile, ...]
    reading: Reading
    on_bad: OnBad


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTask:
    """The part of a load that an engine runs: write the rows of files as data files next to one version of a table.

    Rows are written in `schema`. A record without a value in a `required` column is a bad record.
    """

    version_ref: VersionRef
    schema: pa.Schema
    required: tuple[str, ...]
    files: tuple[SourceFile, ...]
    reading: Reading
    for_overwrite: bool
    stops_at_bad: bool

    @property
    def parsed_schema(self) -> pa.Schema:
        """Return the schema for parsing: like `schema`, but required columns are not nullable."""
        fields = [
            field.with_nullable(nullable=False) if field.name in self.required else field for field in self.schema
        ]
        return pa.schema(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """The data files that an engine wrote, in the order of the source files, and the bad records."""

    fragments: tuple[WrittenFragment, ...]
    rows_read: int
    bad: tuple[BadRecord, ...]


class Loader(Protocol):
    """An engine that writes rows as data files on many machines. It publishes nothing."""

    def write(self, task: LoadTask, *, progress: OnProgress) -> WrittenRows:
        """Write the rows of the files of a task."""
        ...

    def write_frame(
        self, frame: Any, version_ref: VersionRef, schema: pa.Schema, *, for_overwrite: bool
    ) -> WrittenRows:
        """Write the rows of a DataFrame of this engine."""
        ...

    def columns_of(self, frame: Any, existing: pa.Schema | None) -> pa.Schema:
        """Return the schema of a table made from a DataFrame. Types that the engine does not have are kept."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Row counts of a load that is staged in a transaction, and whether it creates the table."""

    rows_read: int
    rows_loaded: int
    rows_rejected: int = 0
    rows_repeated: int = 0
    created: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """Result of a load. `commit_id` is None if the load changed nothing, `created` is True if it made the table."""

    table: str
    branch: str
    mode: LoadMode
    format: str
    engine: Choice
    files: tuple[str, ...]
    rows_read: int
    rows_loaded: int
    rows_rejected: int
    rows_repeated: int
    reject_table: str | None
    commit_id: str | None
    created: bool

    @classmethod
    def of(
        cls,
        request: FrameRequest,
        loaded: Loaded,
        *,
        branch: str,
        engine: Choice,
        commit: GraphCommit | None,
    ) -> "LoadReport":
        """Build the report for a request after its transaction was published."""
        files = request.files if isinstance(request, LoadRequest) else ()
        return cls(
            table=request.key,
            branch=branch,
            mode=request.mode,
            format=files[0].format.value if files else "frame",
            engine=engine,
            files=tuple(file.uri for file in files),
            reject_table=reject_table_of(request.key) if loaded.rows_rejected else None,
            commit_id=None if commit is None else commit.graph_commit_id,
            **asdict(loaded),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """Result of an export: the files, and the commit whose rows they have."""

    table: str
    commit_id: str
    format: str
    files: tuple[str, ...]
    rows: int
    bytes_written: int


def reject_table_of(key: str) -> str:
    """Return the key of the table that stores the rejected records of a table."""
    return f"{key}_rejects"


def checked_schema(given: object) -> tuple[pa.Schema | None, pa.Schema | None]:
    """Return (schema, None) for a schema and (None, types) for a mapping of some columns to types."""
    if given is None or isinstance(given, pa.Schema):
        return given, None
    if isinstance(given, Mapping):
        fields = [
            (name, kind if isinstance(kind, pa.DataType) else to_arrow(str(kind))) for name, kind in given.items()
        ]
        return None, pa.schema(fields)
    raise InvalidInputError(
        f"schema must be a pyarrow.Schema or a dict of column types, got {given!r}",
        hint="pass for example `schema={'id': 'int64'}`",
    )


def checked_key(given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the columns of a primary key as a tuple. Raise InvalidInputError for a plain string."""
    # A string is a Sequence too, and its characters would be taken for column names.
    if isinstance(given, str):
        raise InvalidInputError(f"primary_key must be a list, got {given!r}", hint=f"pass `primary_key=[{given!r}]`")
    if given is not None:
        require_names(given)
    return None if given is None else tuple(given)
