"""`anabranch merge`."""

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short
from tests.cli.merging import contest, heads, rows_of, upsert, words
from tests.command_line import invoke

WITHOUT_CONFLICTS = ["--resolve", "price=max", "--resolve", f"{ORDERS}=source"]


@pytest.fixture
def contested(lake: ab.Repository) -> ab.Repository:
    contest(lake)
    return lake


@pytest.mark.s3
def test_what_both_sides_did_is_merged(cli: Run, lake: ab.Repository) -> None:
    upsert(lake, "main", (2, None, 2.2))
    upsert(lake, "dev", (2, "oil", 2.0), (4, "nuts", 9.0))
    answer = cli("merge", "dev", "--actor", "eve")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[0] == f"merged dev into main as {short(lake, 'main')}"
    assert ["table", "action", "inserted", "updated", "deleted", "columns", "conflicts"] in words(answer.out)
    assert [ORDERS, "merged", "1", "1", "1", "-", "0"] in words(answer.out)
    assert rows_of(lake, "main") == [(1, "tea", 1.5), (2, "oil", 2.2), (4, "nuts", 9.0)]
    commit = lake.snapshot_of("main").commit
    assert (commit.message, commit.actor_id) == ("Merge dev into main", "eve")
    assert commit.merged_parent_commit_id == lake.snapshot_of("dev").id


def test_programs_get_all_in_one_document(cli: Run, lake: ab.Repository) -> None:
    before = heads(lake)
    document = cli("merge", "dev", "-m", "Bring it home", "--json").document
    assert list(document) == [
        *("outcome", "source", "into", "source_commit_id", "target_commit_id", "base_commit_ids", "commit", "tables"),
        *("conflict_count", "conflicts", "strategy_gaps", "checks", "dry_run"),
    ]
    assert [document[name] for name in ("outcome", "source", "into")] == ["merged", "dev", "main"]
    assert [document["source_commit_id"], document["target_commit_id"]] == [before["dev"], before["main"]]
    assert document["base_commit_ids"] == [lake.snapshot_of("main~2").id]
    made = document["commit"]
    assert (made["id"], made["kind"], made["message"]) == (lake.snapshot_of("main").id, "merge", "Bring it home")
    assert (made["parent_id"], made["merged_parent_id"]) == (before["main"], before["dev"])
    assert document["tables"] == [
        {
            "table": ORDERS,
            "action": "merged",
            "renamed_from": None,
            "taken_from": None,
            "inserted": 0,
            "updated": 0,
            "deleted": 1,
            "added_columns": [],
            "dropped_columns": [],
            "altered_columns": [],
            "built_indices": [],
            "dropped_indices": [],
            "wanted_indices": [],
            "conflicts": 0,
        }
    ]
    assert [document[name] for name in ("conflict_count", "conflicts", "checks", "dry_run")] == [0, [], [], False]


def test_a_branch_that_had_not_moved_takes_all_and_then_has_it(cli: Run, lake: ab.Repository) -> None:
    lake.branch_create("later")
    upsert(lake, "later", (5, "bread", 3.0))
    answer = cli("merge", "later")
    assert answer.out.splitlines()[0] == (f"merged later into main as {short(lake, 'main')} (fast-forward)")
    assert (5, "bread", 3.0) in rows_of(lake, "main")
    before = heads(lake)
    other = "for the other direction, use 'anabranch merge main --into later'"
    assert cli("merge", "later").out == f"main is up to date with later; {other}\n"
    assert cli("merge", "main").out == "main is up to date with main\n"
    document = cli("merge", "later", "--json").document
    assert (document["outcome"], document["commit"], document["tables"]) == ("already_up_to_date", None, [])
    assert heads(lake) == before


def test_another_branch_and_any_ref_can_be_meant(cli: Run, lake: ab.Repository) -> None:
    lake.tag_create("v1", ref="main")
    answer = cli("merge", "v1", "--into", "dev", "-m", "Customers here, too")
    assert answer.out.splitlines()[0] == f"merged v1 into dev as {short(lake, 'dev')}"
    assert [CUSTOMERS, "added", "0", "0", "0", "-", "0"] in words(answer.out)
    assert sorted(lake.snapshot_of("dev")) == [CUSTOMERS, ORDERS]
    assert lake.snapshot_of("dev").commit.message == "Customers here, too"
    assert rows_of(lake, "dev") == [(1, "tea", 1.5), (2, None, 2.0)]


def test_the_current_branch_is_the_target(cli: Run, lake: ab.Repository) -> None:
    assert cli("switch", "dev").code == 0
    assert cli("merge", "main", "--json").document["into"] == "dev"
    assert CUSTOMERS in lake.snapshot_of("dev")


