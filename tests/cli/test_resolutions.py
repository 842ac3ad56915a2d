"""`--resolutions` of `anabranch merge` and `anabranch conflicts`."""

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, Run
from tests.cli.merging import contest, heads


@pytest.fixture
def contested(lake: ab.Repository) -> ab.Repository:
    """A lake in which both sides changed the price of order 1, and one side deleted a row that the other changed."""
    contest(lake)
    return lake


def test_printed_conflicts_with_decisions_are_merged(cli: Run, contested: ab.Repository, tmp_path: Path) -> None:
    document = cli("conflicts", "dev", "--json").document
    for conflict in document["conflicts"]:
        conflict["take"] = "source"
    file = tmp_path / "decided.json"
    file.write_text(json.dumps(document))
    assert cli("conflicts", "dev", "--resolutions", str(file), "--json").document["conflicts"] == []
    assert cli("merge", "dev", "--resolutions", str(file)).code == 0
    assert contested.entity_at(ORDERS, 1) == {**(contested.entity_at(ORDERS, 1) or {}), "price": 1.7}


def test_key_of_a_csv_file_that_is_not_json_is_named_with_its_line(
    cli: Run, contested: ab.Repository, tmp_path: Path
) -> None:
    before = heads(contested)
    file = tmp_path / "decided.csv"
    file.write_text(f'table,key,column,take\n{ORDERS},"{{""id"": 1}}",price,source\n{ORDERS},id=2,price,source\n')
    done = cli("merge", "dev", "--resolutions", str(file))
    assert done.err.splitlines()[0].startswith("error: the key in line 3 of ")
    assert done.err.endswith("is not JSON: 'id=2'\nhint: write it as an object, such as {\"id\": 1}\n")
    assert heads(contested) == before


def test_conflicts_are_decided_by_a_csv_file(cli: Run, contested: ab.Repository, tmp_path: Path) -> None:
    deleted = next(one for one in contested.conflicts("dev") if one.column is None)
    file = tmp_path / "decided.csv"
    file.write_text(
        "table,key,column,take,value\n"
        f'{ORDERS},"{{""id"": 1}}",price,,9.25\n'
        f'{ORDERS},"{{""id"": {(deleted.key or {})["id"]}}}",,target,\n'
    )
    assert cli("merge", "dev", "--resolutions", str(file)).code == 0
    assert (contested.entity_at(ORDERS, 1) or {})["price"] == 9.25


def test_whole_row_is_json_in_a_csv_file(cli: Run, contested: ab.Repository, tmp_path: Path) -> None:
    deleted = next(one for one in contested.conflicts("dev") if one.column is None)
    number = (deleted.key or {})["id"]
    row = json.dumps({"id": number, "price": 3.5}).replace('"', '""')
    file = tmp_path / "decided.csv"
    file.write_text(f'table,key,value\n{ORDERS},"{{""id"": {number}}}","{row}"\n')
    assert cli("merge", "dev", "--resolutions", str(file), "--strategy", "target").code == 0
    assert (contested.entity_at(ORDERS, number) or {})["price"] == 3.5


@pytest.mark.parametrize(
    ("args", "by"), [(["cherry-pick", "dev"], "cherry-pick"), (["rebase", "main", "--branch", "dev"], "rebase")]
)
def test_conflicts_of_other_operations_are_listed_and_decided(
    cli: Run, contested: ab.Repository, tmp_path: Path, args: list[str], by: str
) -> None:
    document: dict[str, Any] = {"conflicts": []}
    for _ in range(2):  # of a rebase, the conflicts of the next commit are listed when those of the first are decided
        file = tmp_path / "decided.json"
        file.write_text(json.dumps(document))
        found = cli("conflicts", "dev", "--by", by, "--resolutions", str(file), "--json").document["conflicts"]
        document["conflicts"] += [{**one, "take": "source"} for one in found]
    assert document["conflicts"]
    file.write_text(json.dumps(document))
    assert cli(*args).code == 9
    assert cli(*args, "--resolutions", str(file)).code == 0
    branch = "dev" if by == "rebase" else "main"
    assert (contested.entity_at(ORDERS, 1, ref=branch) or {})["price"] == 1.7


def test_decisions_are_kept_listed_and_cleared(cli: Run, contested: ab.Repository, tmp_path: Path) -> None:
    file = tmp_path / "decided.json"
    file.write_text(json.dumps([{"table": ORDERS, "key": {"id": 1}, "column": "price", "take": "source"}]))
    assert cli("merge", "dev", "--resolutions", str(file), "--keep-decisions").code == 9
    (kept,) = cli("decisions", "dev", "--json").document["decisions"]
    assert (kept["key"], kept["take"], kept["source"], kept["target"]) == ({"id": 1}, "source", 1.7, 1.6)
    assert "1 decision kept for merges of dev into main" in cli("decisions", "dev", "--into", "main").out
    assert "take source" in cli("conflicts", "dev", "--include-decided").out
    assert cli("decisions", "dev", "--clear").out.splitlines() == ["deleted 1 decision"]
    assert cli("decisions", "dev", "--json").document["decisions"] == []
    assert contested.decision_list("dev") == []


def test_line_without_a_decision_decides_nothing(cli: Run, contested: ab.Repository, tmp_path: Path) -> None:
    file = tmp_path / "open.csv"
    file.write_text(f'table,key,column,base,take,value\n{ORDERS},"{{""id"": 1}}",price,1.5,,\n')
    assert len(cli("conflicts", "dev", "--resolutions", str(file), "--json").document["conflicts"]) == 2
    assert contested.tables()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", "{", "cannot be read"),
        ("a.json", "3", "are not a list"),
        ("a.json", '[{"table": "in_c_sales.orders", "take": "left"}]', "cannot take 'left'"),
        ("a.csv", "table,key,take\nin_c_sales.orders,id=1,source\n", "is not JSON: 'id=1'"),
    ],
)
def test_wrong_files_are_refused(
    cli: Run, contested: ab.Repository, tmp_path: Path, name: str, text: str, problem: str
) -> None:
    before = heads(contested)
    (tmp_path / name).write_text(text)
    answer = cli("merge", "dev", "--resolutions", str(tmp_path / name))
    assert answer.code != 0
    assert problem in answer.err
    assert heads(contested) == before


def test_missing_file_is_refused(cli: Run, contested: ab.Repository, tmp_path: Path) -> None:
    answer = cli("merge", "dev", "--resolutions", str(tmp_path / "none.json"))
    assert answer.code != 0
    assert "none.json" in answer.err
    assert contested.tables()
