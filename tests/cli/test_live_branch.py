"""`anabranch branch` with branches that follow main: create --live, pull, freeze, drift; and how others show them."""

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short


@pytest.fixture
def try_(cli: Run, lake: ab.Repository) -> str:
    """A live branch that deleted an order, after which main deleted another and got customers."""
    name = "try"
    assert cli("branch", "create", name, "--live", "--actor", "eve").code == 0
    with lake.transaction(name, message="Delete on try") as tx:
        tx.delete(ORDERS, "id = 1")
    with lake.transaction(message="Delete on main") as tx:
        tx.delete(ORDERS, "id = 2")
        tx.append(CUSTOMERS, pa.table({"name": ["ada", "bob"]}))
    return name


def test_a_live_branch_is_made_from_main_wherever_one_is(cli: Run, lake: ab.Repository) -> None:
    cli("switch", "dev")
    answer = cli("branch", "create", "try", "--live")
    assert answer.out == f"created live branch try, which follows main, now at {short(lake, 'main')}\n"
    shown = cli("branch", "show", "try", "--json").document
    assert (shown["mode"], shown["parent"], shown["own_tables"]) == ("live", "main", [])


@pytest.mark.s3
def test_lists_and_status_show_what_follows_main(cli: Run, try_: str) -> None:
    status = cli("status", "-b", try_, "--json").document
    assert (status["mode"], status["own_tables"], status["rows"]) == ("live", [ORDERS], 4)
    assert "live, 1 own table" in cli("status", "-b", try_).out
    assert "live, 1 own table" in cli("branch", "show", try_).out
    (line,) = [line for line in cli("branch", "list").out.splitlines() if line.split()[0] == try_]
    assert line.split()[1:5] == ["live,", "1", "own", "table"]


def test_readers_see_both_heads(cli: Run, lake: ab.Repository, try_: str) -> None:
    rows = cli("cat", ORDERS, "--ref", try_, "--columns", "id", "--csv").out.split()
    assert rows == ["id", "2", "3"]
    assert len(cli("cat", CUSTOMERS, "--ref", try_, "--json").document["rows"]) == 2
    messages = [commit["message"] for commit in cli("log", try_, "--json").document["commits"]]
    assert messages[:2] == ["Delete on try", "Add customers"]
    assert f"({try_}) Delete on try" in cli("log", "--graph").out
    shown = cli("show", try_, "--json").document
    assert shown["changes"] == [{"table": ORDERS, "change": "changed", "rows_before": 3, "rows": 2}]


def test_the_history_of_a_table_that_follows_main_is_mains(cli: Run, try_: str) -> None:
    of_main = cli("table", "history", CUSTOMERS, "--ref", try_, "--json").document["commits"]
    assert [(commit["message"], commit["rows"]) for commit in of_main] == [("Delete on main", 2), ("Add customers", 0)]
    own = cli("table", "history", ORDERS, "--ref", try_, "--json").document["commits"]
    assert own[0]["message"] == "Delete on try"


@pytest.mark.s3
def test_drift_then_pull_then_no_drift(cli: Run, lake: ab.Repository, try_: str) -> None:
    (drift,) = cli("branch", "drift", try_, "--json").document["tables"]
    assert list(drift) == ["table", "has_drifted", "branch_rows", "main_rows", "forked_version", "main_version"]
    assert (drift["table"], drift["has_drifted"], drift["branch_rows"], drift["main_rows"]) == (ORDERS, True, 2, 2)
    assert drift["main_version"] == str(lake.snapshot_of("main")[ORDERS].entry.version)
    assert cli("branch", "drift", try_).out.splitlines()[2].split() == [ORDERS, "yes", "2", "2"]
    pulled = cli("branch", "pull", try_, ORDERS, "--actor", "eve", "--json").document
    assert (pulled["branch"], pulled["table"], pulled["pulled"]) == (try_, ORDERS, True)
    assert lake.get_commit(pulled["head_commit_id"]).actor_id == "eve"
    assert cli("branch", "drift", try_).out == "no tables were changed on try\n"
    assert cli("branch", "pull", try_, ORDERS).out == f"{ORDERS} on {try_} has nothing to pull\n"
    assert cli("show", try_, "--json").document["changes"][0]["rows"] == 2


def test_people_read_what_a_pull_did(cli: Run, lake: ab.Repository, try_: str) -> None:
    assert cli("branch", "pull", try_, ORDERS).out == f"{ORDERS} on {try_} follows main again\n"
    assert cli("branch", "pull", "dev", CUSTOMERS).out == f"{CUSTOMERS} on dev is as on main now\n"
    assert CUSTOMERS in lake.snapshot_of("dev")


def test_a_frozen_branch_stays_as_it_is(cli: Run, lake: ab.Repository, try_: str) -> None:
    answer = cli("branch", "freeze", try_)
    assert answer.out == f"froze branch {try_} at {short(lake, try_)}\n"
    with lake.transaction(message="More") as tx:
        tx.append(CUSTOMERS, pa.table({"name": ["cyd"]}))
    shown = cli("branch", "show", try_, "--json").document
    assert (shown["mode"], shown["own_tables"], shown["rows"]) == ("pinned", [], 4)
    assert cli("branch", "freeze", try_, "--json").error["code"] == "invalid_input"


def test_a_protected_branch_is_refused_until_the_protection_is_off(cli: Run, lake: ab.Repository) -> None:
    assert cli("branch", "protect", "dev").out == "branch dev is protected\n"
    refused = cli("branch", "delete", "dev", "--json")
    assert (refused.code, refused.error["code"]) == (4, "branch_protected")
    assert cli("branch", "show", "dev", "--json").document["is_protected"]
    assert cli("branch", "protect", "dev", "--off").out == "branch dev is not protected\n"
    assert cli("branch", "delete", "dev").code == 0