def test_conflicts_are_shown_and_nothing_is_merged(cli: Run, contested: ab.Repository) -> None:
    before = heads(contested)
    answer = cli("merge", "dev")
    assert (answer.code, answer.out) == (9, "")
    lines = answer.err.splitlines()
    assert lines[0] == f"error: the merge of 'dev' into 'main' has 2 conflicts, in '{ORDERS}' (2)"
    assert ["table", "kind", "key", "column", "base", "source", "(dev)", "target", "(main)"] in words(answer.err)
    assert [ORDERS, "divergent_update", "id=1", "price", "1.5", "1.7", "1.6"] in words(answer.err)
    row = next(line for line in lines if "delete_vs_update" in line)
    assert row.split() == [ORDERS, "delete_vs_update", "id=3", "-", "item=salt", "deleted", "item=sea", "salt"]
    assert lines[-1].startswith(
        "hint: nothing was merged; list the conflicts with 'anabranch conflicts dev --into main', then merge again "
    )
    assert heads(contested) == before


@pytest.mark.usefixtures("contested")
def test_programs_get_the_conflicts_with_the_error(cli: Run) -> None:
    answer = cli("merge", "dev", "--json")
    error = answer.error
    assert (answer.code, error["code"], error["retryable"]) == (9, "merge_conflict", False)
    assert error["conflict_count"] == 2
    cell, row = sorted(error["conflicts"], key=lambda conflict: str(conflict["key"]))
    assert cell == {
        "table": ORDERS,
        "kind": "divergent_update",
        "key": {"id": 1},
        "column": "price",
        "path": None,
        "base": 1.5,
        "source": 1.7,
        "target": 1.6,
        "problem": "both sides changed it",
    }
    assert (row["kind"], row["key"], row["column"], row["source"]) == ("delete_vs_update", {"id": 3}, None, None)
    assert row["base"] == {"id": 3, "item": "salt", "price": None}
    assert row["target"] == {"id": 3, "item": "sea salt", "price": None}


def test_only_the_first_of_many_conflicts_are_shown(cli: Run, lake: ab.Repository) -> None:
    upsert(lake, "dev", *((number, "here", None) for number in range(100, 125)))
    upsert(lake, "main", *((number, "there", None) for number in range(100, 125)))
    answer = cli("merge", "dev")
    assert "\nthe first 10 of 25 conflicts\n" in answer.err
    assert answer.err.count("divergent_insert") == 10
    assert len(cli("merge", "dev", "--json").error["conflicts"]) == 25


DECIDED = [
    (["--strategy", "source"], [(1, "tea", 1.7), (2, "oil", 2.2), (4, "nuts", 9.0)]),
    (["-s", "target"], [(1, "tea", 1.6), (2, "oil", 2.2), (3, "sea salt", None), (4, "nuts", 9.0)]),
    (["--resolve", "price=min", "-s", "source"], [(1, "tea", 1.6), (2, "oil", 2.2), (4, "nuts", 9.0)]),
    (WITHOUT_CONFLICTS, [(1, "tea", 1.7), (2, "oil", 2.2), (4, "nuts", 9.0)]),
    (
        ["-r", f"{ORDERS}.price=latest_by(price)", "-r", f"{ORDERS}=target"],
        [(1, "tea", 1.7), (2, "oil", 2.2), (3, "sea salt", None), (4, "nuts", 9.0)],
    ),
]


def test_strategies_and_resolvers_decide(cli: Run, contested: ab.Repository) -> None:
    for number, (args, merged) in enumerate(DECIDED):
        contested.branch_create(f"main-{number}")
        assert cli("merge", "dev", "--into", f"main-{number}", *args).code == 0
        assert rows_of(contested, f"main-{number}") == merged, args


REFUSED = [
    (["dev", "--strategy", "mine"], "invalid_input", 2, "'mine'"),
    (["dev", "--resolve", "price=best"], "invalid_input", 2, "'best'"),
    (["dev", "--resolve", "price"], "invalid_input", 2, "--resolve 'price' is not of the form WHAT=HOW"),
    (["dev", "--resolve", "price=max", "--resolve", "price=min"], "invalid_input", 2, "'price' twice"),
    (["dev", "--resolve", f"{ORDERS}=max"], "invalid_input", 2, f"'{ORDERS}'"),
    (["dev", "--resolve", "price=latest_by(day)"], "invalid_input", 2, "latest_by(day)"),
    (["dev", "--check", "nowhere.sql"], "invalid_input", 2, "'nowhere.sql'"),
    (["nope"], "branch_not_found", 3, "'nope'"),
    (["dev", "--into", "nope"], "branch_not_found", 3, "'nope'"),
    (["dev", "--expected-head", "nope"], "branch_not_found", 3, "'nope'"),
]


