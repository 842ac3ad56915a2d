"""Plain Lance writers and this product on one table at the same time: no write is lost, doubled or refused."""

import json
import subprocess
import sys
import time
from typing import Any

import lance
import pytest

import anabranch as ab
from anabranch.storage.options import lance_options
from tests.conftest import Place
from tests.proof_log import record_proof
from tests.repo.programs.native_race import SCHEMA, TABLE, rows

WRITERS = 2


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(10, id="quick"),
        pytest.param(100, id="full", marks=[pytest.mark.proof, pytest.mark.s3]),
    ],
)
def test_native_writers_and_commits_on_one_table_lose_nothing(place: Place, steps: int) -> None:
    began = time.monotonic()
    repo = ab.init(place / "lake", storage_options=place.storage_options)
    with repo.transaction() as tx:
        tx.create_table(TABLE, SCHEMA, primary_key=["id"])
        tx.append(TABLE, rows({1: "first"}))
    table_uri = repo.snapshot()[TABLE].uri
    native_options = lance_options(place.storage_options) if place.storage_options else {}
    native = {"steps": steps, "native": True, "uri": table_uri, "options": native_options}
    ours = {"steps": steps, "native": False, "uri": repo.uri, "options": dict(place.storage_options)}
    kinds = [native] * WRITERS + [ours] * WRITERS
    reports = race([{**kind, "number": number} for number, kind in enumerate(kinds)], steps)
    repo = ab.open(repo.uri, storage_options=place.storage_options)
    if repo.list_foreign_writes():
        repo.adopt(TABLE)
    expected = {1: "first"}
    for report in reports:
        expected |= {int(number): value for number, value in report["rows"].items()}
        assert "failed by Restore" not in report["counts"]
        assert sum(report["counts"][kind] for kind in ("append", "merge", "update", "delete")) == steps
    found = repo.snapshot_of("main")[TABLE].to_arrow()
    assert_rows(found, expected)
    seen: Any = lance.dataset(table_uri, storage_options=native_options or None)
    seen.validate()
    assert_rows(seen.to_table(), expected)
    versions = seen.to_table(columns=["_row_created_at_version", "_row_last_updated_at_version"])
    assert max(max(column.to_pylist()) for column in versions.columns) <= seen.version
    assert repo.list_foreign_writes() == ()
    assert repo.doctor().findings == ()
    counts: dict[str, int] = {}
    for report in reports:
        for what, count in report["counts"].items():
            counts[what] = counts.get(what, 0) + count
    counts["versions"] = seen.version
    record_proof("native writers beside commits", counts, seconds=time.monotonic() - began)


def assert_rows(found: Any, expected: dict[int, str]) -> None:
    pairs = list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert sorted(pairs) == sorted(expected.items())


def race(jobs: list[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    """Start the writers, let them do each step at the same time, and return what they report."""
    command = [sys.executable, "-m", "tests.repo.programs.native_race"]
    started = [
        subprocess.Popen([*command, json.dumps(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for job in jobs
    ]
    try:
        for _ in range(steps):
            for process in started:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            for process in started:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
        answers = [process.communicate()[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * len(started)
    return [json.loads(answer) for answer in answers]
