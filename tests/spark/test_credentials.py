"""Credentials are in no plan, no log, no event and no error."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Location
from tests.s3_server import ACCESS_KEY, SECRET_KEY
from tests.spark.clusters import cluster_environment, connect_server

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2]


def collect_output(location: Location, master: str, folder: Path, environment: dict[str, str]) -> str:
    """The whole output of a program with credentials, and of Spark below it."""
    arguments = [master, location / "lake", json.dumps(location.storage_options), str(folder)]
    command = [sys.executable, "-m", "tests.spark.programs.with_secrets", *arguments]
    answer = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr[-3000:] + answer.stdout[-2000:]
    assert answer.stdout.count("FAILED") == (5 if master.startswith("sc:") else 9)
    kept = "\n".join(file.read_text(errors="replace") for file in folder.rglob("*") if is_written(file))
    assert "SparkListenerSQLExecutionStart" in kept
    return answer.stdout + answer.stderr + kept


def is_written(file: Path) -> bool:
    return file.is_file() and file.suffix != ".pth" and "python" not in file.parts


@pytest.mark.proof
def test_spark_shows_no_credentials(s3_location: Location, tmp_path: Path) -> None:
    environment = cluster_environment(sys.executable)
    assert_no_secrets(collect_output(s3_location, "local[2]", tmp_path, environment))


@pytest.mark.proof
def test_spark_connect_shows_no_credentials(s3_location: Location, tmp_path: Path) -> None:
    with connect_server(tmp_path / "cluster") as cluster:
        reported = collect_output(s3_location, cluster.master, cluster.folder, cluster.environment)
    assert_no_secrets(reported)


def assert_no_secrets(reported: str) -> None:
    for secret in (SECRET_KEY, ACCESS_KEY):
        locations = {
            reported[max(0, found.start() - 80) : found.start()] for found in re.finditer(re.escape(secret), reported)
        }
        assert locations == set()