def test_what_cannot_be_is_refused(cli: Run, contested: ab.Repository) -> None:
    before = heads(contested)
    for args, code, exit_code, reported in REFUSED:
        answer = cli("merge", *args, "--json")
        assert (answer.error["code"], answer.code) == (code, exit_code), args
        assert reported in answer.error["message"]
    assert heads(contested) == before


def test_checks_that_find_nothing_let_it_pass(cli: Run, lake: ab.Repository) -> None:
    Path("checks").mkdir()
    for path, sql in {
        "no-three.sql": f"FROM {ORDERS} WHERE id = 3;",
        "names.sql": f"-- one\nFROM {ORDERS} WHERE id < 0",
        "checks/names.sql": f"FROM {CUSTOMERS}",
    }.items():
        Path(path).write_text(sql)
    args = [part for path in ("no-three.sql", "names.sql", "checks/names.sql") for part in ("--check", path)]
    assert "note: this was a dry run, so 3 checks did not run" in cli("merge", "dev", *args, "--dry-run").out
    document = cli("merge", "dev", *args, "--json").document
    assert document["checks"] == ["no-three.sql", "names.sql", "checks/names.sql"]
    assert rows_of(lake, "main") == [(1, "tea", 1.5), (2, None, 2.0)]
    assert "note: there was nothing to merge, so 3 checks did not run" in cli("merge", "dev", *args).out


def test_a_check_that_finds_rows_has_an_exit_code_of_its_own(cli: Run, lake: ab.Repository) -> None:
    before = heads(lake)
    Path("cheap.sql").write_text(f"FROM {ORDERS} SELECT id WHERE price >= 2")
    answer = cli("merge", "dev", "--check", "cheap.sql")
    assert (answer.code, answer.out) == (10, "")
    assert answer.err.startswith("error: the check 'cheap.sql' found rows, such as {'id': 2}\n")
    assert cli("merge", "dev", "--check", "cheap.sql", "--json").error["code"] == "check_failed"
    assert heads(lake) == before
    assert cli("merge", "dev", "--check", "cheap.sql", "--dry-run").code == 0


NO_CHECKS = [
    ("SELECT 1 WHERE false; SELECT 2", "invalid_expression", "there are several SQL statements"),
    ("", "invalid_expression", "there is no SQL statement"),
    ("DELETE FROM x", "invalid_expression", ""),
    ("SELECT * FROM no.such", "table_not_found", "no.such"),
]


def test_a_check_is_one_select(cli: Run, lake: ab.Repository) -> None:
    before = heads(lake)
    for sql, code, problem in NO_CHECKS:
        Path("odd.sql").write_text(sql)
        error = cli("merge", "dev", "--check", "odd.sql", "--json").error
        assert error["code"] == code
        assert error["message"].startswith("the check 'odd.sql' cannot be run: ")
        assert problem in error["message"]
    assert heads(lake) == before


def test_a_dry_run_reports_all_and_changes_nothing(cli: Run, contested: ab.Repository) -> None:
    before = heads(contested)
    answer = cli("merge", "dev", "--dry-run")
    assert (answer.code, answer.err) == (9, "")
    assert answer.out.splitlines()[0] == "dev does not merge into main: 2 conflicts"
    assert [ORDERS, "divergent_update", "id=1", "price", "1.5", "1.7", "1.6"] in words(answer.out)
    found = cli("merge", "dev", "--dry-run", "--json")
    assert (found.code, found.err) == (9, "")
    answer = cli("merge", "dev", "--dry-run", *WITHOUT_CONFLICTS)
    assert answer.out.splitlines()[0] == "dev merges into main; nothing was changed"
    planned = cli("merge", "dev", "--dry-run", *WITHOUT_CONFLICTS, "--json").document
    assert (planned["dry_run"], planned["commit"]) == (True, None)
    assert heads(contested) == before
    assert cli("merge", "dev", *WITHOUT_CONFLICTS, "--json").document["tables"] == planned["tables"]


def test_the_expected_commit_must_be_the_newest(cli: Run, lake: ab.Repository) -> None:
    old = lake.snapshot_of("main~1").id
    answer = cli("merge", "dev", "--expected-head", old, "--json")
    assert (answer.code, answer.error["code"], answer.error["retryable"]) == (5, "write_conflict", True)
    assert cli("merge", "dev", "--expected-head", short(lake, "main")).code == 0


