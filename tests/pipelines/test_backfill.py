"""Backfills: one commit for each value of a parameter, continued by the same call."""

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import CheckFailedError, InvalidInputError, InvalidPipelineError, MergeConflictError
from anabranch.types import BackfillProgress, StepProgress
from tests.command_line import invoke
from tests.pipelines.conftest import ORDERS, WriteProject
from tests.processes import run_until_killed

PROJECT = """
    name: days
    engine: duckdb
    parameters:
      day: {type: date}
      least: 0
      text: a
"""
MODEL = """
    -- ---
    -- key: day
    -- write: upsert
    -- checks:
    --   - row_count: {max: 3}
    -- ---
    SELECT CAST($day AS DATE) AS day, count(*) AS n
    FROM bronze.orders
    WHERE day = CAST($day AS VARCHAR) AND id >= $least
"""
RANGE: dict[str, Any] = {"start": date(2026, 1, 1), "end": "2026-01-05"}


@pytest.fixture
def project(write_project: WriteProject) -> Path:
    return write_project({"anabranch.yml": PROJECT, "models/gold/days.sql": MODEL})


def days(repo: ab.Repository) -> list[str]:
    if "gold.days" not in repo.snapshot_of("dev"):
        return []
    return sorted(str(day) for day in repo.snapshot_of("dev")["gold.days"].to_arrow()["day"].to_pylist())


def test_backfill_continues_where_it_stopped(lake: ab.Repository, project: Path) -> None:
    """The check allows three days. When it is corrected, the same call builds the rest, and the next call nothing."""
    with pytest.raises(CheckFailedError, match=r"stopped at day=2026-01-04 \(4 of 5\): .*row_count") as caught:
        ab.Pipeline.load(project).backfill(lake, "day", branch="dev", **RANGE)
    assert caught.value.hint.endswith("the same command continues there")
    assert days(lake) == ["2026-01-01", "2026-01-02", "2026-01-03"]
    model = project / "models/gold/days.sql"
    model.write_text(model.read_text().replace("max: 3", "max: 9"))
    seen: list[ab.Progress] = []
    done = ab.Pipeline.load(project).backfill(lake, "day", branch="dev", progress=seen.append, **RANGE)
    assert [str(value) for value in done.skipped] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    values = [each for each in seen if isinstance(each, BackfillProgress)]
    assert [each.run is None for each in values] == [True, True, True, False, False]
    assert [(each.stage, each.done, each.total) for each in values] == [("values", n, 5) for n in range(1, 6)]
    # The outputs of a value are reported before the value.
    steps = [each.table if isinstance(each, StepProgress) else each.stage for each in seen]
    assert steps == ["values"] * 3 + ["gold.days", "gold.days", "values"] * 2
    assert len(days(lake)) == 5
    head = lake.snapshot_of("dev").id
    assert head == done.runs[-1].commit_id
    assert not ab.Pipeline.load(project).backfill(lake, "day", branch="dev", **RANGE).runs
    assert lake.snapshot_of("dev").id == head
    # Another range is another backfill, and so are other values of the other parameters.
    pipeline = ab.Pipeline.load(project)
    other = pipeline.backfill(lake, "day", start="2026-01-01", end="2026-01-02", branch="dev")
    assert len(other.runs) == 2
    assert len(pipeline.backfill(lake, "day", branch="dev", parameters={"least": 9}, **RANGE).runs) == 5
    assert len(pipeline.backfill(lake, "day", branch="dev", again=True, **RANGE).runs) == 5
    assert not pipeline.backfill(lake, "day", branch="dev", **RANGE).runs
    # A branch that is reset to before the last values builds them again.
    lake.reset("dev", to="dev~2")
    assert len(pipeline.backfill(lake, "day", branch="dev", **RANGE).runs) == 2


@pytest.mark.parametrize(
    ("parameter", "start", "end", "step", "found"),
    [
        ("day", "2026-01-30", "2026-02-01", None, ["2026-01-30", "2026-01-31", "2026-02-01"]),
        ("day", "2026-01-01", "2026-01-20", "1w", ["2026-01-01", "2026-01-08", "2026-01-15"]),
        ("day", "2025-12-31", "2026-03-31", "1m", ["2025-12-31", "2026-01-31", "2026-02-28", "2026-03-31"]),
        ("day", "9999-12-30", "9999-12-31", "5d", ["9999-12-30"]),
        ("least", "1", 7, 3, ["1", "4", "7"]),
    ],
)
def test_values_of_a_range(
    lake: ab.Repository, project: Path, parameter: str, start: Any, end: Any, step: Any, found: list[str]
) -> None:
    more = {} if parameter == "day" else {"day": "2026-01-01"}
    model = project / "models/gold/days.sql"
    model.write_text(model.read_text().replace("max: 3", "max: 9"))
    done = ab.Pipeline.load(project).backfill(
        lake, parameter, start=start, end=end, step=step, parameters=more, branch="dev"
    )
    assert [str(value) for value in done.values] == found


