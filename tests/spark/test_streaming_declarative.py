"""The example of a declarative pipeline, run by Spark's own command as in its README."""

import json
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import anabranch as ab
from tests.spark.clusters import SPARK_HOME, cluster_environment

pytestmark = [pytest.mark.spark, pytest.mark.proof]

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
KEY = "shop.orders"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of the example that keeps its checkpoints beside it."""
    folder = tmp_path / "declarative"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("lake", "__pycache__", "spark-warehouse"))
    spec = folder / "spark-pipeline.yml"
    lines = [
        f"storage: file://{tmp_path}/storage" if line.startswith("storage:") else line
        for line in spec.read_text().splitlines()
    ]
    spec.write_text("\n".join(lines))
    return folder


def run(folder: Path) -> None:
    answer = subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-pipelines"), "run"],
        cwd=folder,
        env=cluster_environment(sys.executable),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-5000:]


def test_each_run_commits_what_no_earlier_one_has_seen(example: Path) -> None:
    repo = ab.init(example / "lake")
    repo.branch_create("dev")
    run(example)
    found = repo.snapshot_of("dev")[KEY]
    assert found.primary_key == ("id",)
    rows = found.to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["customer"], row["amount"]) for row in rows] == [
        (1, "ada", Decimal("19.90")),
        (2, "bob", Decimal("7.25")),
    ]
    assert KEY not in repo.snapshot_of("main")
    later = {"id": 2, "customer": "bob", "amount": 8, "ordered_at": "2026-11-17T09:40:00Z"}
    (example / "arrived" / "tuesday.json").write_text(json.dumps(later))
    run(example)
    assert [row["amount"] for row in repo.snapshot_of("dev")[KEY].to_arrow().sort_by("id").to_pylist()] == [
        Decimal("19.90"),
        Decimal("8.00"),
    ]
    commits = repo.list_commits("dev")[:2]
    assert [commit.metadata["stream.epoch"] for commit in commits] == ["1", "0"]
    assert {commit.message for commit in commits} == {"Orders that arrived"}