def test_a_squashed_merge_has_one_parent(cli: Run, lake: ab.Repository) -> None:
    made = cli("merge", "dev", "--squash", "--json").document["commit"]
    assert made["merged_parent_id"] is None
    assert rows_of(lake, "main") == [(1, "tea", 1.5), (2, None, 2.0)]


def test_tables_and_columns_that_changed_are_reported(cli: Run, lake: ab.Repository) -> None:
    assert cli("merge", "main", "--into", "dev").code == 0
    with lake.transaction("dev") as tx:
        tx.add_columns(ORDERS, pa.schema([("note", pa.string())]))
        tx.drop_columns(ORDERS, ["price"])
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="item", name="what")])
        tx.rename_table(ORDERS, "out.orders")
        tx.drop_table(CUSTOMERS)
        tx.create_table("out.new", pa.schema([("id", pa.int64())]))
        tx.append("out.new", pa.table({"id": [1, 2]}))
    planned = cli("merge", "dev", "--dry-run", "--json").document["tables"]
    answer = cli("merge", "dev")
    assert [ORDERS, "→", "out.orders", "merged", "0", "0", "1", "+note", "-price", "~item", "0"] in words(answer.out)
    assert ["out.new", "added", "2", "0", "0", "-", "0"] in words(answer.out)
    assert [CUSTOMERS, "dropped", "0", "0", "0", "-", "0"] in words(answer.out)
    renamed = next(table for table in planned if table["table"] == "out.orders")
    assert renamed["renamed_from"] == ORDERS
    names = ("added_columns", "dropped_columns", "altered_columns")
    assert [renamed[name] for name in names] == [["note"], ["price"], ["item"]]


def test_conflicts_of_tables_are_reported_in_words(cli: Run, lake: ab.Repository) -> None:
    upsert(lake, "main", (2, None, 2.2))
    with lake.transaction("dev") as tx:
        tx.drop_table(ORDERS)
    answer = cli("merge", "dev")
    assert answer.code == 9
    line = next(line for line in answer.err.splitlines() if "delete_vs_update" in line)
    assert line.split() == [ORDERS, "delete_vs_update", "-", "-", ORDERS, "-", ORDERS, *line.split()[7:]]
    assert line.rstrip().endswith("the source dropped it, the target changed it")


def test_values_without_a_json_type_are_reported(cli: Run, lake: ab.Repository) -> None:
    key = "in_c_sales.facts"
    schema = pa.schema(
        [
            ("id", pa.date32()),
            ("amount", pa.decimal128(8, 2)),
            ("blob", pa.binary()),
            ("ratio", pa.float64()),
            ("seen", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.string())),
        ]
    )
    day = date(2026, 1, 1)

    def row(number: int, tag: str, ratio: float) -> pa.Table:
        seen = datetime(2026, 1, number, tzinfo=UTC)
        values = {"id": day, "amount": Decimal(number), "blob": bytes([number]), "ratio": ratio, "seen": seen}
        return pa.Table.from_pylist([values | {"tags": [tag]}], schema=schema)

    with lake.transaction() as tx:
        tx.create_table(key, schema, primary_key=["id"])
        tx.append(key, row(1, "a", 0.0))
    lake.branch_create("facts")
    for branch, changed in {"facts": row(2, "b", float("nan")), "main": row(3, "c", 1.0)}.items():
        with lake.transaction(branch) as tx:
            tx.upsert(key, changed)
    error = cli("merge", "facts", "--json").error
    assert {tuple(conflict["key"].values()) for conflict in error["conflicts"]} == {("2026-01-01",)}
    assert {
        conflict["column"]: [conflict[side] for side in ("base", "source", "target")] for conflict in error["conflicts"]
    } == {
        "amount": ["1.00", "2.00", "3.00"],
        "blob": ["AQ==", "Ag==", "Aw=="],
        "ratio": [0.0, "NaN", 1.0],
        "seen": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"],
        "tags": [["a"], ["b"], ["c"]],
    }
    reported = words(cli("merge", "facts").err)
    assert [key, "divergent_update", "id=2026-01-01", "blob", "0x01", "0x02", "0x03"] in reported


@pytest.mark.usefixtures("contested")
def test_sides_have_their_colours_in_a_terminal(cli: Run) -> None:
    line = next(line for line in invoke("merge", "dev", is_coloured=True).err.splitlines() if "price" in line)
    assert "\x1b[32m1.7" in line
    assert "\x1b[33m1.6" in line
    assert "\x1b" not in cli("merge", "dev").err


