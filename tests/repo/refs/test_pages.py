"""Lists of branches, tags, runs and commits in pages, and what a page costs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import InvalidInputError
from anabranch.ids import MAIN, BranchName
from anabranch.repo.log import codec
from tests.conftest import Location
from tests.repo.test_budgets import HEAD, open_counted

NAMES = ["a", "b/1", "b/2", "b-1", "c"]


def make_branches(repo: ab.Repository, names: list[str]) -> None:
    """Put the first entry of each branch, which is all that creating one writes."""
    config, head = testing.config_of(repo), testing.repo_store_of(repo).heads.get(BranchName(MAIN))
    for name in names:
        entry = codec.encode_entry(replace(head, branch=BranchName(name)))
        config.store.put(config.branch_log(BranchName(name)).path(head.number), entry)


def pages(read: Callable[..., list[Any]], name: Callable[[Any], str], **options: Any) -> list[list[str]]:
    """Read a list page by page."""
    found: list[list[str]] = []
    while page := read(after=found[-1][-1] if found else None, **options):
        found.append([name(item) for item in page])
    return found


def test_branches_are_listed_in_pages(repo: ab.Repository) -> None:
    for name in NAMES:
        repo.branch_create(name)
    in_order = sorted([*NAMES, MAIN])
    assert [info.name for info in repo.branch_list()] == in_order
    assert pages(repo.branch_list, lambda info: info.name, limit=4) == [in_order[:4], in_order[4:]]
    assert pages(repo.branch_names, str, limit=4) == [in_order[:4], in_order[4:]]
    assert pages(repo.branch_list, lambda info: info.name, prefix="b/", limit=1) == [["b/1"], ["b/2"]]
    assert [info.name for info in repo.branch_list(after="b0", limit=1)] == ["c"]
    repo.branch_delete("b/1")
    assert pages(repo.branch_list, lambda info: info.name, prefix="b", limit=1) == [["b-1"], ["b/2"]]
    assert repo.branch_names(prefix="b") == ["b-1", "b/1", "b/2"]  # the log of a deleted branch stays


def test_tags_are_listed_in_pages(repo: ab.Repository) -> None:
    for name in ("v1.0", "v1.1", "v2.0", "w"):
        repo.tag_create(name)
    repo.tag_delete("v1.1")
    assert pages(repo.tag_list, lambda info: info.name, limit=2) == [["v1.0", "v2.0"], ["w"]]
    assert pages(repo.tag_list, lambda info: info.name, prefix="v") == [["v1.0", "v2.0"]]
    assert repo.tag_names(prefix="v1") == ["v1.0", "v1.1"]
    assert repo.tag_names(after="v1.5", limit=1) == ["v2.0"]


def test_runs_are_listed_in_pages(repo: ab.Repository) -> None:
    ids = []
    for _ in range(5):
        run = repo.begin_run()
        ids.append(run.id)
        run.abort()
    newest_first = sorted(ids, reverse=True)
    assert pages(repo.run_list, lambda info: info.id, limit=2) == [
        newest_first[:2],
        newest_first[2:4],
        newest_first[4:],
    ]
    assert [info.id for info in repo.run_list(prefix=ids[0])] == [ids[0]]


def test_commits_are_listed_in_pages(lake: ab.Repository) -> None:
    ids = [commit.id for commit in lake.list_commits(limit=None)]
    assert pages(lake.list_commits, lambda commit: commit.id, limit=1) == [[commit_id] for commit_id in ids]
    assert [commit.id for commit in lake.list_commits(prefix=ids[-1].lower())] == [ids[-1]]
    assert lake.list_commits(prefix="x") == []


@pytest.mark.parametrize("options", [{"limit": -1}, {"limit": "3"}, {"limit": True}, {"prefix": 1}, {"after": b"a"}])
@pytest.mark.parametrize("name", ["branch_list", "branch_names", "tag_list", "tag_names", "run_list"])
def test_pages_of_wrong_arguments_are_refused(repo: ab.Repository, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"limit|prefix|after"):
        getattr(repo, name)(**options)


@pytest.mark.s3
def test_first_50_of_1000_branch_names_cost_at_most_3_requests(location: Location) -> None:
    made = ab.init(location / "lake", storage_options=location.storage_options)
    names = [f"team/b{number:04d}" for number in range(1000 if location.is_local else 100)]
    make_branches(made, names)
    repo, store = open_counted(location)
    store.reset()
    assert repo.branch_names(prefix="team/", limit=50) == names[:50]
    assert store.total <= 3
    store.reset()
    assert [info.name for info in repo.branch_list(prefix="team/", limit=50)] == names[:50]
    # Without a hint, which these logs do not have, a local head costs a list and a get more.
    assert store.total <= 1 + 50 * (HEAD[location.is_local].total() + 2)
