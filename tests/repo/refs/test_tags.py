"""Tags of the repository: names that do not move."""

import threading
from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch import errors, testing
from tests.repo.conftest import ORDERS, another, append
from tests.sealing import reseal


def ids(repo: ab.Repository, ref: str) -> list[int]:
    return sorted(repo.snapshot_of(ref)[ORDERS].to_arrow()["id"].to_pylist())


@pytest.mark.s3
def test_a_tag_stays_where_it_was_put(lake: ab.Repository) -> None:
    made = lake.tag_create("v1.0", description="first release")
    append(lake, 4)
    assert (made.name, made.description, made.created_by) == ("v1.0", "first release", "ada")
    assert made.commit_id == lake.snapshot_of("main~1").id
    assert ids(lake, "v1.0") == [1, 2, 3]
    assert ids(lake, "main") == [1, 2, 3, 4]
    assert lake.tag_list() == [made]
    assert lake.tag_get("v1.0") == made


def test_tag_names_the_commit_of_any_ref(lake: ab.Repository) -> None:
    append(lake, 4)
    append(lake, 5)
    lake.branch_create("dev")
    for name, ref in {"a": "main~1", "b": "main@v3", "c": "dev", "d": lake.snapshot().id, "e": "a"}.items():
        tag = lake.tag_create(name, ref=ref)
        assert tag.commit_id == lake.snapshot_of(ref).id
    assert ids(lake, "a~1") == [1, 2, 3]


def test_a_branch_is_made_from_a_tag(lake: ab.Repository) -> None:
    lake.tag_create("v1.0")
    append(lake, 4)
    made = lake.branch_create_from("v1.0", "fix")
    assert made.parent is None
    append(lake, 9, branch="fix")
    assert ids(lake, "fix") == [1, 2, 3, 9]


def test_a_tag_outlives_the_branch_it_was_made_on(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 7, branch="dev")
    lake.tag_create("kept", ref="dev")
    lake.branch_delete("dev")
    assert ids(lake, "kept") == [1, 2, 3, 7]


def test_deleted_tag_is_not_found_and_its_name_is_free(lake: ab.Repository) -> None:
    lake.tag_create("t")
    lake.tag_delete("t")
    assert lake.tag_list() == []
    with pytest.raises(errors.TagNotFoundError, match="there is no tag 't'"):
        lake.tag_get("t")
    with pytest.raises(errors.BranchNotFoundError, match="there is no branch, tag or commit 't'"):
        lake.snapshot_of("t")
    append(lake, 4)
    lake.tag_create("t")
    assert ids(lake, "t") == [1, 2, 3, 4]


@pytest.mark.s3
def test_of_many_that_make_and_remove_one_name_each_step_has_one_winner(lake: ab.Repository) -> None:
    won: list[str] = []

    def take_turns(number: int) -> None:
        own = another(lake)
        for _ in range(5):
            try:
                own.tag_create("contested", description=str(number))
                won.append("create")
                own.tag_delete("contested")
                won.append("delete")
            except (errors.TagExistsError, errors.TagNotFoundError, errors.BusyError):
                continue

    threads = [threading.Thread(target=take_turns, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = [tag.name for tag in lake.tag_list()]
    assert won.count("create") - won.count("delete") == len(left)
    assert won.count("create") >= 1


@pytest.mark.parametrize(
    ("name", "ref", "error", "message"),
    [
        ("a/b", None, errors.InvalidNameError, "contains '/'"),
        ("", None, errors.InvalidNameError, "is empty"),
        ("main", None, errors.InvalidInputError, "'main' is the name of a branch"),
        ("taken", None, errors.TagExistsError, "there is a tag 'taken' already"),
        ("new", "nope", errors.BranchNotFoundError, "no branch, tag or commit 'nope'"),
        ("new", "main~99", errors.CommitNotFoundError, "before the first commit"),
    ],
)
def test_bad_input_makes_no_tag(
    lake: ab.Repository, name: str, ref: str | None, error: type[Exception], message: str
) -> None:
    lake.tag_create("taken")
    with pytest.raises(error, match=message):
        lake.tag_create(name, ref=ref)
    assert [tag.name for tag in lake.tag_list()] == ["taken"]


def test_a_branch_cannot_take_the_name_of_a_tag(lake: ab.Repository) -> None:
    lake.tag_create("v1.0")
    with pytest.raises(errors.InvalidInputError, match=r"'v1\.0' is the name of a tag"):
        lake.branch_create("v1.0")
    lake.tag_delete("v1.0")
    lake.branch_create("v1.0")


@pytest.mark.parametrize("bring_back", [lambda repo: repo.branch_restore("rel"), lambda repo: repo.undo("rel")])
def test_a_branch_does_not_come_back_under_the_name_of_a_tag(
    lake: ab.Repository, bring_back: Callable[[ab.Repository], object]
) -> None:
    lake.branch_create("rel")
    lake.branch_delete("rel")
    lake.tag_create("rel")
    with pytest.raises(errors.InvalidInputError, match="'rel' is the name of a tag"):
        bring_back(lake)
    assert ids(lake, "rel") == [1, 2, 3]


def test_nothing_is_built_on_a_commit_that_was_never_published(lake: ab.Repository) -> None:
    """As a writer leaves it that dies between its two puts."""
    store, published = testing.store_of(lake), lake.snapshot().id
    orphan = testing.config_of(lake).new_id()
    data = store.get(f"_commits/{published}.json").replace(published.encode(), orphan.encode())
    store.put(f"_commits/{orphan}.json", reseal("", data))
    for build in (
        lambda: lake.tag_create("t", ref=orphan),
        lambda: lake.reset("main", to=orphan),
        lambda: lake.branch_create_from(orphan, "b"),
        lambda: lake.sql(f"FROM {ORDERS} AT '{orphan}'"),
        lambda: lake.sql(f"FROM {ORDERS}", ref=orphan),
    ):
        with pytest.raises(errors.CommitNotFoundError, match="was never published"):
            build()
