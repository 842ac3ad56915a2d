"""`anabranch show`."""

import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run


@pytest.mark.s3
def test_a_commit_is_shown_with_what_it_changed(cli: Run, lake: ab.Repository) -> None:
    shown = cli("show", "main~1", "--json").document
    logged = cli("log", "main~1", "--json").document["commits"][0]
    changes = [{"table": ORDERS, "change": "created", "rows_before": None, "rows": 3}]
    assert shown == {**logged, "changes": changes}
    by_id = cli("show", shown["id"], "--json").document
    by_prefix = cli("show", shown["id"][:14].lower(), "--json").document
    assert shown == by_id == by_prefix


def test_by_default_it_is_the_head_of_the_current_branch(cli: Run, lake: ab.Repository) -> None:
    assert cli("show", "--json").document["message"] == "Add customers"
    cli("switch", "dev")
    shown = cli("show", "--json").document
    assert shown["message"] == "Fix a price"
    assert shown["changes"] == [{"table": ORDERS, "change": "changed", "rows_before": 3, "rows": 2}]


def test_a_renamed_table_is_dropped_and_created(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction(message="Rename") as tx:
        tx.rename_table(CUSTOMERS, "in_c_sales.people")
    assert cli("show", "--json").document["changes"] == [
        {"table": CUSTOMERS, "change": "dropped", "rows_before": 0, "rows": None},
        {"table": "in_c_sales.people", "change": "created", "rows_before": None, "rows": 0},
    ]


def test_people_read_the_whole_message_and_the_whole_id(cli: Run, lake: ab.Repository) -> None:
    text = cli("show", "main~1").out
    for part in (lake.snapshot_of("main~1").id, "From the till.", "metadata run", "r7", "main@v2", "ada", "load"):
        assert part in text
    assert text.splitlines()[-1].split() == [ORDERS, "created", "-", "3"]
    assert "no tables" in cli("show", "main~2").out


def test_what_others_wrote_cannot_steer_the_terminal(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction(message="\x1b[2J\x07gone") as tx:
        tx.drop_table(CUSTOMERS)
    for command in (["show"], ["log"], ["log", "--graph"], ["status"]):
        text = cli(*command).out
        assert "\\x1b[2J\\x07gone" in text
        assert "\x1b" not in text


def test_a_commit_that_does_not_exist_is_an_error(cli: Run, lake: ab.Repository) -> None:
    assert cli("show", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "--json").error["code"] == "commit_not_found"
    assert cli("show", "01ARZ3NDEK").code == 3
