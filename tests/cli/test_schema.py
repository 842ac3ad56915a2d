"""`anabranch schema`: show, plan and apply, for people and for programs."""

from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short

SCHEMA = """\
tables:
  in_c_sales:
    customers:
      columns:
        name: string
    orders:
      primary_key: [id]
      columns:
        id: int64
        item: string
        price: float64
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A schema file: orders lose their price and get a state, and items are new."""
    found = tmp_path / "wanted.yaml"
    found.write_text(
        SCHEMA.replace("        price: float64\n", "        state: {type: string, default: \"'new'\"}\n")
        + "    items:\n      primary_key: sku\n      columns: {sku: string}\n      indices: [sku]\n"
    )
    return found


def test_what_is_shown_is_what_is_there(cli: Run, lake: ab.Repository, tmp_path: Path) -> None:
    shown = cli("schema", "show")
    assert shown.out == SCHEMA
    file = tmp_path / "schema.yaml"
    file.write_text(shown.out)
    planned = cli("schema", "plan", str(file), "--exit-code")
    assert (planned.code, planned.out) == (0, f"main at {short(lake, 'main')} has this schema\n")
    document = cli("schema", "show", "--ref", "dev", "--json").document
    assert document["ref"] == "dev"
    assert list(document["tables"]["in_c_sales"]) == ["orders"]


def test_strange_text_survives_being_shown(cli: Run, lake: ab.Repository, tmp_path: Path) -> None:
    strange = "\x1b[31m a\u00a0b \u2028 é: # 'x'\ttab"
    lake.schema_apply(
        {
            "tables": {
                "odd": {"t": {"description": strange, "columns": {"no": {"type": "int8", "description": strange}}}}
            }
        }
    )
    shown = cli("schema", "show").out
    assert "\x1b" not in shown
    assert lake.schema_plan(shown).is_empty


def test_a_plan_is_a_difference(cli: Run, lake: ab.Repository, file: Path) -> None:
    planned = cli("schema", "plan", str(file))
    assert planned.code == 0
    assert planned.out == (
        f"main at {short(lake, 'main')}: 3 changes, 1 of them may lose data\n"
        "+ in_c_sales.items: table\n"
        "    + column sku: string\n"
        "    + primary key: sku\n"
        "    + index on sku (btree)\n"
        "~ in_c_sales.orders\n"
        "    + column state: string default 'new'\n"
        "    - column price: float64  (may lose data)\n"
    )
    assert cli("schema", "plan", str(file), "--exit-code").code == 8
    document = cli("schema", "plan", str(file), "--json").document
    assert (document["branch"], document["is_empty"], document["is_destructive"]) == ("main", False, True)
    assert [(step["table"], step["step"], step["destructive"]) for step in document["steps"]] == [
        ("in_c_sales.items", "create_table", False),
        (ORDERS, "add_column", False),
        (ORDERS, "drop_column", True),
    ]


def test_a_plan_is_for_the_branch_that_is_named(cli: Run, lake: ab.Repository, tmp_path: Path) -> None:
    (tmp_path / "dev.yaml").write_text(cli("schema", "show", "--ref", "dev").out)
    assert cli("schema", "plan", str(tmp_path / "dev.yaml"), "-b", "dev", "--exit-code").code == 0
    dropped = cli("schema", "plan", str(tmp_path / "dev.yaml"), "--exit-code")
    assert (dropped.code, dropped.out.splitlines()[1]) == (8, f"- {CUSTOMERS}: table with 0 rows  (may lose data)")


def test_a_schema_is_refused_tried_and_applied(cli: Run, lake: ab.Repository, file: Path) -> None:
    refused = cli("schema", "apply", str(file), "--json")
    assert (refused.code, refused.error["code"]) == (4, "destructive_change")
    tried = cli("schema", "apply", str(file), "--allow-destructive", "--dry-run")
    assert tried.out.splitlines()[:2] == [
        f"main at {short(lake, 'main')}: 3 changes, 1 of them may lose data",
        "the rows allow it; nothing was changed",
    ]
    assert lake.get_commit("main").kind != "schema_apply"
    done = cli("schema", "apply", str(file), "--allow-destructive", "-m", "New columns", "--actor", "bob")
    commit = lake.get_commit("main")
    assert (commit.kind.value, commit.message, commit.actor_id) == ("schema_apply", "New columns", "bob")
    assert done.out.splitlines()[0] == (
        f"applied to main as {commit.graph_commit_id[:14]}: 3 changes, 1 of them may lose data"
    )
    again = cli("schema", "apply", str(file), "--json").document
    assert (again["is_empty"], again["commit"]) == (True, None)
    assert lake.snapshot_of("main")[ORDERS].schema == pa.schema(
        [("id", pa.int64()), ("item", pa.string()), ("state", pa.string())]
    )


def test_a_schema_comes_from_stdin(cli: Run, lake: ab.Repository) -> None:
    wanted = SCHEMA + "        tax: decimal(10, 2)\n"
    applied = cli("schema", "apply", "-", "-b", "main", "--json", typed=wanted).document
    assert applied["commit"]["kind"] == "schema_apply"
    assert cli("schema", "show").out == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tables:\n  b:\n    t:\n      columns:\n        c: decmal\n",
            "tables.b.t.columns.c (line 5): unknown type 'decmal'",
        ),
        ("tables: [", "the schema is not YAML in line 1: expected the node content, but found '<stream end>'"),
        (
            SCHEMA.replace("item: string", "item: string not null"),
            "tables.in_c_sales.orders.columns.item: cannot set not null, because the column holds 1 nulls",
        ),
    ],
)
def test_what_is_wrong_with_a_schema_is_reported(
    cli: Run, lake: ab.Repository, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    answer = cli("schema", "apply", str(file), "--json")
    assert (answer.code, answer.error["message"]) == (2, message)


def test_a_file_that_is_not_there_is_an_error(cli: Run, lake: ab.Repository, tmp_path: Path) -> None:
    for command in ("plan", "apply"):
        answer = cli("schema", command, str(tmp_path / "none.yaml"), "--json")
        assert (answer.code, answer.error["code"]) == (3, "object_not_found")
    assert cli("schema", "show", "--ref", "nope", "--json").error["code"] == "branch_not_found"


@pytest.mark.usefixtures("lake")
def test_text_from_stdin_is_never_a_path(cli: Run, tmp_path: Path) -> None:
    file = tmp_path / "schema.yaml"
    file.write_text(cli("schema", "show").out)
    error = cli("schema", "plan", "-", "--json", typed=str(file)).error
    assert error["code"] == "invalid_schema"
