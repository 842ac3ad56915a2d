"""A stream whose driver is killed, JVM and all, and started again: no row is lost and none comes twice."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.processes import ROOT, run_until_killed
from tests.spark.clusters import cluster_environment
from tests.spark.feeds import STREAMED, add_file, batches, ids
from tests.spark.programs.stream_and_die import POINTS

pytestmark = pytest.mark.spark

ROWS = 4
# A JVM that lives for seconds has no use for code that is compiled for years.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Stream:
    """A stream in a process of its own, from a folder into a table that has no key, so that repeats are not refused."""

    repo: ab.Repository
    folder: Path
    options: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        subprocess.run(self._command(""), check=True, **self._options)

    def kill(self, epoch: int, point: str) -> None:
        """Run until a batch is at a point, and kill it there."""
        # The driver, the JVM and its workers have the output open, so that this waits for all of them.
        run_until_killed(self._command(json.dumps({"epoch": epoch, "point": point})), **self._options)

    def _command(self, death: str) -> list[str]:
        arguments = [self.repo.uri, str(self.folder / "feed"), str(self.folder / "checkpoint")]
        program = [sys.executable, "-m", "tests.spark.programs.stream_and_die"]
        return [*program, *arguments, json.dumps(self.options), death]

    @property
    def _options(self) -> dict[str, Any]:
        environment = cluster_environment(sys.executable) | {"PYTHONPATH": str(ROOT)}
        return {"cwd": ROOT, "env": environment | {"JAVA_TOOL_OPTIONS": SHORT_LIVED}, "start_new_session": True}


def stream_of(folder: Path, files: int, **options: str) -> Stream:
    (folder / "feed").mkdir()
    for start in range(0, files * ROWS, ROWS):
        add_file(folder / "feed", *range(start, start + ROWS))
    return Stream(repo=ab.init(folder / "lake"), folder=folder, options=options)


def noted(stream: Stream) -> list[int]:
    """The batches of which Spark knows that they are published."""
    return sorted(int(file.name) for file in (stream.folder / "checkpoint" / "commits").glob("[0-9]*"))


def check(stream: Stream, files: int) -> None:
    """Each file is one commit, and each row is there once."""
    assert ids(stream.repo) == list(range(files * ROWS))
    assert [epoch for _, epoch in batches(stream.repo)] == [str(number) for number in range(files)]
    assert len({query for query, _ in batches(stream.repo)}) == 1
    assert noted(stream) == list(range(files))


@pytest.mark.proof
def test_a_stream_killed_before_and_after_it_publishes_repeats_nothing(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, 3)
    stream.kill(0, "after put_if_absent _commits")
    assert (noted(stream), batches(stream.repo)) == ([], [])
    stream.kill(1, "after put_if_absent _versions")
    assert (noted(stream), ids(stream.repo)) == ([0], list(range(2 * ROWS)))  # published, and Spark does not know
    stream.run()
    check(stream, 3)


@pytest.mark.proof
@pytest.mark.parametrize("options", [{}, {"primaryKey": "id", "upsert": "true"}])
def test_a_stream_killed_ten_times_loses_and_repeats_no_row(tmp_path: Path, options: dict[str, str]) -> None:
    stream = stream_of(tmp_path, 12, **options)
    deaths = [POINTS[index] for index in (4, 0, 5, 1, 4, 2, 4, 3, 5, 4)]
    for epoch, point in enumerate(deaths):
        stream.kill(epoch, point)
        is_published = POINTS.index(point) >= POINTS.index("after put_if_absent _versions")
        assert noted(stream) == list(range(epoch))
        assert len(batches(stream.repo)) == epoch + is_published
    stream.run()
    check(stream, 12)
    assert stream.repo.snapshot_of("main")[STREAMED].primary_key == (("id",) if options else ())
