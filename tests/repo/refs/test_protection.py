"""Protected branches stay as they are, but for merges that pass their checks."""

from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch import errors
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, ids, nothing_changes, table


@pytest.fixture
def protected(lake: ab.Repository) -> ab.Repository:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    assert lake.branch_protect("dev").is_protected
    return lake


@pytest.mark.parametrize(
    "move",
    [
        lambda repo: append(repo, 5, branch="dev"),
        lambda repo: repo.branch_delete("dev"),
        lambda repo: repo.reset("dev", to="main"),
        lambda repo: repo.revert("dev", branch="dev"),
        lambda repo: repo.branch_pull("dev", ORDERS),
    ],
    ids=["commit", "delete", "reset", "revert", "pull"],
)
def test_nothing_moves_a_protected_branch(protected: ab.Repository, move: Callable[[ab.Repository], object]) -> None:
    before = protected.branch_get("dev")
    with pytest.raises(errors.BranchProtectedError, match="branch 'dev' is protected: only merges can change it"):
        move(protected)
    assert protected.branch_get("dev") == before


@pytest.mark.s3
def test_a_branch_moves_again_when_the_protection_is_lifted(protected: ab.Repository) -> None:
    assert not protected.branch_unprotect("dev").is_protected
    append(protected, 5, branch="dev")
    assert protected.snapshot_of("dev")[ORDERS].count_rows() == 5


def test_branches_of_a_protected_one_are_free(protected: ab.Repository) -> None:
    protected.branch_create_from("dev", "fix")
    append(protected, 5, branch="fix")
    assert not protected.branch_get("fix").is_protected


def test_a_transaction_that_was_open_when_it_was_protected_is_refused(lake: ab.Repository) -> None:
    tx = lake.transaction()
    tx.append(ORDERS, table(9))
    lake.branch_protect("main")
    with pytest.raises(errors.BranchProtectedError):
        tx.commit()
    assert lake.snapshot_of("main")[ORDERS].count_rows() == 3


def test_undo_removes_the_protection_and_nothing_before_it(protected: ab.Repository) -> None:
    protected.undo("dev")
    assert not protected.branch_get("dev").is_protected
    assert protected.snapshot_of("dev")[ORDERS].count_rows() == 4


def test_undo_removes_a_protection_of_a_redo(protected: ab.Repository) -> None:
    protected.undo("dev")
    assert not protected.branch_get("dev").is_protected
    protected.redo("dev")
    assert protected.branch_get("dev").is_protected
    protected.undo("dev")
    append(protected, 5, branch="dev")


def test_undo_and_redo_are_refused_while_a_branch_stays_protected(protected: ab.Repository) -> None:
    protected.branch_create("fix", "dev")
    append(protected, 5, branch="fix")
    protected.merge("fix", "dev")
    with nothing_changes(protected), pytest.raises(errors.BranchProtectedError):
        protected.undo("dev")
    protected.branch_unprotect("dev")
    protected.undo("dev")  # the branch is protected again
    with nothing_changes(protected), pytest.raises(errors.BranchProtectedError):
        protected.undo("dev")
    protected.redo("dev")
    assert not protected.branch_get("dev").is_protected


def test_protecting_twice_is_one_movement(protected: ab.Repository) -> None:
    version = protected.branch_get("dev").version
    assert protected.branch_protect("dev").version == version
    assert [movement.event for movement in protected.reflog("dev")][:1] == ["protected"]


def test_an_unknown_branch_cannot_be_protected(lake: ab.Repository) -> None:
    with pytest.raises(errors.BranchNotFoundError, match="no branch 'nope'"):
        lake.branch_protect("nope")


def test_a_handle_stays_where_it_is_when_nothing_was_to_do(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.sync_branch("dev")
    append(another(lake), 4)
    lake.branch_unprotect("dev")
    lake.branch_pull("dev", CUSTOMERS)
    assert ids(lake.snapshot()) == [1, 2, 3]


def test_work_that_began_on_a_protected_branch_is_published_when_it_moves_again(protected: ab.Repository) -> None:
    tx = protected.transaction("dev")
    tx.append(ORDERS, table(9))
    protected.branch_unprotect("dev")
    tx.commit()
    assert ids(protected.snapshot_of("dev")) == [1, 2, 3, 4, 9]


NO_NEGATIVES = f"SELECT * FROM {ORDERS} WHERE id < 0"


@pytest.mark.s3
def test_a_protected_branch_takes_merges_that_pass_its_checks(lake: ab.Repository) -> None:
    info = lake.branch_protect("main", checks={"no negative ids": NO_NEGATIVES})
    assert info.checks == another(lake).branch_get("main").checks == (("no negative ids", NO_NEGATIVES),)
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    assert another(lake).merge("dev", into="main").commit is not None
    append(lake, -5, branch="dev")
    before = lake.branch_list()
    with pytest.raises(errors.CheckFailedError, match="no negative ids"):
        lake.merge("dev", into="main")
    assert lake.branch_list() == before
    assert lake.branch_get("main").is_protected
    with lake.transaction("dev") as tx:
        tx.delete(ORDERS, "id < 0")
    lake.merge("dev", into="main", squash=True)
    assert ids(lake) == [1, 2, 3, 4]


def test_what_is_not_a_merge_stays_out_of_a_protected_branch_with_checks(lake: ab.Repository) -> None:
    picked = append(lake, 4)
    lake.branch_create("dev")
    append(lake, 5, branch="dev")
    run = lake.begin_run("main")
    with run.transaction() as tx:
        tx.append(ORDERS, table(6))
    lake.branch_protect("main", checks=[NO_NEGATIVES])
    for move in (
        lambda: append(lake, 7),
        lambda: lake.revert(picked.graph_commit_id),
        lambda: lake.cherry_pick("dev"),
        lambda: lake.reset("main", to="main~1"),
        lambda: lake.rebase("main", onto="dev"),
        run.publish,
    ):
        with pytest.raises(errors.BranchProtectedError):
            move()
    with pytest.raises(errors.InvalidInputError, match="merge"):
        lake.transaction(kind="merge")
    assert ids(lake) == [1, 2, 3, 4]


def test_a_branch_protected_while_a_merge_is_under_way_checks_it(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, -5, branch="dev")

    def protect(_: object) -> None:
        another(lake).branch_protect("main", checks=[NO_NEGATIVES])

    with pytest.raises(errors.CheckFailedError, match="id < 0"):
        lake.merge("dev", into="main", checks=[protect])
    assert ids(lake) == [1, 2, 3]


@pytest.mark.parametrize("check", ["SELEC 1", "SELECT * FROM in_c_sales.nope", "DROP TABLE x", lambda _: True, 3])
def test_checks_that_cannot_be_kept_are_refused(lake: ab.Repository, check: object) -> None:
    with pytest.raises((errors.InvalidInputError, errors.NotFoundError)):
        lake.branch_protect("main", checks=[check])  # type: ignore[list-item]
    assert not lake.branch_get("main").is_protected


def test_other_checks_replace_the_first(lake: ab.Repository) -> None:
    lake.branch_protect("main", checks=[NO_NEGATIVES])
    assert lake.branch_protect("main").checks == ()
    assert lake.branch_unprotect("main").checks == ()
    assert [movement.event.value for movement in lake.reflog(limit=3)] == ["unprotected", "protected", "protected"]
