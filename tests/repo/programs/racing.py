"""What the processes of a race do: commit over and over, read over and over with plain Lance, or make names."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import lance

import anabranch as ab
from anabranch.errors import InvalidInputError
from anabranch.repo.repository import Repository
from tests.repo.programs import ledger


@dataclass(frozen=True, kw_only=True)
class Course:
    """Where a race is run."""

    uri: str
    branch: str
    storage_options: Mapping[str, str]

    def open(self) -> Repository:
        return ab.open(self.uri, storage_options=self.storage_options)


def commit_over_and_over(course: Course, *, writer: int, commits: int) -> dict[str, Any]:
    """Make commits over the three tables of the ledger, as fast as possible."""
    repo = course.open()
    started = time.monotonic()
    for number in range(commits):
        ledger.commit(repo, ledger.mark_of(writer, number), branch=course.branch)
    return {"seconds": time.monotonic() - started}


def read_over_and_over(course: Course, *, is_over: Callable[[], bool]) -> dict[str, Any]:
    """Read homes with plain Lance and compare what is there with what was published by then.

    The log is read after the rows: a row that is seen must have been published before.
    """
    repo, reads = course.open(), 0
    wrong: list[dict[str, Any]] = []
    versions: set[tuple[str, int]] = set()
    is_last = False
    while not is_last and len(wrong) < 4:
        is_last = is_over()  # asked first, so that the last round sees the end
        for key, path, is_published in _homes(repo, course):
            try:
                dataset = lance.dataset(path, storage_options=dict(course.storage_options) or None)
            except ValueError:
                if is_published:
                    raise
                continue  # a fork that is being made
            if (path, dataset.version) in versions and not is_last:
                continue
            versions.add((path, dataset.version))
            rows = ledger.found(dataset.to_table())
            reads += 1
            if not ledger.is_some_state(key, rows, ledger.marks(repo, course.branch)):
                wrong.append({"path": path, "version": dataset.version, "rows": rows})
    return {"reads": reads, "versions": len(versions), "wrong": wrong}


def take_names(course: Course, names: list[str], *, kind: str, wait: Callable[[], object]) -> list[str]:
    """Make a branch or a tag of each name, each when the others are ready to, and return which it became."""
    repo, taken = course.open(), []
    for name in names:
        wait()
        try:
            repo.branch_create(name) if kind == "branch" else repo.tag_create(name)
        except InvalidInputError:
            continue
        taken.append(name)
    return taken


def _homes(repo: Repository, course: Course) -> Iterator[tuple[str, str, bool]]:
    """Where plain Lance can read a branch: the published homes, and on local disk the unpublished forks too."""
    for key, path in ledger.homes(repo, course.branch).items():
        yield key, path, True
        forks = f"{path.partition('/tree/')[0]}/tree/{course.branch}"
        if os.path.isdir(forks):
            yield from ((key, f"{forks}/{name}", False) for name in os.listdir(forks))
