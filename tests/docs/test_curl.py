"""Our own `curl` does for the pages what curl does, and refuses the rest."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.docs.pages import SHELL_PATH
from tests.server.conftest import free_port


class _Echo(BaseHTTPRequestHandler):
    """Answers with the request that it got; below /missing, with an error."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        reported = json.dumps({"method": self.command, "path": self.path, "headers": headers, "body": body})
        self.send_response(404 if self.path.startswith("/missing") else 200)
        self.end_headers()
        self.wfile.write(reported.encode())

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the names that the library looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _curl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", 'curl "$@"', "bash", *arguments]
    return subprocess.run(command, env={"PATH": SHELL_PATH}, capture_output=True, text=True, check=False)


def test_it_posts_json(url: str) -> None:
    ran = _curl("--silent", "--header", "Authorization: Bearer ab_1", "--json", '{"name": "ž"}', f"{url}/projects")
    got = json.loads(ran.stdout)
    assert (got["method"], got["path"], got["body"]) == ("POST", "/projects", '{"name": "ž"}')
    assert got["headers"]["authorization"] == "Bearer ab_1"
    assert got["headers"]["content-type"] == got["headers"]["accept"] == "application/json"


def test_an_empty_body_is_posted_too(url: str) -> None:
    got = json.loads(_curl("--json", "", f"{url}/pull").stdout)
    assert (got["method"], got["body"]) == ("POST", "")


def test_it_gets_with_parameters_and_deletes(url: str) -> None:
    got = json.loads(_curl("--get", f"{url}/preview", "--data", "sort=amount:desc", "--data", "limit=1").stdout)
    assert (got["method"], got["path"]) == ("GET", "/preview?sort=amount:desc&limit=1")
    assert json.loads(_curl("--request", "DELETE", f"{url}/dev").stdout)["method"] == "DELETE"


def test_an_error_is_a_failure_if_it_is_asked_for(url: str) -> None:
    assert _curl("-s", f"{url}/missing").returncode == 0
    failed = _curl("-s", "--fail-with-body", f"{url}/missing")
    assert failed.returncode == 22
    assert json.loads(failed.stdout)["path"] == "/missing"


def test_a_missing_server_is_reported() -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    reported = _curl("--silent", "--show-error", nowhere)
    assert reported.returncode == 7
    assert reported.stderr.startswith("curl: (7)")
    assert _curl("--silent", nowhere).stderr == ""


@pytest.mark.parametrize(
    "arguments", [("--location",), ("--sil",), ("--data", "a=1"), ("--json", "@file"), ("--request", "PUT"), ("-O",)]
)
def test_what_no_page_uses_is_refused(arguments: tuple[str, ...]) -> None:
    ran = _curl(*arguments, "http://127.0.0.1:1")
    assert ran.returncode == 2
    assert "curl: error:" in ran.stderr
