"""`anabranch load` and `anabranch export`."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short


@pytest.fixture
def orders(folder: Path) -> str:
    (folder / "orders.csv").write_text("id,item,price\n7,oil,2.5\n8,rice,\n")
    return "orders.csv"


def test_load_appends_and_reports_what_it_did(cli: Run, lake: ab.Repository, orders: str) -> None:
    done = cli("load", ORDERS, orders, "--branch", "dev", "-m", "May", "--actor", "eve", "--json").document
    commit = lake.get_commit(done["commit_id"])
    assert (commit.message, commit.actor_id, commit.kind) == ("May", "eve", "load")
    assert (done["rows_read"], done["rows_loaded"], done["rows_rejected"], done["branch"]) == (2, 2, 0, "dev")
    assert done["files"] == [str(Path.cwd() / orders)]
    printed = cli("load", ORDERS, orders).out
    assert printed.startswith(f"loaded 1 file into {ORDERS} on main at {short(lake, 'main')}\n")
    assert lake.sync_branch()[ORDERS].count_rows() == 5


def test_load_makes_tables_of_any_csv(cli: Run, lake: ab.Repository, folder: Path) -> None:
    (folder / "new.txt").write_text("a note\nid|price|note\n1|2.50|NULL\n1|3.00|'x|y'\n")
    options = ["--format", "csv", "--delimiter", "|", "--quote", "'", "--null", "NULL", "--skip", "1"]
    key = ["--primary-key", "id", "--type", "price=decimal(10, 2)", "--on-duplicate", "last"]
    done = cli("load", "in_c_sales.new", "new.txt", *options, *key, "--json").document
    assert (done["rows_loaded"], done["rows_repeated"]) == (1, 1)
    table = lake.sync_branch()["in_c_sales.new"]
    assert (str(table.schema.field("price").type), table.primary_key) == ("decimal128(10, 2)", ("id",))
    assert table.to_arrow(columns=["id", "note"]).to_pylist() == [{"id": 1, "note": "x|y"}]


def test_a_new_table_without_a_primary_key_gets_a_note(cli: Run, lake: ab.Repository, orders: str) -> None:
    note = "note: in_c_sales.new has no primary key, so its rows are not matched by key."
    assert note in cli("load", "in_c_sales.new", orders).out
    assert note not in cli("load", "in_c_sales.new", orders).out
    assert "note:" not in cli("load", "in_c_sales.keyed", orders, "--primary-key", "id").out


def test_load_reports_a_new_table_with_its_columns(cli: Run, lake: ab.Repository, orders: str) -> None:
    printed = cli("load", "in_c_sales.fresh", orders, "--primary-key", "id").out.splitlines()
    assert printed[:2] == [
        f"loaded 1 file into in_c_sales.fresh on main at {short(lake, 'main')}",
        "created the table in_c_sales.fresh: id int64, item string, price float64",
    ]
    assert "created" not in cli("load", "in_c_sales.fresh", orders, "--mode", "upsert").out
    assert cli("load", "in_c_sales.other", orders, "--json").document["created"] is True
    assert cli("load", "in_c_sales.other", orders, "--json").document["created"] is False


def test_load_into_a_mistyped_table_suggests_the_existing_one(cli: Run, lake: ab.Repository, orders: str) -> None:
    printed = cli("load", "in_c_sales.ordres", orders, "--primary-key", "id").out
    note = f"note: there is also a table {ORDERS}. If you meant it, undo this load with 'anabranch undo"
    assert f"{note} main' and load again\n" in printed
    again = cli("load", "in_c_sales.order", orders, "--primary-key", "id", "--branch", "dev").out
    assert f"{note} dev' and load again\n" in again
    assert "there is also" not in cli("load", "in_c_sales.orders2", orders, "--primary-key", "id").out
    cli("undo", "main", "--steps", "2")
    assert "in_c_sales.ordres" not in lake.sync_branch()


@pytest.mark.usefixtures("lake")
def test_the_list_of_new_columns_is_short(cli: Run, folder: Path) -> None:
    (folder / "wide.csv").write_text(",".join(f"c{n}" for n in range(12)) + "\n" + ",".join("1" * 12) + "\n")
    printed = cli("load", "in_c_sales.wide", "wide.csv").out
    shown = ", ".join(f"c{n} int64" for n in range(8))
    assert f"created the table in_c_sales.wide: {shown} and 4 more columns\n" in printed


@pytest.mark.usefixtures("lake")
def test_lines_of_one_value_name_the_likely_delimiter(cli: Run, folder: Path) -> None:
    (folder / "semicolons.csv").write_text("1;oil\n2;salt\n")
    (folder / "tabs.csv").write_text("1\toil\n2\tsalt\n")
    (folder / "words.csv").write_text("oil; or butter\nsalt\n")
    note = "note: each line is one value. If {0} separates values, undo this load with 'anabranch undo main' and load"
    note += " again with --delimiter {0}\n"
    printed = cli("load", "in_c_sales.a", "semicolons.csv", "--no-header").out
    assert note.format("';'") in printed
    printed = cli("load", "in_c_sales.b", "tabs.csv", "--no-header", "--delimiter", ";").out
    assert note.format("tab") in printed
    assert "each line" not in cli("load", "in_c_sales.c", "words.csv", "--no-header").out
    assert "each line" not in cli("load", "in_c_sales.d", "semicolons.csv", "--no-header", "--delimiter", ";").out


def test_bad_records_fail_or_are_put_aside(cli: Run, lake: ab.Repository, folder: Path) -> None:
    (folder / "bad.csv").write_text("id,item,price\n7,oil,2.5\n8\n")
    error = cli("load", ORDERS, "bad.csv", "--json").error
    assert error["code"] == "bad_record"
    assert "bad.csv, line 3: it has 1 values for 3 columns" in error["message"]
    assert "1 to in_c_sales.orders_rejects" in cli("load", ORDERS, "bad.csv", "--on-bad", "reject").out
    assert lake.sync_branch()[f"{ORDERS}_rejects"].count_rows() == 1


@pytest.mark.s3
def test_export_writes_what_load_reads(cli: Run, lake: ab.Repository, folder: Path) -> None:
    printed = cli("export", ORDERS, "out/orders.parquet", "--where", "id < 3", "--columns", "id,item").out
    assert printed.startswith(f"exported 2 rows of {ORDERS} at {short(lake, 'main')} to {folder}/out/orders.parquet (")
    done = cli("export", ORDERS, "out/all", "--format", "csv", "--delimiter", "tab", "--ref", "dev", "--json").document
    assert (done["rows"], len(done["files"])) == (2, 1)
    assert Path(done["files"][0]).read_text() == '"id"\t"item"\t"price"\n1\t"tea"\t1.5\n2\t\t2\n'
    assert cli("export", ORDERS, "out/all", "--format", "csv", "--json").error["code"] == "object_exists"
    cli("export", ORDERS, "out/all", "--format", "csv", "--overwrite", "--no-header")
    assert Path(done["files"][0]).read_text().startswith('1,"tea"')


def test_export_writes_at_most_the_limit(cli: Run, lake: ab.Repository) -> None:
    assert lake.snapshot_of("main")[ORDERS].count_rows() > 2
    done = cli("export", ORDERS, "first.csv", "--limit", "2", "--json").document
    assert (done["rows"], len(Path(done["files"][0]).read_text().splitlines())) == (2, 3)
    assert cli("export", ORDERS, "none.csv", "--limit", "0", "--json").error["code"] == "usage"


def test_export_writes_another_encoding(cli: Run, lake: ab.Repository, folder: Path) -> None:
    lake.load("in_c_sales.words", pa.table({"v": ["é"]}))
    cli("export", "in_c_sales.words", "words.csv", "--encoding", "latin-1")
    assert (folder / "words.csv").read_bytes() == b'"v"\n"\xe9"\n'
    error = cli(
        "export", "in_c_sales.words", "words.txt", "--format", "csv", "--single-file", "--encoding", "ascii"
    ).err
    assert "the encoding ascii does not have the character 'é'" in error
    assert "--encoding utf-8" in error
    for option in ("--quote", "--escape", "--null", "--skip"):  # options of loads
        assert cli("export", ORDERS, "a.csv", option, "1", "--json").error["code"] == "usage"


def test_mistakes_are_named(cli: Run, lake: ab.Repository, orders: str) -> None:
    assert lake.branch == "main"
    for args, code in (
        (["load", ORDERS, "none.csv"], "object_not_found"),
        (["load", CUSTOMERS, orders], "schema_mismatch"),
        (["load", ORDERS, orders, "--mode", "replace"], "invalid_input"),
        (["load", ORDERS, orders, "--branch", "nope"], "branch_not_found"),
        (["export", "in_c_sales.nope", "a.csv"], "table_not_found"),
        (["export", ORDERS, "a.xml"], "invalid_input"),
    ):
        assert cli(*args, "--json").error["code"] == code


@pytest.mark.local
def test_a_terminal_gets_a_bar_and_a_pipe_none(lake: ab.Repository, orders: str) -> None:
    # A bar appears after a while. This load is short, so the bar has to appear at once.
    program = "from anabranch.cli import main, output; output.SECONDS_WITHOUT_BAR = 0; main.main()"
    command = [sys.executable, "-c", program, "load", ORDERS, orders, "--mode", "upsert"]
    quiet = subprocess.run(command, capture_output=True, text=True, check=True)
    assert quiet.stderr == ""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the terminal is gone
                break
            if not piece:
                break
            seen += piece
        process.wait()
    os.close(ours)
    assert process.returncode == 0
    assert b"loading in_c_sales.orders" in seen
    assert b"rows" in seen