def test_values_cannot_steer_a_terminal(cli: Run, lake: ab.Repository) -> None:
    upsert(lake, "dev", (1, "\x1b[2J", 1.5))
    upsert(lake, "main", (1, "coffee", 1.5))
    answer = cli("merge", "dev")
    assert "\\x1b[2J" in answer.err
    assert "\x1b" not in answer.err


def test_a_protected_branch_takes_what_passes_the_checks_kept_with_it(cli: Run, lake: ab.Repository) -> None:
    Path("cheap.sql").write_text(f"FROM {ORDERS} WHERE price > 8")
    assert cli("branch", "protect", "main", "--check", "cheap.sql").out == "branch main is protected, with 1 check\n"
    shown = cli("branch", "show", "main", "--json").document
    assert shown["checks"] == [{"name": "cheap.sql", "sql": f"FROM {ORDERS} WHERE price > 8"}]
    assert "protected, with 1 check" in cli("branch", "show", "main").out
    assert cli("revert", "main", "--json").error["code"] == "branch_protected"
    assert cli("merge", "dev").code == 0
    upsert(lake, "dev", (4, "nuts", 9.0))
    before = heads(lake)
    answer = cli("merge", "dev", "--json")
    assert (answer.code, answer.error["code"]) == (10, "check_failed")
    assert "'cheap.sql'" in answer.error["message"]
    assert heads(lake) == before
    assert cli("branch", "protect", "main", "--off", "--check", "cheap.sql", "--json").error["code"] == "invalid_input"
    assert cli("branch", "protect", "main", "--off", "--json").document["checks"] == []
    assert cli("merge", "dev").code == 0


@pytest.mark.usefixtures("contested")
def test_an_engine_can_be_asked_for(cli: Run) -> None:
    for command in (["merge", "dev", "--dry-run"], ["conflicts", "dev"], ["diff", "main", "dev"]):
        assert cli(*command, "--engine", "local").out == cli(*command).out
        assert "'abacus'" in cli(*command, "--engine", "abacus", "--json").error["message"]


def test_what_no_strategy_decides_is_named_with_the_way_out(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction("dev") as tx:
        tx.update(ORDERS, {"item": "'oil'"}, where="item IS NULL")
        tx.set_primary_key(ORDERS, ["item"])
    upsert(lake, "main", (1, "oil", 1.0))
    hint = "name the side to take the whole table from"
    for strategy in ("fail", "source", "target"):
        answer = cli("merge", "dev", "--strategy", strategy, "--dry-run")
        assert answer.code == 9
        assert f"note: The strategy does not decide 1 conflict of {ORDERS}: " in answer.out
        assert hint in answer.out
        (gap,) = json.loads(cli("merge", "dev", "--strategy", strategy, "--dry-run", "--json").out)["strategy_gaps"]
        assert (gap["table"], gap["conflicts"]) == (ORDERS, 1)
        refused = cli("merge", "dev", "--strategy", strategy)
        assert refused.code == 9
        assert hint in " ".join(refused.err.split())
    (conflict,) = cli("conflicts", "dev", "--json").document["conflicts"]
    assert hint in conflict["hint"]
    planned = cli("merge", "dev", "--resolve", f"{ORDERS}=source", "--dry-run")
    assert planned.code == 0
    assert "taken from source" in planned.out
    before = rows_of(lake, "dev")
    assert cli("merge", "dev", "--resolve", f"{ORDERS}=source", "--json").document["strategy_gaps"] == []
    assert rows_of(lake, "main") == before


def test_two_tables_of_one_name_are_in_the_plan(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction("dev") as tx:
        tx.rename_table(ORDERS, "in_c_sales.sales")
    with lake.transaction("main") as tx:
        tx.create_table("in_c_sales.sales", pa.schema([("id", pa.int64())]), primary_key=["id"])
    planned = cli("merge", "dev", "--dry-run")
    assert planned.code == 9
    assert re.search(r"in_c_sales\.sales +undecided", planned.out)
    document = json.loads(cli("merge", "dev", "--dry-run", "--json").out)
    tables = {table["table"]: (table["action"], table["conflicts"]) for table in document["tables"]}
    assert tables["in_c_sales.sales"] == ("undecided", 1)
    (conflict,) = cli("conflicts", "dev", "--json").document["conflicts"]
    assert (conflict["table"], conflict["problem"]) == ("in_c_sales.sales", "two tables would have this name")


def test_the_conflicts_of_a_refused_merge_name_the_sides(cli: Run, contested: ab.Repository) -> None:
    assert contested.branch == "main"
    assert "base        source (dev)   target (main)" in cli("merge", "dev").err
