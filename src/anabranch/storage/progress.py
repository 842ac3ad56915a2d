"""How far a long operation is, as every `progress=` callback receives it."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["OnProgress", "Progress", "counting", "ignore_progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an operation is: `done` of `total`. `stage` names what is counted, such as 'tables' or 'bytes'.

    `rows` is the number of rows that were read or written so far. It is 0 where rows are not counted. An operation that
    has more to report passes a subclass: pipelines pass `anabranch.types.StepProgress` and `BackfillProgress`.
    """

    stage: str
    done: int
    total: int
    rows: int = 0


OnProgress = Callable[[Progress], None]


def ignore_progress(_progress: Progress) -> None:
    """Do nothing."""


def counting(progress: OnProgress | None, stage: str) -> Callable[[int, int], None]:
    """Return a function of `done` and `total` that reports the progress of one stage."""

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(Progress(stage=stage, done=done, total=total))

    return report
