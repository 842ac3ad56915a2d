"""Clones: independent of their source, held by it, dropped without a trace."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.fragment import write_fragments

import anabranch as ab
from anabranch.errors import (
    AnabranchError,
    BranchInUseError,
    BranchNotFoundError,
    ConflictError,
    DatasetExistsError,
    DatasetInUseError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidPathError,
    StaleBaseError,
    StorageDeniedError,
    StorageUnavailableError,
    TagNotFoundError,
    VersionNotFoundError,
)
from anabranch.format.bases import list_bases
from anabranch.format.clone.clone import CloneRef, deep_clone, shallow_clone
from anabranch.format.clone.holds import CloneInfo, drop_clone, list_clones, release_clone, take_hold
from anabranch.format.clone.relocate import relocate
from anabranch.format.home import Home
from anabranch.format.refs.branches import delete_branch
from anabranch.storage import open_store
from tests.conftest import Location


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(home: Home, version: int | None = None) -> list[int]:
    return sorted(home.open(version).to_table()["id"].to_pylist())


def elsewhere(location: Location, name: str) -> str:
    """A root in another bucket; on local disk, in another folder."""
    return location.root.replace("s3://lake/", "s3://other/") + f"/experiments/{name}"


def make(root: str, storage_options: dict[str, str] | None = None) -> Home:
    """Four versions: rows 0 to 9 in two files, row 3 deleted, an index; the third has the tag v1.0."""
    home = Home.at(root, storage_options)
    lance.write_dataset(
        rows(*range(10)), root, storage_options=home.lance_options(), max_rows_per_file=5, enable_stable_row_ids=True
    )
    home.open().delete("id = 3")
    home.open().create_scalar_index("id", "BTREE")
    home.open().tags.create("v1.0", 3)
    home.open().insert(rows(10))
    return home


def stage(home: Home, data: pa.Table) -> int:
    base = home.open()
    operation = LanceOperation.Append(write_fragments(data, base))
    return int(lance.LanceDataset.commit(base, operation, read_version=base.version, detached=True).version)


def contents(uri: str, storage_options: dict[str, str] | None = None) -> dict[str, bytes]:
    store = open_store(uri, storage_options)
    return {info.path: store.get(info.path) for info in store.list()}


def clean(home: Home) -> None:
    home.open().cleanup_old_versions(
        older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )


def wear_out(home: Home) -> None:
    """Rewrite a source again and again, then let Lance clean up all that it may."""
    for n in range(3):
        home.open().insert(rows(100 + n))
    lance.write_dataset(rows(0), home.uri, mode="overwrite", storage_options=home.lance_options())
    home.open().insert(rows(1))
    home.open().optimize.compact_files()
    clean(home)


@pytest.fixture
def source(tmp_path: Path) -> Home:
    return make(str(tmp_path / "source.lance"))


UNREACHABLE = {
    "aws_endpoint": "http://127.0.0.1:9",
    "aws_access_key_id": "who",
    "aws_secret_access_key": "secret",
    "aws_region": "nowhere",
    "allow_http": "true",
    "client_max_retries": "0",
}
V1 = [0, 1, 2, 4, 5, 6, 7, 8, 9]
NEWEST = [*V1, 10]


@pytest.mark.s3
def test_the_shallow_clone_of_the_storage_layout_specification(location: Location) -> None:
    source = make(location / "production/main-dataset", location.storage_options)
    clone = Home.at(elsewhere(location, "test-variant"), location.storage_options)
    shallow_clone(source, clone.root, ref="v1.0")
    assert [(base.path, base.name, base.is_dataset_root) for base in list_bases(clone)] == [(source.root, "v1.0", True)]
    assert not list(clone.store().list("data"))

    clone.open().insert(rows(77))
    (inherited,) = list_bases(clone)
    where = {file.base_id for fragment in clone.open().get_fragments() for file in fragment.metadata.files}
    assert where == {inherited.id, None}
    assert {info.path.partition("/")[0] for info in source.store().list()} == {
        *("_deletions", "_indices", "_refs", "_transactions", "_versions", "data")
    }

    clone.open().create_scalar_index("id", "BTREE", replace=True)
    clone.open().optimize.compact_files()
    wear_out(source)
    assert ids(clone) == [*V1, 77]
    assert clone.open().count_rows("id = 77") == 1
    assert ids(clone, 3) == V1
    assert [(base.path, base.name) for base in list_bases(clone)] == [(source.root, "v1.0")]


@pytest.mark.s3
def test_a_clone_changes_without_touching_its_source(location: Location) -> None:
    source = make(location / "source.lance", location.storage_options)
    before = contents(source.root, location.storage_options)
    info = shallow_clone(source, location / "clone.lance")
    clone = Home.at(location / "clone.lance", location.storage_options)
    assert ids(clone) == NEWEST
    clone.open().insert(rows(77))
    clone.open().delete("id < 5")
    clone.open().add_columns({"twice": "id * 2"})
    clone.open().update({"id": "id + 1000"}, where="id = 9")
    clone.open().drop_columns(["twice"])
    assert ids(clone) == [5, 6, 7, 8, 10, 77, 1009]
    after = contents(source.root, location.storage_options)
    assert after.pop(f"_refs/tags/{info.tag}.json")
    assert after == before


@pytest.mark.parametrize(
    ("ref", "expected", "version"),
    [(None, NEWEST, 4), (1, [*range(10)], 1), ("v1.0", V1, 3), ((None, 3), V1, 3), (("main", None), NEWEST, 4)],
)
def test_what_is_cloned(source: Home, tmp_path: Path, ref: CloneRef | None, expected: list[int], version: int) -> None:
    shallow = shallow_clone(source, str(tmp_path / "shallow.lance"), ref=ref)
    deep = deep_clone(source, str(tmp_path / "deep.lance"), ref=ref)
    for info in (shallow, deep):
        assert info.uri is not None
        assert (info.branch, info.source_version, info.exists) == (None, version, True)
        assert ids(Home.at(info.uri)) == expected
    assert (deep.tag, [clone.uri for clone in list_clones(source)]) == (None, [shallow.uri])


def test_a_clone_is_listed_with_its_origin(source: Home, tmp_path: Path) -> None:
    made = shallow_clone(source, str(tmp_path / "clone.lance"), ref=3, new_id=lambda: "00000000deadbeef")
    assert made.tag == "clone-00000000deadbeef"
    assert list_clones(source) == (made,)
    assert made.created_at is not None
    assert source.open().tags.list()[made.tag]["metadata"]["anabranch.clone"] == str(tmp_path / "clone.lance")


def test_many_versions_and_a_cleanup_later_the_clone_reads_everything(source: Home, tmp_path: Path) -> None:
    clone = Home.at(str(tmp_path / "clone.lance"))
    shallow_clone(source, clone.root, ref=2)
    expected = clone.open().to_table()
    wear_out(source)
    assert min(ref["version"] for ref in source.open().version_refs()) == 2
    assert clone.open().to_table() == expected


def test_cleanup_breaks_a_clone_without_a_hold(source: Home, tmp_path: Path) -> None:
    """The reason for holds, and the proof that the cleanup in these tests is a thorough one."""
    made = shallow_clone(source, str(tmp_path / "clone.lance"), ref=2)
    assert made.tag is not None
    release_clone(source, made.tag)
    source.open().tags.delete("v1.0")
    wear_out(source)
    with pytest.raises(Exception, match="Not found"):
        ids(Home.at(str(tmp_path / "clone.lance")))


@pytest.mark.s3
def test_a_clone_of_a_branch_is_held_there(location: Location) -> None:
    source = make(location / "source.lance", location.storage_options)
    source.open().create_branch("dev")
    dev = source.on("dev")
    dev.open().insert(rows(20))
    clone = Home.at(elsewhere(location, "clone.lance"), location.storage_options)
    info = shallow_clone(dev, clone.root)
    assert (info.branch, info.source_version) == ("dev", 5)
    assert ids(clone) == [*NEWEST, 20]
    wear_out(source)
    wear_out(dev)
    assert ids(clone) == [*NEWEST, 20]
    with pytest.raises(BranchInUseError):
        delete_branch(source, "dev")
    drop_clone(source, clone.root)
    delete_branch(source, "dev")


def test_a_tag_on_a_branch_names_the_base_of_that_branch(source: Home, tmp_path: Path) -> None:
    source.open().create_branch("dev")
    source.on("dev").open().insert(rows(20))
    source.open().tags.create("dev-v1", ("dev", 5))
    shallow_clone(source, str(tmp_path / "clone.lance"), ref="dev-v1")
    named = {base.path: base.name for base in list_bases(Home.at(str(tmp_path / "clone.lance")))}
    assert named == {source.root: None, source.on("dev").uri: "dev-v1"}


def test_a_staged_version_is_cloned_and_survives_every_cleanup(location: Location) -> None:
    source = make(location / "source.lance", location.storage_options)
    source.open().create_branch("dev")
    for branch in (None, "dev"):
        home = source.on(branch)
        staged = stage(home, rows(50))
        clone = Home.at(elsewhere(location, f"{branch}.lance"), location.storage_options)
        info = shallow_clone(home, clone.root, ref=staged)
        assert (info.branch, info.source_version) == (branch, staged)
        deep_clone(home, location / f"{branch}-deep.lance", ref=staged)
        wear_out(home)
        clone.open().insert(rows(51))
        assert ids(clone) == [*NEWEST, 50, 51]
        assert ids(Home.at(location / f"{branch}-deep.lance", location.storage_options)) == [*NEWEST, 50]
    before = len(source.open().branches.list())
    for info in list_clones(source):
        assert info.uri is not None
        drop_clone(source, info.uri)
    assert before - len(source.open().branches.list()) == 2
    assert set(source.open().branches.list()) == {"dev"}
    assert list(source.open().tags.list()) == ["v1.0"]


def test_a_clone_of_a_clone_holds_its_own_source(source: Home, tmp_path: Path) -> None:
    first, second = (Home.at(str(tmp_path / name)) for name in ("first.lance", "second.lance"))
    shallow_clone(source, first.root, ref="v1.0")
    first.open().insert(rows(30))
    first.open().tags.create("v1.0", 4)
    shallow_clone(first, second.root, ref="v1.0")
    assert ids(second) == [*V1, 30]
    names = {base.path: base.name for base in list_bases(second)}
    assert names == {source.root: "v1.0", first.root: list_clones(first)[0].tag}
    wear_out(source)
    wear_out(first)
    assert ids(second) == [*V1, 30]
    with pytest.raises(DatasetInUseError, match=r"has clones of its own: .*second\.lance"):
        drop_clone(source, first.root)
    drop_clone(first, second.root)
    drop_clone(source, first.root)


@pytest.mark.parametrize("tag", ["7", "root"])
def test_a_tag_that_cannot_name_a_base_leaves_the_hold_as_name(source: Home, tmp_path: Path, tag: str) -> None:
    source.open().tags.create(tag, 3)
    info = shallow_clone(source, str(tmp_path / "clone.lance"), ref=tag)
    (base,) = list_bases(Home.at(str(tmp_path / "clone.lance")))
    assert base.name == info.tag


@pytest.mark.s3
def test_a_deep_clone_depends_on_nothing(location: Location, tmp_path: Path) -> None:
    source = make(location / "source.lance", location.storage_options)
    shallow = Home.at(elsewhere(location, "shallow.lance"), location.storage_options)
    shallow_clone(source, shallow.root)
    shallow.open().insert(rows(11))
    far, near = elsewhere(location, "deep.lance"), str(tmp_path / "deep-of-shallow.lance")
    deep_clone(source, far)
    deep_clone(shallow, near)
    for root in (source.root, shallow.root):
        store = open_store(root, location.storage_options)
        for info in list(store.list()):
            store.delete(info.path)
    for uri, expected in {far: NEWEST, near: [*NEWEST, 11]}.items():
        deep = Home.at(uri, location.storage_options)
        assert list_bases(deep) == ()
        assert ids(deep) == expected
        assert [index.name for index in deep.open().describe_indices()] == ["id_idx"]
        assert (deep.open().count_rows("id = 5"), deep.open().count_rows("id = 3")) == (1, 0)
        deep.open().insert(rows(99))
        assert deep.open().count_rows("id = 99") == 1
    back = Home.at(location / "back.lance", location.storage_options)
    deep_clone(Home.at(near), back.root, storage_options=location.storage_options)
    assert ids(back) == [*NEWEST, 11, 99]


def test_dropping_a_clone_removes_its_folder_and_its_hold(source: Home, tmp_path: Path) -> None:
    before = contents(source.root)
    shallow_clone(source, str(tmp_path / "clone.lance"))
    Home.at(str(tmp_path / "clone.lance")).open().insert(rows(1))
    drop_clone(source, f"{tmp_path}/./clone.lance/")
    assert not (tmp_path / "clone.lance").exists()
    assert (list_clones(source), contents(source.root)) == ((), before)
    with pytest.raises(DatasetNotFoundError, match="no clone at"):
        drop_clone(source, str(tmp_path / "clone.lance"))


def test_files_of_others_in_a_clone_are_kept(source: Home, tmp_path: Path) -> None:
    shallow_clone(source, str(tmp_path / "clone.lance"))
    (tmp_path / "clone.lance" / "notes.txt").write_text("mine")
    drop_clone(source, str(tmp_path / "clone.lance"))
    assert list(contents(str(tmp_path / "clone.lance"))) == ["notes.txt"]
    assert list_clones(source) == ()


def test_another_dataset_at_the_location_of_a_clone_is_not_dropped(source: Home, tmp_path: Path) -> None:
    made = shallow_clone(source, str(tmp_path / "clone.lance"))
    lance.write_dataset(rows(1), str(tmp_path / "other.lance"))
    lance.LanceDataset.drop(str(tmp_path / "clone.lance"))
    (tmp_path / "other.lance").rename(tmp_path / "clone.lance")
    with pytest.raises(ConflictError, match=f"is not a clone of .*release the tag '{made.tag}'"):
        drop_clone(source, str(tmp_path / "clone.lance"))
    assert ids(Home.at(str(tmp_path / "clone.lance"))) == [1]


def test_crash_after_the_hold_leaves_a_clone_that_can_be_listed_and_dropped(source: Home, tmp_path: Path) -> None:
    before = contents(source.root)
    uri = str(tmp_path / "clone.lance")
    take_hold(source, branch=None, version=3, clone_uri=uri, hold_id="0123456789abcdef")
    (left,) = list_clones(source)
    assert (left.uri, left.source_version, left.tag, left.exists) == (uri, 3, "clone-0123456789abcdef", False)
    shallow_clone(source, uri)
    assert [clone.exists for clone in list_clones(source)] == [True, True]
    drop_clone(source, uri)
    assert contents(source.root) == before


def test_crash_inside_the_hold_leaves_a_hold_that_can_be_released(source: Home) -> None:
    source.open().tags.create("clone-0123456789abcdef", 2)
    source.open().create_branch("clone-fedcba9876543210", 2)
    assert {(clone.uri, clone.tag, clone.exists) for clone in list_clones(source)} == {
        (None, "clone-0123456789abcdef", False),
        (None, "clone-fedcba9876543210", False),
    }
    for clone in list_clones(source):
        assert clone.tag is not None
        release_clone(source, clone.tag)
    assert list_clones(source) == ()
    assert source.open().branches.list() == {}


def test_crash_during_a_lance_clone_leaves_files_that_are_deleted_with_the_hold(source: Home, tmp_path: Path) -> None:
    before = contents(source.root)
    uri = str(tmp_path / "clone.lance")
    take_hold(source, branch=None, version=3, clone_uri=uri, hold_id="0123456789abcdef")
    source.open().shallow_clone(f"{source.root}/tree/__clone__/clone-0123456789abcdef", 3)
    drop_clone(source, uri)
    assert contents(source.root) == before


def test_concurrent_clones_to_one_location_make_at_most_one(source: Home, tmp_path: Path) -> None:
    start = Barrier(4)

    def attempt(version: int) -> CloneInfo | None:
        start.wait()
        try:
            return shallow_clone(source, str(tmp_path / "clone.lance"), ref=version)
        except DatasetExistsError:
            return None

    with ThreadPoolExecutor(4) as cloners:
        made = tuple(filter(None, cloners.map(attempt, (1, 2, 3, 3))))
    assert len(made) <= 1
    assert list_clones(source) == made
    manifests = list((tmp_path / "clone.lance").glob("_versions/*.manifest"))
    assert len(manifests) == len(made)
    for info in made:
        assert Home.at(str(info.uri)).open().version == info.source_version


def test_a_clone_is_dropped_after_both_it_and_its_source_moved(source: Home, tmp_path: Path) -> None:
    """What holds a staged version, a branch, moves with the source as any other does."""
    clone = Home.at(str(tmp_path / "clone.lance"))
    shallow_clone(source, clone.root, ref=stage(source, rows(50)))
    moved = Home.at(str(tmp_path / "moved.lance"))
    Path(source.root).rename(moved.root)
    with pytest.raises(ConflictError, match="relocate it"):
        drop_clone(moved, clone.root)
    relocate(moved)
    relocate(clone, mapping={source.root: moved.root})
    wear_out(moved)
    assert ids(clone) == [*NEWEST, 50]
    drop_clone(moved, clone.root)
    assert moved.open().branches.list() == {}


def test_an_unreachable_store_changes_nothing(source: Home) -> None:
    before = contents(source.root)
    with pytest.raises(StorageUnavailableError):
        deep_clone(source, "s3://lake/clone.lance", storage_options=UNREACHABLE)
    assert contents(source.root) == before


def test_a_clone_whose_store_cannot_be_asked_is_listed_all_the_same(source: Home) -> None:
    take_hold(source, branch=None, version=3, clone_uri="s3://lake/clone.lance", hold_id="0123456789abcdef")
    (clone,) = list_clones(source, storage_options=UNREACHABLE)
    assert (clone.uri, clone.exists) == ("s3://lake/clone.lance", None)


def test_only_holds_are_released(source: Home) -> None:
    for name in ("v1.0", "clone-nothing"):
        with pytest.raises(TagNotFoundError, match="its holds are: none"):
            release_clone(source, name)
    assert list(source.open().tags.list()) == ["v1.0"]


def test_a_clone_that_cannot_be_read_is_rolled_back(source: Home, tmp_path: Path) -> None:
    for data in Path(source.root, "data").iterdir():
        data.unlink()
    before = contents(source.root)
    with pytest.raises(AnabranchError):
        shallow_clone(source, str(tmp_path / "clone.lance"))
    with pytest.raises(AnabranchError):
        deep_clone(source, str(tmp_path / "deep.lance"))
    assert contents(source.root) == before
    assert contents(str(tmp_path / "clone.lance")) == contents(str(tmp_path / "deep.lance")) == {}


def test_a_moved_dataset_is_not_cloned_from_a_stale_branch(source: Home, tmp_path: Path) -> None:
    source.open().create_branch("dev")
    Path(source.root).rename(tmp_path / "moved.lance")
    with pytest.raises(StaleBaseError):
        shallow_clone(Home.at(str(tmp_path / "moved.lance")).on("dev"), str(tmp_path / "clone.lance"))


CLONE: list[Callable[..., object]] = [shallow_clone, deep_clone]


@pytest.mark.parametrize("clone", CLONE)
@pytest.mark.parametrize(
    ("target", "ref", "error"),
    [
        ("source.lance", None, InvalidPathError),
        ("source.lance/tree/x", None, InvalidPathError),
        ("other.lance", None, DatasetExistsError),
        ("folder", None, DatasetExistsError),
        ("folder/file", None, InvalidPathError),
        ("folder/file/below", None, InvalidPathError),
        ("", None, DatasetExistsError),
        ("new.lance", "nope", TagNotFoundError),
        ("new.lance", 99, VersionNotFoundError),
        ("new.lance", ("nope", None), BranchNotFoundError),
        ("new.lance", (None, 99), VersionNotFoundError),
    ],
)
def test_a_wrong_call_changes_nothing(
    source: Home, tmp_path: Path, clone: Callable[..., object], target: str, ref: CloneRef, error: type[Exception]
) -> None:
    lance.write_dataset(rows(1), str(tmp_path / "other.lance"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    before = contents(str(tmp_path))
    with pytest.raises(error):
        clone(source, str(tmp_path / target), ref=ref)
    assert contents(str(tmp_path)) == before
    assert not (tmp_path / "new.lance").exists()


def test_an_empty_folder_is_a_fine_target(source: Home, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    shallow_clone(source, str(tmp_path / "empty"))
    assert ids(Home.at(str(tmp_path / "empty"))) == NEWEST


def test_no_shallow_clone_between_kinds_of_store(source: Home) -> None:
    with pytest.raises(InvalidInputError, match=r"on s3 cannot read its source on local disk.*deep clone"):
        shallow_clone(source, "s3://lake/clone.lance")
    assert list_clones(source) == ()


def test_a_dataset_without_clones_has_none(source: Home) -> None:
    assert list_clones(source) == ()
    with pytest.raises(DatasetNotFoundError):
        shallow_clone(Home.at(f"{source.root}-not"), f"{source.root}-clone")


@pytest.mark.xdist_group("s3")
def test_a_clone_reached_by_options_of_its_own_is_listed_and_dropped(s3_location: Location) -> None:
    """The source's options are right for it, and hopeless where the clone is."""
    source, target = s3_location / "source.lance", s3_location / "clone.lance"
    lance.write_dataset(rows(1), source, storage_options=s3_location.storage_options)
    right, wrong = s3_location.storage_options, {**s3_location.storage_options, "aws_secret_access_key": "wrong"}
    dataset = ab.dataset(source, right)
    dataset.shallow_clone(target, storage_options=right)
    assert [clone.exists for clone in dataset.clone_list(storage_options=wrong)] == [None]
    assert [clone.exists for clone in dataset.clone_list(storage_options=right)] == [True]
    with pytest.raises(StorageDeniedError):
        dataset.clone_drop(target, storage_options=wrong)
    dataset.clone_drop(target, storage_options=right)
    assert dataset.clone_list() == []
