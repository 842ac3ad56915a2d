"""The progress of a pipeline and of a load or export on stderr: a line for each output, or a bar of rows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from anabranch.cli.commits import short_id

if TYPE_CHECKING:
    from anabranch.pipelines.run import StepProgress
    from anabranch.storage.progress import OnProgress, Progress
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.storage.progress import Progress

__all__ = ["rows_bar", "watched_steps", "watched_values"]


@contextmanager
def watched_steps(*, as_json: bool) -> "Iterator[OnProgress]":
    """Yield a callback that prints a line for each output that ended, and on a terminal which are being built."""
    if as_json:
        yield lambda _progress: None
    elif not sys.stderr.isatty():
        yield _print_line
    else:
        yield from _on_terminal()


def watched_values(*, as_json: bool) -> "OnProgress":
    """Return a callback that prints a line for each value of a backfill."""

    def watch(progress: "Progress") -> None:
        from anabranch.pipelines.backfill import BackfillProgress

        if not isinstance(progress, BackfillProgress):
            return  # an output of the value that is being built
        commit = None if progress.run is None else progress.run.commit_id
        result = "done before" if progress.run is None else "nothing changed" if commit is None else short_id(commit)
        typer.echo(f"[{progress.done}/{progress.total}] {progress.value}: {result}", err=True)

    return (lambda _progress: None) if as_json else watch


def _on_terminal() -> "Iterator[OnProgress]":
    from rich.console import Console

    console, working = Console(stderr=True, highlight=False), dict[str, None]()
    with console.status("starting") as status:

        def watch(progress: "Progress") -> None:
            step = _as_step(progress)
            if (line := _line(step)) is None:
                working[step.table] = None
            else:
                working.pop(step.table, None)
                # Without markup: a line starts with text such as [1/3], and rich reads brackets as styles.
                console.print(line, markup=False)
            status.update(f"building {', '.join(working)}" if working else "publishing")

        yield watch


def _print_line(progress: "Progress") -> None:
    line = _line(_as_step(progress))
    if line is not None:
        typer.echo(line, err=True)


def _as_step(progress: "Progress") -> "StepProgress":
    from anabranch.pipelines.run import StepProgress  # takes a while to load

    if not isinstance(progress, StepProgress):
        raise TypeError(f"a run reports its outputs, not {progress!r}")
    return progress


def _line(step: "StepProgress") -> str | None:
    if step.state == "started":
        return None
    if step.built is None:
        return f"{step.table}: failed"
    return f"[{step.done}/{step.total}] {step.table}: {step.built.rows:,} rows in {step.built.seconds:.1f} s"


@contextmanager
def rows_bar(what: str, *, as_json: bool, in_bytes: bool) -> "Iterator[Callable[[Progress], None]]":
    """A function to call with each step; without a terminal it does nothing."""
    if as_json or not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    size = [DownloadColumn()] if in_bytes else []
    columns = [TextColumn("{task.description}"), BarColumn(), *size, TextColumn("{task.fields[rows]:,} rows")]
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, rows=0)
        yield lambda step: bar.update(task, completed=step.done, total=step.total, rows=step.rows)
