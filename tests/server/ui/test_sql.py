"""The SQL console: it reads tables of any ref, in bounds, and cannot do anything else."""

import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect

import anabranch as ab
from anabranch.errors import TooLargeError, TooManyRequestsError, TooSlowError
from anabranch.server.ui.requests import Departure
from anabranch.server.ui.sql import LimitedProcesses, Turns, limited_processes
from tests.conftest import Location
from tests.processes import running_program, wait_until
from tests.server.ui.conftest import LocalSite, Visitor, serving, visiting
from tests.server.ui.lakes import HOSTILE, hostile_lake, shop


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSite]:
    with serving(shop(tmp_path_factory.mktemp("lake") / "shop")) as found:
        yield found


@pytest.fixture(scope="module")
def visitor(browser: Browser, site: LocalSite) -> Iterator[Visitor]:
    with visiting(browser, site.url, enter=site.enter) as found:
        yield found


def run(visitor: Visitor, sql: str, *, ref: str = "main") -> None:
    page = visitor.open("/sql")
    page.get_by_label("One statement").fill(sql)
    page.get_by_label("At the branch, tag or commit").fill(ref)
    page.get_by_role("button", name="Run").click()


def rows_of(visitor: Visitor) -> list[list[str]]:
    result = visitor.page.get_by_role("region", name="Result")
    # Reading all rows does not wait for the page that the form leads to.
    expect(result).to_be_visible()
    rows = result.get_by_role("row").all()[1:]
    return [row.get_by_role("cell").all_inner_texts() for row in rows]


@pytest.mark.parametrize("options", [{}, {"java_script_enabled": False}], ids=["scripts", "no scripts"])
def test_statement_is_answered_and_downloaded(browser: Browser, tmp_path: Path, options: dict[str, bool]) -> None:
    with (
        serving(shop(tmp_path / "shop")) as site,
        visiting(browser, site.url, enter=site.enter, **options) as visitor,
    ):
        visitor.page.get_by_role("link", name="SQL", exact=True).click()
        run(visitor, "SELECT id, item FROM shop.orders ORDER BY id", ref="dev")
        assert rows_of(visitor) == [["1", "tea"], ["2", "cup"], ["3", "pot"], ["4", "jug"]]
        if not options:
            visitor.check_accessible()
        with visitor.page.expect_download() as download:
            visitor.page.get_by_role("link", name="Download CSV").click()
        assert Path(download.value.path()).read_text() == "id,item\n1,tea\n2,cup\n3,pot\n4,jug\n"


def test_refs_are_joined_with_at(visitor: Visitor) -> None:
    run(
        visitor,
        "SELECT o.id, o.amount, n.amount FROM shop.orders AT 'v1.0' o JOIN shop.orders AT 'dev' n USING (id) "
        "WHERE o.amount <> n.amount",
    )
    assert rows_of(visitor) == [["2", "8.0", "9.5"]]


def test_error_has_a_hint_and_keeps_the_statement(visitor: Visitor) -> None:
    for sql in ("SELEC 1", "SELECT nothing FROM shop.orders", "SELECT * FROM shop.nothing", "SELECT 1; SELECT 2"):
        run(visitor, sql)
        expect(visitor.page.get_by_role("alert")).to_contain_text("Hint")
        expect(visitor.page.get_by_label("One statement")).to_have_value(sql)
    visitor.check_accessible()


