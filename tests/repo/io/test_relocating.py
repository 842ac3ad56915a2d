"""A repository that was moved or copied: main reads at once, and everything after `relocate`."""

import json
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.bootstrap import open_damaged_repository
from anabranch.errors import InvalidInputError, RepositoryNotFoundError, StaleBaseError
from anabranch.format.layout.manifest import read_manifest
from anabranch.storage import open_store
from tests.conftest import Location
from tests.processes import Program
from tests.repo.conftest import CUSTOMERS, ORDERS, append, fill_lake, ids, objects, rows, table
from tests.repo.gc.object_ages import pass_time
from tests.repo.io.moving import copy_objects, furnish, move_objects, read_all, remove_objects


@pytest.fixture
def furnished(lake: ab.Repository) -> tuple[ab.Repository, str]:
    return lake, furnish(lake)


def bases(repo: ab.Repository) -> set[str]:
    """Every base path that any version of any home holds."""
    store = open_store(repo.uri, repo.storage_options)
    manifests = [path for path in objects(repo) if path.endswith(".manifest")]
    return {base.path for path in manifests for base in read_manifest(store.get(path)).base_paths}


def test_main_of_a_moved_repository_is_read_and_written_at_once(lake: ab.Repository, location: Location) -> None:
    move_objects(lake.uri, location / "moved", location.storage_options)
    moved = ab.open(location / "moved", storage_options=location.storage_options)
    append(moved, 4)
    moved.branch_create("dev")
    append(moved, 5, branch="dev")
    assert ids(moved) == [1, 2, 3, 4]
    assert ids(moved.snapshot_of("dev")) == [1, 2, 3, 4, 5]


OPERATIONS: dict[str, Callable[[ab.Repository], object]] = {
    "read": lambda repo: repo.snapshot_of("dev")[ORDERS].to_arrow(),
    "read a table that a branch got from its parent": lambda repo: repo.snapshot_of("dev/deeper")[ORDERS].to_arrow(),
    "read a tag": lambda repo: repo.snapshot_of("deep")[CUSTOMERS].to_arrow(),
    "sql": lambda repo: repo.sql("SELECT count(*) FROM in_c_sales.orders WHERE id > 2", ref="dev"),
    "write": lambda repo: append(repo, 100, branch="dev"),
    "fork": lambda repo: (repo.branch_create_from("dev", "new"), append(repo, 100, branch="new")),
    "diff": lambda repo: repo.diff("main", "dev").tables[0].counts,
    "merge": lambda repo: repo.merge("dev", into="main"),
    "look at one row": lambda repo: repo.entity_at(ORDERS, 2, ref="dev"),
    "compact": lambda repo: repo.compact(branch="dev"),
    "settle": lambda repo: repo.settle(ORDERS, branch="dev"),
    "clone": lambda repo: ab.clone(repo.uri, f"{repo.uri}-clone", ref="dev", storage_options=repo.storage_options),
}


def test_a_copy_never_reads_the_original(furnished: tuple[ab.Repository, str], location: Location) -> None:
    lake, run_id = furnished
    copy_objects(lake.uri, location / "copy", location.storage_options)
    before = objects(lake)

    def read_run(repo: ab.Repository) -> object:
        return rows(repo.run_get(run_id).snapshot()[ORDERS])

    for name, operation in {**OPERATIONS, "read a run": read_run}.items():
        with pytest.raises(StaleBaseError) as refused:
            operation(ab.open(location / "copy", storage_options=location.storage_options))
        assert location / "copy" in refused.value.problem, name
        assert f"{lake.uri!r}" in refused.value.problem, name
        assert f"`relocate({location / 'copy'!r})`" in refused.value.hint, name
    assert objects(lake) == before


