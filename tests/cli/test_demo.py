"""`anabranch demo`: what it makes is enough for every command, and the commands that it recommends work."""

import json
import shlex
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.cli.commands.repository import NEXT
from tests.cli.conftest import Run


def test_the_demo_has_something_for_every_command(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("demo", "shop")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("made a shop lake in shop: 6 tables, 13 commits, 3 branches, 1 tag\n")
    assert all(command in shown.out for command, _ in NEXT)
    assert "cd shop" in shown.out

    repo = ab.open(folder / "shop" / "lake")
    assert {branch.name: branch.mode.value for branch in repo.branch_list()} == {
        "main": "pinned",
        "preview": "live",
        "sale": "pinned",
    }
    assert [branch.name for branch in repo.branch_list(deleted=True)] == ["new-customers"]
    assert {commit.actor_id for commit in repo.iter_graph()} == {"ada", "ben"}
    assert [tag.name for tag in repo.tag_list()] == ["v1.0"]
    assert [run.target for run in repo.run_list()] == ["main"]
    assert [index.name for index in repo["shop.orders"].indices] == ["customer_id_idx"]
    assert repo.lineage("report.daily_revenue").nodes[-1].name == "load"
    assert [drift.table for drift in repo.branch_drift("preview")] == ["shop.customers"]
    assert repo["shop.product_vectors"].nearest("embedding", [0, 0, 0, 1], k=3)["product_id"].to_pylist() == [1, 2, 3]
    assert repo.sql("SELECT sum(amount) AS sold FROM shop.orders").to_pylist() == [{"sold": Decimal("16192.50")}]
    assert repo.doctor().is_clean

    monkeypatch.chdir(folder / "shop")
    for command, _ in NEXT:
        answer = run(*shlex.split(command)[1:])
        assert (answer.code, answer.err) == (0, ""), command
    assert [conflict.column for conflict in repo.conflicts("sale", "main")] == ["price"]  # the merge was undone


def test_the_demo_is_made_without_spark(folder: Path) -> None:
    code = (
        "import sys, anabranch as ab; repo = ab.demo();"
        "print(repo.branch, sorted({'pyspark', 'py4j', 'typer'} & set(sys.modules)))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout == "main []\n"
    assert (folder / "anabranch-demo" / "report.py").is_file()


def test_a_folder_with_content_is_left_alone(run: Run, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("keep this")
    refused = run("demo", "mine")
    assert refused.code == 4
    assert refused.err == ("error: the folder 'mine' is not empty\nhint: name another folder, or delete this one\n")
    assert [file.name for file in (folder / "mine").iterdir()] == ["notes.txt"]


def test_the_demo_as_json(run: Run, folder: Path) -> None:
    document = run("demo", "--json").document
    assert document["repository"] == str(folder / "anabranch-demo" / "lake")
    assert document["tables"]["shop.orders"] == 354
    assert document["branches"] == ["main", "preview", "sale"]
    assert document["next"] == ["cd anabranch-demo", *(command for command, _ in NEXT)]
    remembered = json.loads((folder / "anabranch-demo" / ".anabranch.json").read_text())
    assert remembered["repository"] == "lake"
    assert not (folder / ".anabranch.json").exists()
