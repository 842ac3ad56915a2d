"""A branch and a tag that want the same name at the same time."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.testing import Fault, FaultyStore
from tests.conftest import Location
from tests.processes import Program
from tests.repo.conftest import append
from tests.repo.rivals import raced_by

Act = Callable[[ab.Repository], object]


def tag(repo: ab.Repository) -> object:
    return repo.tag_create("rel")


def create(repo: ab.Repository) -> object:
    return repo.branch_create("rel")


def restore(repo: ab.Repository) -> object:
    return repo.branch_restore("rel")


def undo(repo: ab.Repository) -> object:
    repo.undo("rel")
    return None


def has_branch(repo: ab.Repository) -> bool:
    return "rel" in {info.name for info in repo.branch_list()}


def has_tag(repo: ab.Repository) -> bool:
    return "rel" in {info.name for info in repo.tag_list()}


@pytest.fixture(params=[create, restore, undo], ids=lambda act: act.__name__)
def bring(request: pytest.FixtureRequest, lake: ab.Repository) -> Act:
    """A way for a branch to come, in a repository where it can."""
    if request.param is not create:
        lake.branch_create("rel")
        lake.branch_delete("rel")
    act: Act = request.param
    return act


@pytest.mark.s3
def test_branch_create_detects_a_concurrent_tag(lake: ab.Repository, bring: Act) -> None:
    with pytest.raises(InvalidInputError, match="'rel' is the name of a tag"):
        bring(raced_by(lake, tag))
    assert has_tag(lake)
    assert not has_branch(lake)


@pytest.mark.s3
def test_tag_create_detects_a_concurrent_branch(lake: ab.Repository, bring: Act) -> None:
    with pytest.raises(InvalidInputError, match="'rel' is the name of a branch"):
        tag(raced_by(lake, bring))
    assert has_branch(lake)
    assert not has_tag(lake)


def test_a_name_given_up_is_free_again(lake: ab.Repository, bring: Act) -> None:
    with pytest.raises(InvalidInputError):
        tag(raced_by(lake, bring))
    lake.branch_delete("rel")
    tag(lake)
    lake.tag_delete("rel")
    bring(ab.open(lake.uri, storage_options=lake.storage_options))
    assert has_branch(lake)


def test_branch_with_concurrent_writers_is_deleted(lake: ab.Repository, bring: Act) -> None:
    """They come before the tombstone, so that nothing of theirs is lost."""
    crossed = raced_by(lake, tag)
    clock = testing.config_of(crossed).clock
    times = count()

    def write_when_the_branch_is_to_go() -> int:
        # The first time is asked before the branch comes, the second before it goes.
        if next(times) == 1:
            append(testing.open(lake), 7, branch="rel")
        return clock()

    with pytest.raises(InvalidInputError, match="'rel' is the name of a tag"):
        bring(testing.open(crossed, clock=write_when_the_branch_is_to_go))
    assert not has_branch(lake)
    lake.tag_delete("rel")
    lake.branch_restore("rel")
    assert lake.snapshot_of("rel").commit.message == "append (7,)"


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """A handle that stops before its nth request until it is released."""

    repo: ab.Repository
    store: FaultyStore

    @classmethod
    def at(cls, repo: ab.Repository, nth: int) -> "Stopping":
        store = FaultyStore(testing.store_of(repo), nth=nth, fault=Fault.STALL)
        return cls(repo=testing.open(repo, store=store), store=store)

    def begin(self, act: Act, threads: ThreadPoolExecutor) -> tuple[Future[bool], bool]:
        """Act until the stop, or to the end; whether there was a stop."""

        def succeeds() -> bool:
            try:
                act(self.repo)
            except AnabranchError:
                return False
            return True

        doing = threads.submit(succeeds)
        doing.add_done_callback(lambda _: self.store.reached.set())
        self.store.reached.wait()
        return doing, not doing.done()


def crossings(repo: ab.Repository, first: Act, second: Act, *, every: int) -> Iterator[tuple[bool, bool]]:
    """Let the first stop before each of its requests and the second, concurrently, before every nth of its own.

    Then the first goes on to its end, and then the second. Gives who succeeded; clearing up is left to the caller.
    """
    with ThreadPoolExecutor(2) as threads:
        for nth in count(1):
            for other in count(1 + nth % every, every):
                one, two = Stopping.at(repo, nth), Stopping.at(repo, other)
                doing, has_stopped = one.begin(first, threads)
                done, has_other_stopped = two.begin(second, threads)
                one.store.release()
                won = doing.result()
                two.store.release()
                yield won, done.result()
                if not has_other_stopped:
                    break
            if not has_stopped:
                return


@pytest.mark.parametrize("first", ["tag", "branch"])
def test_however_they_cross_the_name_has_one_owner_who_knows_it(
    lake: ab.Repository, bring: Act, first: str, request: pytest.FixtureRequest
) -> None:
    every = 1 if request.config.getoption("--proof") else 3
    seen = set()
    for won in crossings(lake, *((tag, bring) if first == "tag" else (bring, tag)), every=every):
        is_tagged, is_branched = won if first == "tag" else reversed(won)
        assert (has_tag(lake), has_branch(lake)) == (is_tagged, is_branched)
        assert not (is_tagged and is_branched)
        seen.add((is_tagged, is_branched))
        if is_tagged:
            lake.tag_delete("rel")
        if is_branched:
            lake.branch_delete("rel")
    assert {(True, False), (False, True)} <= seen


@pytest.mark.s3
def test_processes_that_want_a_name_for_a_branch_and_for_a_tag_do_not_both_get_it(location: Location) -> None:
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    names = [f"n{number}" for number in range(20)]
    course = {"uri": location / "lake", "branch": "main", "storage_options": location.storage_options}
    with Program("process_pool") as process_pool:
        results = process_pool.ask("contest", course=course, names=names)
    assert [result for result in results if "done" not in result] == []
    branched, tagged = (set(result["done"]) for result in results)
    assert branched & tagged == set()
    assert branched == {info.name for info in repo.branch_list()} - {"main"}
    assert tagged == {info.name for info in repo.tag_list()}
