"""A renamed branch: its tables, history and children stay, the old name leads to the new one, and can be used again."""

from collections.abc import Callable

import lance
import pytest

import anabranch as ab
from anabranch import errors
from anabranch.storage.options import lance_options
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, entry, ids, nothing_changes, raw, table
from tests.repo.gc.object_ages import pass_time
from tests.repo.rivals import raced_by


@pytest.fixture
def dev(lake: ab.Repository) -> ab.Repository:
    """Branch dev with order 4, and branch child of it with order 5."""
    lake.branch_create("dev", description="try it")
    append(lake, 4, branch="dev")
    lake.branch_create("child", "dev")
    append(lake, 5, branch="child")
    return lake


def names(repo: ab.Repository, *, deleted: bool = False) -> list[str]:
    return [branch.name for branch in repo.branch_list(deleted=deleted)]


@pytest.mark.s3
def test_rename_keeps_the_branch_and_frees_the_old_name(dev: ab.Repository) -> None:
    before = dev.branch_get("dev")
    renamed = dev.branch_rename("dev", "prices")
    assert (renamed.name, renamed.head_commit_id, renamed.parent) == ("prices", before.head_commit_id, "main")
    assert (renamed.created_at, renamed.created_by, renamed.description) == (
        before.created_at,
        before.created_by,
        "try it",
    )
    assert names(dev) == ["child", "main", "prices"]
    assert names(dev, deleted=True) == []
    assert dev.branch_get("child").parent == "prices"
    append(dev, 6, branch="prices")
    assert ids(dev.snapshot_of("prices")) == [1, 2, 3, 4, 6]
    assert str(entry(dev, ref="prices").home).startswith("prices/")
    dev.branch_create("dev")
    append(dev, 7, branch="dev")
    assert (ids(dev.snapshot_of("dev")), ids(dev.snapshot_of("prices"))) == ([1, 2, 3, 7], [1, 2, 3, 4, 6])
    # The child was made from the branch, not from its name.
    assert dev.branch_get("child").parent == "prices"
    assert dev.branch_pull("child", ORDERS)
    assert ids(dev.snapshot_of("child")) == [1, 2, 3, 4, 6]
    with pytest.raises(errors.BranchInUseError, match="branch 'child' was made from 'prices'"):
        dev.branch_delete("prices")
    dev.branch_delete("dev")
    assert another(dev).doctor().findings == ()


def test_merge_after_a_rename_takes_only_what_is_new(dev: ab.Repository) -> None:
    dev.branch_rename("dev", "prices")
    assert dev.merge("child", into="prices").commit is not None
    assert dev.merge("prices", into="main").commit is not None
    assert ids(dev.snapshot_of("main")) == [1, 2, 3, 4, 5]
    assert dev.merge("prices", into="main").commit is None


def test_old_name_is_refused_with_the_new_one(dev: ab.Repository) -> None:
    bound, tx = another(dev, "dev"), another(dev, "dev").transaction()
    tx.append(ORDERS, table(8))
    dev.branch_rename("dev", "b")
    dev.branch_rename("b", "c")
    for use in (bound.snapshot, tx.commit, lambda: dev.branch_restore("dev"), lambda: dev.undo("dev")):
        with pytest.raises(errors.BranchNotFoundError, match="branch 'dev' was renamed to 'c'; use the name 'c'"):
            use()
    with pytest.raises(errors.BranchNotFoundError, match="was renamed to 'c'"):
        dev.branch_delete("dev", purge=True)
    dev.branch_delete("child")
    dev.branch_delete("c")
    with pytest.raises(errors.BranchNotFoundError, match="renamed to 'c', which was deleted; restore 'c'"):
        bound.snapshot()
    assert dev.branch_restore("c").name == "c"
    assert dev.branch_restore("child").parent == "c"


