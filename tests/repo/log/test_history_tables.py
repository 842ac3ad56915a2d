"""The commits as Lance tables: complete, without repetition, and made again at will."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.format.home import Home
from anabranch.format.plain_tables import add_rows, find_newest, make_table, replace_rows
from anabranch.storage import open_store
from anabranch.storage.options import lance_options
from tests.conftest import Location
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append
from tests.repo.test_budgets import open_counted

COMMITS = "_graph_commits.lance"
ACTORS = "_graph_commit_actors.lance"
COLUMNS = [
    "graph_commit_id",
    "manifest_branch",
    "manifest_version",
    "parent_commit_id",
    "merged_parent_commit_id",
    "created_at",
    "kind",
    "message",
]


def raw(repo: ab.Repository, name: str) -> lance.LanceDataset:
    options = repo.storage_options
    return lance.dataset(f"{repo.uri}/{name}", storage_options=lance_options(options) if options else None)


def recorded(repo: ab.Repository) -> list[dict[str, Any]]:
    """The content of both tables together, by commit id."""
    actors = {row["graph_commit_id"]: row["actor_id"] for row in raw(repo, ACTORS).to_table().to_pylist()}
    assert len(actors) == raw(repo, ACTORS).count_rows()
    rows = raw(repo, COMMITS).to_table().to_pylist()
    assert set(actors) <= {row["graph_commit_id"] for row in rows}
    return sorted(({**row, "actor_id": actors.get(row["graph_commit_id"])} for row in rows), key=by_id)


def expected(*commits: ab.GraphCommit) -> list[dict[str, Any]]:
    rows = ({name: getattr(commit, name) for name in (*COLUMNS, "actor_id")} for commit in commits)
    return sorted(rows, key=by_id)


def by_id(row: dict[str, Any]) -> str:
    return str(row["graph_commit_id"])


@pytest.mark.s3
def test_tables_hold_every_commit_of_every_branch(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    on_dev = append(lake, 4, branch="dev")
    undone = append(lake, 5)
    lake.reset("main", to="main~1")
    append(lake, 6)
    lake.branch_delete("dev")
    made = lake.history_sync()
    assert recorded(lake) == expected(on_dev, undone, *lake.list_commits(limit=None))
    assert (made.commits_uri, made.actors_uri) == (f"{lake.uri}/{COMMITS}", f"{lake.uri}/{ACTORS}")
    assert made.added > 0
    assert lake.history_sync().added == 0


def test_tables_match_the_commit_graph(lake: ab.Repository) -> None:
    lake.history_sync()
    commits, actors = raw(lake, COMMITS), raw(lake, ACTORS)
    assert commits.has_stable_row_ids
    assert actors.has_stable_row_ids
    assert commits.schema.names == COLUMNS
    assert commits.schema.field("created_at").type == pa.int64()
    assert actors.schema.names == ["graph_commit_id", "actor_id"]


def test_tables_follow_commits_by_themselves(repo: ab.Repository) -> None:
    with repo.transaction(message="first") as tx:
        tx.create_table(ORDERS, pa.schema([("id", pa.int64()), ("v", pa.string())]))
    assert recorded(repo) == expected(*repo.list_commits())
    for number in range(40):
        append(repo, number)
    behind = len(repo.list_commits(limit=None)) - raw(repo, COMMITS).count_rows()
    assert 0 <= behind < 32
    repo.history_sync()
    assert recorded(repo) == expected(*repo.list_commits(limit=None))


def test_first_commit_on_a_branch_is_recorded_later(lake: ab.Repository) -> None:
    lake.history_sync()
    before = recorded(lake)
    lake.branch_create("dev")
    made = append(lake, 4, branch="dev")
    assert recorded(lake) == before
    lake.history_sync()
    assert recorded(lake) == expected(made, *lake.list_commits(limit=None))


def test_actors_get_a_table_with_the_first_of_them(location: Location) -> None:
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    with repo.transaction(message="nobody") as tx:
        tx.create_table(ORDERS, pa.schema([("id", pa.int64()), ("v", pa.string())]))
    assert repo.history_sync().actors_uri is None
    assert repo.history_rebuild().actors_uri is None
    store = open_store(repo.uri, location.storage_options)
    assert not list(store.list(ACTORS))
    with ab.open(repo.uri, storage_options=location.storage_options, actor="ada").transaction(message="ada") as tx:
        tx.append(ORDERS, pa.table({"id": [1], "v": ["a"]}))
    assert repo.history_sync().actors_uri == f"{repo.uri}/{ACTORS}"
    assert recorded(repo) == expected(*repo.list_commits())
    assert raw(repo, ACTORS).count_rows() == 1


@pytest.mark.s3
def test_tables_are_made_again_from_the_logs(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    on_dev = append(lake, 4, branch="dev")
    lake.history_sync()
    complete = expected(on_dev, *lake.list_commits())
    raw(lake, COMMITS).delete("manifest_version > 1")
    raw(lake, ACTORS).delete("true")
    assert lake.history_rebuild().added == len(complete)
    assert recorded(lake) == complete
    append(lake, 5)
    assert lake.history_sync().added == 1
    assert recorded(lake) == expected(on_dev, *lake.list_commits())


@pytest.mark.parametrize("name", [COMMITS, ACTORS])
@pytest.mark.parametrize("what", ["lost", "damaged"])
def test_lost_and_damaged_tables_are_made_again_and_stop_no_commit(lake: ab.Repository, name: str, what: str) -> None:
    lake.history_sync()
    store = open_store(lake.uri, lake.storage_options)
    for info in list(store.list(name)):
        if what == "lost":
            store.delete(info.path)
        else:
            store.put(info.path, b"nonsense")
    for number in range(4, 40):
        append(lake, number)
    lake.history_rebuild()
    assert recorded(lake) == expected(*lake.list_commits(limit=None))


def test_update_that_died_between_the_tables_is_finished_by_the_next(lake: ab.Repository) -> None:
    lake.history_sync()
    commits = find_newest(Home.at(f"{lake.uri}/{COMMITS}", lake.storage_options))
    assert commits is not None
    append(lake, 4)
    lake.history_sync()
    # As if the commits' table had not been written: its newest version is gone, the actors are there.
    newest = find_newest(commits.home)
    assert newest is not None
    assert newest.version == commits.version + 1
    rows = commits.open().to_table()
    assert replace_rows(newest, rows)
    assert raw(lake, ACTORS).count_rows() == len(rows) + 1
    assert lake.history_sync().added == 1
    assert recorded(lake) == expected(*lake.list_commits())


@pytest.mark.s3
def test_many_who_bring_the_tables_up_to_date_at_once_repeat_nothing(lake: ab.Repository) -> None:
    def work(number: int) -> None:
        handle = another(lake)
        append(handle, 1000 + number, key=CUSTOMERS)
        handle.history_sync()
        if number == 3:
            handle.history_rebuild()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))
    lake.history_sync()
    assert recorded(lake) == expected(*lake.list_commits())


@pytest.mark.s3
def test_of_two_changes_of_one_version_one_happens(location: Location) -> None:
    home = Home.at(location / "t.lance", location.storage_options)
    one = make_table(home, pa.schema([("n", pa.int64())]))
    assert make_table(home, pa.schema([("n", pa.int64())])) == one
    assert add_rows(one, pa.table({"n": [1]}))
    assert not add_rows(one, pa.table({"n": [2]}))
    assert not replace_rows(one, pa.table({"n": [3]}))
    two = find_newest(home)
    assert two is not None
    assert two.open().to_table().to_pydict() == {"n": [1]}


def test_table_of_many_small_changes_stays_small_and_keeps_its_row_ids(location: Location) -> None:
    home = Home.at(location / "t.lance", location.storage_options)
    version_ref = make_table(home, pa.schema([("n", pa.int64())]))
    for number in range(70):
        assert add_rows(version_ref, pa.table({"n": [number]}))
        newest = find_newest(home)
        assert newest is not None
        version_ref = newest
    found = version_ref.open().scanner(with_row_id=True).to_table()
    assert found.column("n").to_pylist() == list(range(70))
    assert found.column("_rowid").to_pylist() == list(range(70))
    assert len(version_ref.open().get_fragments()) < 10
    staged = [
        info.path for info in open_store(home.root, location.storage_options).list("_versions") if "/d" in info.path
    ]
    assert staged == []


def test_tables_of_a_long_history_are_read_from_few_entries(lake: ab.Repository, location: Location) -> None:
    for number in range(4, 104):
        append(lake, number, key=CUSTOMERS)
    counted, store = open_counted(location)
    assert counted.history_rebuild().added == 102
    assert store.counts["get"] < 8
    assert recorded(lake) == expected(*lake.list_commits(limit=None))