def test_of_a_branch_half_relocated_the_version_that_is_read_counts(lake: ab.Repository, location: Location) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    assert lake.snapshot_of("dev")[ORDERS].version_ref.is_staged
    copy_objects(lake.uri, location / "copy", location.storage_options)
    ab.relocate(location / "copy", storage_options=location.storage_options)
    store = open_store(location / "copy", location.storage_options)
    ordinary = {
        info.path: store.get(info.path)
        for info in store.list("tables")
        if info.path.endswith(".manifest") and "/_versions/d" not in info.path
    }
    copy_objects(lake.uri, location / "copy", location.storage_options)
    for path, data in ordinary.items():
        store.put(path, data)
    with pytest.raises(StaleBaseError):
        ids(ab.open(location / "copy", branch="dev", storage_options=location.storage_options))


@pytest.mark.s3
def test_after_relocating_all_is_read_from_the_new_location_alone(
    furnished: tuple[ab.Repository, str], location: Location
) -> None:
    lake, run_id = furnished
    before = read_all(lake, run_id)
    move_objects(lake.uri, location / "moved", location.storage_options)
    done: list[tuple[int, int]] = []
    report = ab.relocate(
        location / "moved",
        storage_options=location.storage_options,
        progress=lambda step: done.append((step.done, step.total)),
    )
    assert (report.root, report.former_root, report.is_complete) == (location / "moved", lake.uri, True)
    assert report.rewritten > 0
    assert done[-1] == (report.datasets, report.datasets)

    moved = ab.open(location / "moved", storage_options=location.storage_options)
    assert all(base.startswith(location / "moved/") for base in bases(moved))
    assert read_all(moved, run_id) == before
    for branch in ("dev", "dev/untouched", "dev/deeper", "live"):
        append(moved, 100, branch=branch)
        assert 100 in ids(moved.snapshot_of(branch))
    moved.run_get(run_id).publish()
    assert ids(moved.snapshot_of("dev/deeper")) == [2, 3, 4, 5, 7, 100]
    assert moved.history_sync().added >= 0
    again = ab.relocate(location / "moved", storage_options=location.storage_options)
    assert (again.rewritten, again.former_root) == (0, location / "moved")


def test_a_copy_and_its_original_go_their_own_ways(furnished: tuple[ab.Repository, str], location: Location) -> None:
    lake, run_id = furnished
    before = read_all(lake, run_id)
    copy_objects(lake.uri, location / "copy", location.storage_options)
    ab.relocate(location / "copy", storage_options=location.storage_options)
    for branch in ("main", "dev", "dev/deeper"):
        with lake.transaction(branch, message="the original goes on") as tx:
            tx.delete(ORDERS, "true")
        lake.compact(branch=branch)
    copy = ab.open(location / "copy", storage_options=location.storage_options)
    assert read_all(copy, run_id) == before
    append(copy, 200, branch="dev")
    assert ids(lake.snapshot_of("dev")) == []


def test_moved_twice_with_work_in_between(furnished: tuple[ab.Repository, str], location: Location) -> None:
    lake, run_id = furnished
    before = read_all(lake, run_id)
    move_objects(lake.uri, location / "first", location.storage_options)
    between = ab.open(location / "first", storage_options=location.storage_options)
    between.branch_create("made-there")
    append(between, 50, branch="made-there")
    move_objects(location / "first", location / "second", location.storage_options)
    second = ab.open(location / "second", storage_options=location.storage_options)
    with pytest.raises(StaleBaseError):
        ids(second.snapshot_of("made-there"))
    assert ab.relocate(location / "second", storage_options=location.storage_options).is_complete
    second = ab.open(location / "second", storage_options=location.storage_options)
    after = read_all(second, run_id)
    assert [row["id"] for row in after.pop("made-there")[ORDERS]] == [1, 2, 3, 50]
    assert after == before


@pytest.mark.parametrize("target", ["lake/inner", "lak"])
def test_locations_whose_names_contain_one_another(
    furnished: tuple[ab.Repository, str], location: Location, target: str
) -> None:
    lake, run_id = furnished
    before = read_all(lake, run_id)
    copy_objects(lake.uri, location / "aside", location.storage_options)
    remove_objects(lake.uri, location.storage_options)
    copy_objects(location / "aside", location / target, location.storage_options)
    remove_objects(location / "aside", location.storage_options)
    for _ in range(2):
        assert ab.relocate(location / target, storage_options=location.storage_options).is_complete
    assert read_all(ab.open(location / target, storage_options=location.storage_options), run_id) == before


