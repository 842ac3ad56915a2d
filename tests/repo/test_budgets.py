"""Requests and bytes that an operation may cost, whatever the number of tables and the length of the history."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.commits import CommitSpec, is_due_for_full_map
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.creation import check_repository
from anabranch.repo.log.entries import Changes, CommitKind, LogEntry, TableEntry
from anabranch.repo.repository import Repository
from anabranch.repo.write.publish import Attempt
from anabranch.storage import open_store
from anabranch.testing import CountingStore
from tests.conftest import Location
from tests.handles import open_with

REAL = ("s.one", "s.two", "s.three")
SCHEMA = pa.schema([("id", pa.int64())])
ROW = pa.table({"id": [1]}, schema=SCHEMA)
ABOUT = CommitSpec(message="nightly load", kind=CommitKind.LOAD, metadata={})
PAGE = 64


def key_of(number: int) -> TableKey:
    return TableKey.parse(f"in_c_sales.table_{number:04d}")


def entry_of(number: int, *, version: int) -> TableEntry:
    """An entry as commits make them; it points to nothing, and no budget opens a table."""
    return TableEntry(
        dataset=f"in_c_sales/table_{number:04d}.lance",
        home=None,
        version=(1 << 63) + version,
        head=version,
        primary_key=("id",),
        rows=1000 + version,
    )


def begin(location: Location, *, tables: int) -> None:
    """A repository with a given number of tables, three of which have data, made in two commits."""
    repo = ab.init(location / "lake", storage_options=location.storage_options, actor="ada")
    with repo.transaction(message="first") as tx:
        for key in REAL:
            tx.create_table(key, SCHEMA)
    commit(repo, [{key_of(number): entry_of(number, version=1) for number in range(tables)}])


def grow(location: Location, *, tables: int, until: int) -> None:
    """Commit to one table after the other until there are `count` commits."""
    repo = ab.open(location / "lake", storage_options=location.storage_options, actor="ada")
    made = testing.repo_store_of(repo).heads.get(BranchName(MAIN)).head.commit.generation
    commit(repo, ({key_of(n % tables): entry_of(n % tables, version=n)} for n in range(made, until)))


def commit(repo: Repository, many: Iterable[Changes]) -> None:
    def refuse(head: LogEntry) -> Changes:
        raise AssertionError(f"{head.branch} moved")

    head = testing.repo_store_of(repo).heads.get(BranchName(MAIN))
    for changes in many:
        head = Attempt(testing.repo_store_of(repo), head, changes, ABOUT, refuse).put().entry


def open_counted(location: Location) -> tuple[Repository, CountingStore]:
    """A handle that has read nothing but the mark, as `ab.open` gives it."""
    root = location / "lake"
    store = CountingStore(open_store(root, location.storage_options))
    config = RepoConfig(root=root, store=store, storage_options=location.storage_options, actor="ada")
    return open_with(replace(config, made_at=check_repository(config).root)), store


@dataclass(frozen=True)
class Budgets:
    """The requests of each operation at one size of a repository."""

    opened: Counter[str]
    travelled: Counter[str]
    branched: Counter[str]
    one_published: Counter[str]
    three_published: Counter[str]
    run_begun: Counter[str]
    run_published: Counter[str]
    branches: int
    branches_listed: Counter[str]
    commits: int
    commits_listed: Counter[str]


def measure(location: Location) -> Budgets:
    def cost(operation: Callable[[Repository], object]) -> Counter[str]:
        repo, store = open_counted(location)
        operation(repo)
        return store.counts

    def branch() -> Counter[str]:
        repo, store = open_counted(location)
        repo.snapshot()  # opens its source
        store.reset()
        repo.branch_create(f"b-{uuid4().hex}")
        return store.counts

    def publish(*keys: str) -> Counter[str]:
        repo, store = open_counted(location)
        repo.snapshot()
        store.reset()
        with repo.transaction(message="append") as tx:
            for key in keys:
                tx.append(key, ROW)
        return store.counts

    def begin_run() -> Counter[str]:
        repo, store = open_counted(location)
        repo.snapshot()
        store.reset()
        run = repo.begin_run()
        counts = store.counts
        run.abort()
        return counts

    def publish_run(*keys: str) -> Counter[str]:
        repo, store = open_counted(location)
        run = repo.begin_run()
        with run.transaction() as tx:
            for key in keys:
                tx.append(key, ROW)
        store.reset()
        run.publish()
        return store.counts

    repo, _ = open_counted(location)
    history = repo.list_commits(limit=None)
    return Budgets(
        opened=cost(lambda repo: repo.snapshot()),
        travelled=cost(lambda repo: repo.snapshot_of(history[len(history) // 2].graph_commit_id)),
        commits=len(history),
        commits_listed=cost(lambda repo: repo.list_commits(limit=None)),
        branched=branch(),
        run_begun=begin_run(),
        run_published=publish_run(*REAL),
        branches=len(repo.branch_list()),
        branches_listed=cost(lambda repo: repo.branch_list()),
        one_published=publish(*REAL[:1]),
        three_published=publish(*REAL),
    )


# On local disk a hint and a probe find a head, on object stores a listing and a get do; then comes the base.
# `open_counted` has read the mark.
MARK = Counter(get=1)
HEAD = {True: Counter(get=2), False: Counter(list=1, get=1)}
HINT = {True: Counter(put=1), False: Counter[str]()}


def assert_within_budget(found: Budgets, *, is_local: bool) -> None:
    head, hint = HEAD[is_local], HINT[is_local]
    base = Counter(get=1)
    assert found.opened == MARK + head + base
    assert found.opened.total() <= 5
    assert found.travelled == MARK + Counter(get=2)
    # The source as it is now, whether a tag has the name, the entry; then whether the source is there, and no tag yet.
    # And before and after, that no schema change is under way; there never was one.
    no_lock = Counter(list=1) + Counter(get=1 if is_local else 0)
    assert found.branched == Counter(get=2) + Counter(put_if_absent=1) + hint + Counter(get=2) + no_lock + no_lock
    # The head as it is now, commit and entry, and whether another process was faster before it was settled.
    published = Counter(get=1) + Counter(put_if_absent=2) + hint + Counter(get=1)
    assert found.one_published == published
    assert found.three_published == published
    # The source as it is now, a heartbeat and the entry; then whether the source is there still.
    assert found.run_begun == Counter(get=1) + Counter(put=1, put_if_absent=1) + hint + Counter(get=1)
    # A heartbeat; that it is published, commit and entry, and that it was; the heartbeat is removed. Run and target
    # are read before and between, and the run's first commit and the bases of both are read.
    entries = Counter({name: 3 * number for name, number in hint.items()})
    writes = Counter(put=1, put_if_absent=4, delete=1) + entries
    assert Counter({name: found.run_published[name] for name in writes}) == writes
    reads = found.run_published - writes
    assert set(reads) <= {"get", "list"}
    assert reads.total() <= 10
    each = Counter({name: count * found.branches for name, count in head.items()})
    assert found.branches_listed == MARK + Counter(list_folders=1) + each
    # A get for each page; the commit that made all tables ends its page early.
    assert found.commits_listed.total() <= (MARK + head).total() + found.commits // PAGE + 1


@pytest.fixture(scope="module", params=[1, 1000], ids=lambda tables: f"{tables} tables")
def grown(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Location, Budgets, Budgets]:
    """A repository of 2,000 commits, and its budgets at 10 commits and at 2,000."""
    location = Location(root=str(tmp_path_factory.mktemp("lake")))
    begin(location, tables=request.param)
    grow(location, tables=request.param, until=10)
    early = measure(location)
    grow(location, tables=request.param, until=2000)
    return location, early, measure(location)


def test_operations_cost_the_same_requests_at_10_and_at_2000_commits_at_1_and_at_1000_tables(
    grown: tuple[Location, Budgets, Budgets],
) -> None:
    _, early, late = grown
    assert early.commits < 20
    assert late.commits > 2000
    for found in (early, late):
        assert_within_budget(found, is_local=True)


def test_log_entries_do_not_grow_with_the_history(grown: tuple[Location, Budgets, Budgets]) -> None:
    location, _, _ = grown
    sizes = [info.size for info in sorted(open_store(location / "lake").list("_versions/main"), key=lambda i: i.path)]
    newest, oldest = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    assert max(newest) < 16 * 1024
    assert max(newest) < max(oldest) * 1.05
    assert sum(size > 16 * 1024 for size in sizes) <= 1  # the commit that made all tables names them


def test_listed_commits_are_those_that_were_made(grown: tuple[Location, Budgets, Budgets]) -> None:
    location, _, _ = grown
    repo = ab.open(location / "lake")
    newest = repo.list_commits(limit=2 * PAGE + 10)
    assert newest == [repo.get_commit(commit.graph_commit_id) for commit in newest]
    assert newest[PAGE + 5 :] == repo.list_commits(after=newest[PAGE + 4].graph_commit_id, limit=PAGE + 5)
    first = repo.list_commits(limit=None)[-12:]
    assert first == [repo.get_commit(commit.graph_commit_id) for commit in first]


def test_commits_are_iterated_lazily(grown: tuple[Location, Budgets, Budgets]) -> None:
    location, _, _ = grown
    repo, store = open_counted(location)
    store.reset()
    commits = repo.iter_commits()
    first = [next(commits) for _ in range(3)]
    assert store.counts == HEAD[True]
    assert first == repo.list_commits(limit=3)
    store.reset()
    others = sum(1 for _ in commits)
    assert others > 1990
    assert others // PAGE <= store.total <= others // PAGE + 4  # a few pages end early


@pytest.mark.parametrize(
    ("new", "tables", "enough"),
    [(1, 20, 17), (1, 1000, 32), (40, 1000, 201), (1000, 1000, 334)],
)
def test_full_map_is_due_where_it_costs_less_than_repeating_changes(new: int, tables: int, enough: int) -> None:
    assert is_due_for_full_map(new=new, since_base=enough, tables=tables)
    assert not is_due_for_full_map(new=new, since_base=enough - 1, tables=tables)


def test_commits_rarely_hold_the_full_map(grown: tuple[Location, Budgets, Budgets]) -> None:
    location, _, late = grown
    written = [info.size for info in open_store(location / "lake").list("_commits")]
    assert sum(written) / late.commits < 16 * 1024
    assert sum(size > 64 * 1024 for size in written) < late.commits / 30


@pytest.mark.s3
def test_operations_cost_the_same_requests_on_every_store(location: Location) -> None:
    for tables, commits in ((1, 10), (40, 70)):
        begin(replace(location, root=location / f"{tables}"), tables=tables)
        grow(replace(location, root=location / f"{tables}"), tables=tables, until=commits)
        assert_within_budget(measure(replace(location, root=location / f"{tables}")), is_local=location.is_local)


def test_a_version_asked_for_again_is_not_read_again(location: Location) -> None:
    begin(location, tables=1)
    made = ab.open(location / "lake", storage_options=location.storage_options)
    with made.transaction() as tx:
        tx.create_table("s.keyed", SCHEMA, primary_key=["id"])
        tx.append("s.keyed", ROW)
    version = made.snapshot().version
    repo, store = open_counted(location)
    store.reset()
    assert repo.entity_at("s.keyed", 1, version=version) == {"id": 1}
    assert store.total <= 2
    store.reset()
    assert repo.entity_at("s.keyed", 1, version=version) == {"id": 1}
    assert store.total == 0


@pytest.mark.s3
def test_opening_a_branch_checks_it_within_the_budget_of_its_snapshot(location: Location) -> None:
    begin(location, tables=1)
    ab.open(location / "lake", storage_options=location.storage_options).branch_create("dev")
    main, store = open_counted(location)
    repo = testing.open(main, branch="dev")
    repo.branch_get("dev")  # as `ab.open` does for any branch but main
    assert store.counts == MARK + HEAD[location.is_local]
    repo.snapshot()
    assert store.total <= 5


@pytest.mark.s3
def test_runs_that_are_over_cost_only_those_who_ask_for_them(location: Location) -> None:
    begin(location, tables=1)
    repo, store = open_counted(location)

    def cost(operation: Callable[[], object]) -> Counter[str]:
        store.reset()
        operation()
        return store.counts

    alone = cost(repo.branch_list)
    for _ in range(20):
        repo.begin_run().abort()
    assert cost(repo.branch_list) == alone
    head = HEAD[location.is_local]
    one_page = Counter({name: 16 * number for name, number in head.items()}) + Counter(list_folders=1)
    assert cost(lambda: repo.run_list(limit=3)) == one_page
    assert cost(lambda: repo.run_list(limit=None)).total() == 20 * head.total() + 1
