"""Cherry-pick, revert and rebase: several commits and ranges, dry runs, checks, expected heads and metadata."""

from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch.errors import (
    BranchProtectedError,
    CheckFailedError,
    InvalidInputError,
    MergeConflictError,
    WriteConflictError,
)
from anabranch.types import ReplayResult
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, ids, nothing_changes, raw
from tests.repo.rivals import raced_by

Act = Callable[..., ReplayResult]


@pytest.fixture
def dev(lake: ab.Repository) -> ab.Repository:
    """A lake whose branch dev has three commits, and whose main has moved."""
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    append(lake, 40, branch="dev", key=CUSTOMERS)
    append(lake, 5, branch="dev")
    append(lake, 6)
    return lake


def raw_ids(repo: ab.Repository, ref: str) -> list[int]:
    return sorted(raw(repo, ORDERS, ref).to_table().column("id").to_pylist())


@pytest.mark.s3
def test_cherry_pick_of_a_range_is_a_commit_each_and_one_movement(dev: ab.Repository) -> None:
    sources = [dev.snapshot_of(ref).commit for ref in ("dev~2", "dev~1", "dev")]
    version = dev.branch_get("main").version
    done = dev.cherry_pick("main..dev", metadata={"ticket": "7"})
    assert ids(dev) == ids(another(dev)) == raw_ids(dev, "main") == [1, 2, 3, 4, 5, 6]
    assert ids(dev, CUSTOMERS) == [10, 20, 40]
    assert [commit.message for commit in done.commits] == [source.message for source in sources]
    assert [commit.metadata for commit in done.commits] == [{"ticket": "7", "commit": each.id} for each in sources]
    assert [commit.id for commit in dev.list_commits(limit=3)] == [commit.id for commit in done.commits[::-1]]
    assert (done.commit, dev.branch_get("main").version) == (done.commits[-1], version + 1)
    assert ids(dev.snapshot_of("main~1")) == [1, 2, 3, 4, 6]
    assert dev.doctor().is_clean
    dev.undo()
    assert ids(dev) == raw_ids(dev, "main") == [1, 2, 3, 6]


@pytest.mark.s3
def test_revert_of_a_range_goes_from_the_newest_to_the_oldest(dev: ab.Repository) -> None:
    start = dev.snapshot_of("dev~3")
    done = dev.revert("dev~3..dev", branch="dev")
    assert [commit.message for commit in done.commits] == [
        "Revert append (5,)",
        "Revert append (40,)",
        "Revert append (4,)",
    ]
    now = dev.snapshot_of("dev")
    assert (ids(now), ids(now, CUSTOMERS)) == (ids(start), ids(start, CUSTOMERS)) == ([1, 2, 3], [10, 20])
    append(dev, 9, branch="dev")
    assert ids(dev.snapshot_of("dev")) == raw_ids(dev, "dev") == [1, 2, 3, 9]
    assert dev.doctor().is_clean


def test_several_commits_are_applied_in_the_given_order(dev: ab.Repository) -> None:
    done = dev.cherry_pick(["dev", "dev~2"])
    assert [commit.message for commit in done.commits] == ["append (5,)", "append (4,)"]
    assert ids(dev) == [1, 2, 3, 4, 5, 6]
    # A commit of the range that the branch already has is left out.
    assert [commit.message for commit in dev.cherry_pick("main..dev").commits] == ["append (40,)"]
    with nothing_changes(dev), pytest.raises(InvalidInputError, match="2 commits would change nothing"):
        dev.cherry_pick(["dev", "dev~2"])


def test_the_commits_of_a_range_can_be_reverted_and_picked_one_by_one(dev: ab.Repository) -> None:
    done = dev.cherry_pick("main..dev")
    dev.revert(done.commits[0].id)
    assert ids(dev) == [1, 2, 3, 5, 6]
    dev.branch_create("old", "dev~3")
    assert dev.cherry_pick(done.commits[1].id, branch="old").commit is not None
    assert ids(dev.snapshot_of("old"), CUSTOMERS) == [10, 20, 40]