def test_a_link_to_a_repository_is_not_a_move(tmp_path: Path) -> None:
    lake = ab.init(tmp_path / "lake")
    fill_lake(lake)
    run_id = furnish(lake)
    (tmp_path / "link").symlink_to(lake.uri)
    assert read_all(ab.open(tmp_path / "link"), run_id) == read_all(lake, run_id)


def test_no_garbage_is_collected_before_a_repository_is_relocated(tmp_path: Path) -> None:
    lake = ab.init(tmp_path / "lake")
    fill_lake(lake)
    run_id = furnish(lake)
    before = read_all(lake, run_id)
    copy_objects(lake.uri, str(tmp_path / "copy"), {})
    copy = ab.open(tmp_path / "copy")
    pass_time(copy)
    with pytest.raises(StaleBaseError, match=r"`relocate\("):
        copy.gc(keep_last=1)
    ab.relocate(copy.uri)
    copy = ab.open(copy.uri)
    assert read_all(copy, run_id) == before
    pass_time(copy)
    copy.gc(keep_last=1)
    assert ids(copy.snapshot_of("dev")) == [2, 3, 4]


@pytest.mark.parametrize("open_copy", [ab.open, open_damaged_repository])
def test_doctor_of_a_copy_that_is_not_relocated_does_no_harm(
    furnished: tuple[ab.Repository, str], location: Location, open_copy: Callable[..., ab.Repository]
) -> None:
    lake, run_id = furnished
    before = read_all(lake, run_id)
    copy_objects(lake.uri, location / "copy", location.storage_options)
    report = open_copy(location / "copy", storage_options=location.storage_options).doctor(repair=True)
    assert not report.is_clean
    assert any("relocate" in finding.remedy for finding in report.findings)
    ab.relocate(location / "copy", storage_options=location.storage_options)
    copy = ab.open(location / "copy", storage_options=location.storage_options)
    assert read_all(copy, run_id) == before
    assert copy.doctor(rows=True).is_clean


def test_through_a_link_no_file_of_a_branch_is_taken_for_garbage(tmp_path: Path) -> None:
    lake = ab.init(tmp_path / "lake")
    fill_lake(lake)
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    with lake.transaction(message="main goes on") as tx:
        tx.overwrite(ORDERS, table(100))
    # Main is in the home of a branch then, which alone has the first rows: in files of the root.
    lake.reset("main", to="dev")
    lake.branch_delete("dev")
    (tmp_path / "link").symlink_to(lake.uri)
    linked = ab.open(tmp_path / "link")
    pass_time(lake)
    assert linked.gc(keep_last=1).commits
    assert ids(linked) == ids(ab.open(lake.uri)) == [1, 2, 3, 4]


def test_other_locations_stay_unchanged(furnished: tuple[ab.Repository, str], location: Location) -> None:
    lake, _ = furnished
    clone = ab.clone(lake.uri, location / "clone", ref="dev/deeper", storage_options=location.storage_options)
    clone.branch_create("dev")
    append(clone, 60, branch="dev")
    before = ids(clone.snapshot_of("dev"))
    foreign = {base for base in bases(clone) if base.startswith(lake.uri)}
    move_objects(location / "clone", location / "moved", location.storage_options)
    assert ids(ab.open(location / "moved", storage_options=location.storage_options)) == [2, 3, 4, 5]
    ab.relocate(location / "moved", storage_options=location.storage_options)
    moved = ab.open(location / "moved", storage_options=location.storage_options)
    assert ids(moved.snapshot_of("dev")) == before
    assert {base for base in bases(moved) if base.startswith(lake.uri)} == foreign


