"""The output of commands: tables for people or one JSON document for programs on stdout, everything else on stderr.

Progress is a bar, or a line for each output of a pipeline. A bar appears only on a terminal, and only if the command
takes a while.
"""

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import typer

from anabranch.cli.documents import document_of
from anabranch.cli.texts import Table, iter_lines
from anabranch.display import printable, short_id
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
    from anabranch.pipelines.run import StepProgress
    from anabranch.storage.requests import OnProgress, Progress


@dataclass(frozen=True, slots=True)
class Line:
    """A line for people, in a colour where someone watches; `more` are further pieces, each in its own."""

    text: str
    colour: str | None = None
    more: Sequence[tuple[str, str | None]] = ()


class Answer:
    """The answer of a command in both forms: a document for programs; sentences, lines and tables for people.

    The document is a value of the library, or a mapping of such values. `exit_code` is that of the process.
    """

    def __init__(
        self,
        document: object,
        *sentences: str,
        lines: Sequence[Line] = (),
        tables: Sequence[Table] = (),
        exit_code: int = 0,
    ) -> None:
        self.document = document
        self.sentences = sentences
        self.lines = lines
        self.tables = tables
        self.exit_code = exit_code


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
        yield _ignore


class TextOutput:
    """Tables and sentences, and a progress bar where someone watches."""

    def show(self, answer: Answer) -> None:
        for sentence in answer.sentences:
            typer.echo(printable(sentence))
        for line in answer.lines:
            pieces = [(line.text, line.colour), *line.more]
            typer.echo("".join(_painted(printable(text), colour) for text, colour in pieces))
        for table in answer.tables:
            _print_table(table)

    def fail(self, error: ErrorView) -> None:
        typer.echo(f"error: {printable(error.message)}", err=True)
        for table in error.tables:
            _print_table(table, err=True)
        typer.echo(f"hint: {printable(error.hint)}", err=True)

    def stop(self, message: str) -> None:
        typer.echo(message, err=True)

    def progress(self, what: str) -> Any:
        return watch_steps(what)


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


def _painted(text: str, style: str | None) -> str:
    if style is None:
        return text
    return typer.style(text, dim=True) if style == "dim" else typer.style(text, fg=style)


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


def _ignore(_: "Progress") -> None:
    """Show nothing: a program that reads a document has no use for progress."""


@contextmanager
def watch_outputs(*, as_json: bool) -> "Iterator[OnProgress]":
    """Yield a callback that prints a line for each output that ended, and on a terminal which are being built."""
    if as_json:
        yield _ignore
        return
    if not sys.stderr.isatty():

        def write(progress: "Progress") -> None:
            _show_step(progress, lambda line: typer.echo(line, err=True))

        yield write
        return
    from rich.console import Console

    console, working = Console(stderr=True, highlight=False), dict[str, None]()
    with console.status("starting") as status:

        def watch(progress: "Progress") -> None:
            # Without markup: a line starts with text such as [1/3], and rich reads brackets as styles.
            step = _show_step(progress, lambda line: console.print(line, markup=False))
            if step.state == "started":
                working[step.table] = None
            else:
                working.pop(step.table, None)
            status.update(f"building {', '.join(working)}" if working else "publishing")

        yield watch


def _show_step(progress: "Progress", show: Callable[[str], None]) -> "StepProgress":
    """Show a line for an output that ended."""
    from anabranch.pipelines.run import StepProgress  # takes a while to load

    if not isinstance(progress, StepProgress):
        raise TypeError(f"a run reports its outputs, not {progress!r}")
    if progress.built is not None:
        built = progress.built
        show(f"[{progress.done}/{progress.total}] {progress.table}: {built.rows:,} rows in {built.seconds:.1f} s")
    elif progress.state != "started":
        show(f"{progress.table}: failed")
    return progress


def watch_values(*, as_json: bool) -> "OnProgress":
    """Return a callback that prints a line for each value of a backfill."""

    def watch(progress: "Progress") -> None:
        from anabranch.pipelines.backfill import BackfillProgress

        if not isinstance(progress, BackfillProgress):
            return  # an output of the value that is being built
        commit = None if progress.run is None else progress.run.commit_id
        result = "done before" if progress.run is None else "nothing changed" if commit is None else short_id(commit)
        typer.echo(f"[{progress.done}/{progress.total}] {progress.value}: {result}", err=True)

    return _ignore if as_json else watch


# A command that ends sooner shows no bar: it would only flicker.
SECONDS_WITHOUT_BAR = 1.5


@contextmanager
def watch_steps(what: str) -> "Iterator[OnProgress]":
    """Yield a callback that shows the steps of a command in a bar."""

    def make_bar() -> Any:
        from rich.console import Console
        from rich.progress import Progress as Bar

        return Bar(console=Console(stderr=True), transient=True)

    with _LateBar(what, make_bar) as bar:
        yield lambda step: bar.update(completed=step.done, total=step.total)


@contextmanager
def watch_rows(what: str, *, as_json: bool, in_bytes: bool) -> "Iterator[Callable[[Progress], None]]":
    """Yield a callback that shows the rows of a load or an export in a bar."""

    def make_bar() -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        size = [DownloadColumn()] if in_bytes else []
        columns = [TextColumn("{task.description}"), BarColumn(), *size, TextColumn("{task.fields[rows]:,} rows")]
        return Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)

    if as_json:
        yield _ignore
        return
    with _LateBar(what, make_bar, rows=0) as bar:
        yield lambda step: bar.update(completed=step.done, total=step.total, rows=step.rows)


class _LateBar:
    """A bar that appears after a while. Without a terminal it never does: a log would get control characters."""

    def __init__(self, what: str, make: Callable[[], Any], **fields: Any) -> None:
        self._make = make
        self._what = what
        self._state: dict[str, Any] = {"total": None, **fields}
        self._bar: Any = None
        self._task: Any = None
        self._changing = threading.Lock()
        self._timer = threading.Timer(SECONDS_WITHOUT_BAR, self._show)
        self._timer.daemon = True  # the command must not wait for it after an error

    def __enter__(self) -> "_LateBar":
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        # The timer may be showing the bar right now, which is then removed here.
        with self._changing:
            self._make = lambda: None
            if self._bar is not None:
                self._bar.stop()

    def update(self, **state: Any) -> None:
        with self._changing:
            self._state |= state
            if self._bar is not None:
                self._bar.update(self._task, **state)

    def _show(self) -> None:
        with self._changing:
            bar = self._make()
            if bar is None:
                return  # the command has just ended
            self._task = bar.add_task(self._what, **self._state)
            bar.start()
            self._bar = bar