@pytest.mark.s3
def test_if_one_commit_of_a_range_has_conflicts_nothing_changes(dev: ab.Repository) -> None:
    for branch in ("main", "dev"):
        with dev.transaction(branch) as tx:
            tx.update(ORDERS, {"v": f"'{branch}'"}, where="id = 1")
    version = dev.branch_get("main").version
    with pytest.raises(MergeConflictError, match="on top of"):
        dev.cherry_pick("main..dev")
    assert dev.branch_get("main").version == version
    plan = dev.cherry_pick("main..dev", dry_run=True).plan
    assert [each.conflict_count for each in plan] == [0, 0, 0, 1]
    assert plan[-1].conflicts[0].key == {"id": 1}
    assert len(dev.cherry_pick("main..dev", strategy="target").commits) == 3


def test_a_range_is_applied_again_on_top_of_a_concurrent_commit(dev: ab.Repository) -> None:
    crossed = raced_by(dev, lambda other: append(other, 7))
    assert len(crossed.cherry_pick("dev~3..dev").commits) == 3
    assert ids(another(dev)) == raw_ids(dev, "main") == [1, 2, 3, 4, 5, 6, 7]
    assert dev.doctor().is_clean


ACTS: dict[str, tuple[str, Act]] = {
    "cherry-pick": ("main", lambda repo, **options: repo.cherry_pick("dev", branch="main", **options)),
    "cherry-pick of a range": ("main", lambda repo, **options: repo.cherry_pick("main..dev", branch="main", **options)),
    "revert": ("dev", lambda repo, **options: repo.revert("dev", branch="dev", **options)),
    "revert of a range": ("dev", lambda repo, **options: repo.revert("dev~2..dev", branch="dev", **options)),
    "rebase": ("dev", lambda repo, **options: repo.rebase("dev", "main", **options)),
}


@pytest.mark.parametrize("name", ACTS)
def test_dry_run_plans_what_would_change(dev: ab.Repository, name: str) -> None:
    _, act = ACTS[name]
    versions = {info.name: info.version for info in dev.branch_list()}
    done = act(dev, dry_run=True)
    assert (done.commits, done.commit, done.is_clean) == ((), None, True)
    assert {info.name: info.version for info in dev.branch_list()} == versions
    planned = [tuple(table.table for table in each.tables) for each in done.plan]
    assert planned == [commit.tables for commit in act(dev).commits]
    assert all(table.counts.total == 1 for each in done.plan for table in each.tables)


def test_dry_run_of_one_commit_writes_nothing(dev: ab.Repository) -> None:
    with nothing_changes(dev):
        dev.cherry_pick("dev", dry_run=True)
        dev.revert("dev", branch="dev", dry_run=True)


@pytest.mark.parametrize("name", ACTS)
def test_expected_head_must_be_the_head(dev: ab.Repository, name: str) -> None:
    branch, act = ACTS[name]
    head = dev.head_commit_id_for_branch(branch)
    old = dev.snapshot_of(f"{branch}~1").id
    for dry_run in (True, False):
        with nothing_changes(dev), pytest.raises(WriteConflictError, match=f"not on the expected {old}"):
            act(dev, expected_head=old, dry_run=dry_run)
    assert act(dev, expected_head=head).commit is not None


@pytest.mark.parametrize("name", ACTS)
def test_checks_see_the_result_before_it_is_published(dev: ab.Repository, name: str) -> None:
    branch, act = ACTS[name]
    version = dev.branch_get(branch).version
    with pytest.raises(CheckFailedError):
        act(dev, checks={"never": f"FROM {ORDERS}"})
    assert dev.branch_get(branch).version == version
    seen: list[list[int]] = []
    act(dev, checks={"seen": lambda snapshot: seen.append(ids(snapshot))})
    assert seen == [ids(dev.snapshot_of(branch))]


@pytest.mark.parametrize("name", ACTS)
def test_metadata_are_added_to_each_commit(dev: ab.Repository, name: str) -> None:
    _, act = ACTS[name]
    own = "rebased_from" if name == "rebase" else "commit"
    for commit in act(dev, metadata={"ticket": "7", own: "mine"}).commits:
        assert commit.metadata["ticket"] == "7"
        assert commit.metadata[own] != "mine"


