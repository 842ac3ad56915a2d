"""Base paths: registering, finding, resolving, writing, and detecting stale ones."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.errors import (
    AnabranchError,
    BaseExistsError,
    BaseNotFoundError,
    BusyError,
    InvalidInputError,
    InvalidNameError,
    InvalidPathError,
    NotFoundError,
    SchemaMismatchError,
    StaleBaseError,
    StorageError,
)
from anabranch.format.bases import (
    add_base,
    append_to_base,
    check_bases,
    find_base,
    get_base,
    list_bases,
)
from anabranch.format.home import Home
from anabranch.format.layout.manifest import BasePath
from anabranch.format.layout.needed_files import FileKind, resolve_path
from anabranch.format.refs.refs import restore_version
from anabranch.format.tiering import remove_base
from anabranch.storage import open_store
from tests.conftest import Location
from tests.format.live_files import list_live_files
from tests.format.reading import read_base


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop), "v": [i * 0.5 for i in range(start, stop)]})


def make(location: Location, *, name: str = "t.lance", branch: str | None = None) -> Home:
    """A table of 100 rows in four fragments."""
    home = Home.at(location / name, location.storage_options)
    options = home.lance_options()
    made = lance.write_dataset(
        rows(0, 100), home.root, max_rows_per_file=25, enable_stable_row_ids=True, storage_options=options
    )
    if branch is not None:
        made.create_branch(branch)
    return home.on(branch)


def base(number: int, path: str, *, name: str | None = None, is_root: bool = True) -> BasePath:
    return BasePath(id=number, path=path, name=name, is_dataset_root=is_root)


HOT_COLD = [base(0, "s3://hot-bucket/dataset"), base(1, "s3://cold-bucket/dataset-archive")]
CLONE = [base(0, "s3://experiments/test-variant"), base(1, "s3://production/main-dataset", name="v1.0")]
FLAT = [base(3, "gs://bucket/files", is_root=False)]


@pytest.mark.parametrize(
    ("bases", "path", "kind", "base_id", "expected"),
    [
        (HOT_COLD, "fragment-0.lance", "data", 0, "s3://hot-bucket/dataset/data/fragment-0.lance"),
        (HOT_COLD, "fragment-100.lance", "data", 1, "s3://cold-bucket/dataset-archive/data/fragment-100.lance"),
        (CLONE, "fragment-0.lance", "data", 1, "s3://production/main-dataset/data/fragment-0.lance"),
        (CLONE, "fragment-new.lance", "data", 0, "s3://experiments/test-variant/data/fragment-new.lance"),
        (CLONE, "42-10-a1b2.arrow", "deletion", 1, "s3://production/main-dataset/_deletions/42-10-a1b2.arrow"),
        (CLONE, "uuid/index.idx", "index", 1, "s3://production/main-dataset/_indices/uuid/index.idx"),
        (FLAT, "f.lance", "data", 3, "gs://bucket/files/f.lance"),
        (FLAT, "1-2-3.bin", "deletion", 3, "gs://bucket/files/1-2-3.bin"),
        (FLAT, "uuid/index.idx", "index", 3, "gs://bucket/files/uuid/index.idx"),
        (FLAT, "f.lance", "data", None, "/lake/t.lance/data/f.lance"),
        (FLAT, "1-2-3.bin", "deletion", None, "/lake/t.lance/_deletions/1-2-3.bin"),
        (FLAT, "uuid/index.idx", "index", None, "/lake/t.lance/_indices/uuid/index.idx"),
        ([base(1, "/cold/")], "f.lance", "data", 1, "/cold/data/f.lance"),
    ],
)
def test_a_path_resolves_as_the_specification_says(
    bases: list[BasePath], path: str, kind: str, base_id: int | None, expected: str
) -> None:
    by_id = {entry.id: entry for entry in bases}
    assert resolve_path(path, FileKind(kind), base_id, bases=by_id, dataset_root="/lake/t.lance") == expected


def test_an_unknown_base_id_is_named_with_those_that_exist() -> None:
    with pytest.raises(BaseNotFoundError, match=r"no base 7; the bases are: 0, 1 \(v1\.0\)"):
        resolve_path("f", FileKind.DATA, 7, bases={entry.id: entry for entry in CLONE}, dataset_root="/t")


@pytest.mark.s3
def test_every_file_is_at_the_location_of_its_path(location: Location) -> None:
    main = make(location)
    add_base(main, location / "cold", name="cold", is_dataset_root=True)
    add_base(main, location / "flat", name="flat")
    append_to_base(main, rows(100, 110), base="cold")
    append_to_base(main, rows(110, 120), base="flat")
    main.open().delete("id in (3, 105, 115)")
    main.open().create_scalar_index("id", "BTREE")
    main.open().create_branch("dev")
    dev = main.on("dev")
    append_to_base(dev, rows(120, 130), base="flat")
    append_to_base(dev, rows(130, 140))
    dev.open().delete("id in (4, 125)")
    for home in (main, dev):
        files = list_live_files(home, home.open())
        assert {file.kind for file in files} == set(FileKind)
        for file in files:
            found = list(open_store(file.uri.rpartition("/")[0], location.storage_options).list())
            name = file.uri.rpartition("/")[2]
            assert any(one.path == name or one.path.startswith(f"{name}/") for one in found), file


@pytest.mark.s3
def test_an_added_base_is_listed_and_can_be_written_to(location: Location) -> None:
    home = make(location)
    added = add_base(home, f"{location.root}/cold/", name="cold", is_dataset_root=True)
    assert added == BasePath(id=1, path=location / "cold", name="cold", is_dataset_root=True)
    assert list_bases(home) == (added,)
    assert list_bases(home, version=1) == ()
    version = append_to_base(home, rows(100, 110), base="cold")
    assert home.open().version == version
    assert home.open().count_rows() == 110
    assert [found.path.partition("/")[0] for found in open_store(added.path, location.storage_options).list()] == [
        "data"
    ]


def test_a_base_is_found_by_name_path_and_id() -> None:
    known = [base(1, "/a", name="cold"), base(2, "/b"), base(3, "/c", name="2024")]
    assert find_base(known, "cold") == find_base(known, "/a") == find_base(known, "/a/") == find_base(known, 1)
    assert get_base(known, "2") == get_base(known, 2) == known[1]
    assert find_base(known, "2024") == known[2]
    assert find_base(known, "warm") is None
    with pytest.raises(BaseNotFoundError, match=r"no base 'warm'; the bases are: 1 \(cold\), 2, 3 \(2024\)"):
        get_base(known, "warm")
    with pytest.raises(BaseNotFoundError, match="the bases are: none"):
        get_base([], 1)


@pytest.mark.parametrize("name", ["", "a b", "é", "a/b", ".hidden", "-x", "x" * 101, "root", "17"])
def test_a_bad_base_name_is_refused_and_nothing_changes(tmp_path: Path, name: str) -> None:
    home = make(Location(root=str(tmp_path)))
    with pytest.raises(InvalidNameError, match="base name"):
        add_base(home, str(tmp_path / "cold"), name=name)
    assert home.open().version == 1


@pytest.mark.parametrize("below", ["", "/", "/data", "/tree/dev", "/cold"])
def test_a_base_inside_the_dataset_is_refused(tmp_path: Path, below: str) -> None:
    home = make(Location(root=str(tmp_path)), branch="dev")
    with pytest.raises(InvalidPathError, match="in the dataset"):
        add_base(home, home.root + below, name="own")
    assert list_bases(home.on(None)) == ()


def test_a_base_that_is_a_file_or_of_an_unknown_scheme_is_refused(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    (tmp_path / "file").write_text("x")
    for path in ("file", "file/below", "file/far/below"):
        with pytest.raises(InvalidPathError, match="is a file, or is below one"):
            add_base(home, str(tmp_path / path), name="cold")
    with pytest.raises(InvalidPathError, match="scheme 'ftp'"):
        add_base(home, "ftp://host/x", name="cold")
    assert home.open().version == 1


def test_a_base_in_a_store_that_cannot_be_reached_is_refused(tmp_path: Path) -> None:
    options = {
        "aws_endpoint": "http://127.0.0.1:1",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "never-shown",
        "aws_region": "us-east-1",
        "allow_http": "true",
        "client_max_retries": "0",
    }
    make(Location(root=str(tmp_path)))
    home = Home.at(str(tmp_path / "t.lance"), options)
    with pytest.raises(StorageError, match="cannot be reached") as caught:
        add_base(home, "s3://cold/x", name="cold")
    assert "never-shown" not in str(caught.value)
    assert home.open().version == 1


def test_a_base_in_a_folder_that_is_not_there_yet_is_fine(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    assert add_base(home, f"{tmp_path}/not/yet", name="cold").path == f"{tmp_path}/not/yet"
    append_to_base(home, rows(100, 110), base="cold")
    assert read_base(home, "cold").num_rows == 10


@pytest.mark.xdist_group("s3")
def test_a_base_in_a_missing_bucket_is_refused(s3_location: Location) -> None:
    home = make(s3_location)
    with pytest.raises(NotFoundError, match=r"bucket of .*does not exist"):
        add_base(home, "s3://no-such-bucket/cold", name="cold")
    assert home.open().version == 1


def test_a_name_or_path_that_is_taken_is_refused(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    add_base(home, str(tmp_path / "cold"), name="cold")
    for path, name in [("cold", "other"), ("cold/", "other"), ("x/../cold", "other"), ("other", "cold")]:
        with pytest.raises(BaseExistsError, match="has the base 'cold' at"):
            add_base(home, f"{tmp_path}/{path}", name=name)
    assert len(list_bases(home)) == 1


def test_a_restored_version_lists_bases_without_a_name_again(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    first, second = (str(tmp_path / name) for name in ("cold", "colder"))
    home.open().add_bases([lance.DatasetBasePath(first)])
    remove_base(home, first)
    home.open().add_bases([lance.DatasetBasePath(second)])
    restore_version(home, 2)
    assert [(entry.path, entry.name) for entry in list_bases(home)] == [(first, None), (second, None)]
    append_to_base(home, rows(100, 110), base=second)
    assert lance.dataset(home.uri).count_rows() == 110


def test_a_relative_path_is_recorded_as_an_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make(Location(root=str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    assert add_base(home, "cold", name="cold").path == str(tmp_path / "cold")


def test_a_base_added_on_a_branch_is_listed_on_main_too(tmp_path: Path) -> None:
    dev = make(Location(root=str(tmp_path)), branch="dev")
    added = add_base(dev, str(tmp_path / "cold"), name="cold", is_dataset_root=True)
    assert added in list_bases(dev)
    assert [entry.path for entry in list_bases(dev.on(None))] == [added.path]
    check_bases(dev)
    append_to_base(dev, rows(100, 110), base="cold")
    assert (dev.open().count_rows(), dev.on(None).open().count_rows()) == (110, 100)


def test_a_base_of_main_can_be_added_to_an_older_branch(tmp_path: Path) -> None:
    dev = make(Location(root=str(tmp_path)), branch="dev")
    add_base(dev.on(None), str(tmp_path / "warm"), name="warm", is_dataset_root=True)
    add_base(dev.on(None), str(tmp_path / "cold"), name="cold", is_dataset_root=True)
    assert add_base(dev, str(tmp_path / "cold"), name="cold", is_dataset_root=True).id == 1
    assert [entry.id for entry in list_bases(dev.on(None)) if entry.name == "cold"] == [2]
    assert len(list_bases(dev.on(None))) == 2


@pytest.mark.s3
def test_bases_added_at_the_same_time_are_all_listed(location: Location) -> None:
    home = make(location)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: add_base(home, location / f"b{n}", name=f"b{n}"), range(6)))
    assert sorted(entry.name or "" for entry in list_bases(home)) == [f"b{n}" for n in range(6)]
    assert len({entry.id for entry in list_bases(home)}) == 6


def test_one_base_added_by_many_at_the_same_time_is_listed_once(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))

    def attempt(_: int) -> AnabranchError | None:
        try:
            add_base(home, str(tmp_path / "cold"), name="cold")
        except (BaseExistsError, BusyError) as err:
            return err
        return None

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(attempt, range(6)))
    assert outcomes.count(None) == 1
    assert len(list_bases(home)) == 1


def test_writing_to_an_unknown_base_changes_nothing(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    with pytest.raises(BaseNotFoundError, match="no base 'cold'"):
        append_to_base(home, rows(0, 1), base="cold")
    assert home.open().version == 1


def test_rows_of_another_schema_are_refused(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    add_base(home, str(tmp_path / "cold"), name="cold")
    with pytest.raises(SchemaMismatchError):
        append_to_base(home, pa.table({"other": ["x"]}), base="cold")
    assert home.open().version == 2


@pytest.mark.s3
def test_a_branch_does_not_write_into_the_locations_it_inherits_from(location: Location) -> None:
    dev = make(location, branch="dev")
    dev.open().create_branch("sub")
    sub = dev.on("sub")
    cases: list[tuple[Home, str | int]] = [(dev, dev.root), (dev, 0), (sub, "dev"), (sub, "0")]
    for home, target in cases:
        before = home.open().version
        with pytest.raises(InvalidInputError, match="only inherits files"):
            append_to_base(home, rows(100, 101), base=target)
        assert home.open().version == before
        assert home.open().to_table().num_rows == 100


def test_a_clone_does_not_write_into_its_source(tmp_path: Path) -> None:
    source = make(Location(root=str(tmp_path)))
    source.open().shallow_clone(str(tmp_path / "c1.lance"), 1)
    lance.dataset(str(tmp_path / "c1.lance")).shallow_clone(str(tmp_path / "c2.lance"), 1)
    for name in ("c1.lance", "c2.lance"):
        clone = Home.at(str(tmp_path / name))
        for entry in list_bases(clone):
            with pytest.raises(InvalidInputError, match="only inherits files"):
                append_to_base(clone, rows(100, 101), base=entry.id)
        append_to_base(clone, rows(100, 101), base="root")
        assert clone.open().to_table().num_rows == 101


def test_a_dataset_that_lists_its_own_root_writes_there(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    home.open().add_bases([lance.DatasetBasePath(home.root, name="hot", is_dataset_root=True)])
    append_to_base(home, rows(100, 110), base="hot")
    assert home.open().to_table().num_rows == read_base(home, "hot").num_rows == read_base(home, "root").num_rows == 110


@pytest.mark.s3
def test_fresh_branches_are_not_stale(location: Location) -> None:
    dev = make(location, branch="dev/a")
    dev.open().create_branch("dev/b")
    for home in (dev.on(None), dev, dev.on("dev/b")):
        check_bases(home)
        check_bases(home, list_bases(home))


def test_a_branch_of_a_moved_dataset_is_stale_until_its_root_is_listed_on_main(tmp_path: Path) -> None:
    old = make(Location(root=str(tmp_path)), branch="dev")
    old.open().create_branch("dev2")
    (tmp_path / "t.lance").rename(tmp_path / "moved.lance")
    main = Home.at(str(tmp_path / "moved.lance"))
    check_bases(main)
    for branch in ("dev", "dev2"):
        with pytest.raises(StaleBaseError, match=f"branch '{branch}' of .*moved.lance' inherits.*t.lance.*relocate"):
            check_bases(main.on(branch))
    add_base(main, old.root, name="before", is_dataset_root=True)
    check_bases(main.on("dev"))
    with pytest.raises(StaleBaseError, match=r"t\.lance/tree/dev'"):
        check_bases(main.on("dev2"))


def test_a_branch_made_by_a_relative_path_is_stale_from_any_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lance.write_dataset(rows(0, 3), "t.lance").create_branch("dev")
    dev = Home.at("t.lance").on("dev")
    if os.path.isabs(list_bases(dev)[0].path):
        pytest.fail("Lance records absolute base paths now: this check can go")
    check_bases(dev)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(StaleBaseError, match="inherits files from"):
        check_bases(dev)
