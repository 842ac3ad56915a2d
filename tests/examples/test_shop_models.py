"""The example project through the command line, from its CSV files to its marts."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.command_line import Answer, invoke

PROJECT = Path(__file__).parents[2] / "examples" / "shop_models"
CHECK = "staging.orders: accepted_values (status)"


def test_guide_shows_the_files_of_the_example() -> None:
    guide = (PROJECT.parents[1] / "docs" / "pipelines.md").read_text()
    assert (PROJECT / "models/staging/orders.sql").read_text() in guide
    assert (PROJECT / "anabranch.yml").read_text() in guide
    listing = guide.partition("shop_models/\n")[2].partition("```")[0]
    files = {str(path.relative_to(PROJECT)) for path in PROJECT.rglob("*") if path.suffix in (".sql", ".yml", ".py")}
    assert {line.split()[0] for line in listing.splitlines()} == files


class Shop:
    """A lake with the raw tables of the example, and the commands on it."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "lake")
        self.repo = ab.init(self.uri, actor="ada", durability="none")
        self.load("customers", table="raw.customers")
        self.load("orders")

    def load(self, file: str, *, table: str = "raw.orders") -> None:
        key = [] if table in self.repo.snapshot_of("main") else ["--primary-key", "id"]
        assert self.anabranch("load", table, str(PROJECT / "data" / f"{file}.csv"), *key).code == 0

    def anabranch(self, *args: str) -> Answer:
        return invoke(*args, "--repo", self.uri)

    def json(self, *args: str) -> Any:
        answer = self.anabranch(*args, "--json")
        assert answer.code == 0, answer.err
        return json.loads(answer.out)

    def rows(self, key: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in self.repo.snapshot_of("main")[key].to_arrow().to_pylist())

    def revenue(self) -> dict[str, float]:
        return {str(day): revenue for day, _, revenue in self.rows("mart.daily_revenue")}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_run_builds_all_models_as_one_commit(shop: Shop) -> None:
    done = shop.json("pipeline", "run", str(PROJECT))
    assert {output["key"]: output["rows"] for output in done["outputs"]} == {
        "staging.customers": 3,
        "staging.orders": 5,
        "mart.customer_value": 3,
        "mart.daily_revenue": 1,
    }
    commit = shop.repo.list_commits("main")[0]
    assert (commit.graph_commit_id, len(commit.tables)) == (done["commit_id"], 4)
    assert len(done["checks"]) == 10
    assert shop.rows("staging.customers")[1] == (2, "Bob", "bob@example.com")
    assert shop.repo.snapshot_of("main")["staging.orders"].primary_key == ("id",)
    assert shop.rows("mart.customer_value") == [(1, 10.5, 2), (2, 27.5, 1), (3, 0.0, 3)]
    assert shop.revenue() == {"2026-01-01": 30.5}
    # The new orders only, and another day beside the first.
    shop.load("late_orders")
    shop.json("pipeline", "run", str(PROJECT), "--param", "day=2026-01-03")
    assert len(shop.rows("staging.orders")) == 7
    assert shop.revenue() == {"2026-01-01": 30.5, "2026-01-03": 19.5}
    (diff,) = shop.repo.diff("main~1", "main", tables=["staging.orders"]).tables
    assert (diff.rows_to_compare, diff.counts.inserted) == (2, 2)
    # Made again from the files of then, which the repository keeps.
    again = shop.json("pipeline", "run", "--reproduce", "main")
    assert (again["same"], again["same_source"]) == (True, True)


def test_failed_check_publishes_nothing_and_hints_to_run_again(shop: Shop) -> None:
    shop.load("bad_orders")
    before = shop.repo.snapshot_of("main").id
    answer = shop.anabranch("pipeline", "run", str(PROJECT))
    assert answer.code == 10
    file = re.escape(str(PROJECT / "models/staging/orders.sql"))
    assert re.search(rf"error: {file}:7: the check '{re.escape(CHECK)}' found rows, such as", answer.err)
    assert "hint: correct the data, the model or the check, and run again; nothing was published" in answer.err
    assert shop.repo.snapshot_of("main").id == before
    assert "staging.orders" not in shop.repo.snapshot_of("main")
    # After the data is corrected, the same command publishes.
    with shop.repo.transaction() as tx:
        tx.delete("raw.orders", "id = 8")
    assert shop.anabranch("pipeline", "run", str(PROJECT)).code == 0