def test_rename_back(dev: ab.Repository) -> None:
    dev.branch_rename("dev", "prices")
    dev.branch_rename("prices", "dev")
    append(dev, 6, branch="dev")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 4, 6]
    assert dev.branch_get("child").parent == "dev"
    with pytest.raises(errors.BranchNotFoundError, match="'prices' was renamed to 'dev'"):
        dev.snapshot_of("prices")


@pytest.mark.parametrize(
    ("rename", "error", "message"),
    [
        (("main", "b"), errors.InvalidInputError, "branch 'main' cannot be renamed"),
        (("dev", "child"), errors.BranchExistsError, "branch 'child' already exists"),
        (("dev", "dev"), errors.BranchExistsError, "branch 'dev' already exists"),
        (("dev", "v1"), errors.InvalidInputError, "'v1' is the name of a tag"),
        (("dev", "a b"), errors.InvalidNameError, "a b"),
        (("none", "b"), errors.BranchNotFoundError, "there is no branch 'none'"),
    ],
)
def test_refused_rename_changes_nothing(
    dev: ab.Repository, rename: tuple[str, str], error: type[Exception], message: str
) -> None:
    dev.tag_create("v1")
    with nothing_changes(dev), pytest.raises(error, match=message):
        dev.branch_rename(*rename)


def test_branch_that_must_not_move_is_not_renamed(dev: ab.Repository) -> None:
    run = dev.begin_run("dev")
    with nothing_changes(dev), pytest.raises(errors.BranchInUseError, match="is active on branch 'dev'"):
        dev.branch_rename("dev", "b")
    run.abort()
    dev.branch_protect("dev")
    with nothing_changes(dev), pytest.raises(errors.BranchProtectedError):
        dev.branch_rename("dev", "b")


def test_external_write_is_not_left_behind(dev: ab.Repository) -> None:
    options = dev.storage_options
    lance.write_dataset(
        table(9),
        raw(dev, ref="dev"),
        mode="append",
        storage_options=lance_options(options) if options else None,
    )
    with nothing_changes(dev), pytest.raises(errors.ExternalWriteError, match="another Lance tool wrote to"):
        dev.branch_rename("dev", "b")
    dev.adopt(ORDERS, branch="dev")
    dev.branch_rename("dev", "b")
    assert ids(dev.snapshot_of("b")) == [1, 2, 3, 4, 9]


@pytest.mark.parametrize(
    "move",
    [
        lambda repo: append(repo, 9, branch="dev"),
        lambda repo: repo.branch_delete("child"),
        lambda repo: repo.branch_create("other", "dev"),
    ],
    ids=["commit", "delete a child", "create a child"],
)
def test_rename_races_with_a_writer(dev: ab.Repository, move: Callable[[ab.Repository], object]) -> None:
    raced_by(dev, move).branch_rename("dev", "b")
    after = ids(dev.snapshot_of("b"))
    assert after == ([1, 2, 3, 4, 9] if "other" not in names(dev) and "child" in names(dev) else [1, 2, 3, 4])
    assert {branch.parent for branch in dev.branch_list() if branch.name not in ("main", "b")} <= {"b"}
    assert another(dev).doctor().findings == ()


def test_error_of_a_writer_that_loses_against_a_rename_has_the_new_name(dev: ab.Repository) -> None:
    slow = raced_by(dev, lambda repo: repo.branch_rename("dev", "b"))
    with pytest.raises(errors.BranchNotFoundError, match="branch 'dev' was renamed to 'b'"):
        append(slow, 9, branch="dev")
    assert ids(dev.snapshot_of("b")) == [1, 2, 3, 4]


def test_two_renames_of_one_branch(dev: ab.Repository) -> None:
    with pytest.raises(errors.BranchNotFoundError, match="renamed to 'c'"):
        raced_by(dev, lambda repo: repo.branch_rename("dev", "c")).branch_rename("dev", "b")
    assert names(dev) == ["c", "child", "main"]
    assert dev.branch_get("child").parent == "c"


