"""Plain Lance writers and this product on one table at the same time: no write is lost, doubled or refused."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import lance
import pytest

import anabranch as ab
from anabranch.storage.options import lance_options
from tests.conftest import Location
from tests.processes import running_program
from tests.proof_log import record_proof
from tests.repo.conftest import ORDERS, raw, table
from tests.repo.programs.native_race import SCHEMA, TABLE, rows

WRITERS = 2


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(10, id="quick"),
        pytest.param(100, id="full", marks=[pytest.mark.proof, pytest.mark.s3]),
    ],
)
def test_native_writers_and_commits_on_one_table_lose_nothing(location: Location, steps: int) -> None:
    began = time.monotonic()
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    with repo.transaction() as tx:
        tx.create_table(TABLE, SCHEMA, primary_key=["id"])
        tx.append(TABLE, rows({1: "first"}))
    table_uri = repo.snapshot()[TABLE].uri
    native_options = lance_options(location.storage_options) if location.storage_options else {}
    native = {"steps": steps, "native": True, "uri": table_uri, "options": native_options}
    ours = {"steps": steps, "native": False, "uri": repo.uri, "options": dict(location.storage_options)}
    kinds = [native] * WRITERS + [ours] * WRITERS
    reports = race([{**kind, "number": number} for number, kind in enumerate(kinds)], steps)
    repo = ab.open(repo.uri, storage_options=location.storage_options)
    if repo.list_external_writes():
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
    assert repo.list_external_writes() == []
    assert repo.doctor().findings == ()
    counts: dict[str, int] = {}
    for report in reports:
        for what, count in report["counts"].items():
            counts[what] = counts.get(what, 0) + count
    counts["versions"] = seen.version
    record_proof("native writers beside commits", counts, seconds=time.monotonic() - began)


NATIVE: dict[str, Callable[[Any], object]] = {
    "append": lambda native: native.insert(table(50)),
    "delete": lambda native: native.delete("id = 1"),
    "update": lambda native: native.update({"v": "'theirs'"}, where="id = 2"),
    "merge_insert": lambda native: (
        native.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(table(3, 51))
    ),
}


@pytest.mark.parametrize("change", sorted(NATIVE))
def test_native_writer_that_read_an_older_version_succeeds_after_a_commit(lake: ab.Repository, change: str) -> None:
    native: Any = raw(lake)
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.update(ORDERS, {"v": "'ours'"}, where="id = 4")
    NATIVE[change](native)
    seen: Any = raw(lake)
    seen.validate()
    expected = {"append": [1, 2, 3, 4, 50], "delete": [2, 3, 4], "merge_insert": [1, 2, 3, 4, 51]}
    assert sorted(seen.to_table()["id"].to_pylist()) == expected.get(change, [1, 2, 3, 4])
    assert seen.to_table(filter="id = 4")["v"].to_pylist() == ["ours"]


@pytest.mark.parametrize("change", sorted(NATIVE))
def test_native_writer_succeeds_after_a_commit_of_rows_and_an_index(lake: ab.Repository, change: str) -> None:
    lake.index(ORDERS, "id", name="id_idx")
    native: Any = raw(lake)
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.compact(ORDERS)  # builds the index again
    NATIVE[change](native)
    seen: Any = raw(lake)
    seen.validate()
    expected = {"append": [1, 2, 3, 4, 50], "delete": [2, 3, 4], "merge_insert": [1, 2, 3, 4, 51]}
    assert sorted(seen.to_table()["id"].to_pylist()) == expected.get(change, [1, 2, 3, 4])
    assert seen.to_table(filter="id = 4").num_rows == 1


def test_native_index_beside_a_commit_of_rows_and_the_same_index_is_refused(lake: ab.Repository) -> None:
    """With both, Lance calls the table corrupt: two indices of one name on the same fragments."""
    native: Any = raw(lake)
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.index(ORDERS, "id", name="id_idx")
    with pytest.raises(OSError, match="conflict"):
        native.create_scalar_index("id", "BTREE", name="id_idx")
    seen: Any = raw(lake)
    seen.validate()
    assert seen.to_table(filter="id = 4").num_rows == 1
    assert lake.list_external_writes() == []


@pytest.mark.parametrize("change", sorted(NATIVE))
def test_native_writer_is_refused_after_a_revert_of_a_delete(lake: ab.Repository, change: str) -> None:
    """Lance panics if a deletion file is gone that it wants to add to."""
    native: Any = raw(lake)
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 3")
    lake.undo()
    with pytest.raises(OSError, match="Restore"):
        NATIVE[change](native)
    seen: Any = raw(lake)
    seen.validate()
    assert sorted(seen.to_table()["id"].to_pylist()) == [1, 2, 3]
    NATIVE[change](raw(lake))
    lake.adopt(ORDERS)
    assert lake.snapshot()[ORDERS].count_rows() == raw(lake).count_rows()


def test_row_versions_of_plain_readers_are_numbers_of_ordinary_versions(lake: ab.Repository) -> None:
    first = raw(lake).version
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.upsert(ORDERS, table(2, 5, v="new"))
    columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
    found = {row["id"]: (row[columns[1]], row[columns[2]]) for row in raw(lake).to_table(columns=columns).to_pylist()}
    later = first + 1
    assert found == {1: (first, first), 2: (first, later), 3: (first, first), 4: (later, later), 5: (later, later)}


def test_new_empty_table_is_its_first_version(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.create_table("shop.empty", SCHEMA)
    assert raw(lake, "shop.empty").version == 1


def assert_rows(found: Any, expected: dict[int, str]) -> None:
    pairs = list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert sorted(pairs) == sorted(expected.items())


def race(jobs: list[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    """Start the writers, let them do each step at the same time, and return what they report."""
    command = [sys.executable, "-m", "tests.repo.programs.native_race"]
    with ExitStack() as stack:
        pipe = subprocess.PIPE
        started = [
            stack.enter_context(running_program([*command, json.dumps(job)], stdin=pipe, stdout=pipe)) for job in jobs
        ]
        for _ in range(steps):
            for process in started:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            for process in started:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
        answers = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(started)
    return [json.loads(answer) for answer in answers]
