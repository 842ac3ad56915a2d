"""Merges that once came to something else, found by random histories."""

import anabranch as ab
from tests.repo.conftest import append, ids


def test_the_commit_that_a_live_branch_is_on_is_taken_back_without_what_main_did_since(lake: ab.Repository) -> None:
    append(lake, 4)
    lake.branch_create_from("main", "live", mode="live")
    append(lake, 5)
    lake.revert("live", branch="live")
    assert ids(lake.snapshot_of("live")) == [1, 2, 3, 5]