def test_a_clone_follows_its_source(furnished: tuple[ab.Repository, str], location: Location) -> None:
    lake, _ = furnished
    options = location.storage_options
    clone = ab.clone(lake.uri, location / "clone", ref="dev", storage_options=options)
    append(clone, 60)
    clone.branch_create("dev")
    append(clone, 61, branch="dev")
    move_objects(lake.uri, location / "moved", options)
    ab.relocate(location / "moved", storage_options=options)
    report = ab.relocate(location / "clone", mapping={lake.uri: location / "moved"}, storage_options=options)
    assert report.rewritten > 0
    clone = ab.open(location / "clone", storage_options=options)
    assert ids(clone.snapshot_of("dev")) == [2, 3, 4, 60, 61]
    # What reads the clone reads the source as well, and is known to it at its new location.
    ab.clone(clone.uri, location / "grandchild", storage_options=options)
    known = ab.open(location / "moved", storage_options=options).clone_list()
    assert [found.target for found in known] == [location / "clone", location / "grandchild"]


def test_what_cannot_be_explained_is_reported_and_still_refused(tmp_path: Path) -> None:
    lake = ab.init(tmp_path / "lake")
    fill_lake(lake)
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    home = testing.config_of(lake).home_of(lake.snapshot_of("dev")[ORDERS].entry)
    lance.dataset(home.uri).add_bases([lance.DatasetBasePath(str(tmp_path / "x"), name="x", is_dataset_root=True)])
    lake.adopt(ORDERS, branch="dev")
    move_objects(lake.uri, str(tmp_path / "moved"), {})
    report = ab.relocate(tmp_path / "moved")
    assert [found.path for found in report.unexplained] == [str(tmp_path / "x")]
    assert not report.is_complete
    assert json.loads((tmp_path / "moved/_repo.json").read_bytes())["root"] == lake.uri
    assert ids(ab.open(tmp_path / "moved")) == [1, 2, 3]
    with pytest.raises(StaleBaseError):
        ids(ab.open(tmp_path / "moved", branch="dev"))
    assert ab.relocate(tmp_path / "moved", mapping={str(tmp_path / "x"): str(tmp_path / "moved/x")}).unexplained
    # A user who knows that the location belongs to the table records it in the table itself.
    root = lance.dataset(str(Path(report.root, report.unexplained[0].dataset)))
    root.add_bases([lance.DatasetBasePath(str(tmp_path / "moved/x"), name="x", is_dataset_root=True)])
    assert ab.relocate(tmp_path / "moved").is_complete
    assert ids(ab.open(tmp_path / "moved", branch="dev")) == [1, 2, 3, 4]


def test_wrong_calls_are_refused(lake: ab.Repository, location: Location) -> None:
    with pytest.raises(RepositoryNotFoundError):
        ab.relocate(location / "nothing", storage_options=location.storage_options)
    with pytest.raises(InvalidInputError, match="itself"):
        ab.relocate(lake.uri, mapping={"/x": "/x/"}, storage_options=location.storage_options)


def test_a_relocation_killed_at_any_write_is_done_again(
    process_pool: Program, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lake = ab.init(tmp_path / "lake")
    fill_lake(lake)
    run_id = furnish(lake)
    before = read_all(lake, run_id)
    lake_uri, work = lake.uri, str(tmp_path / "work")
    copy_objects(lake_uri, str(tmp_path / "kept"), {})
    # The original changes from here on, so that a read from it is noticed.
    for branch in ("main", "dev", "dev/deeper"):
        with lake.transaction(branch, message="gone") as tx:
            tx.delete(ORDERS, "true")
    for path in Path(lake_uri, "tables").glob("**/data/*.lance"):
        path.write_bytes(b"")

    def prepare() -> None:
        remove_objects(work, {})
        copy_objects(str(tmp_path / "kept"), work, {})

    prepare()
    passed = process_pool.points_of("relocate", uri=work, name="x")
    writes = [number for number, point in enumerate(passed) if " put " in point]
    assert len(writes) > 30
    for fatal in writes[:: 1 if request.config.getoption("--proof") else 29] + writes[-2:]:
        prepare()
        process_pool.kill_at(fatal, "relocate", uri=work, name="x")
        halfway = ab.open(work)
        for ref, tables in before.items():
            if ref != "run":
                for key, expected in tables.items():
                    try:
                        assert rows(halfway.snapshot_of(ref)[key]) == expected
                    except StaleBaseError:
                        assert testing.config_of(halfway).made_at == lake_uri
        assert ab.relocate(work).is_complete
        assert read_all(ab.open(work), run_id) == before
