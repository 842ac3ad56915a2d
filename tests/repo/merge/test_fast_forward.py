"""Fast-forwards: a merge commit with rows in the homes of the target, and `ff_only`."""

import pytest

import anabranch as ab
from anabranch.errors import WriteConflictError
from tests.repo.conftest import CUSTOMERS, ORDERS, append, ids, nothing_changes, raw
from tests.repo.rivals import raced_by


@pytest.fixture
def dev(lake: ab.Repository) -> ab.Repository:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    return lake


@pytest.mark.s3
def test_fast_forward_makes_a_commit_that_plain_lance_readers_see(dev: ab.Repository) -> None:
    before, head = dev.snapshot().id, dev.snapshot_of("dev").id
    done = dev.merge("dev", "main", ff_only=True)
    assert done.commit is not None
    assert (done.commit.parent_commit_id, done.commit.merged_parent_commit_id) == (before, head)
    assert ids(dev) == sorted(raw(dev, ORDERS, "main").to_table().column("id").to_pylist()) == [1, 2, 3, 4]
    dev.branch_delete("dev", purge=True)
    assert ids(dev) == [1, 2, 3, 4]


@pytest.mark.s3
def test_ff_only_is_refused_if_the_target_has_commits_of_its_own(dev: ab.Repository) -> None:
    append(dev, 30, key=CUSTOMERS)
    for dry_run in (True, False):
        with (
            nothing_changes(dev),
            pytest.raises(WriteConflictError, match="'main' has commits that 'dev' does not have"),
        ):
            dev.merge("dev", "main", ff_only=True, dry_run=dry_run)
    dev.rebase("dev", "main")
    assert dev.merge("dev", "main", ff_only=True).outcome == "fast_forward"
    assert dev.merge("dev", "main", ff_only=True).outcome == "already_up_to_date"


def test_ff_only_is_refused_if_the_target_moves_concurrently(dev: ab.Repository) -> None:
    crossed = raced_by(dev, lambda other: append(other, 30, key=CUSTOMERS))
    with pytest.raises(WriteConflictError, match="not a fast-forward"):
        crossed.merge("dev", "main", ff_only=True)
    assert ids(dev.snapshot_of("main")) == [1, 2, 3]
