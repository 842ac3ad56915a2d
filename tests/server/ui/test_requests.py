"""Requests of all kinds to every page and action: none is answered by an error of the server."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.server.ui.service_pages import ServiceSite
from anabranch.server.ui.site import PageRoute
from tests.server.conftest import Running, new_project, ok, serving
from tests.server.ui.test_service import signed_in

# Values that lead to something. Other ones are made up.
KNOWN = {
    "ref": ["main", "v1.0", "main~1"],
    "branch": ["main"],
    "before": ["main~1"],
    "after": ["main"],
    "source": ["v1.0"],
    "into": ["main"],
    "table": ["in_c_sales.orders"],
    "sort": ["v"],
    "where": ["id > 1"],
    "key": ["[1]"],
    "column": ["v"],
    "sql": ["SELECT * FROM in_c_sales.orders"],
    "show": ["storage", "gc", "doctor"],
}
# They end the session, or take what the other requests need.
NOT_TRIED = {"sign_out", "sign_in", "static", "revoke_token_by_form", "rotate_token_by_form"}
CONFIGURATION = """
color = false
request-timeout = 60.0
continue-on-failure = true
[cache]
enabled = false
[generation]
no-shrink = true
max-examples = {examples}
"""


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[tuple[Running, dict[str, str]]]:
    """A service of its own, and the ids in it."""
    with serving(tmp_path / "data") as running, running.client() as client:
        project = new_project(client)
        project.insert(4)
        ok(client.post(f"{project.path}/tags", json={"name": "v1.0"}))
        commit = ok(client.get(f"{project.path}/tags/v1.0"))["commit_id"]
        yield running, {"project_id": project.id, "commit_id": commit, "run_id": commit, "table": "in_c_sales.orders"}


def described(routes: list[PageRoute], ids: dict[str, str], csrf: str) -> dict[str, Any]:
    """Return an OpenAPI description of the pages: the fields are those that their modules read."""
    paths: dict[str, Any] = {}
    for route in routes:
        if route.page is None or route.name in NOT_TRIED:
            continue
        source = inspect.getsource(inspect.getmodule(route.page.handle))  # type: ignore[arg-type]
        operation: dict[str, Any] = {
            "operationId": route.path,
            "responses": {"default": {"description": "a page", "content": {"text/html": {}}}},
        }
        given = re.findall(r"{(\w+)}", route.path)
        parameters = [text_parameter(name, "path", [ids[name]]) for name in given]
        if route.page.method == "GET":
            names = set(re.findall(r'\.(?:query|number|ref|getlist|get)\("(\w+)"', source)) | {"ref", "at", "page"}
            parameters += [text_parameter(name, "query", KNOWN.get(name, [])) for name in sorted(names)]
        else:
            names = set(re.findall(r'(?:field|getlist|_object_of)\((?:visit, )?"(\w+)"', source))
            fields = {name: text_schema(KNOWN.get(name, [])) for name in sorted(names)}
            body = {"type": "object", "properties": {**fields, "csrf": {"enum": [csrf]}}, "required": ["csrf"]}
            content = {"application/x-www-form-urlencoded": {"schema": body}}
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(route.path, {})[route.page.method.lower()] = {**operation, "parameters": parameters}
    return {"openapi": "3.1.0", "info": {"title": "pages", "version": "1"}, "paths": paths}


def text_parameter(name: str, where: str, known: list[str]) -> dict[str, Any]:
    schema = {"enum": known} if where == "path" else text_schema(known)
    return {"name": name, "in": where, "required": where == "path", "schema": schema}


def text_schema(known: list[str]) -> dict[str, Any]:
    return {"anyOf": [{"enum": known}, {"type": "string"}]} if known else {"type": "string"}


def run_schemathesis(prepared: tuple[Running, dict[str, str]], folder: Path, *, examples: int, phases: str) -> None:
    running, ids = prepared
    assert running.service is not None
    with signed_in(running, running.secret) as (client, csrf):
        description = described(ServiceSite(running.service).all_routes(), ids, csrf)
        assert len(description["paths"]) > 45
        (folder / "pages.json").write_text(json.dumps(description))
        (folder / "schemathesis.toml").write_text(CONFIGURATION.format(examples=examples))
        command = [f"{Path(sys.executable).parent}/st", "--config-file", f"{folder}/schemathesis.toml", "run"]
        command += [f"{folder}/pages.json", "--url", running.url, "--phases", phases, "--seed", "1"]
        command += ["--header", f"Cookie: anabranch_session={client.cookies['anabranch_session']}"]
        command += ["--checks", "not_a_server_error", "--warnings", "off", "--exclude-checks", "unsupported_method"]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr
        found = re.search(r"Tested: +(\d+)", ended.stdout)
        assert found, ended.stdout
        assert int(found[1]) > 45, ended.stdout
        assert client.get("/ui/").status_code == 200, "the session has ended, so that the pages were not reached"


def test_pages_answer_requests_of_all_kinds(prepared: tuple[Running, dict[str, str]], tmp_path: Path) -> None:
    run_schemathesis(prepared, tmp_path, examples=3, phases="fuzzing")


@pytest.mark.proof
def test_pages_answer_many_requests_of_all_kinds(prepared: tuple[Running, dict[str, str]], tmp_path: Path) -> None:
    run_schemathesis(prepared, tmp_path, examples=50, phases="coverage,fuzzing")
