"""The output of commands: tables for people or one JSON document for programs on stdout, everything else on stderr."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import typer

from anabranch.cli.documents import document_of
from anabranch.cli.tables import Table, iter_lines
from anabranch.display import human_size, printable
from anabranch.errors import (
    AnabranchError,
    BusyError,
    CheckFailedError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    MergeConflictError,
    NotFoundError,
    StorageError,
)

if TYPE_CHECKING:
    from anabranch.format.layout.listing import Total
    from anabranch.format.storage_report import Usage
    from anabranch.storage.requests import OnProgress

__all__ = [
    "CONFLICTS",
    "DIFFERENT",
    "EXIT_CODES",
    "GENERAL",
    "INTERRUPTED",
    "MEANINGS",
    "USAGE",
    "Answer",
    "ErrorView",
    "JsonOutput",
    "Line",
    "Output",
    "Table",
    "TextOutput",
    "count",
    "exit_code",
    "human_size",
    "output_for",
    "print_stream",
    "printable",
    "usage_text",
]


@dataclass(frozen=True, slots=True)
class Line:
    """A line for people, in a colour where someone watches; `more` are further pieces, each in its own."""

    text: str
    colour: str | None = None
    more: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a command in both forms: a document for programs; sentences, lines and tables for people.

    The document is a value of the library, or a mapping of such values. `exit_code` is that of the process.
    """

    document: object
    tables: Sequence[Table] = ()
    sentences: Sequence[str] = ()
    lines: Sequence[Line] = ()
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorView:
    """What is shown of an error; `details` are what programs get of it beside, `tables` what people do."""

    code: str
    message: str
    hint: str
    retryable: bool
    details: Mapping[str, object] = field(default_factory=dict)
    tables: Sequence[Table] = ()


class Output(Protocol):
    """Where a command's answers, errors and progress go."""

    def show(self, answer: Answer) -> None: ...

    def fail(self, error: ErrorView) -> None: ...

    def stop(self, message: str) -> None:
        """Report that a command was interrupted."""
        ...

    def progress(self, what: str) -> Any:
        """Return a context with a function that shows a `Progress`."""
        ...


def output_for(*, as_json: bool) -> Output:
    return JsonOutput() if as_json else TextOutput()


class JsonOutput:
    """One JSON document on stdout, or one on stderr when it went wrong."""

    def show(self, answer: Answer) -> None:
        typer.echo(json.dumps(document_of(answer.document), indent=2))

    def fail(self, error: ErrorView) -> None:
        fields = {"code": error.code, "message": error.message, "hint": error.hint, "retryable": error.retryable}
        typer.echo(json.dumps({"error": fields | document_of(error.details)}, indent=2), err=True)

    def stop(self, message: str) -> None:
        self.fail(ErrorView(code="interrupted", message=message, hint="run the command again", retryable=True))

    @contextmanager
    def progress(self, what: str) -> "Iterator[OnProgress]":  # noqa: ARG002 - programs want none
        yield lambda _step: None


class TextOutput:
    """Tables and sentences, and a progress bar where someone watches."""

    def show(self, answer: Answer) -> None:
        for sentence in answer.sentences:
            typer.echo(printable(sentence))
        for line in answer.lines:
            pieces = [(line.text, line.colour), *line.more]
            typer.echo("".join(_coloured(printable(text), colour) for text, colour in pieces))
        for table in answer.tables:
            _print_table(table)

    def fail(self, error: ErrorView) -> None:
        typer.echo(f"error: {printable(error.message)}", err=True)
        for table in error.tables:
            _print_table(table, err=True)
        typer.echo(f"hint: {printable(error.hint)}", err=True)

    def stop(self, message: str) -> None:
        typer.echo(message, err=True)

    @contextmanager
    def progress(self, what: str) -> "Iterator[OnProgress]":
        from anabranch.cli.progress import watch_steps

        with watch_steps(what) as watch:
            yield watch


def print_stream(output: Output, what: str, texts: Iterator[str]) -> None:
    """Print text that may be larger than the memory, piece by piece."""
    with output.progress(what):
        first = next(texts, "")
        # In a file the text does not mix with the bar, so that the bar can stay until the end.
        if not sys.stdout.isatty():
            typer.echo(first, nl=False)
            for text in texts:
                typer.echo(text, nl=False)
            return
    for text in chain([first], texts):
        typer.echo(text, nl=False)


def _coloured(text: str, colour: str | None) -> str:
    return text if colour is None else typer.style(text, fg=colour)


def _print_table(table: Table, *, err: bool = False) -> None:
    if table.title:
        typer.echo(f"\n{printable(table.title)}", err=err)
    if not table.rows:
        typer.echo(table.empty, err=err)
        return
    file = sys.stderr if err else sys.stdout
    # A table in a pipe is as wide as its content: text that is cut off cannot be searched for.
    width = shutil.get_terminal_size().columns if file.isatty() else None
    for line in iter_lines(table, width=width, paint=_painted):
        typer.echo(line, err=err)


def _painted(text: str, style: str) -> str:
    return typer.style(text, dim=True) if style == "dim" else typer.style(text, fg=style)


def count(number: int, noun: str) -> str:
    """Return a number of things as text."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def usage_text(usage: "Usage | Total") -> str:
    """For people."""
    return f"{count(usage.files, 'file')}, {human_size(usage.bytes)}" if usage.files else "-"


GENERAL = 1
USAGE = 2
# Not an error: a reproduced commit has other outputs, or a schema plan with --exit-code has changes.
DIFFERENT = 8
# Also of a dry run that found conflicts, which is not an error.
CONFLICTS = 9
# Ctrl-C, as shells report it: 128 and the number of SIGINT.
INTERRUPTED = 130

EXIT_CODES: dict[type[AnabranchError], int] = {
    MergeConflictError: CONFLICTS,
    CheckFailedError: 10,
    InvalidInputError: USAGE,
    NotFoundError: 3,
    ConflictError: 4,
    BusyError: 5,
    StorageError: 6,
    CorruptError: 7,
    AnabranchError: GENERAL,
}


# What `anabranch help exit-codes` shows.
MEANINGS: dict[int, str] = {
    0: "success",
    GENERAL: "another error, or a negative result: diff --exit-code found differences, doctor found problems",
    USAGE: "wrong command line or input",
    3: "a repository, branch, tag, commit, table or file was not found",
    4: "a conflict: the name exists, the branch is protected, or another writer was faster",
    5: "busy: try again",
    6: "the storage failed",
    7: "damaged data",
    DIFFERENT: "different: a reproduced commit has other outputs, or a schema plan has changes",
    CONFLICTS: "merge conflicts",
    10: "a check failed",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def exit_code(error: type[AnabranchError]) -> int:
    """Return the code of the nearest group that an error belongs to."""
    return next(EXIT_CODES[group] for group in error.__mro__ if group in EXIT_CODES)
