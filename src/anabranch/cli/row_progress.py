"""A bar for work on many rows, where someone watches: how much is done, how many rows, how long it will take."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.storage.progress import Progress

__all__ = ["rows_bar"]


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