@pytest.mark.parametrize(
    ("parameter", "options", "problem"),
    [
        ("week", RANGE, "the pipeline has no parameter 'week'"),
        ("text", {**RANGE, "parameters": {"day": "2026-01-01"}}, "the parameter 'text' is not a date or an int"),
        ("day", {"start": "soon", "end": "2026-01-05"}, "the parameter 'day' is 'soon'"),
        ("day", {"start": "2026-01-05", "end": "2026-01-01"}, "ends at 2026-01-01, before it starts at 2026-01-05"),
        ("day", {**RANGE, "step": "0d"}, "the step is '0d'"),
        ("day", {**RANGE, "step": "1y"}, "the step is '1y'"),
        ("least", {"start": 1, "end": 2, "step": "1d", "parameters": {"day": "2026-01-01"}}, "the step is '1d'"),
        ("day", {"start": "1900-01-01", "end": "2026-01-01"}, "more than 10,000 values"),
        ("day", {**RANGE, "parameters": {"day": "2026-01-01"}}, "has a value besides its range"),
        ("least", {"start": 1, "end": 2}, "the parameter 'day' has no value"),
    ],
)
def test_bad_range_is_refused(
    lake: ab.Repository, project: Path, parameter: str, options: dict[str, Any], problem: str
) -> None:
    before = lake.snapshot_of("dev").id
    with pytest.raises((InvalidInputError, InvalidPipelineError), match=problem) as caught:
        ab.Pipeline.load(project).backfill(lake, parameter, branch="dev", **options)
    assert caught.value.hint
    assert lake.snapshot_of("dev").id == before
    assert not lake.run_list()


def test_conflict_of_a_value_is_reported_with_its_rows(lake: ab.Repository, project: Path) -> None:
    """Another writer changes the row of a value while the value is built."""
    pipeline = ab.Pipeline.load(project)
    pipeline.backfill(lake, "day", branch="dev", start="2026-01-01", end="2026-01-01")

    def interfere(progress: ab.Progress) -> None:
        if isinstance(progress, StepProgress) and progress.done == 0:
            lake.update("gold.days", {"n": "n + 100"}, where="true", branch="dev")

    with pytest.raises(MergeConflictError, match=r"stopped at day=2026-01-01 \(1 of 1\)") as caught:
        pipeline.backfill(
            lake, "day", branch="dev", parameters={"least": 9}, progress=interfere, start="2026-01-01", end="2026-01-01"
        )
    assert caught.value.hint.endswith("the same command continues there")
    assert caught.value.count == len(caught.value.conflicts) == 1


def test_command_names_the_values_and_the_failure(lake: ab.Repository, project: Path) -> None:
    command = (
        "pipeline",
        "backfill",
        str(project),
        "day",
        "--start",
        "2026-01-01",
        "--end",
        "2026-01-05",
        "--branch",
        "dev",
    )
    answer = invoke(*command, "--repo", lake.uri)
    assert answer.code == 10
    assert "[3/5] 2026-01-03: 01" in answer.err
    assert "error: the backfill stopped at day=2026-01-04 (4 of 5): " in answer.err
    with lake.transaction("dev") as tx:
        tx.delete(ORDERS, "day = '2026-01-04'")
    again = invoke(*command, "--repo", lake.uri)
    assert "[3/5] 2026-01-03: done before" in again.err
    assert again.code == 10


KILLER = """
    # ---
    # key: day
    # write: upsert
    # ---
    import os
    import signal
    from pathlib import Path

    import pyarrow as pa

    def model(*, day):
        marker = Path(__file__).with_suffix(".killed")
        if day.day == 3 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return pa.table({"day": [day]})
"""


def test_killed_backfill_is_continued(lake: ab.Repository, write_project: WriteProject) -> None:
    folder = write_project({"anabranch.yml": PROJECT, "models/gold/days.py": KILLER})
    command = [
        sys.executable,
        "-m",
        "anabranch.cli.main",
        "pipeline",
        "backfill",
        str(folder),
        "day",
        "--branch",
        "dev",
    ]
    command += ["--start", "2026-01-01", "--end", "2026-01-04", "--repo", lake.uri]
    run_until_killed(command)
    assert days(lake) == ["2026-01-01", "2026-01-02"]
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ran days on dev for 2 values of day; 2 values had been built before" in again.stdout
    assert days(lake) == ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]
