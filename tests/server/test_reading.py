"""Reads: previews, states of the past, commits, differences, drift and tags."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.server.conftest import Project, Running, new_project, ok, refused

COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "nullable": False},
    {"name": "amount", "type": "decimal(10, 2)"},
    {"name": "paid", "type": "bool"},
    {"name": "at", "type": "timestamp[us, tz=UTC]"},
    {"name": "day", "type": "date32"},
    {"name": "raw", "type": "binary"},
    {"name": "tags", "type": "list<string>"},
    {"name": "noon", "type": "time64[us]"},
    {"name": "vector", "type": "vector(2)"},
    {"name": "large", "type": "uint64"},
    {"name": "fine", "type": "timestamp[ns, tz=UTC]"},
    {"name": "span", "type": "duration[us]"},
]
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "amount": "12.50",
        "paid": True,
        "at": "2026-11-15T10:00:00Z",
        "day": "2026-11-15",
        "raw": "AAE=",
        "tags": ["a", "b"],
        "noon": "12:00:00.500000",
        "vector": [0.5, 1.0],
        "large": "18446744073709551615",
        "fine": "2026-11-15T10:00:00.123456789Z",
        "span": "PT90.5S",
    },
    {**dict.fromkeys(column["name"] for column in COLUMNS), "id": 2, "amount": "-3.00", "paid": False, "tags": []},
    {**dict.fromkeys(column["name"] for column in COLUMNS), "id": 3},
]


@pytest.fixture(scope="module")
def shop(running: Running) -> Iterator[Project]:
    """A project that stays unchanged: payments of all kinds, and a hundred orders."""
    with running.client() as client:
        project = new_project(client, rows=0)
        tables = f"{project.on()}/buckets/in_c_sales/tables"
        body = {"name": "payments", "columns": COLUMNS, "primary_key": ["id"]}
        ok(client.post(tables, json=body))
        ok(client.post(f"{tables}/payments/rows", json={"rows": ROWS}))
        project.insert(*range(100))
        yield project


def test_rows_come_back_as_they_were_sent(shop: Project) -> None:
    found = shop.preview(table="payments", sort="id")
    assert found["rows"] == ROWS
    assert found["total_row_count"] == 3
    assert [(column["name"], column["type"]) for column in found["columns"]] == [
        (column["name"], column["type"]) for column in COLUMNS
    ]
    assert [column["nullable"] for column in found["columns"]] == [False, *[True] * 11]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"amount": "1.255"}, "scale 3"),
        ({"at": "yesterday"}, "row 2"),
        ({"raw": "###"}, "base64"),
        ({"noon": "25:00"}, "hour"),
        ({"vector": [1]}, "expected 2"),
        ({"large": "-1"}, "uint64"),
        ({"span": "a day"}, "is not a duration, such as 'PT90.5S'"),
        ({"tags": "a"}, "row 2"),
        ({"paid": "true"}, "row 2"),
        ({"id": None}, "column 'id' needs a value"),
    ],
)
def test_a_value_of_another_kind_names_its_row(shop: Project, row: dict[str, Any], reason: str) -> None:
    rows = [{"id": 10}, {"id": 11, **row}]
    answer = shop.client.post(f"{shop.table(table='payments')}/rows", json={"rows": rows})
    message = refused(answer, 400, "bad_record")["message"]
    assert message.startswith("row 2: ")
    assert reason in message
    assert shop.preview(table="payments")["total_row_count"] == 3


def test_a_preview_shows_what_is_asked_for(shop: Project) -> None:
    found = shop.preview(limit=3, columns="v,id", where="id >= 10 AND v <> 'v11'", sort="id:desc", count=True)
    assert found["rows"] == [{"v": f"v{number}", "id": number} for number in (99, 98, 97)]
    assert [column["name"] for column in found["columns"]] == ["v", "id"]
    assert found["total_row_count"] == 89
    assert len(shop.preview()["rows"]) == 100
    # Sorted by what is not shown.
    assert shop.preview(limit=2, columns="v", sort="id")["rows"] == [{"v": "v0"}, {"v": "v1"}]


def test_rows_that_match_are_counted_on_request(shop: Project) -> None:
    assert shop.preview(where="id < 5", limit=2)["total_row_count"] is None
    assert shop.preview(where="id < 5", limit=2, count=True)["total_row_count"] == 5
    assert shop.preview(limit=2)["total_row_count"] == 100  # known without a scan


def test_nulls_come_last_in_any_order(shop: Project) -> None:
    for sort, expected in (("amount", [2, 1, 3]), ("amount:desc,id", [1, 2, 3])):
        found = shop.preview(table="payments", columns="id", sort=sort)
        assert [row["id"] for row in found["rows"]] == expected


def test_a_preview_can_be_csv(shop: Project) -> None:
    params: dict[str, Any] = {"format": "csv", "columns": "id,amount,tags", "sort": "id"}
    answer = shop.client.get(f"{shop.table(table='payments')}/preview", params=params)
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text == 'id,amount,tags\n1,12.50,"[""a"", ""b""]"\n2,-3.00,[]\n3,,\n'


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({"limit": 0}, 422, "invalid_request"),
        ({"limit": 10_001}, 413, "too_large"),
        ({"limit": "many"}, 422, "invalid_request"),
        ({"colums": "id"}, 422, "invalid_request"),
        ({"format": "xml"}, 422, "invalid_request"),
        ({"columns": "id,nothing"}, 400, "schema_mismatch"),
        ({"sort": "nothing"}, 400, "schema_mismatch"),
        ({"sort": "id:up"}, 400, "invalid_input"),
        ({"where": "nothing = 1"}, 400, "invalid_expression"),
        ({"where": "id = 1; DROP TABLE orders"}, 400, "invalid_expression"),
        ({"where": "id = 1) OR (1 = 1"}, 400, "invalid_expression"),
        ({"where": "id IN (SELECT id FROM other)"}, 400, "invalid_expression"),
        ({"ref": "no-such-tag"}, 404, "commit_not_found"),
        ({"ref": "01M7HMP1FCR76VTSAGBV91DJPM"}, 404, "commit_not_found"),
        ({"ref": "2001-01-01"}, 404, "commit_not_found"),
        ({"ref": "main~1"}, 404, "commit_not_found"),
        ({"ref": "default@{2026-11-15}"}, 404, "commit_not_found"),
    ],
)
def test_a_preview_of_what_cannot_be_is_refused(shop: Project, params: dict[str, Any], status: int, code: str) -> None:
    refused(shop.client.get(f"{shop.table()}/preview", params=params), status, code)


def test_a_list_cannot_be_sorted_by(shop: Project) -> None:
    answer = shop.client.get(f"{shop.table(table='payments')}/preview", params={"sort": "tags"})
    refused(answer, 400, "invalid_input")


def test_states_of_the_past_are_read_by_commit_tag_and_moment(project: Project) -> None:
    branch = project.branch()
    first = project.insert(4)["commit_id"]
    ok(project.client.post(f"{project.path}/tags", json={"name": "v1.0", "ref": first}))
    moment = datetime.now(UTC).isoformat()
    project.insert(5)
    project.insert(6, branch=branch)
    for at in (first, "v1.0", moment):
        for where in ("default", branch):
            assert [row["id"] for row in project.preview(where, ref=at, sort="id")["rows"]] == [1, 2, 3, 4]
            assert ok(project.client.get(project.table(where), params={"ref": at}))["row_count"] == 4
    assert project.ids() == [1, 2, 3, 4, 5]
    assert project.ids(branch) == [1, 2, 3, 4, 5, 6]
    begin = ok(project.client.get(f"{project.on()}/commits"))["commits"][-1]["id"]
    refused(project.client.get(project.table(), params={"ref": begin}), 404, "table_not_found")
    assert ok(project.client.get(f"{project.on()}/buckets", params={"ref": begin}))["buckets"][0]["table_count"] == 0


def test_commits_are_listed_page_by_page(project: Project) -> None:
    branch = project.branch()
    made = project.insert(4, branch=branch)
    commits = f"{project.on(branch)}/commits"
    everything = ok(project.client.get(commits))
    assert everything["next"] is None
    found = everything["commits"]
    assert [commit["message"] for commit in found[:-1]] == [
        "Insert 1 rows into in_c_sales.orders",
        "Insert 3 rows into in_c_sales.orders",
        "Create in_c_sales.orders",
    ]
    assert found[-1]["kind"] == "init"
    assert [commit["branch_id"] for commit in found[:2]] == [branch, "default"]
    newest = ok(project.client.get(f"{commits}/{made['commit_id']}"))
    assert newest == found[0]
    assert newest["tables"] == ["in_c_sales.orders"]
    assert newest["parent_id"] == found[1]["id"]
    paged, before = [], None
    while True:
        page = ok(project.client.get(commits, params={"limit": 1, **({"before": before} if before else {})}))
        paged += page["commits"]
        if (before := page["next"]) is None:
            break
    assert paged == found
    about = ok(project.client.get(commits, params={"table": "in_c_sales.orders"}))["commits"]
    assert len(about) == 3
    refused(project.client.get(commits, params={"table": "orders"}), 400, "invalid_name")
    refused(project.client.get(commits, params={"before": "nonsense"}), 400, "invalid_name")


def test_a_branch_is_compared_with_main(project: Project) -> None:
    branch = project.branch()
    assert ok(project.client.get(f"{project.on(branch)}/diff")) == {"tables": []}
    ok(project.client.put(f"{project.table(branch)}/rows", json={"rows": [{"id": 1, "v": "new"}]}))
    ok(project.client.delete(f"{project.table(branch)}/rows", params={"where": "id = 2"}))
    project.insert(4, 5, branch=branch)
    project.create_table("own", branch)
    orders, own = ok(project.client.get(f"{project.on(branch)}/diff"))["tables"]
    assert (orders["table"], orders["change"], own["table"], own["change"]) == ("orders", "changed", "own", "added")
    assert (orders["rows_inserted"], orders["rows_updated"], orders["rows_deleted"]) == (2, 1, 1)
    rows = ok(project.client.get(f"{project.on(branch)}/diff/in_c_sales/orders"))
    assert rows["has_more"] is False
    assert {"change": "updated", "before": {"id": 1, "v": "v1"}, "after": {"id": 1, "v": "new"}, "columns": ["v"]} in (
        rows["rows"]
    )
    first = ok(project.client.get(f"{project.on(branch)}/diff/in_c_sales/orders", params={"limit": 1}))
    assert (len(first["rows"]), first["has_more"]) == (1, True)
    refused(project.client.get(f"{project.on(branch)}/diff/in_c_sales/nothing"), 404, "table_not_found")


def test_drift_shows_what_main_did_since_the_copy(project: Project) -> None:
    branch = project.branch()
    drift = f"{project.on(branch)}/drift"
    assert ok(project.client.get(drift)) == {"tables": []}
    project.insert(4, branch=branch)
    (before,) = ok(project.client.get(drift))["tables"]
    assert (before["has_drifted"], before["branch_rows"], before["main_rows"]) == (False, 4, 3)
    project.insert(5, 6)
    (after,) = ok(project.client.get(drift))["tables"]
    assert (after["has_drifted"], after["branch_rows"], after["main_rows"]) == (True, 4, 5)
    assert isinstance(after["main_version"], str)
    refused(project.client.get(f"{project.on()}/drift"), 404, "branch_not_found")


def test_tags_name_commits(project: Project) -> None:
    tags = f"{project.path}/tags"
    made = ok(project.client.post(tags, json={"name": "v1.0", "description": "first"}))
    assert (made["name"], made["description"], made["created_by"]) == ("v1.0", "first", "admin")
    assert made["commit_id"] == ok(project.client.get(f"{project.on()}/commits"))["commits"][0]["id"]
    refused(project.client.post(tags, json={"name": "v1.0"}), 409, "tag_exists")
    refused(project.client.post(tags, json={"name": "v/1"}), 422, "invalid_request")
    refused(project.client.post(tags, json={"name": "..", "ref": made["commit_id"]}), 400, "invalid_name")
    assert ok(project.client.get(tags)) == {"tags": [made], "next": None}
    other = ok(project.client.post(tags, json={"name": "v1.1"}))
    assert ok(project.client.get(tags, params={"limit": 1})) == {"tags": [made], "next": "v1.0"}
    assert ok(project.client.get(tags, params={"limit": 1, "after": "v1.0"})) == {"tags": [other], "next": None}
    assert ok(project.client.get(tags, params={"prefix": "v2"}))["tags"] == []
    refused(project.client.get(tags, params={"limit": 0}), 422, "invalid_request")
    assert ok(project.client.get(f"{tags}/v1.0")) == made
    assert project.client.delete(f"{tags}/v1.0").status_code == 204
    refused(project.client.get(f"{tags}/v1.0"), 404, "tag_not_found")
    refused(project.client.delete(f"{tags}/v1.0"), 404, "tag_not_found")


def test_projects_are_listed(client: httpx.Client, project: Project) -> None:
    found = ok(client.get("/projects"))["projects"]
    assert ok(client.get(project.path)) in found
    refused(client.get("/projects/nowhere"), 404, "project_not_found")
    refused(client.delete("/projects/nowhere"), 404, "project_not_found")