def test_plan_draws_the_graph(shop: Shop, tmp_path: Path) -> None:
    before = shop.repo.snapshot_of("main").id
    svg = tmp_path / "graph.svg"
    answer = shop.anabranch("pipeline", "plan", str(PROJECT), "--svg", str(svg))
    assert (
        """
raw.customers
└─ staging.customers  sql, rebuild, duckdb
   └─ mart.customer_value  python, rebuild, duckdb
raw.orders
└─ staging.orders  sql, upsert, duckdb
   ├─ mart.customer_value  (see above)
   └─ mart.daily_revenue  sql, upsert, duckdb
"""
        in answer.out
    )
    drawing = svg.read_text()
    assert drawing.startswith("<svg ")
    assert drawing.count('class="box"') == 6
    assert drawing.count('<path class="edge read"') == 5
    found = shop.json("pipeline", "plan", str(PROJECT), "--select", "+daily_revenue", "--select", "customers")
    assert [step["output"] for step in found["steps"]] == ["staging.customers", "staging.orders", "mart.daily_revenue"]
    assert found["edges"] == [
        {"from": "raw.customers", "to": "staging.customers"},
        {"from": "raw.orders", "to": "staging.orders"},
        {"from": "staging.orders", "to": "mart.daily_revenue"},
    ]
    # A check that reads a table that is not there cannot be left out.
    refused = shop.anabranch("pipeline", "plan", str(PROJECT), "--select", "+daily_revenue")
    assert "reads 'staging.customers', which is neither selected nor a table of the branch" in refused.err
    assert "hint: select 'staging.customers', too" in refused.err
    assert shop.repo.snapshot_of("main").id == before
    assert not shop.repo.run_list()


def test_changed_models_are_selected(shop: Shop) -> None:
    def changed(*more: str, select: str = "state:changed") -> list[str]:
        found = shop.json("pipeline", "plan", str(PROJECT), "--select", select, *more)
        return [step["output"] for step in found["steps"]]

    assert len(changed()) == 4
    shop.json("pipeline", "run", str(PROJECT))
    assert changed() == []
    shop.repo.tag_create("built", ref="main")
    shop.load("late_orders")
    assert changed() == ["staging.orders"]
    assert changed(select="state:changed+") == ["staging.orders", "mart.customer_value", "mart.daily_revenue"]
    shop.json("pipeline", "run", str(PROJECT), "--select", "state:changed+", "--exclude", "mart.customer_value")
    assert changed() == ["mart.customer_value"]
    assert changed("--since", "built") == ["staging.orders", "mart.customer_value", "mart.daily_revenue"]


def test_backfill_builds_each_day_as_one_commit(shop: Shop) -> None:
    shop.load("late_orders")
    shop.json("pipeline", "run", str(PROJECT))
    range_ = ("day", "--start", "2026-01-01", "--end", "2026-01-04", "--select", "daily_revenue")
    done = shop.json("pipeline", "backfill", str(PROJECT), *range_)
    assert len(done["commits"]) == 4
    assert shop.revenue() == {"2026-01-01": 30.5, "2026-01-02": 5.0, "2026-01-03": 19.5, "2026-01-04": 30.0}
    newest = shop.repo.list_commits("main")[:4]
    assert [commit.graph_commit_id for commit in reversed(newest)] == done["commits"]
    assert newest[0].message == "Run the pipeline shop_models for day=2026-01-04"
    answer = shop.anabranch("pipeline", "backfill", str(PROJECT), *range_)
    assert "4 values had been built before" in answer.out
    assert shop.repo.snapshot_of("main").id == done["commits"][-1]


def test_project_on_duckdb_does_not_import_spark(shop: Shop) -> None:
    script = f"""
import sys
import anabranch as ab
done = ab.Pipeline.load({str(PROJECT)!r}).run(ab.open({shop.uri!r}, actor="ada"))
print(len(done.outputs), "pyspark" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["4", "False"]
