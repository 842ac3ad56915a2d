"""`anabranch lineage`, and what `show` and `table history` show of pipelines."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, orders, short
from tests.conftest import Location

REVENUE = "out_c_sales.revenue"
HASH = "0123456789abcdef" * 4


@pytest.fixture
def made(lake: ab.Repository) -> ab.GraphCommit:
    """A commit of a pipeline, on top of the lake."""
    outputs = {
        REVENUE: {
            "inputs": [ORDERS, CUSTOMERS],
            "write": "upsert",
            "rows": 3,
            "seconds": 1.25,
            "kind": "sql",
        }
    }
    metadata = {
        "pipeline": "shop",
        "pipeline.file": "shop.py",
        "pipeline.source_hash": HASH,
        "pipeline.parameters": json.dumps({"since": "2026-01-01", "min_orders": 3}),
        "pipeline.input": lake.snapshot().id,
        "pipeline.outputs": json.dumps(outputs),
        "ticket": "T-7",
    }
    with lake.transaction(message="Run shop", metadata=metadata) as tx:
        tx.create_table(REVENUE, orders().schema, primary_key=["id"])
        tx.append(REVENUE, orders())
    assert tx.published is not None
    return tx.published


@pytest.mark.s3
def test_people_read_a_tree(cli: Run, made: ab.GraphCommit) -> None:
    lines = [line.partition(" · ")[0] for line in cli("lineage", REVENUE).out.splitlines()]
    assert lines == [
        f"{REVENUE}  3 rows",
        "└─ shop  pipeline, upsert",
        f"   ├─ {ORDERS}  3 rows",
        "   │  └─ load  Load orders",
        f"   └─ {CUSTOMERS}  0 rows",
        "      └─ change  Add customers",
    ]


def test_programs_read_the_graph(cli: Run, lake: ab.Repository, made: ab.GraphCommit) -> None:
    assert cli("lineage", REVENUE, "--json").document == lake.lineage(REVENUE).to_dict()
    assert cli("lineage", ORDERS, "--ref", "dev", "--json").document == lake.lineage(ORDERS, "dev").to_dict()


def test_the_current_branch_is_meant(cli: Run, made: ab.GraphCommit) -> None:
    cli("switch", "dev")
    assert cli("lineage", REVENUE, "--json").error["code"] == "table_not_found"
    assert cli("lineage", REVENUE).code == 3
    assert "Fix a price" in cli("lineage", ORDERS).out


def test_a_drawing_is_written_to_a_file(cli: Run, lake: ab.Repository, made: ab.GraphCommit, folder: Path) -> None:
    answer = cli("lineage", REVENUE, "--svg", "revenue.svg")
    assert (answer.code, answer.out) == (0, f"drew the lineage of {REVENUE} into revenue.svg\n")
    text = (folder / "revenue.svg").read_text(encoding="utf-8")
    assert text == lake.lineage(REVENUE).to_svg()
    ElementTree.fromstring(text)  # noqa: S314 - our own text
    document = cli("lineage", REVENUE, "--svg", "deeper/down/revenue.svg", "--json").document
    assert document == {**lake.lineage(REVENUE).to_dict(), "svg": "deeper/down/revenue.svg"}
    assert (folder / "deeper" / "down" / "revenue.svg").read_text(encoding="utf-8") == text


@pytest.mark.s3
def test_drawing_may_be_outside_the_repository(cli: Run, made: ab.GraphCommit, location: Location) -> None:
    assert cli("lineage", REVENUE, "--svg", location / "drawn.svg").code == 0
    from anabranch.storage import open_store

    assert open_store(location.root, location.storage_options).get("drawn.svg").startswith(b"<svg ")


def test_a_location_that_cannot_be_written_is_an_error(cli: Run, made: ab.GraphCommit, folder: Path) -> None:
    (folder / "file").write_text("")
    answer = cli("lineage", REVENUE, "--svg", "file/revenue.svg")
    assert (answer.code != 0, answer.out) == (True, "")
    assert "Traceback" not in answer.err


def test_what_others_wrote_cannot_steer_the_terminal(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction(metadata={"pipeline": "\x1b[2J\x07gone", "pipeline.parameters": '{"\\u001b[2J": 1}'}) as tx:
        tx.append(CUSTOMERS, pa.table({"name": ["Ada"]}))
    for command in (["lineage", CUSTOMERS], ["show"], ["table", "history", CUSTOMERS]):
        text = cli(*command).out
        assert "\\x1b[2J" in text
        assert "\x1b" not in text


def test_show_names_the_pipeline_of_a_commit(cli: Run, lake: ab.Repository, made: ab.GraphCommit) -> None:
    lines = [line.split() for line in cli("show").out.splitlines()]
    for expected in (
        ["pipeline", "shop"],
        ["source", "shop.py", f"({HASH[:12]})"],
        ["parameter", "since", "2026-01-01"],
        ["parameter", "min_orders", "3"],
        ["inputs", "read", "at", short(lake, "main~1")],
        ["metadata", "ticket", "T-7"],
        [REVENUE, "upsert", "sql", f"{ORDERS},", CUSTOMERS, "3", "1.25"],
    ):
        assert expected in lines
    assert not any(line[:2] == ["metadata", "pipeline"] for line in lines)
    assert cli("show", "--json").document["pipeline"] == {
        "name": "shop",
        "file": "shop.py",
        "source_hash": HASH,
        "parameters": {"since": "2026-01-01", "min_orders": 3},
        "input": lake.snapshot_of("main~1").id,
        "outputs": [
            {
                "table": REVENUE,
                "inputs": [ORDERS, CUSTOMERS],
                "write": "upsert",
                "kind": "sql",
                "rows": 3,
                "seconds": 1.25,
                "code_hash": None,
            }
        ],
    }


@pytest.mark.parametrize("outputs", ["{", "[]", '{"a.b": {"rows": "many", "inputs": 7}}'])
def test_a_commit_with_odd_metadata_is_shown_all_the_same(cli: Run, lake: ab.Repository, outputs: str) -> None:
    with lake.transaction(metadata={"pipeline": "p", "pipeline.outputs": outputs}) as tx:
        tx.append(CUSTOMERS, pa.table({"name": ["Ada"]}))
    assert ["pipeline", "p"] in [line.split() for line in cli("show").out.splitlines()]
    shown = cli("show", "--json").document["pipeline"]
    assert (shown["name"], shown["input"], shown["parameters"]) == ("p", None, {})


def test_the_history_of_a_table_shows_what_made_it(cli: Run, lake: ab.Repository, made: ab.GraphCommit) -> None:
    with lake.transaction(message="By hand") as tx:
        tx.delete(REVENUE, "id = 1")
    found = cli("table", "history", REVENUE, "--json").document["commits"]
    assert [commit["made_by"] for commit in found] == ["change", "pipeline shop"]
    (loaded,) = cli("table", "history", ORDERS, "--json").document["commits"]
    assert loaded["made_by"] == "load"
    text = cli("table", "history", REVENUE).out
    assert "made by" in text.splitlines()[0]
    assert "pipeline shop" in text
