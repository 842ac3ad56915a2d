"""Ready-made checks: each passes on good rows, fails on bad ones by name, and blocks the publish."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import CheckFailedError, InvalidExpressionError

NOW = datetime.now(UTC).replace(tzinfo=None)
ROWS = pa.table(
    {
        "id": [1, 2, 3, None],
        "status": ["paid", "it's", None, "paid"],
        "customer": pa.array([0, 1, 2, None], pa.int64()),
        "at": pa.array([NOW - timedelta(hours=5), NOW - timedelta(days=3), None, None], pa.timestamp("us")),
        "day": pa.array([(NOW - timedelta(days=2)).date(), None, None, None]),
    }
)
CUSTOMER = {"column": "customer", "to": "bronze.customers", "field": "id"}
STATUS = {"column": "status", "values": ["paid", "it's"]}
PASSING: list[dict[str, Any]] = [
    {"unique": "id"},
    {"unique": ["status", "id"]},
    {"accepted_values": STATUS},
    {"accepted_values": {"column": "id", "values": [1, 2, 3]}},
    {"relations": CUSTOMER},
    {"relations": {"column": ["customer", "id"], "to": "gold.rows"}},
    {"relations": {"column": "id", "to": "gold.rows"}},
    {"row_count": {"min": 4, "max": 4}},
    {"freshness": {"column": "at", "within": "6 hours"}},
    {"freshness": {"column": "day", "within": "2 Weeks"}},
]
FAILING: list[tuple[dict[str, Any], str]] = [
    ({"unique": "status"}, r"'gold.rows: unique \(status\)' found rows, such as {'status': 'paid', 'rows': 2}"),
    ({"not_null": ["status", "id"]}, r"'gold.rows: not_null \(status\)' found rows"),
    ({"not_null": "id"}, r"'gold.rows: not_null \(id\)' found rows"),
    (
        {"accepted_values": {"column": "status", "values": ["paid"]}},
        r"'gold.rows: accepted_values \(status\)' found rows, such as {'status': \"it's\", 'rows': 1}",
    ),
    (
        {"relations": {**CUSTOMER, "column": "id"}},
        r"'gold.rows: relations \(id to bronze.customers\)' found rows, such as {'id': 3, 'rows': 1}",
    ),
    ({"row_count": {"min": 5}}, r"'gold.rows: row_count \(min 5\)' found rows, such as {'rows': 4}"),
    ({"row_count": {"max": 3}}, r"'gold.rows: row_count \(max 3\)' found rows"),
    ({"freshness": {"column": "at", "within": "240 minutes"}}, r"'gold.rows: freshness \(at within 240 minutes\)'"),
    ({"freshness": {"column": "day", "within": "1 day"}}, r"'gold.rows: freshness \(day within 1 day\)'"),
]


def pipeline_with(*checks: dict[str, Any], rows: pa.Table = ROWS) -> ab.Pipeline:
    pipeline = ab.Pipeline("checked", engine="duckdb")
    pipeline.table("gold.rows", checks=checks)(lambda: rows)
    return pipeline


def test_good_rows_pass(lake: ab.Repository) -> None:
    done = pipeline_with(*PASSING).run(lake)
    assert len(done.checks) == len(PASSING)
    assert lake.snapshot_of("main")["gold.rows"].count_rows() == 4


def test_bad_rows_block_the_publish(lake: ab.Repository) -> None:
    before = lake.snapshot_of("main").id
    for check, problem in FAILING:
        with pytest.raises(CheckFailedError, match=rf"test_ready_checks.py:\d+: the check {problem}") as caught:
            pipeline_with(check).run(lake)
        assert caught.value.hint.startswith("correct the data, the model or the check, and run again")
    # A table without rows is not fresh.
    with pytest.raises(CheckFailedError, match="freshness"):
        pipeline_with({"freshness": {"column": "at", "within": "1 week"}}, rows=ROWS.slice(0, 0)).run(lake)
    assert lake.snapshot_of("main").id == before
    assert {run.state.value for run in lake.run_list()} == {"failed"}


def test_check_of_missing_column_is_named(lake: ab.Repository) -> None:
    with pytest.raises(InvalidExpressionError, match=r"the check 'gold.rows: not_null \(none\)' cannot be run"):
        pipeline_with({"not_null": "none"}).run(lake)
    assert "gold.rows" not in lake.snapshot_of("main")


def test_names_in_checks_are_quoted(lake: ab.Repository) -> None:
    rows = pa.table({'a"; DROP': [1, 2], "select": ["x'y", "--"]})
    values = {"column": "select", "values": ["x'y", "--"]}
    pipeline_with({"unique": 'a"; DROP'}, {"not_null": ["select"]}, {"accepted_values": values}, rows=rows).run(lake)
    assert lake.snapshot_of("main")["gold.rows"].count_rows() == 2
