"""Jobs that can be stopped from another thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["stop_jobs", "stoppable"]


@contextmanager
def stoppable(session: "SparkSession", name: str) -> Iterator[None]:
    """Allow the jobs that this thread starts inside to be stopped by a name.

    Over Connect these are tags of the session. In this process they are tags of the context: those of the session do
    not reach the jobs by which rows go to Python and back.
    """
    if _is_connect(session):
        session.addTag(name)
    else:
        session.sparkContext.addJobTag(name)
    try:
        yield
    finally:
        if _is_connect(session):
            session.removeTag(name)
        else:
            session.sparkContext.removeJobTag(name)


def stop_jobs(session: "SparkSession", name: str) -> None:
    if _is_connect(session):
        session.interruptTag(name)
    else:
        session.sparkContext.cancelJobsWithTag(name)


def _is_connect(session: "SparkSession") -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")