@pytest.mark.parametrize("name", ACTS)
def test_a_protected_branch_stays_also_in_a_dry_run(dev: ab.Repository, name: str) -> None:
    branch, act = ACTS[name]
    dev.branch_protect(branch)
    version = dev.branch_get(branch).version
    for dry_run in (True, False):
        with pytest.raises(BranchProtectedError):
            act(dev, dry_run=dry_run)
    assert dev.branch_get(branch).version == version


def test_refs_and_ranges_without_commits_are_refused(dev: ab.Repository) -> None:
    wrong: list[tuple[str | list[str], str]] = [
        ([], "no commits are given"),
        ("dev..dev", "the range 'dev..dev' has no commits that changed tables"),
        ("dev..main~1", "has no commits that changed tables"),
        ("main...dev", "'main...dev' is not a range of commits"),
    ]
    for commit, problem in wrong:
        for act in (dev.cherry_pick, dev.revert):
            with nothing_changes(dev), pytest.raises(InvalidInputError) as refusal:
                act(commit)
            assert problem in refusal.value.problem
    with nothing_changes(dev), pytest.raises(InvalidInputError, match="one message is given for 3 commits"):
        dev.cherry_pick("main..dev", message="all")


def test_a_live_branch_takes_a_range_and_follows_main_after_its_revert(dev: ab.Repository) -> None:
    dev.branch_create("live", mode="live")
    version = dev.branch_get("live").version
    assert len(dev.cherry_pick("main..dev", branch="live", dry_run=True).plan) == 3
    assert dev.branch_get("live").version == version
    picked = dev.cherry_pick("main..dev", branch="live")
    assert [commit.message for commit in picked.commits] == ["append (4,)", "append (40,)", "append (5,)"]
    info = dev.branch_get("live")
    assert (info.version, set(info.own_tables)) == (version + 1, {ORDERS, CUSTOMERS})
    assert ids(dev.snapshot_of("live")) == [1, 2, 3, 4, 5, 6]
    # Each commit has recorded the state after it, on one state of main.
    assert [ids(dev.snapshot_of(commit.id)) for commit in picked.commits] == [
        [1, 2, 3, 4, 6],
        [1, 2, 3, 4, 6],
        [1, 2, 3, 4, 5, 6],
    ]
    # The first of the commits has made the table the branch's own, so that it stays so without the last one.
    dev.revert(picked.commits[-1].id, branch="live")
    assert ids(dev.snapshot_of("live")) == [1, 2, 3, 4, 6]
    assert set(dev.branch_get("live").own_tables) == {ORDERS, CUSTOMERS}
    dev.undo("live")
    reverted = dev.revert([commit.id for commit in picked.commits[::-1]], branch="live")
    assert len(reverted.commits) == 3
    assert dev.branch_get("live").own_tables == ()
    append(dev, 7)
    assert ids(dev.snapshot_of("live")) == ids(dev) == [1, 2, 3, 6, 7]
    dev.undo("live")
    assert ids(another(dev).snapshot_of("live")) == raw_ids(dev, "live") == [1, 2, 3, 4, 5, 6]
    assert dev.doctor().is_clean


def test_a_range_on_a_live_branch_is_all_or_nothing(dev: ab.Repository) -> None:
    dev.branch_create("live", mode="live")
    with dev.transaction("live") as tx:
        tx.append(ORDERS, [{"id": 5, "v": "other"}])
    before = dev.branch_get("live")
    with pytest.raises(MergeConflictError):
        dev.cherry_pick("main..dev", branch="live")
    assert dev.branch_get("live") == before
    dev.cherry_pick("main..dev", branch="live", strategy="target")
    assert ids(dev.snapshot_of("live")) == [1, 2, 3, 4, 5, 6]
    raced_by(dev, lambda rival: append(rival, 8, branch="live")).revert("live~2..live", branch="live")
    assert 8 in ids(dev.snapshot_of("live"))
    assert dev.doctor().is_clean
