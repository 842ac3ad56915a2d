"""The service matches its description: requests made from its own description, and its page in the docs."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import Running, make_token, new_project, ok, serving

PAGE = Path(__file__).parents[2] / "docs" / "http.md"

# What is asked for is there in most requests; what may end the others' things is asked for elsewhere.
CONFIGURATION = """
color = false
request-timeout = 60.0
continue-on-failure = true
[cache]
enabled = false
[generation]
allow-x00 = true
no-shrink = true
max-examples = {examples}
[checks]
# A filter or a row may be right by its shape and still not fit the table.
positive_data_acceptance = {{enabled = false}}
[parameters]
"path.project_id" = {{dictionary = "project"}}
"path.branch_id" = {{dictionary = "branch"}}
"path.bucket" = {{dictionary = "bucket"}}
"path.table" = {{dictionary = "table"}}
"path.column" = {{dictionary = "column"}}
"path.file_id" = {{dictionary = "file"}}
"path.job_id" = {{dictionary = "job"}}
"path.tag" = {{dictionary = "tag"}}
[dictionaries]
project = {{values = ["{project}"]}}
branch = {{values = ["default", "{branch}"]}}
bucket = {{values = ["in_c_sales"]}}
table = {{values = ["orders"]}}
column = {{values = ["v"]}}
file = {{values = ["{file}"]}}
job = {{values = ["{job}"]}}
tag = {{values = ["v1.0"]}}
[[operations]]
include-operation-id = ["delete_project", "delete_branch", "delete_bucket", "drop_table", "delete_tag", "delete_file"]
parameters = {{"path.project_id" = "gone"}}
[[operations]]
include-path-regex = "token_id"
parameters = {{"path.token_id" = "{token}", "path.project_id" = "{project}"}}
"""


@pytest.fixture(scope="module")
def described(running: Running) -> dict[str, Any]:
    return ok(httpx.get(f"{running.url}/openapi.json"))


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[tuple[Running, dict[str, str]]]:
    """A service of its own, with one of each thing there is."""
    with serving(tmp_path / "data") as running, running.client() as client:
        project = new_project(client)
        branch = project.branch()
        project.insert(4, branch=branch)
        ok(client.post(f"{project.path}/tags", json={"name": "v1.0"}))
        files = {"file": ("a.csv", b"id,v\n1,x\n")}
        make_token(client, "read", project_id=project.id)
        yield (
            running,
            {
                "project": project.id,
                "branch": branch,
                "file": ok(client.post(f"{project.path}/files", files=files))["id"],
                "job": ok(client.post(f"{project.table()}/export", json={}))["job_id"],
                "token": ok(client.get(f"{project.path}/tokens"))["tokens"][0]["id"],
            },
        )


def run_schemathesis(running: Running, folder: Path, *options: str, **values: Any) -> str:
    """Let a process of its own ask all that the description allows, and much that it does not."""
    (folder / "schemathesis.toml").write_text(CONFIGURATION.format(**values))
    command = [f"{Path(sys.executable).parent}/st", "--config-file", f"{folder}/schemathesis.toml", "run"]
    command += [f"{running.url}/openapi.json", "--header", f"Authorization: Bearer {running.secret}"]
    ended = subprocess.run(
        [*command, "--warnings", "off", *options], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_requests_of_the_described_kind_are_answered_as_described(
    prepared: tuple[Running, dict[str, str]], tmp_path: Path
) -> None:
    running, values = prepared
    printed = run_schemathesis(running, tmp_path, "--phases", "examples,fuzzing", "--seed", "1", examples=1, **values)
    assert re.search(r"Tested: +6\d", printed), printed


@pytest.mark.proof
def test_many_requests_of_all_kinds_are_answered_as_described(
    prepared: tuple[Running, dict[str, str]], tmp_path: Path
) -> None:
    running, values = prepared
    phases = "examples,coverage,fuzzing,stateful"
    printed = run_schemathesis(running, tmp_path, "--phases", phases, "--max-time", "300", examples=50, **values)
    assert re.search(r"Tested: +6\d", printed), printed


def test_every_operation_has_a_summary_and_an_example(described: dict[str, Any]) -> None:
    found = list(operations(described))
    assert len(found) > 50
    assert len({operation["operationId"] for _, _, operation in found}) == len(found)
    schemas = described["components"]["schemas"]
    for method, path, operation in found:
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["description"], where
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path":
                assert {"example", "examples"} & {*parameter, *parameter["schema"]}, f"{where}: {parameter['name']}"
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:
            schema = schemas[body["schema"]["$ref"].rpartition("/")[2]]
            fields = schema["properties"].values()
            has_examples = any("examples" in str(field) for field in fields)
            assert "examples" in schema or has_examples, f"{where}: {schema['title']}"


BRANCH = "/projects/{id}/branches/{branch}"
TABLE = f"{BRANCH}/buckets/{{bucket}}/tables/{{table}}"


def paths_on_page() -> set[tuple[str, str]]:
    """The methods and paths in the tables of the page, written out, without the names in braces."""
    prefix, found = "", set()
    for line in PAGE.read_text().splitlines():
        if line.startswith(("Under `", "And about")):
            prefix = BRANCH if line.startswith("Under") else ""
        words = re.findall(r"[^`, ;|]+", line.split("|")[1]) if line.startswith("| `") else []
        methods: list[str] = []
        first, is_path_next = "", False
        for word in words:
            if word.isupper():
                methods = [*methods, word] if is_path_next else [word]
                is_path_next = True
            elif "/" in word:
                path = written_out(word.partition("?")[0], prefix=prefix, first=first)
                first, is_path_next = first or path, False
                found |= {(method, re.sub(r"{\w+}", "{}", path)) for method in methods}
    return found


def written_out(path: str, *, prefix: str, first: str) -> str:
    if not path.startswith("..."):
        return prefix + path
    rest = path.removeprefix("...")
    return TABLE + rest.removeprefix("/{table}") if prefix else first + rest


def test_every_route_is_on_its_page(described: dict[str, Any]) -> None:
    routes = {(method.upper(), re.sub(r"{\w+}", "{}", path)) for method, path, _ in operations(described)}
    on_page = paths_on_page()
    assert routes - on_page == set(), sorted(on_page)
    assert on_page - routes == set()
