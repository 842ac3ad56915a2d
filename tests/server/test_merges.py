"""Merges of branches of a project's repository over HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.ids import MAIN
from tests.server.conftest import Project, Running, make_token, ok, refused
from tests.server.test_idempotency import REPLAY, lose_answer, once

ORDERS = "in_c_sales.orders"


@pytest.fixture
def lake(running: Running, project: Project) -> ab.Repository:
    """The repository of the project, in which another tool works."""
    return ab.open(Path(running.data) / f"project_{project.id}")


@pytest.fixture
def contested(lake: ab.Repository) -> ab.Repository:
    """A pinned branch `dev` and main changed the same cells of orders 1 and 2, and each has a new order."""
    lake.branch_create("dev")
    for branch, value, new in (("dev", "source", 7), (MAIN, "target", 8)):
        with lake.transaction(branch) as tx:
            tx.update(ORDERS, {"v": f"'{value}'"}, where="id <= 2")
            tx.append(ORDERS, [{"id": new, "v": value}])
    return lake


def rows(repo: ab.Repository) -> dict[int, str]:
    return {row["id"]: row["v"] for row in repo.snapshot_of(MAIN)[ORDERS].to_arrow().to_pylist()}


def merge(project: Project, path: str = "", *, headers: dict[str, str] | None = None, **body: Any) -> Any:
    return project.client.post(f"{project.path}/merges{path}", json=body, headers=headers)


def test_a_plan_shows_the_changes_and_changes_nothing(project: Project, contested: ab.Repository) -> None:
    before = contested.snapshot_of(MAIN).id
    plan = ok(merge(project, "/plan", source="dev"))
    assert (plan["source"], plan["into"], plan["outcome"]) == ("dev", "main", "merged")
    assert plan["conflict_count"] == 2
    (conflict, _) = plan["conflicts"]
    assert conflict["key"] == {"id": 1}
    assert (conflict["base"], conflict["source"], conflict["target"]) == ("v1", "source", "target")
    decided = ok(merge(project, "/plan", source="dev", strategy="source"))
    (table,) = decided["tables"]
    assert decided["conflicts"] == []
    assert (table["rows_inserted"], table["rows_updated"], table["rows_deleted"]) == (1, 2, 0)
    assert contested.snapshot_of(MAIN).id == before


def test_conflicts_come_in_pages(project: Project, contested: ab.Repository) -> None:
    path = f"{project.path}/merges/conflicts"
    first = ok(project.client.post(path, params={"limit": 1}, json={"source": "dev"}))
    assert first["next"] == 1
    rest = ok(project.client.post(path, params={"limit": 1, "offset": 1}, json={"source": "dev"}))
    assert rest["next"] is None
    assert [one["key"]["id"] for one in (*first["conflicts"], *rest["conflicts"])] == [1, 2]
    assert [one.key for one in contested.conflicts("dev")] == [{"id": 1}, {"id": 2}]


def test_a_merge_is_decided_by_strategy_resolvers_and_resolutions(project: Project, contested: ab.Repository) -> None:
    before = contested.snapshot_of(MAIN).id
    answer = refused(merge(project, source="dev"), 409, "merge_conflict")
    assert answer["details"]["conflict_count"] == 2
    (first, _) = answer["details"]["conflicts"]
    assert contested.snapshot_of(MAIN).id == before
    refused(merge(project, source="dev", resolutions=[{**first, "take": "nobody"}]), 400, "invalid_input")
    refused(merge(project, source="dev", resolvers={"no_such": "max"}), 400, "invalid_input")
    # A conflict can be sent back as it was listed.
    decisions = [{**first, "take": "source"}, {"table": ORDERS, "key": {"id": 2}, "column": "v", "value": "both"}]
    done = ok(merge(project, source="dev", resolutions=decisions, metadata={"ticket": "7"}, message="Reviewed"))
    assert rows(contested) == {1: "source", 2: "both", 3: "v3", 7: "source", 8: "target"}
    assert (done["commit"]["message"], done["commit"]["metadata"]["ticket"]) == ("Reviewed", "7")
    assert done["commit"]["parent_id"] == before
    assert done["plan"]["outcome"] == "merged"
    again = ok(merge(project, source="dev"))
    assert (again["commit"], again["plan"]["outcome"]) == (None, "already_up_to_date")
    audit = ok(project.client.get(f"{project.path}/audit"))["events"]
    assert [event["status"] for event in audit if event["action"] == "merge_branches"] == [200, 200, 400, 400, 409]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_resolutions_come_from_an_uploaded_file(project: Project, contested: ab.Repository, kind: str) -> None:
    found = ok(merge(project, "/conflicts", source="dev"))["conflicts"]
    data = json.dumps([{**one, "take": "source"} for one in found])
    if kind == "csv":
        data = "table,key,column,take\n" + "".join(f'{ORDERS},"{{""id"": {number}}}",v,source\n' for number in (1, 2))
    file = ok(project.client.post(f"{project.path}/files", files={"file": (f"decided.{kind}", data.encode())}))["id"]
    assert ok(merge(project, "/plan", source="dev", resolutions_file_id=file))["conflict_count"] == 0
    ok(merge(project, source="dev", resolutions_file_id=file))
    assert rows(contested)[1] == "source"
    wrong = ok(project.client.post(f"{project.path}/files", files={"file": (f"wrong.{kind}", b"\xff")}))["id"]
    refused(merge(project, source="dev", resolutions_file_id=wrong), 400, "invalid_input")


def test_a_merge_can_be_bound_to_what_was_seen(project: Project, contested: ab.Repository) -> None:
    plan = ok(merge(project, "/plan", source="dev", strategy="source"))
    contested.append(ORDERS, [{"id": 9, "v": "late"}])
    order = {"source": "dev", "strategy": "source", "expected_head": plan["target_commit_id"]}
    answer = refused(merge(project, **order), 409, "write_conflict")
    assert answer["details"]["retryable"]
    refused(merge(project, source="dev", strategy="source", ff_only=True), 409, "write_conflict")
    done = ok(merge(project, **{**order, "expected_head": contested.snapshot_of(MAIN).id}, squash=True))
    assert done["commit"]["merged_parent_id"] is None


def test_dev_branches_are_not_merged(project: Project, lake: ab.Repository) -> None:
    branch = project.branch()
    project.insert(5, branch=branch)
    commit = lake.snapshot_of(branch).id
    lake.branch_create("other")
    for source, into in ((branch, MAIN), (commit, MAIN), (f"{branch}~0", MAIN), (MAIN, branch)):
        for path in ("", "/plan", "/conflicts"):
            answer = refused(merge(project, path, source=source, into=into), 400, "invalid_input")
            assert "dev branch" in answer["message"]
    assert project.ids() == [1, 2, 3]
    refused(merge(project, source="no-such"), 404, "branch_not_found")
    refused(merge(project, source="other", into="no-such"), 404, "branch_not_found")


def test_a_merge_needs_a_token_of_the_project(running: Running, project: Project, contested: ab.Repository) -> None:
    for scope, statuses in (("project", (200, 200)), ("branch", (200, 403)), ("read", (200, 403))):
        with running.client(make_token(project.client, scope, project_id=project.id)) as client:
            body = {"source": "dev", "strategy": "target"}
            found = [client.post(f"{project.path}/merges{path}", json=body).status_code for path in ("/plan", "")]
            assert tuple(found) == statuses, scope
    assert rows(contested)[1] == "target"


def test_a_merge_with_a_key_is_done_once(running: Running, project: Project, contested: ab.Repository) -> None:
    order: dict[str, Any] = {"source": "dev", "strategy": "source", "squash": True}
    first = merge(project, headers=once("merge"), **order)
    second = merge(project, headers=once("merge"), **order)
    assert (first.status_code, second.json()) == (200, first.json())
    assert second.headers[REPLAY] == "true"
    # The service stops after the commit and before the answer is stored.
    lose_answer(running, "merge")
    found = ok(merge(project, headers=once("merge"), **order))
    assert (found["commit"], found["plan"]) == (first.json()["commit"], None)
    assert len([one for one in contested.list_commits(MAIN) if one.kind == "merge"]) == 1
