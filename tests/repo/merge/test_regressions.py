"""Merges that had a wrong result in an earlier version, found by random histories."""

import anabranch as ab
from tests.repo.conftest import SCHEMA, append, ids


def test_the_commit_that_a_live_branch_is_on_is_undone_without_what_main_did_since(lake: ab.Repository) -> None:
    append(lake, 4)
    lake.branch_create_from("main", "live", mode="live")
    append(lake, 5)
    lake.revert("live", branch="live")
    assert ids(lake.snapshot_of("live")) == [1, 2, 3, 5]


def test_a_dry_run_of_a_squash_that_would_change_nothing_reports_it(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev")
    append(lake, 4, branch="dev")
    lake.merge("dev", squash=True)
    planned = lake.merge("dev", squash=True, dry_run=True)
    assert planned == lake.merge("dev", squash=True)
    assert planned.outcome == "already_up_to_date"


def test_a_live_branch_follows_main_again_where_it_undoes_a_table_that_only_it_had(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "live", mode="live")
    with lake.transaction("live") as tx:
        tx.create_table("a.b", SCHEMA)
    lake.revert("live", branch="live")
    assert lake.branch_get("live").own_tables == ()
    with lake.transaction() as tx:
        tx.create_table("a.b", SCHEMA)
    assert "a.b" in lake.snapshot_of("live")
