"""Branches that are created together: what one of them, its project, the disk or the metadata do to the others."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import ProjectNotFoundError
from anabranch.server.auth import Token
from anabranch.server.branch_access import Branch
from anabranch.server.service import Service, create_first_token, open_service
from anabranch.server.settings import Settings
from tests.event_loop import run_apart

NAMES = ("a", "b", "c")
Link = Callable[[str, str], None]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service with two projects and a token."""
    found = open_service(Settings(data=tmp_path))
    create_first_token(found)
    for project in ("one", "two"):
        found.projects.create(project, name=None, description="", actor=None)
    yield found
    found.close()


def token_of(service: Service) -> Token:
    return service.tokens.list_all()[0]


def creating(service: Service, *wanted: tuple[str, str]) -> list[Coroutine[Any, Any, Branch]]:
    """Requests for branches, each with its project and name. Those that are awaited at once are created together."""
    create, token = service.branches.create_shared, token_of(service)
    return [create(project, name=name, description="", token=token) for project, name in wanted]


def create(service: Service, *wanted: tuple[str, str]) -> list[Branch | BaseException]:
    async def run() -> list[Branch | BaseException]:
        # A request that is never answered must fail the test.
        async with asyncio.timeout(30):
            return await asyncio.gather(*creating(service, *wanted), return_exceptions=True)

    return run_apart(run)


def versions(service: Service, project: str) -> dict[str, int]:
    """The branches of a project as the rows have them, each with the number of entries of its log."""
    repository = ab.open(service.settings.project_folder(project))
    found = {branch.id: branch.name for branch in service.branches.list_all(project)}
    rows = service.database.read("SELECT id, name FROM branches WHERE project_id = ?", [project])
    assert {row["id"]: row["name"] for row in rows} == found
    living = {info.name: info.version for info in repository.branch_list() if info.name != "main"}
    assert living.keys() == found.keys()
    return {found[name]: version for name, version in living.items()}


def breaking_links(monkeypatch: pytest.MonkeyPatch, *, fatal: Callable[[str, int], bool]) -> None:
    """Fail the links for which `fatal` is true, given the path and how many links were tried before."""
    link, numbers = os.link, count()

    def broken(source: str, target: str) -> None:
        if fatal(target, next(numbers)):
            raise OSError(5, "Input/output error", target)
        link(source, target)

    monkeypatch.setattr(os, "link", broken)


def test_branches_created_at_once_are_created_together(service: Service) -> None:
    create(service, *(("one", name) for name in NAMES))
    assert versions(service, "one") == dict.fromkeys(NAMES, 1)
    # A branch that is created alone has a hint.
    assert not list((service.settings.project_folder("one") / "_versions").glob("br_*/hint"))


def test_requests_are_answered_whether_more_were_expected_or_fewer(service: Service) -> None:
    async def run() -> None:
        token = token_of(service)

        async def loop(names: list[str]) -> None:
            for name in names:
                await service.branches.create_shared("one", name=name, description="", token=token)

        # Each client has fewer requests than the one before it, so that each batch expects a client that has left.
        async with asyncio.timeout(60):
            await asyncio.gather(*(loop([f"{client} {number}" for number in range(client)]) for client in range(1, 6)))
            await asyncio.gather(*creating(service, *(("one", name) for name in NAMES)))

    run_apart(run)
    assert len(versions(service, "one")) == 15 + len(NAMES)


def test_request_for_a_missing_project_does_not_undo_others(service: Service) -> None:
    answers = create(service, ("one", "a"), ("missing", "b"), ("two", "c"))
    assert isinstance(answers[1], ProjectNotFoundError)
    assert versions(service, "one") == {"a": 1}
    assert versions(service, "two") == {"c": 1}


def test_project_that_is_slow_does_not_delay_others(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    link, is_released = os.link, threading.Event()

    def slow(source: str, target: str) -> None:
        if "/project_one/" in target:
            is_released.wait(30)
        link(source, target)

    monkeypatch.setattr(os, "link", slow)

    async def run() -> None:
        first, other = creating(service, ("one", "a"), ("two", "b"))
        late = asyncio.create_task(first)
        try:
            async with asyncio.timeout(20):
                assert (await other).name == "b"
            assert not late.done()
        finally:
            is_released.set()
        await late

    run_apart(run)
    assert versions(service, "one") == {"a": 1}


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_branches_are_created_if_the_disk_failed_for_one_of_them(
    service: Service, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    breaking_links(monkeypatch, fatal=lambda _, number: number == failing)
    answers = create(service, *(("one", name) for name in NAMES))
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    assert versions(service, "one").keys() == {*NAMES}


def test_branch_that_could_not_be_rolled_back_does_not_block_its_name(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second entry fails, and then the roll-back of the first.
    breaking_links(monkeypatch, fatal=lambda _, number: number in (1, 3))
    answers = create(service, *(("one", name) for name in NAMES))
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    assert versions(service, "one").keys() == {*NAMES}


def test_failed_metadata_leave_neither_branches_nor_names(service: Service) -> None:
    # Rows of branches refer to the row of their project, so that they cannot be written without it.
    row = service.database.read("SELECT * FROM projects WHERE id = 'one'")[0]
    service.database.write("DELETE FROM projects WHERE id = 'one'")
    answers = create(service, *(("one", name) for name in NAMES))
    assert [answer for answer in answers if isinstance(answer, Branch)] == []
    assert versions(service, "one") == {}
    service.database.insert("projects", row)
    create(service, *(("one", name) for name in NAMES))
    assert versions(service, "one").keys() == {*NAMES}


def test_requests_are_answered_after_a_batch_failed_unexpectedly(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(type(service.branches), "_create_together", lambda *_: 1 / 0)
        first = create(service, *(("one", name) for name in NAMES))
    assert [answer for answer in first if isinstance(answer, BaseException)] == []
    create(service, ("one", "later"))
    assert versions(service, "one").keys() == {*NAMES, "later"}


def test_branch_of_a_cancelled_request_is_there_or_its_name_is_free(service: Service) -> None:
    async def run() -> None:
        requests = [asyncio.create_task(one) for one in creating(service, *(("one", name) for name in NAMES))]
        await asyncio.sleep(0.001)
        requests[1].cancel()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert [isinstance(answer, Branch) for answer in answers] == [True, False, True]

    run_apart(run)
    assert versions(service, "one").keys() in ({*NAMES}, {"a", "c"})