def test_gc_after_a_rename_keeps_what_the_branch_needs(dev: ab.Repository) -> None:
    reset_away = append(dev, 6, branch="dev").graph_commit_id
    dev.reset("dev", to="dev~1")
    dev.branch_rename("dev", "prices")
    pass_time(dev)
    later = another(dev)
    later.gc()
    assert ids(later.snapshot_of("prices")) == [1, 2, 3, 4]
    # By default gc keeps all positions of a branch, also those from before the rename.
    assert ids(later.snapshot_of(reset_away)) == [1, 2, 3, 4, 6]
    append(later, 7, branch="prices")
    pass_time(dev)
    later = another(dev)
    later.gc(keep_last=1)
    assert ids(later.snapshot_of("prices")) == [1, 2, 3, 4, 7]
    assert ids(later.snapshot_of("child")) == [1, 2, 3, 4, 5]
    with pytest.raises(errors.CollectedError):
        later.snapshot_of(reset_away)
    assert another(dev).doctor().findings == ()


def test_history_and_reflog_after_a_rename(dev: ab.Repository) -> None:
    old = dev.branch_get("dev")
    dev.branch_rename("dev", "prices")
    append(dev, 6, branch="prices")
    assert [commit.message for commit in dev.list_commits("prices")][:2] == ["append (6,)", "append (4,)"]
    assert [movement.change for movement in dev.reflog("prices")] == ["committed", "renamed from dev"]
    assert [movement.change for movement in dev.reflog("dev")] == ["renamed to prices", "committed", "created"]
    dev.undo("prices")
    with pytest.raises(errors.InvalidInputError, match="is its rename from 'dev', which cannot be undone"):
        dev.undo("prices")
    dev.reset("prices", to=f"dev@v{old.version - 1}")
    assert ids(dev.snapshot_of("prices")) == [1, 2, 3]
    created = dev.reflog("dev")[-1].moved.isoformat()
    assert ids(dev.snapshot_of(f"prices@{{{created}}}")) == [1, 2, 3]


def test_live_branch_still_follows_main(lake: ab.Repository) -> None:
    lake.branch_create("live", mode="live")
    first = append(lake, 4, branch="live")
    lake.branch_rename("live", "new")
    append(lake, 30, key=CUSTOMERS)
    append(lake, 5, branch="new")
    assert (ids(lake.snapshot_of("new")), ids(lake.snapshot_of("new"), CUSTOMERS)) == ([1, 2, 3, 4, 5], [10, 20, 30])
    assert [change.commit.branch for change in lake.changes(ORDERS, until="new")][-2:] == ["live", "new"]
    lake.reset("new", to="live@v2")
    assert ids(lake.snapshot_of("new")) == [1, 2, 3, 4]
    assert lake.branch_get("new").own_tables == (ORDERS,)
    # The revert of the commit that copied the table lets it follow main again, under the new name too.
    lake.revert(first.graph_commit_id, branch="new")
    assert lake.branch_get("new").own_tables == ()
    merged = lake.merge("new", into="main").commit
    assert merged is not None
    assert merged.tables == ()


def test_kept_decisions_follow_the_branch(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    for branch in ("dev", "main"):
        with lake.transaction(branch, message="change") as tx:
            tx.upsert(ORDERS, table(1, 2, v=branch))
    decision = {"table": ORDERS, "key": {"id": 1}, "column": "v", "take": "source"}
    with pytest.raises(errors.MergeConflictError):
        lake.merge("dev", resolutions=[decision], keep_decisions=True)
    with pytest.raises(errors.MergeConflictError):
        lake.merge("main", into="dev", resolutions=[decision], keep_decisions=True)
    lake.branch_rename("dev", "prices")
    for source, into in (("prices", "main"), ("main", "prices")):
        assert [kept["key"] for kept in lake.decision_list(source, into)] == [{"id": 1}]
    lake.branch_create("dev")
    assert lake.decision_list("dev") == []
