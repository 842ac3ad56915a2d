"""What a process does when it is killed, and the points at which it can be: around every request to the store, and
around every call that lets Lance write.
"""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import lance
import pyarrow as pa

import anabranch as ab
from anabranch.format import home
from anabranch.format.staging import fragments
from anabranch.storage import ObjectStore, store
from anabranch.storage.store import open_root
from anabranch.testing import WrappedStore
from tests.processes import kill_this_process
from tests.repo.programs import ledger

T = TypeVar("T")
Scenario = Callable[[str, str], None]


class PointsAround:
    """The points before and after calls."""

    def around(self, label: str, call: Callable[[], T]) -> T:
        self._pass(f"before {label}")
        result = call()
        self._pass(f"after {label}")
        return result

    def _pass(self, label: str) -> None:
        raise NotImplementedError


@dataclass
class NamedPoint(PointsAround):
    """Calls a function that kills processes at the point whose label begins with a name."""

    name: str
    die: Callable[[], object]

    def _pass(self, label: str) -> None:
        if label.startswith(self.name):
            self.die()


@dataclass
class Points(PointsAround):
    """Counts the points that are passed, and ends the process at one of them, and reports which were passed."""

    fatal: int | None
    last_words: int
    passed: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _pass(self, label: str) -> None:
        with self._lock:
            self.passed.append(label)
            if len(self.passed) - 1 == self.fatal:
                os.write(self.last_words, json.dumps({"killed": self.passed}).encode())
                kill_this_process()


class FatalStore(WrappedStore):
    """Passes a point before and after each request."""

    def __init__(self, inner: ObjectStore, points: PointsAround) -> None:
        super().__init__(inner)
        self._points = points

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        return self._points.around(f"{operation} {path}", send)


def run_scenario(scenario: Scenario, uri: str, name: str, *, fatal: int | None, last_words: int) -> list[str]:
    """Run a scenario up to its fatal point; without one, to the end, and return the points it passed."""
    points = Points(fatal, last_words)
    _install(points)
    scenario(uri, name)
    return points.passed


def _install(points: Points) -> None:
    """Change this process only: it was forked for one scenario and ends with it."""

    def open_fatal(*args: Any) -> ObjectStore:
        return FatalStore(open_root(*args), points)

    # Every way to open a store ends in this function.
    for module in (store, home):
        _replace(module, "open_root", open_fatal)
    _surround(points, fragments, "lance_write_fragments")
    _surround(points, fragments, "_write_file")
    _surround(points, lance, "write_dataset")
    _surround(points, lance.LanceDataset, "shallow_clone")
    _surround(points, lance.LanceDataset, "create_index_uncommitted")
    _surround(points, lance.LanceFragment, "delete_rows")
    _surround(points, lance.LanceFragment, "merge_columns")
    original = lance.LanceDataset.commit

    def commit(*args: Any, **kwargs: Any) -> Any:
        label = "stage" if kwargs.get("detached") else "commit"
        # The first manifest of a branch.
        if isinstance(args[1], lance.LanceOperation.Clone):
            label = "clone"
        return points.around(label, lambda: original(*args, **kwargs))

    _replace(lance.LanceDataset, "commit", staticmethod(commit))


def _surround(points: Points, owner: Any, name: str) -> None:
    original = getattr(owner, name)

    def surrounded(*args: Any, **kwargs: Any) -> Any:
        return points.around(name, lambda: original(*args, **kwargs))

    _replace(owner, name, surrounded)


def _replace(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, value)


def _commit(uri: str, name: str) -> None:
    ledger.commit(ab.open(uri), name)


def _first_commit_on_branch(uri: str, name: str) -> None:
    ledger.commit(ab.open(uri), name, branch=f"dev/{name}")


def _create_table(uri: str, name: str) -> None:
    with ab.open(uri).transaction(message=name) as tx:
        tx.create_table(ledger.new_table(name), ledger.SCHEMA, primary_key=["id"])
        tx.append(ledger.new_table(name), pa.table({"id": [1], "mark": [name]}))
        ledger.write(tx, name)


def _branch_create(uri: str, name: str) -> None:
    ab.open(uri).branch_create(f"dev/{name}")


def _branch_delete(uri: str, name: str) -> None:
    ab.open(uri).branch_delete(f"dev/{name}")


def _branch_rename(uri: str, name: str) -> None:
    ab.open(uri).branch_rename(f"dev/{name}", f"new/{name}")


def _init(uri: str, name: str) -> None:
    ab.init(f"{uri}-{name}")


def _relocate(uri: str, _: str) -> None:
    ab.relocate(uri)


def _clone(uri: str, name: str) -> None:
    ab.clone(uri, f"{uri}-{name}")


def _clone_deep(uri: str, name: str) -> None:
    ab.clone(uri, f"{uri}-{name}", shallow=False)


def _gc(uri: str, _: str) -> None:
    ab.open(uri).gc(keep_last=1)


def _commit_over_and_over(uri: str, name: str) -> None:
    repo = ab.open(uri)
    for number in count():
        ledger.commit(repo, f"{name}{number:03}")


SCENARIOS: dict[str, Scenario] = {
    "commit": _commit,
    "first commit on a branch": _first_commit_on_branch,
    "create a table": _create_table,
    "create a branch": _branch_create,
    "delete a branch": _branch_delete,
    "rename a branch": _branch_rename,
    "init": _init,
    "relocate": _relocate,
    "clone": _clone,
    "clone deep": _clone_deep,
    "collect garbage": _gc,
    "commit over and over": _commit_over_and_over,
}
