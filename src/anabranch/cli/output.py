"""The output of commands: tables for people or one JSON document for programs on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

import typer

from anabranch.cli.documents import document_of
from anabranch.display import human_size, printable

if TYPE_CHECKING:
    from anabranch.storage.progress import OnProgress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.format.layout.listing import Total
    from anabranch.format.storage_report import Usage

__all__ = [
    "Answer",
    "ErrorView",
    "JsonOutput",
    "Line",
    "Output",
    "Table",
    "TextOutput",
    "count",
    "human_size",
    "output_for",
    "printable",
    "usage_text",
]


# Tables in a pipe are as wide as their content: what is cut off cannot be searched for.
_PIPE_WIDTH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows for people; cells are shown as text, those of a column in its style where someone watches."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    title: str | None = None
    empty: str = "nothing"
    styles: tuple[str | None, ...] = ()


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

    @contextmanager
    def progress(self, what: str) -> "Iterator[OnProgress]":
        if not sys.stderr.isatty():
            yield lambda _step: None
            return
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda step: bar.update(task, completed=step.done, total=step.total)


def _coloured(text: str, colour: str | None) -> str:
    return text if colour is None else typer.style(text, fg=colour)


def _print_table(table: Table, *, err: bool = False) -> None:
    # Not at the top: a help text needs no rich, and should not wait for it.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    if table.title:
        typer.echo(f"\n{printable(table.title)}", err=err)
    if not table.rows:
        typer.echo(table.empty, err=err)
        return
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=any(table.columns))
    for column, style in zip_longest(table.columns, table.styles):
        # As Text: in a plain string rich would read markup.
        shown.add_column(Text(printable(column or "")), overflow="fold", style=style)
    for row in table.rows:
        shown.add_row(*(Text(_cell(value)) for value in row))
    file = sys.stderr if err else sys.stdout
    console = Console(file=file, width=None if file.isatty() else _PIPE_WIDTH)
    console.print(shown)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        case _:
            return printable(str(value))


def count(number: int, noun: str) -> str:
    """A number of things as people read it."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def usage_text(usage: "Usage | Total") -> str:
    """For people."""
    return f"{count(usage.files, 'file')}, {human_size(usage.bytes)}" if usage.files else "-"
