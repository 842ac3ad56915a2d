"""The progress of commands on stderr: a bar, or a line for each output of a pipeline.

A bar appears only on a terminal, and only if the command takes a while.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from anabranch.display import short_id

if TYPE_CHECKING:
    from anabranch.pipelines.run import StepProgress
    from anabranch.storage.requests import OnProgress, Progress

__all__ = ["SECONDS_WITHOUT_BAR", "watch_outputs", "watch_rows", "watch_steps", "watch_values"]


@contextmanager
def watch_outputs(*, as_json: bool) -> "Iterator[OnProgress]":
    """Yield a callback that prints a line for each output that ended, and on a terminal which are being built."""
    if as_json:
        yield lambda _progress: None
    elif not sys.stderr.isatty():
        yield _print_line
    else:
        yield from _on_terminal()


def watch_values(*, as_json: bool) -> "OnProgress":
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
        yield lambda _progress: None
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
            state = dict(self._state)
            self._task = bar.add_task(self._what, **state)
            bar.start()
            self._bar = bar