def test_statement_cannot_write_or_read_files(visitor: Visitor, site: LocalSite, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("secret\n")
    target = tmp_path / "out.csv"
    commits = len(site.repository.list_commits(limit=None))
    for sql in (
        f"SELECT * FROM '{secret}'",
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT * FROM glob('{tmp_path}/*')",
        f"COPY (SELECT 1) TO '{target}'",
        f"ATTACH '{target}' AS x",
        "DELETE FROM shop.orders",
        "INSERT INTO shop.orders VALUES (9, 'x', 1)",
        "UPDATE shop.orders SET amount = 0",
        "DROP TABLE shop.orders",
        "CREATE TABLE t AS SELECT 1",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM query('DELETE FROM shop.orders')",
    ):
        run(visitor, sql)
        expect(visitor.page.get_by_role("alert")).to_be_visible()
        address = f"{site.url}/sql.csv"
        assert visitor.page.request.get(address, params={"sql": sql}).status in (400, 404), sql
        assert "secret\n" not in visitor.page.inner_text("main"), sql
    assert not target.exists()
    assert len(site.repository.list_commits(limit=None)) == commits
    assert len(site.repository["shop.orders"]) == 2


def test_large_result_is_bounded(visitor: Visitor) -> None:
    run(visitor, "SELECT range AS n, repeat('x', 2000) AS long FROM range(1000000)")
    expect(visitor.page.get_by_text("The first 1,000 rows are shown.")).to_be_visible()
    assert len(visitor.page.content()) < 300_000
    columns = ", ".join(f"{n} AS c{n}" for n in range(100))
    run(visitor, f"SELECT {columns}")
    expect(visitor.page.get_by_text("The first 40 of 100 columns are shown.")).to_be_visible()
    sql = "SELECT repeat('x', 1000) FROM range(100000)"
    answer = visitor.page.request.get(f"{visitor.site}/sql.csv", params={"sql": sql})
    assert answer.status == 413
    assert not visitor.problems


def test_slow_statement_is_stopped(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.server.ui.sql._SECONDS", 0.2)
    # Not a join: its rows in memory could reach the limit of memory first.
    run(visitor, "SELECT count(*) FROM range(100000000000) WHERE range < -range")
    expect(visitor.page.get_by_role("alert")).to_contain_text("0.2 seconds", timeout=15_000)


def test_hostile_values_stay_texts(browser: Browser, tmp_path: Path) -> None:
    with (
        serving(hostile_lake(tmp_path / "lake")) as site,
        visiting(browser, site.url, enter=site.enter) as visitor,
    ):
        run(visitor, f"SELECT *, '{HOSTILE}' AS \"{HOSTILE}\" FROM evil.rows")
        page = visitor.page
        expect(page.locator("main img, main script")).to_have_count(0)
        assert HOSTILE in page.inner_text("main")
        assert len(page.content()) < 300_000
        visitor.check_width()


# More than a gigabyte each, in ways that DuckDB's own limit does not count, or in one value that cannot be interrupted.
LARGE = (
    "SELECT repeat('x', 1000000000)",
    "SELECT repeat('x', 1000000) FROM range(100000)",
    "SELECT list_resize([1], 400000000)",
)


def test_statement_takes_limited_memory(tmp_path: Path) -> None:
    """The process that serves the pages does not grow, and the one of the statement is stopped."""
    with serving(shop(tmp_path / "shop")) as site, site.client() as client:
        client.get("/sql", params={"sql": "SELECT 1"})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for sql in LARGE:
            for path in ("/sql", "/sql.csv"):
                answer = client.get(path, params={"sql": sql})
                assert answer.status_code in (400, 413), (sql, answer.text)
                assert "emory" in answer.text or "characters" in answer.text, sql
                assert len(answer.content) < 300_000
                # Other pages, and other statements, are answered as before.
                assert client.get("/branches").status_code == 200
                assert ">7</" in client.get("/sql", params={"sql": "SELECT '7' AS n"}).text
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 << 10, f"the process of the pages grew by {grown >> 10} MiB"


def test_process_of_a_statement_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peak is the memory of the imports and the limit."""
    # Modules of the working directory are not imported.
    (tmp_path / "duckdb.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    processes = LimitedProcesses(memory_bytes=256 << 20)
    try:
        with pytest.raises(TooLargeError, match="more than 256 MiB"):
            processes.run(partial(bytearray, 300 << 20), seconds=60)
        assert processes.run(partial(len, bytearray(100)), seconds=60) == 100
        peak = processes.run(partial(fill_and_measure, 200 << 20), seconds=60)
        assert 200 < peak >> 10 < 800
        # A process that dies, such as in a library that cannot allocate, is reported and does no harm.
        with pytest.raises(TooLargeError):
            processes.run(partial(os.abort), seconds=60)
        # Any other error is a bug, and not a lack of memory.
        with pytest.raises(RuntimeError, match="ValueError: invalid literal"):
            processes.run(partial(int, "x"), seconds=60)
        with pytest.raises(TooSlowError, match=r"more than 0\.2 seconds"):
            processes.run(partial(time.sleep, 60), seconds=0.2)
        assert processes.run(partial(len, b"ab"), seconds=60) == 2
    finally:
        processes.close()


def fill_and_measure(size: int) -> int:
    """Return the peak of the memory of this process in KiB, with an object of a size."""
    held = bytearray(size)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if held else 0


def test_statement_that_cannot_be_interrupted_is_ended(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.server.ui.sql._SECONDS", 0.5)
    run(visitor, "SELECT length(lpad('x', 900000000, 'y'))")
    expect(visitor.page.get_by_role("alert")).to_contain_text("0.5 seconds", timeout=15_000)


def test_console_starts_again_after_its_process_was_ended(tmp_path: Path) -> None:
    with serving(shop(tmp_path / "shop")) as site, site.client() as client:
        client.get("/sql", params={"sql": "SELECT 1"})
        forking = limited_processes()._forking
        assert forking is not None
        forking.kill()
        forking.wait()
        assert ">8</" in client.get("/sql", params={"sql": "SELECT '8' AS n"}).text


# Code as text, so that the process of a statement does not import the tests.
SLEEP = "(__import__('time').sleep(1), __import__('os').getpid())[1]"
WRITE_PIDS_AND_SLEEP = """
import os, time
with open({file!r} + ".new", "w") as file:
    file.write(f"{{os.getpid()}} {{os.getppid()}}")
os.replace({file!r} + ".new", {file!r})
time.sleep(3600)
"""
RUN = """
from functools import partial
from anabranch.server.ui.sql import limited_processes
limited_processes().run(partial(exec, {code!r}), seconds=3600)
"""


def test_many_statements_at_once_are_answered_or_refused() -> None:
    """Few wait, because each of them keeps a thread of the server."""
    processes = LimitedProcesses(at_once=1, waiting=1)

    def attempt(_: int) -> str:
        try:
            return str(processes.run(partial(eval, SLEEP), seconds=60))
        except TooManyRequestsError:
            return "refused"

    try:
        processes.run(partial(len, b""), seconds=60)
        with ThreadPoolExecutor(20) as threads:
            outcomes = sorted(threads.map(attempt, range(20)))
        assert outcomes[-1] == "refused"
        pids = [int(outcome) for outcome in outcomes if outcome != "refused"]
        assert 2 <= len(pids) < 20
        wait_for_ends(pids)
    finally:
        processes.close()


def wait_for_ends(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, f"{left} did not end"
        time.sleep(0.05)


ENDLESS = "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"


def test_statements_end_when_their_visitors_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise closed pages would keep others from the console."""
    monkeypatch.setattr("anabranch.server.ui.sql._SECONDS", 3600.0)
    with serving(shop(tmp_path / "shop")) as site, site.client() as client:
        client.get("/sql", params={"sql": "SELECT 1"})
        host = urlsplit(site.url)
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        head = f"GET /sql?{urlencode({'sql': ENDLESS})} HTTP/1.1\r\nHost: {host.netloc}\r\nCookie: {cookie}\r\n\r\n"
        for _ in range(30):
            with socket.create_connection((host.hostname, host.port)) as connection:
                connection.sendall(head.encode())
        answers = (client.get("/sql", params={"sql": "SELECT '8' AS n"}) for _ in range(600))
        # Those that left may not all be noticed yet.
        answer = next(answer for answer in answers if answer.status_code != 429)
        assert ">8</" in answer.text


def test_one_token_does_not_take_all_turns() -> None:
    turns = Turns(at_once=2, waiting=8)
    here = Departure()
    with turns.turn("mine", seconds=60, departure=here), ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(take_turn, turns, "mine", here) for _ in range(3)]
        while turns.count("mine") < 4:
            time.sleep(0.01)
        with pytest.raises(TooManyRequestsError):
            take_turn(turns, "mine", here)
        assert take_turn(turns, "other", here) == "done"
        assert not any(future.done() for future in waiting)
        here.leave()
        for future in waiting:
            assert isinstance(future.exception(timeout=60), TooSlowError)
    assert turns.count("mine") == 0


def take_turn(turns: Turns, owner: str, departure: Departure) -> str:
    with turns.turn(owner, seconds=60, departure=departure):
        return "done"


def test_processes_end_with_a_server_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    program = RUN.format(code=WRITE_PIDS_AND_SLEEP.format(file=str(file)))
    with running_program([sys.executable, "-c", program]) as server:
        wait_until(file.exists, server)
    wait_for_ends([int(pid) for pid in file.read_text().split()])


def test_statement_runs_in_the_server_where_memory_cannot_be_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems other than Linux have no /proc."""
    monkeypatch.setattr("anabranch.server.ui.sql._STATUS", tmp_path / "missing")
    processes = LimitedProcesses()
    assert processes.run(os.getpid, seconds=60) == os.getpid()
    processes.start()
    assert processes._forking is None
    with serving(shop(tmp_path / "shop")) as site, site.client() as client:
        assert client.get("/sql").status_code == 200
        assert "tea" in client.get("/sql", params={"sql": "SELECT item FROM shop.orders"}).text
        assert client.get("/sql", params={"sql": "SELEC"}).status_code == 400


@pytest.mark.xdist_group("s3")
def test_statement_reads_a_repository_on_s3(s3_location: Location) -> None:
    repository = ab.init(s3_location.root, storage_options=s3_location.storage_options)
    repository.load("shop.orders", pa.table({"id": [1, 2]}), message="load")
    with serving(repository) as site, site.client() as client:
        answer = client.get("/sql.csv", params={"sql": "SELECT sum(id) AS n FROM shop.orders"})
    assert answer.text == "n\n3\n"
