"""Everything that a repository answers from its own objects, and which objects each answer depends on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anabranch as ab
from anabranch import testing
from anabranch.errors import AnabranchError
from anabranch.repo.log.clones import find_origin
from anabranch.repo.log.creation import check_repository
from anabranch.testing import CountingStore

OWN = ("_clones/", "_commits/", "_gc/", "_leases/", "_origin/", "_repo", "_runs/", "_tags/", "_versions/")

Ask = Callable[[ab.Repository], Any]


@dataclass(frozen=True)
class Answer:
    """One question to a repository, the answer of the undamaged one, and the objects that it was read from."""

    name: str
    ask: Ask
    expected: Any
    paths: frozenset[str]


def fresh(repo: ab.Repository) -> ab.Repository:
    """Another handle, which has cached nothing."""
    return testing.open(repo)


def list_answers(repo: ab.Repository) -> list[Answer]:
    """Ask an undamaged repository everything."""
    found = []
    for name, ask in questions(repo):
        counting = CountingStore(testing.store_of(repo))
        expected = _ask(ask, testing.open(repo, store=counting))
        read = frozenset(path for operation, path in counting.requests if operation == "get")
        found.append(Answer(name, ask, expected, read))
    return found


def ask_again(repo: ab.Repository, answer: Answer) -> Any:
    """The answer as it is now: a value, or the text of an error. An error outside of the tree is raised."""
    return _ask(answer.ask, fresh(repo))


def _ask(ask: Ask, repo: ab.Repository) -> Any:
    try:
        return ask(repo)
    except AnabranchError as err:
        return f"{type(err).__name__}: {err}"


def questions(repo: ab.Repository) -> Iterator[tuple[str, Ask]]:
    yield "open", lambda r: check_repository(testing.config_of(r))
    yield "branches", lambda r: r.branch_list()
    yield "tags", lambda r: r.tag_list()
    yield "runs", lambda r: r.run_list(limit=None)
    yield "clones", lambda r: r.clone_list()
    yield "origin", lambda r: find_origin(testing.config_of(r))
    yield "gc", lambda r: r.gc(keep_last=2, dry_run=True)
    for branch in repo.branch_list():
        yield f"log of {branch.name}", _log(branch.name)
        yield f"reflog of {branch.name}", _reflog(branch.name)
        yield f"head of {branch.name}", _tables(branch.name)
        for version in range(1, branch.version + 1):
            yield f"{branch.name}@v{version}", _tables(f"{branch.name}@v{version}")
    for tag in repo.tag_list():
        yield f"tag {tag.name}", _tables(tag.name)
    for commit_id in _list_commit_ids(repo):
        yield f"commit {commit_id}", _commit(commit_id)
        yield f"tables of {commit_id}", _tables(commit_id)
    for run in repo.run_list(limit=None):
        yield f"run {run.id}", _run(run.id)


def _log(branch: str) -> Ask:
    return lambda r: r.list_commits(branch, limit=None)


def _reflog(branch: str) -> Ask:
    return lambda r: list(r.reflog(branch, limit=None))


def _tables(ref: str) -> Ask:
    """All that a commit records of its tables, row counts and keys too; none of them is opened."""

    def ask(repo: ab.Repository) -> Any:
        snapshot = repo.snapshot_of(ref)
        return snapshot.id, dict(snapshot.entries)

    return ask


def _commit(commit_id: str) -> Ask:
    return lambda r: r.get_commit(commit_id)


def _run(run_id: str) -> Ask:
    return lambda r: r.run_get(run_id).info()


def _list_commit_ids(repo: ab.Repository) -> list[str]:
    paths = (info.path for info in testing.store_of(repo).list("_commits") if info.path.endswith(".json"))
    return sorted(path.removeprefix("_commits/").removesuffix(".json") for path in paths)
