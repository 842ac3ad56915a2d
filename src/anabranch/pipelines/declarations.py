"""What a pipeline file declares, as values: outputs, checks, and where in the file they stand."""

import hashlib
import json
import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from anabranch.errors import AnabranchError, InvalidPipelineError
from anabranch.ids import TableKey
from anabranch.pipelines.statements import Statement
from anabranch.repo.io.values import LoadMode
from anabranch.repo.snapshot import Snapshot

__all__ = [
    "DeclaredCheck",
    "Engine",
    "Output",
    "SourceLocation",
    "WriteMode",
    "calling_location",
    "parse_engine",
    "parse_key",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """A line of a source file, for error messages."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def inside(self, text: str, line: int) -> "SourceLocation":
        """The line of a text that is written here, if it stands in the file as it is."""
        source = linecache.getlines(self.file)
        # A text that has escapes, or that an f-string made, does not stand in the file as it is.
        found = "".join(source[self.line - 1 :]).partition(text)
        return (
            SourceLocation(file=self.file, line=self.line + found[0].count("\n") + line - 1)
            if text and found[1]
            else self
        )

    def fail(self, problem: str, *, hint: str) -> NoReturn:
        raise InvalidPipelineError(f"{self}: {problem}", hint=hint)


class WriteMode(StrEnum):
    """How an output meets the rows that its table has already."""

    REBUILD = "rebuild"
    APPEND = "append"
    UPSERT = "upsert"

    @property
    def load_mode(self) -> LoadMode:
        """The mode of the write."""
        return LoadMode.OVERWRITE if self is WriteMode.REBUILD else LoadMode(self.value)


class Engine(StrEnum):
    """What builds an output: Spark, or DuckDB in this process."""

    SPARK = "spark"
    DUCKDB = "duckdb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A table that the pipeline makes: by a statement, or else by a function of its inputs.

    Of `incremental` inputs it sees only what is new since it was last published. `code` is the text that computes it.
    """

    key: str
    location: SourceLocation
    inputs: tuple[str, ...]
    write: WriteMode
    primary_key: tuple[str, ...]
    incremental: tuple[str, ...]
    description: str
    engine: Engine = Engine.SPARK
    code: str = ""
    statement: Statement | None = None
    function: Callable[..., Any] | None = None
    options: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "python" if self.statement is None else "sql"

    @property
    def code_hash(self) -> str:
        """A hash of what decides the rows of the output, apart from its inputs and the parameters."""
        # Without the description and the checks: if only they change, the table need not be built again.
        options = [self.kind, self.engine, self.write, self.inputs, self.primary_key, self.incremental, self.code]
        return hashlib.sha256(json.dumps(options).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCheck:
    """What must hold before anything is published; SQL names the tables it reads, a function does not.

    `owner` is the table that a ready-made check belongs to. The result of a check that `depends_on_time` may change
    although the data does not.
    """

    name: str
    location: SourceLocation
    check: str | Callable[[Snapshot], object]
    tables: tuple[str, ...] = ()
    owner: str | None = None
    depends_on_time: bool = False


def calling_location(*, outwards: int) -> SourceLocation:
    """The line that called the caller's caller, or who stands further outwards."""
    frame = sys._getframe(outwards + 1)
    return SourceLocation(file=frame.f_code.co_filename, line=frame.f_lineno)


def parse_key(text: Any, location: SourceLocation) -> str:
    try:
        return str(TableKey.parse(text))
    except AnabranchError as err:
        location.fail(err.problem, hint=err.hint)


def parse_engine(text: Any, location: SourceLocation) -> Engine:
    if text not in list(Engine):
        location.fail(f"the engine is {text!r}", hint=f"use {' or '.join(Engine)}")
    return Engine(text)
