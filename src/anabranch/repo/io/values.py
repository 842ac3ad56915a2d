"""What is asked of a load or an export, and what they report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from anabranch.errors import InvalidInputError
from anabranch.files.finding import SourceFile
from anabranch.files.records import BadRecord
from anabranch.files.rows import Reading
from anabranch.format.staging import Pin, WrittenFragment
from anabranch.repo.history.choosing import Choice
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.schema.types import to_arrow

__all__ = [
    "ExportReport",
    "FrameRequest",
    "LoadMode",
    "LoadProgress",
    "LoadReport",
    "LoadRequest",
    "LoadTask",
    "Loaded",
    "Loader",
    "OnBad",
    "OnDuplicate",
    "OnProgress",
    "WrittenRows",
    "checked_key",
    "checked_schema",
    "reject_table_of",
]


class LoadMode(StrEnum):
    """What a load does with the rows that are there."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"


class OnBad(StrEnum):
    FAIL = "fail"
    REJECT = "reject"


class OnDuplicate(StrEnum):
    REFUSE = "refuse"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """How far a load is: rows written, and bytes of all files read."""

    rows: int
    bytes_read: int
    bytes_total: int


OnProgress = Callable[[LoadProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """Which rows are to go into which table, and what to do about those that cannot."""

    key: str
    files: tuple[SourceFile, ...]
    reading: Reading
    mode: LoadMode = LoadMode.APPEND
    schema: pa.Schema | None = None
    types: pa.Schema | None = None
    primary_key: tuple[str, ...] | None = None
    on_bad: OnBad = OnBad.FAIL
    on_duplicate: OnDuplicate = OnDuplicate.REFUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTask:
    """The part of a load that an engine does: write the rows of files as data files of a pinned home.

    Rows are written in `schema`; a record without a value in a `required` column is a bad one.
    """

    pin: Pin
    schema: pa.Schema
    required: tuple[str, ...]
    files: tuple[SourceFile, ...]
    reading: Reading
    for_overwrite: bool
    stops_at_bad: bool

    @property
    def parsed_schema(self) -> pa.Schema:
        """The columns as files must have them."""
        fields = [
            field.with_nullable(nullable=False) if field.name in self.required else field for field in self.schema
        ]
        return pa.schema(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """What an engine wrote, in the order of the files; and the records that are no rows."""

    fragments: tuple[WrittenFragment, ...]
    rows_read: int
    bad: tuple[BadRecord, ...]


class Loader(Protocol):
    """Write rows as data files on many machines, without publishing them."""

    def write(self, task: LoadTask, *, on_progress: OnProgress) -> WrittenRows:
        """Write the rows of many files."""
        ...

    def write_frame(self, frame: Any, pin: Pin, schema: pa.Schema, *, for_overwrite: bool) -> WrittenRows:
        """Write the rows of a DataFrame of the engine."""
        ...

    def columns_of(self, frame: Any) -> pa.Schema:
        """Return the columns of a table that a DataFrame would make."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRequest:
    """Which table the rows of a frame are to go into."""

    key: str
    mode: LoadMode
    schema: pa.Schema | None
    types: pa.Schema | None
    primary_key: tuple[str, ...] | None
    on_duplicate: OnDuplicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a transaction has taken in."""

    rows_read: int
    rows_loaded: int
    rows_rejected: int = 0
    rows_repeated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load did. Without a commit, there was nothing to load."""

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

    @classmethod
    def of(
        cls,
        request: "LoadRequest | FrameRequest",
        loaded: Loaded,
        *,
        branch: str,
        engine: Choice,
        commit: GraphCommit | None,
    ) -> "LoadReport":
        files = request.files if isinstance(request, LoadRequest) else ()
        return cls(
            table=request.key,
            branch=branch,
            mode=request.mode,
            format=files[0].format.value if files else "frame",
            engine=engine,
            files=tuple(file.uri for file in files),
            rows_read=loaded.rows_read,
            rows_loaded=loaded.rows_loaded,
            rows_rejected=loaded.rows_rejected,
            rows_repeated=loaded.rows_repeated,
            reject_table=reject_table_of(request.key) if loaded.rows_rejected else None,
            commit_id=None if commit is None else commit.graph_commit_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export wrote, of which commit."""

    table: str
    commit_id: str
    format: str
    files: tuple[str, ...]
    rows: int
    bytes_written: int


def reject_table_of(key: str) -> str:
    """Where the bad records of a table go."""
    return f"{key}_rejects"


def checked_schema(given: object) -> tuple[pa.Schema | None, pa.Schema | None]:
    """A whole schema, or the types of some columns, which a mapping gives."""
    if given is None or isinstance(given, pa.Schema):
        return given, None
    if isinstance(given, Mapping):
        fields = [
            (name, kind if isinstance(kind, pa.DataType) else to_arrow(str(kind))) for name, kind in given.items()
        ]
        return None, pa.schema(fields)
    raise InvalidInputError(
        f"the schema is a {type(given).__name__!r}", hint="give a pyarrow.Schema, or a dict of some columns' types"
    )


def checked_key(given: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(given, str):
        raise InvalidInputError(f"the primary key {given!r} is no list", hint=f"give [{given!r}]")
    return None if given is None else tuple(given)
