"""Commands that only read the commit graph load no library that reads tables."""

import json
import subprocess
import sys
from pathlib import Path

import lance

import anabranch as ab
from tests.cli.conftest import ORDERS

HEAVY = ["duckdb", "fastapi", "lance", "numpy", "pandas", "pyarrow", "pydantic", "pyspark", "sqlglot"]

# One process for all commands, because to start one for each would take most of the time. What one of them loads stays
# loaded, so only the first one that loads a library is at fault.
SCRIPT = """
import json, sys
from anabranch.cli.main import main

loaded = {}
for command in json.loads(sys.argv[1]):
    try:
        main(command.split())
    except SystemExit as end:
        assert not end.code, (command, end.code)
    loaded[command] = sorted(set(json.loads(sys.argv[2])) & set(sys.modules))
sys.stderr.write(json.dumps(loaded))
"""


def list_loaded(*commands: str) -> dict[str, list[str]]:
    """Run commands in another process. Return which heavy libraries were loaded after each of them."""
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands), json.dumps(HEAVY)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(answer.stderr)
    assert isinstance(found, dict)
    return found


def test_commands_about_the_commit_graph_open_no_table(lake: ab.Repository, folder: Path) -> None:
    lake.tag_create("v1.0")
    lake.branch_create("preview", mode="live")
    commands = (
        "--version",
        "switch dev",
        "log",
        "log --graph",
        "log main --table in_c_sales.orders --json",
        "branch list",
        "branch show dev",
        "branch drift dev",
        "tag list",
        "tag show v1.0",
        "reflog",
        "merge-base main dev",
        "status",
        "status -b main --json",
        "status -b preview",
        "diff main --stat",
        "diff main...dev --stat --json",
        "switch main",
    )
    assert list_loaded(*commands) == {command: [] for command in commands}


def test_status_finds_an_external_write_without_lance(lake: ab.Repository) -> None:
    lance.dataset(lake.snapshot()[ORDERS].uri, storage_options=dict(lake.storage_options) or None).delete("id = 1")
    assert list_loaded("status") == {"status": []}
    (found,) = lake.list_external_writes()
    assert found.table == ORDERS
