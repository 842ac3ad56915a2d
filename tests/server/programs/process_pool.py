"""A process that has imported everything and used nothing yet, and forks services off itself that are killed."""

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from anabranch.ids import TableKey
from anabranch.server.auth import DEFAULT_BRANCH, Token
from anabranch.server.database import Change, Database, Insert
from anabranch.server.rows import insert
from anabranch.server.service import Service, open_service
from anabranch.server.settings import Settings
from tests.processes import Child, answer_with, receive
from tests.repo.programs.killing import Points, _install, _replace, _surround

ORDERS = TableKey("in_c_sales", "orders")
# The number of branches that are created together.
BATCH = 3

Scenario = Callable[[Service, Token, str, str], None]


def _create_branch(service: Service, token: Token, project: str, name: str) -> None:
    service.branches.create(project, name=name, description="", token=token)


def _create_branches(service: Service, token: Token, project: str, name: str) -> None:
    async def create_all() -> None:
        create = service.branches.create_shared
        wanted = [f"{name}{number}" for number in range(BATCH)]
        await asyncio.gather(*(create(project, name=one, description="", token=token) for one in wanted))

    asyncio.run(create_all())


def _delete_branch(service: Service, token: Token, project: str, name: str) -> None:
    service.branches.delete(project, name, token)


def _write(service: Service, token: Token, project: str, name: str) -> None:
    branch = service.branches.open(project, name, token)
    insert(branch, ORDERS, [{"id": 10, "v": "a"}, {"id": 11, "v": "b"}])


def _pull(service: Service, token: Token, project: str, name: str) -> None:
    service.branches.pull(service.branches.open(project, name, token), ORDERS)


def _create_project(service: Service, _: Token, __: str, name: str) -> None:
    service.projects.create(name, name=None, description="", actor=None)


def _delete_project(service: Service, _: Token, __: str, name: str) -> None:
    service.projects.delete(name)


def _delete_bucket(service: Service, token: Token, project: str, name: str) -> None:
    branch = service.branches.open(project, DEFAULT_BRANCH, token)
    service.buckets.delete(branch, name, cascade=True)


SCENARIOS: dict[str, Scenario] = {
    "create a branch": _create_branch,
    "create branches together": _create_branches,
    "delete a branch": _delete_branch,
    "write": _write,
    "pull": _pull,
    "create a project": _create_project,
    "delete a project": _delete_project,
    "delete a bucket": _delete_bucket,
}


def kill(reported: dict[str, Any]) -> Any:
    """Run a scenario on data that is not served, up to a fatal point, or to the end if there is none."""
    return Child(lambda out: _run(reported, out)).result()


def _run(reported: dict[str, Any], last_words: int) -> list[str]:
    points = Points(None, last_words)
    _install(points)
    _surround_metadata_and_files(points)
    service = open_service(Settings(data=Path(reported["data"])))
    token = next(token for token in service.tokens.list_all() if token.project_id is None)
    points.passed.clear()
    points.fatal = reported.get("fatal")
    SCENARIOS[reported["scenario"]](service, token, reported["project"], reported["name"])
    return points.passed


def _surround_metadata_and_files(points: Points) -> None:
    write_all = Database.write_all

    def writing(self: Database, changes: Sequence[Change]) -> None:
        labels = [
            f"INSERT INTO {change.table}" if isinstance(change, Insert) else " ".join(change.sql.split()[:3])
            for change in changes
        ]
        points.around(f"write {'; '.join(labels)}", lambda: write_all(self, changes))

    _replace(Database, "write_all", writing)
    _surround(points, Path, "rename")
    _surround(points, shutil, "rmtree")
    _surround(points, os, "unlink")


def main() -> None:
    while (reported := receive()) is not None:
        answer_with({"kill": kill}[reported.pop("do")](reported))


if __name__ == "__main__":
    main()
