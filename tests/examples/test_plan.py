"""The shop's pipeline as it is declared; no Spark is started."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch as ab

SHOP = Path(__file__).parents[2] / "examples" / "shop"


@pytest.fixture
def repo(tmp_path: Path) -> ab.Repository:
    """A lake with the files of a small shop."""
    files = tmp_path / "files"
    command = [sys.executable, str(SHOP / "generate.py"), "--orders", "50", "--out", str(files)]
    subprocess.run(command, check=True, capture_output=True)
    repo = ab.init(tmp_path / "lake", actor="ada")
    for name in ("customers.csv", "products.csv", "orders", "events"):
        repo.load(f"bronze.{name.partition('.')[0]}", str(files / name), primary_key=["id"])
    return repo


def test_five_tables_are_planned_each_after_what_it_reads(repo: ab.Repository) -> None:
    plan = ab.Pipeline.load(SHOP / "pipeline.py").plan(repo, parameters={"min_orders": "5"})
    after = {step.key: set(step.after) for step in plan.steps}
    assert after == {
        "silver.customers": set(),
        "silver.orders": set(),
        "gold.daily_revenue": {"silver.orders"},
        "gold.customer_value": {"silver.orders", "silver.customers"},
        "gold.product_ranking": {"silver.orders"},
    }
    assert plan.parameters["min_orders"] == 5
    assert len(plan.checks) == 3
    assert set(repo.snapshot_of("main")) == {"bronze.customers", "bronze.events", "bronze.orders", "bronze.products"}


def test_vectors_and_money_arrive_as_what_they_are(repo: ab.Repository) -> None:
    tables = repo.snapshot()
    assert str(tables["bronze.events"].schema.field("embedding").type).endswith("float>[16]")
    assert str(tables["bronze.orders"].schema.field("unit_price").type) == "decimal128(10, 2)"


def test_the_readme_describes_every_output() -> None:
    text = (SHOP / "README.md").read_text(encoding="utf-8")
    reported = re.findall(r"^\| `(\w+\.\w+)` \| ([^|]+) \| (\w+)", text, re.MULTILINE)
    words = {"rebuild": "rebuilt", "append": "appended", "upsert": "upserted"}
    by = {"sql": "SQL", "python": "a function"}
    outputs = ab.Pipeline.load(SHOP / "pipeline.py").outputs.values()
    assert sorted(reported) == sorted((output.key, by[output.kind], words[output.write]) for output in outputs)
