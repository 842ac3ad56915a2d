"""Repositories cloned from a ref of another, shallow and deep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    AnabranchError,
    BusyError,
    CollectedError,
    ConflictError,
    InvalidInputError,
    InvalidPathError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    TableNotFoundError,
)
from anabranch.storage import documents, open_store
from tests.conftest import Location
from tests.faults.fault_injection import FaultInjection, all_stores_through
from tests.processes import Program
from tests.repo.conftest import CUSTOMERS, ORDERS, append, data_files, fill_lake, ids, objects, rows, table
from tests.repo.gc.object_ages import pass_time
from tests.repo.io.moving import furnish, remove_objects
from tests.repo.programs import ledger

Clone = Callable[..., ab.Repository]


@pytest.fixture(params=["shallow", "deep"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clone(location: Location, lake: ab.Repository, kind: str) -> Clone:
    """Clone the lake to a location of that name."""

    def make(name: str = "clone", **choices: Any) -> ab.Repository:
        options = {"storage_options": location.storage_options, "shallow": kind == "shallow", "actor": "bob", **choices}
        return ab.clone(lake.uri, location / name, **options)

    return make


def everything(repo: ab.Repository, ref: str = "main") -> dict[str, list[dict[str, Any]]]:
    snapshot = repo.snapshot_of(ref)
    return {key: rows(snapshot[key]) for key in snapshot}


def mark_of(repo: ab.Repository) -> dict[str, Any]:
    return documents.load(open_store(repo.uri, repo.storage_options).get("_repo.json"), path="_repo.json")


def test_a_clone_begins_with_the_tables_of_a_ref(lake: ab.Repository, clone: Clone, kind: str) -> None:
    furnish(lake)
    for number, ref in enumerate(["main", "dev/deeper", "deep", "dev~1"]):
        made = clone(f"clone{number}", ref=ref)
        (commit,) = made.list_commits()
        of = lake.snapshot_of(ref)
        assert everything(made) == everything(lake, ref)
        assert {key: made.snapshot()[key].primary_key for key in of} == {key: of[key].primary_key for key in of}
        assert {key: made.snapshot()[key].indices for key in of} == {key: of[key].indices for key in of}
        assert made.schema_show() == lake.schema_show(ref)
        assert (commit.kind, commit.tables, commit.actor_id) == ("clone", tuple(of), "bob")
        assert commit.metadata["source"] == lake.uri
        assert commit.metadata["source_commit_id"] == of.id
        assert commit.metadata["source_id"] == mark_of(lake)["id"] != mark_of(made)["id"]
        assert bool(data_files(made)) is (kind == "deep")
    assert not [path for path in objects(lake) if "__clone__" in path]


def test_a_clone_can_do_all_that_a_repository_can(lake: ab.Repository, clone: Clone) -> None:
    furnish(lake)
    before = {path: size for path, size in objects(lake).items() if not path.startswith("_clones/")}
    made = clone(ref="dev/deeper")
    with made.transaction(message="all of it") as tx:
        tx.append(CUSTOMERS, pa.table({"id": [77], "v": ["x"], "w": [1]}))
        tx.upsert(ORDERS, table(2, 9, v="new"))
        tx.delete(ORDERS, "id = 3")
        tx.add_columns(ORDERS, {"twice": "id * 2"})
        tx.create_table("in_c_sales.more", pa.schema([("id", pa.int64())]))
    made.branch_create("dev")
    with made.transaction("dev", message="on a branch") as tx:
        tx.upsert(ORDERS, pa.table({"id": [4, 50], "v": ["merged", "merged"], "twice": [0, 0]}))
    with made.transaction(message="beside it") as tx:
        tx.update(ORDERS, {"twice": "0"}, where="id = 9")
    made.merge("dev")
    made.compact()
    made.index(ORDERS, "v")
    found = {row["id"]: (row["v"], row["twice"]) for row in rows(made.snapshot()[ORDERS])}
    assert found == {2: ("new", 4), 4: ("merged", 0), 5: ("e", 10), 9: ("new", 0), 50: ("merged", 0)}
    assert made.sql("SELECT count(*) AS n FROM in_c_sales.customers").to_pylist() == [{"n": 4}]
    made.reset("main", to="main@v1")
    assert everything(made) == everything(lake, "dev/deeper")
    assert {path: size for path, size in objects(lake).items() if not path.startswith("_clones/")} == before


def test_a_repository_without_tables(location: Location, kind: str) -> None:
    options = location.storage_options
    empty = ab.init(location / "empty", storage_options=options)
    made = ab.clone(empty.uri, location / "clone", shallow=kind == "shallow", storage_options=options)
    assert list(made.snapshot()) == []


def test_some_tables_only(lake: ab.Repository, clone: Clone) -> None:
    made = clone(tables=[CUSTOMERS])
    assert list(made.snapshot()) == [CUSTOMERS]
    (known,) = lake.clone_list()
    assert known.tables == (CUSTOMERS,)


def test_a_source_knows_its_shallow_clones(lake: ab.Repository, location: Location) -> None:
    options = location.storage_options
    made = ab.clone(lake.uri, location / "clone", storage_options=options)
    ab.clone(lake.uri, location / "deep", shallow=False, storage_options=options)
    head = lake.head_commit_id_for_branch("main")
    known = [(each.target, each.kind, each.commit_id, each.is_held) for each in lake.clone_list()]
    assert known == [(location / "clone", "shallow", head, True), (location / "deep", "deep", head, False)]
    assert made.list_commits()[0].metadata["clone_id"] == lake.clone_list()[0].id
    assert [repo.doctor(rows=True).findings for repo in (lake, made)] == [(), ()]
    assert not lake.clone_release(lake.clone_list()[0].id).is_held


@pytest.mark.s3
def test_a_clone_of_a_clone_is_known_to_both(lake: ab.Repository, location: Location) -> None:
    options = location.storage_options
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    child = ab.clone(lake.uri, location / "child", ref="dev", storage_options=options)
    append(child, 50)
    grandchild = ab.clone(child.uri, location / "grandchild", storage_options=options)
    append(grandchild, 51)
    assert ids(grandchild) == [1, 2, 3, 4, 50, 51]
    assert [each.target for each in child.clone_list()] == [grandchild.uri]
    assert [each.target for each in lake.clone_list()] == [child.uri, grandchild.uri]
    great = ab.clone(grandchild.uri, location / "great", storage_options=options, tables=[ORDERS])
    assert [each.target for each in lake.clone_list()] == [child.uri, grandchild.uri, great.uri]
    # A deep one needs none of them.
    alone = ab.clone(grandchild.uri, location / "alone", storage_options=options, shallow=False)
    assert len(lake.clone_list()) == 3
    for other in (lake, child, grandchild):
        remove_objects(other.uri, options)
    assert ids(alone) == [1, 2, 3, 4, 50, 51]
    with pytest.raises(RepositoryNotFoundError):
        ab.clone(great.uri, location / "late", storage_options=options)


def test_a_deep_clone_survives_the_deletion_of_its_source(lake: ab.Repository, location: Location) -> None:
    furnish(lake)
    expected = everything(lake, "dev/deeper")
    done: list[tuple[int, int]] = []
    made = ab.clone(
        lake.uri,
        location / "clone",
        ref="dev/deeper",
        shallow=False,
        storage_options=location.storage_options,
        progress=lambda step: done.append((step.done, step.total)),
    )
    remove_objects(lake.uri, location.storage_options)
    assert everything(made) == expected
    assert [step for step, _ in done] == list(range(1, done[-1][1] + 1))


def collect(repo: ab.Repository) -> None:
    """Collect all the garbage there is, some days later."""
    pass_time(repo)
    repo.gc(keep_last=1)


def test_a_shallow_clone_survives_the_garbage_collection_of_its_source(tmp_path: Path) -> None:
    lake = ab.init(tmp_path / "lake")
    fill_lake(lake)
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    child = ab.clone(lake.uri, tmp_path / "child", ref="dev")
    grandchild = ab.clone(child.uri, tmp_path / "grandchild")
    (of_child, of_grandchild) = lake.clone_list()
    with lake.transaction(message="nothing is left") as tx:
        tx.overwrite(ORDERS, table(100))
        tx.drop_table(CUSTOMERS)
    lake.branch_delete("dev")
    collect(lake)
    assert (ids(child), ids(child, CUSTOMERS)) == ([1, 2, 3, 4], [10, 20])
    append(child, 5)
    # The child is gone, as reported; what was cloned from it still needs the source.
    remove_objects(child.uri, {})
    lake.clone_release(of_child.id)
    collect(lake)
    assert (ids(grandchild), ids(grandchild, CUSTOMERS)) == ([1, 2, 3, 4], [10, 20])
    lake.clone_release(of_grandchild.id)
    collect(lake)
    with pytest.raises(AnabranchError):
        ids(ab.open(grandchild.uri))
    assert ids(lake) == [100]
    with pytest.raises(CollectedError):
        ab.clone(lake.uri, tmp_path / "late", ref=of_child.commit_id)


@pytest.mark.xdist_group("s3")
def test_from_store_to_store(tmp_path: Path, s3_location: Location) -> None:
    lake = ab.init(tmp_path / "lake")
    with lake.transaction(message="first") as tx:
        tx.create_table(ORDERS, table(1).schema, primary_key=["id"])
        tx.append(ORDERS, table(1, 2, 3))
    there = s3_location.storage_options
    with pytest.raises(InvalidInputError, match="deep clone"):
        ab.clone(lake.uri, s3_location / "up", target_storage_options=there)
    assert lake.clone_list() == []
    up = ab.clone(lake.uri, s3_location / "up", shallow=False, target_storage_options=there)
    append(up, 4)
    beside = ab.clone(up.uri, s3_location.root.replace("s3://lake/", "s3://other/"), storage_options=there)
    append(beside, 5)
    assert ids(beside) == [1, 2, 3, 4, 5]
    down = ab.clone(up.uri, tmp_path / "down", shallow=False, storage_options=there, target_storage_options={})
    assert ids(down) == [1, 2, 3, 4]
    assert down.storage_options == {}


def test_what_cannot_be_cloned_is_refused_and_leaves_nothing(
    lake: ab.Repository, location: Location, clone: Clone
) -> None:
    lake.branch_create_from("main", "live", mode="live")
    append(lake, 4)
    with pytest.raises(TableNotFoundError, match="to clone"):
        clone(tables=["in_c_sales.nothing"])
    with pytest.raises(InvalidInputError, match="tables must be a list"):
        clone(tables=ORDERS)
    with pytest.raises(InvalidInputError, match="live branch"):
        clone(ref="live")
    with pytest.raises(InvalidInputError):
        clone(actor="\udc80")
    with pytest.raises(InvalidPathError, match="one is inside the other"):
        clone("lake/inside")
    with pytest.raises(RepositoryNotFoundError):
        ab.clone(location / "nothing", location / "clone", storage_options=location.storage_options)
    assert lake.clone_list() == []
    assert not list(open_store(location / "clone", location.storage_options).list())


def test_a_taken_location_is_refused(lake: ab.Repository, location: Location, clone: Clone) -> None:
    with pytest.raises(InvalidPathError):
        ab.clone(lake.uri, lake.uri, storage_options=location.storage_options)
    clone("first")
    with pytest.raises(RepositoryExistsError):
        clone("first")
    open_store(location / "taken", location.storage_options).put("x", b"x")
    with pytest.raises(ConflictError, match="choose an empty folder"):
        clone("taken")
    known = [each.target for each in lake.clone_list()]
    assert known == [location / "first"]


@pytest.mark.local
def test_a_folder_inside_another_repository_is_refused(lake: ab.Repository, location: Location, clone: Clone) -> None:
    other = ab.init(location / "other")
    with pytest.raises(InvalidPathError, match="inside the repository at"):
        clone("other/deeper/clone")
    assert lake.clone_list() == []
    assert not Path(other.uri, "deeper").exists()


def test_deep_clone_that_cannot_be_released_is_complete(lake: ab.Repository, location: Location) -> None:
    """The clone is a repository by then, and its registration in the source can be released later."""

    def clone(target: str, injection: FaultInjection) -> None:
        with all_stores_through(injection):
            injection.arm()
            ab.clone(lake.uri, location / target, shallow=False, storage_options=location.storage_options)

    clone("first", counted := FaultInjection())
    release = [at for at, request in enumerate(counted.requests, 1) if request.startswith("put_if_absent _clones/")][-1]
    clone("second", failed := FaultInjection(release))
    assert failed.is_reached
    second = ab.open(location / "second", storage_options=location.storage_options)
    assert everything(second) == everything(lake)
    held = [each for each in lake.clone_list() if each.is_held]
    assert [each.target for each in held] == [location / "second"]
    lake.clone_release(held[0].id)
    assert not any(each.is_held for each in lake.clone_list())


def test_of_two_clones_to_one_location_one_is_whole(lake: ab.Repository, location: Location, clone: Clone) -> None:
    made: list[ab.Repository] = []

    def clone_again(_step: ab.Progress) -> None:
        if not made:
            made.append(clone(tables=[CUSTOMERS]))

    with pytest.raises(BusyError, match="another process began to clone"):
        clone(progress=clone_again)
    assert everything(ab.open(location / "clone", storage_options=location.storage_options)) == {
        CUSTOMERS: rows(lake.snapshot()[CUSTOMERS])
    }
    append(made[0], 30, key=CUSTOMERS)
    assert [each.tables for each in lake.clone_list() if each.is_held] in ([], [(CUSTOMERS,)])


def test_a_clone_killed_at_any_point_is_made_again(
    process_pool: Program, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    lake = ab.init(tmp_path / "lake")
    ledger.create(lake)
    ledger.commit(lake, "1-1")
    expected = everything(lake)
    scenario = {"shallow": "clone", "deep": "clone deep"}[kind]
    points = process_pool.points_of(scenario, uri=lake.uri, name="whole")
    step = 1 if request.config.getoption("--proof") else len(points) // 5
    # The last few are those that make it a repository.
    for fatal in sorted({*range(0, len(points), step), *range(len(points) - 12, len(points), 4)}):
        target = f"{lake.uri}-{fatal}"
        held = {each.id for each in lake.clone_list() if each.is_held}
        passed = process_pool.kill_at(fatal, scenario, uri=lake.uri, name=str(fatal))
        if Path(target, "_repo.json").exists():
            made = ab.open(target)
        else:
            with pytest.raises(RepositoryNotFoundError, match=target):
                ab.open(target)
            if Path(target, "_origin").exists():
                with pytest.raises(RepositoryNotFoundError, match=f"unfinished clone of '{lake.uri}' at '{target}'"):
                    ab.init(target)
            made = ab.clone(lake.uri, target, shallow=kind == "shallow")
        assert everything(made) == expected
        folders = {path.split("/")[2] for path in objects(made, "tables")}
        assert folders == {Path(entry.dataset).name for entry in made.snapshot().entries.values()}
        ledger.commit(made, "1-2")
        assert everything(lake) == expected
        # What reads the source is held there; what was cut off is known, too.
        known = [each for each in lake.clone_list() if each.target == target]
        by_id = {each.id: each.is_held for each in known}
        if kind == "shallow":
            assert by_id[made.list_commits()[-1].metadata["clone_id"]]
        elif not any("_repo.json" in point for point in passed):
            assert not by_id[made.list_commits()[-1].metadata["clone_id"]]
        for each in known:
            lake.clone_release(each.id)
        assert {each.id for each in lake.clone_list() if each.is_held} == held
    collect(lake)
    assert not [path for path in objects(lake) if "__clone__" in path]
    assert everything(lake) == expected
