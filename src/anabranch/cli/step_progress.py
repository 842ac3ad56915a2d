"""What a pipeline is doing, step by step, for whoever waits for it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from anabranch.cli.commits import short_id

if TYPE_CHECKING:
    from anabranch.pipelines.backfill import BackfillProgress
    from anabranch.pipelines.running import StepProgress

__all__ = ["watched_steps", "watched_values"]


@contextmanager
def watched_steps(*, as_json: bool) -> "Iterator[Callable[[StepProgress], None]]":
    """A function to call with each step: a line for each that ended, and, on a terminal, which are being built."""
    if as_json:
        yield lambda _progress: None
    elif not sys.stderr.isatty():
        yield lambda step: None if (line := _line(step)) is None else typer.echo(line, err=True)
    else:
        yield from _on_terminal()


def watched_values(*, as_json: bool) -> "Callable[[BackfillProgress], None]":
    """Return a function that prints a line for each value of a backfill."""

    def watch(progress: "BackfillProgress") -> None:
        commit = None if progress.run is None else progress.run.commit_id
        result = "done before" if progress.run is None else "nothing changed" if commit is None else short_id(commit)
        typer.echo(f"[{progress.number}/{progress.total}] {progress.value}: {result}", err=True)

    return (lambda _progress: None) if as_json else watch


def _on_terminal() -> "Iterator[Callable[[StepProgress], None]]":
    from rich.console import Console

    console, working = Console(stderr=True, highlight=False), dict[str, None]()
    with console.status("starting") as status:

        def watch(step: "StepProgress") -> None:
            if (line := _line(step)) is None:
                working[step.key] = None
            else:
                working.pop(step.key, None)
                console.print(line, markup=False)
            status.update(f"building {', '.join(working)}" if working else "publishing")

        yield watch


def _line(step: "StepProgress") -> str | None:
    if step.state == "started":
        return None
    if step.built is None:
        return f"{step.key}: failed"
    return f"[{step.done}/{step.total}] {step.key}: {step.built.rows:,} rows in {step.built.seconds:.1f} s"
