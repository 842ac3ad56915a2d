"""Branches of one dataset, by the branch and tag specification, through the public handle."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import errors
from tests.conftest import Location


@pytest.fixture
def dataset(location: Location) -> ab.Dataset:
    """Three versions: ids 0-1, then 2, then 3."""
    root = location / "t.lance"
    for ids, mode in (([0, 1], "create"), ([2], "append"), ([3], "append")):
        write(root, ids, location.storage_options, mode=mode)
    return ab.dataset(root, location.storage_options)


def write(uri: str, ids: list[int], options: dict[str, str], *, mode: str = "append") -> None:
    table = pa.table({"id": pa.array(ids, pa.int64())})
    lance.write_dataset(table, uri, mode=mode, storage_options=options or None, enable_stable_row_ids=True)


def ids(dataset: ab.Dataset) -> list[int]:
    return sorted(dataset.to_arrow().column("id").to_pylist())


@pytest.mark.s3
def test_branch_starts_as_its_source_and_then_changes_independently(dataset: ab.Dataset, location: Location) -> None:
    made = dataset.branch_create("bugfix/issue-123")
    branch = dataset.branch_checkout("bugfix/issue-123")
    assert (made.parent_branch, made.parent_version) == (None, 3)
    assert made.manifest_size > 0
    assert abs((datetime.now(UTC) - made.created_at).total_seconds()) < 86_400
    assert branch.append(pa.table({"id": [9]})) == 4
    assert (ids(branch), ids(dataset)) == ([0, 1, 2, 3, 9], [0, 1, 2, 3])
    objects = {info.path for info in dataset.home.store().list()}
    assert "_refs/branches/bugfix%2Fissue-123.json" in objects
    assert any(path.startswith("tree/bugfix/issue-123/_versions/") for path in objects)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (None, [0, 1, 2, 3]),
        (1, [0, 1]),
        ("v2", [0, 1, 2]),
        ("dev", [0, 1, 2, 3, 7]),
        ("main", [0, 1, 2, 3]),
        (("dev", None), [0, 1, 2, 3, 7]),
        (("dev", 3), [0, 1, 2, 3]),
        ((None, 1), [0, 1]),
        (("main", 2), [0, 1, 2]),
        ("on-dev", [0, 1, 2, 3, 7]),
    ],
)
def test_a_branch_starts_at_a_version_a_tag_or_a_branch(
    dataset: ab.Dataset, source: int | str | tuple[str | None, int | None] | None, expected: list[int]
) -> None:
    dataset.branch_create("dev")
    dataset.branch_checkout("dev").append(pa.table({"id": [7]}))
    dataset.tag_create("v2", 2)
    dataset.tag_create("on-dev", ("dev", 4))
    dataset.branch_create("new", source)
    assert ids(dataset.branch_checkout("new")) == expected


def test_a_branch_starts_at_what_the_handle_reads(dataset: ab.Dataset) -> None:
    dataset.branch_checkout("main", 1).branch_create("early")
    dataset.branch_create("dev")
    dev = dataset.branch_checkout("dev")
    dev.append(pa.table({"id": [7]}))
    dev.branch_create("late")
    assert ids(dataset.branch_checkout("early")) == [0, 1]
    assert ids(dataset.branch_checkout("late")) == [0, 1, 2, 3, 7]
    assert dataset.branch_get("late").parent_branch == "dev"


@pytest.mark.s3
def test_a_version_of_a_missing_branch_or_dataset_names_what_is_missing(
    dataset: ab.Dataset, location: Location
) -> None:
    with pytest.raises(errors.VersionNotFoundError, match="has no version 9"):
        dataset.branch_create("new", ("main", 9))
    with pytest.raises(errors.BranchNotFoundError, match="has no branch 'nope'"):
        dataset.branch_create("new", ("nope", 1))
    with pytest.raises(errors.DatasetNotFoundError, match="no Lance dataset"):
        ab.dataset(location / "nothing.lance", location.storage_options).branch_create("new", ("main", 1))


def test_fork_branch_from_state_forks_exactly_that_version(dataset: ab.Dataset) -> None:
    first = dataset.fork_branch_from_state("main", "one", 2)
    dataset.branch_checkout("one").append(pa.table({"id": [7]}))
    second = dataset.fork_branch_from_state("one", "two", 2)
    assert (first.parent_branch, first.parent_version) == (None, 2)
    assert (second.parent_branch, second.parent_version) == ("one", 2)
    assert ids(dataset.branch_checkout("two")) == [0, 1, 2]
    with pytest.raises(errors.VersionNotFoundError, match="has no version 99"):
        dataset.fork_branch_from_state("one", "three", 99)
    with pytest.raises(errors.BranchNotFoundError, match="has no branch 'nope'"):
        dataset.fork_branch_from_state("nope", "three", 1)


def test_branches_are_listed_by_name(dataset: ab.Dataset) -> None:
    for name in ("b", "a/x", "a/y"):
        dataset.branch_create(name)
    assert [branch.name for branch in dataset.branch_list()] == ["a/x", "a/y", "b"]


def test_plain_pylance_reads_our_branches_and_we_read_its(dataset: ab.Dataset, location: Location) -> None:
    dataset.branch_create("ours", 2)
    plain = lance.dataset(dataset.uri, storage_options=location.storage_options or None)
    assert plain.checkout_version(("ours", None)).count_rows() == 3
    assert set(plain.branches.list()) == {"ours"}
    plain.create_branch("theirs", 1)
    assert ids(dataset.branch_checkout("theirs")) == [0, 1]
    plain.branches.delete("ours")
    assert [branch.name for branch in dataset.branch_list()] == ["theirs"]


def test_names_that_pylance_accepts_and_we_do_not_are_still_read(dataset: ab.Dataset, location: Location) -> None:
    plain = lance.dataset(dataset.uri, storage_options=location.storage_options or None)
    plain.create_branch("été", 1)
    assert [branch.name for branch in dataset.branch_list()] == ["été"]
    assert ids(dataset.branch_checkout("été")) == [0, 1]


def test_metadata_is_read_in_the_spelling_of_the_specification(dataset: ab.Dataset) -> None:
    dataset.branch_create("dev", 2)
    fields = {"parent_branch": "up", "parent_version": 2, "create_at": 1_700_000_000, "manifest_size": 77}
    dataset.home.store().put("_refs/branches/dev.json", json.dumps(fields).encode())
    info = dataset.branch_get("dev")
    assert (info.parent_branch, info.parent_version, info.manifest_size) == ("up", 2, 77)
    assert info.created_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_metadata_without_a_parent_branch_means_main(dataset: ab.Dataset) -> None:
    dataset.branch_create("dev", 2)
    fields = {"parent_version": 2, "create_at": 1_700_000_000, "manifest_size": 77}
    dataset.home.store().put("_refs/branches/dev.json", json.dumps(fields).encode())
    assert dataset.branch_get("dev").parent_branch is None


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"parent_branch": null}', b'{"parentVersion": "x"}'])
def test_damaged_metadata_is_named(dataset: ab.Dataset, damage: bytes) -> None:
    dataset.branch_create("dev")
    dataset.home.store().put("_refs/branches/dev.json", damage)
    with pytest.raises(errors.DamagedFileError, match=r"dev\.json"):
        dataset.branch_get("dev")


def test_delete_removes_a_branch_and_its_files(dataset: ab.Dataset) -> None:
    dataset.branch_create("dev")
    dataset.branch_checkout("dev").append(pa.table({"id": [7]}))
    dataset.branch_delete("dev")
    assert dataset.branch_list() == []
    assert list(dataset.home.store().list("tree/dev")) == []
    dataset.branch_create("dev", 1)
    assert ids(dataset.branch_checkout("dev")) == [0, 1]


def test_a_branch_that_others_need_is_not_deleted(dataset: ab.Dataset) -> None:
    dataset.branch_create("parent")
    dataset.branch_checkout("parent").append(pa.table({"id": [7]}))
    dataset.branch_create("child", "parent")
    with pytest.raises(errors.BranchInUseError, match="'parent' is the parent of 'child'"):
        dataset.branch_delete("parent")
    dataset.branch_delete("child")
    dataset.tag_create("keep", ("parent", 4))
    with pytest.raises(errors.BranchInUseError):
        dataset.branch_delete("parent")
    assert ids(dataset.branch_checkout("parent")) == [0, 1, 2, 3, 7]
    dataset.tag_delete("keep")
    dataset.branch_delete("parent")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda ds: ds.branch_create("dev"), errors.BranchExistsError, "has a branch 'dev' already"),
        (lambda ds: ds.branch_create("main"), errors.InvalidNameError, "reserved for the main branch"),
        (lambda ds: ds.branch_create("ветка"), errors.InvalidNameError, "contains 'авект'"),
        (lambda ds: ds.branch_create("a/_versions"), errors.InvalidNameError, "a folder of the Lance layout"),
        (lambda ds: ds.branch_create("dev/x"), errors.ConflictError, "would share a folder with the branch 'dev'"),
        (lambda ds: ds.branch_create("x"), errors.ConflictError, "would share a folder with the branch 'x/y'"),
        (lambda ds: ds.branch_create("main/x"), errors.InvalidNameError, "starts with 'main/'"),
        (lambda ds: ds.branch_create("7"), errors.InvalidNameError, "is a number, which refs use for versions"),
        (lambda ds: ds.tag_create("7"), errors.InvalidNameError, "is a number, which refs use for versions"),
        (lambda ds: ds.branch_create("new", 99), errors.VersionNotFoundError, "has no version 99"),
        (lambda ds: ds.branch_create("new", "nope"), errors.NotFoundError, "neither a branch nor a tag"),
        (lambda ds: ds.branch_create("new", ("nope", None)), errors.BranchNotFoundError, "no branch 'nope'"),
        (lambda ds: ds.branch_create("new", "both"), errors.InvalidInputError, "is a branch and a tag"),
        (lambda ds: ds.branch_get("nope"), errors.BranchNotFoundError, "no branch 'nope'"),
        (lambda ds: ds.branch_get("main"), errors.BranchNotFoundError, "'main' of .* has no metadata"),
        (lambda ds: ds.branch_checkout("nope"), errors.BranchNotFoundError, "no branch 'nope'"),
        (lambda ds: ds.branch_checkout("dev", 77), errors.VersionNotFoundError, "has no version 77"),
        (lambda ds: ds.branch_checkout("dev", -1), errors.VersionNotFoundError, "has no version -1"),
        (lambda ds: ds.branch_checkout("main", "v1"), errors.VersionNotFoundError, "has no version 'v1'"),
        (lambda ds: ds.branch_create("new", 1 << 64), errors.VersionNotFoundError, "has no version 1844674407370955"),
        (lambda ds: ds.fork_branch_from_state("dev", "new", -1), errors.VersionNotFoundError, "has no version -1"),
        (lambda ds: ds.branch_checkout("x" * 300), errors.BranchNotFoundError, "no branch 'xxx"),
        (lambda ds: ds.branch_create("new", "x" * 300), errors.NotFoundError, "neither a branch nor a tag"),
        (lambda ds: ds.branch_delete("nope"), errors.BranchNotFoundError, "no branch 'nope'"),
        (lambda ds: ds.branch_delete("main"), errors.InvalidInputError, "cannot be deleted"),
    ],
)
def test_bad_input_changes_nothing(
    dataset: ab.Dataset, call: Callable[[ab.Dataset], object], error: type[Exception], message: str
) -> None:
    dataset.branch_create("dev")
    dataset.branch_create("x/y")
    dataset.branch_create("both")
    dataset.tag_create("both", 1)
    before = {info.path: info.size for info in dataset.home.store().list()}
    with pytest.raises(error, match=message):
        call(dataset)
    assert {info.path: info.size for info in dataset.home.store().list()} == before


def test_a_pinned_handle_refuses_to_write(dataset: ab.Dataset, location: Location) -> None:
    pinned = dataset.branch_checkout("main", 1)
    writes: list[Callable[[], object]] = [
        lambda: pinned.append(pa.table({"id": [7]})),
        lambda: pinned.base_add(location / "cold", name="cold"),
        lambda: pinned.move_fragments(to="root", fragments=[0]),
        lambda: pinned.compact(),
    ]
    for write_something in writes:
        with pytest.raises(errors.InvalidInputError, match="checked out at version 1"):
            write_something()
    assert dataset.version == 3


def test_doctor_repairs_at_once_where_the_grace_is_waived(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    write(uri, [1], {}, mode="create")
    dataset = ab.dataset(uri)
    dataset.branch_create("dev")
    (tmp_path / "t.lance" / "_refs" / "branches" / "dev.json").unlink()
    assert not dataset.doctor(repair=True).is_clean
    assert dataset.doctor(repair=True, grace=timedelta()).is_clean
    assert dataset.branch_create("dev").parent_version == 1


@pytest.mark.parametrize("path", ["nothing", "folder", "file", "damaged"])
def test_what_is_not_a_dataset_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("hello")
    write(str(tmp_path / "damaged"), [1], {}, mode="create")
    for manifest in (tmp_path / "damaged" / "_versions").glob("*.manifest"):
        manifest.write_bytes(b"noise" * 100)
    expected = errors.DamagedFileError if path == "damaged" else errors.DatasetNotFoundError
    with pytest.raises(expected, match=path):
        ab.dataset(tmp_path / path)


def test_an_unreachable_endpoint_is_reported_and_keeps_the_secret() -> None:
    options = {
        "aws_endpoint": "http://127.0.0.1:9",
        "aws_access_key_id": "somebody",
        "aws_secret_access_key": "hush-hush",
        "aws_region": "us-east-1",
        "allow_http": "true",
        "client_max_retries": "0",
    }
    with pytest.raises(errors.StorageUnavailableError, match=r"s3://lake/t\.lance") as caught:
        ab.dataset("s3://lake/t.lance", options)
    assert caught.value.retryable
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["dev", "a/b"])
def test_the_folder_of_a_branch_is_opened_as_that_branch(dataset: ab.Dataset, location: Location, name: str) -> None:
    dataset.branch_create(name)
    dataset.branch_checkout(name).append(pa.table({"id": [7]}))
    branch = ab.dataset(f"{dataset.uri}/tree/{name}", location.storage_options)
    assert (branch.uri, branch.branch, ids(branch)) == (dataset.uri, name, [0, 1, 2, 3, 7])
    branch.branch_create("child")
    branch.tag_create("here")
    assert [(tag.branch, tag.version) for tag in dataset.tag_list()] == [(name, 4)]
    assert dataset.branch_get("child").parent_branch == name


def test_a_dataset_and_a_link_to_it_are_one(tmp_path: Path) -> None:
    write(str(tmp_path / "t.lance"), [1], {}, mode="create")
    (tmp_path / "link").symlink_to(tmp_path / "t.lance")
    direct, linked = ab.dataset(tmp_path / "t.lance"), ab.dataset(tmp_path / "link")
    direct.branch_create("direct")
    linked.branch_create("linked")
    for one in (direct, linked):
        assert [ids(one.branch_checkout(name)) for name in ("direct", "linked")] == [[1], [1]]
        assert one.doctor().is_clean


def at_once(calls: list[Callable[[], object]]) -> list[object]:
    """What each call returned, or the error of ours it raised, with all of them started at the same moment."""
    barrier = threading.Barrier(len(calls))

    def attempt(call: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return call()
        except errors.AnabranchError as err:
            return err

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(attempt, calls))


@pytest.mark.s3
def test_of_many_that_make_one_name_one_wins_and_the_branch_is_whole(dataset: ab.Dataset) -> None:
    """Lance alone leaves a branch that opens at a loser's version."""
    for number in range(3):
        name = f"race-{number}"
        made = at_once([partial(dataset.branch_create, name, version) for version in [1, 2, 3] * 2])
        recorded = dataset.branch_get(name)
        assert [one for one in made if not isinstance(one, errors.BranchExistsError)] == [recorded]
        assert dataset.branch_checkout(name).version == recorded.parent_version
        assert ids(dataset.branch_checkout(name)) == list(range(recorded.parent_version + 1))
        assert dataset.branch_checkout(name).version_list() == [recorded.parent_version]


def test_concurrent_deletes_remove_branches_and_their_files(dataset: ab.Dataset) -> None:
    """Lance alone stumbles over the refs of the others, and leaves files without a ref."""
    for number in range(3):
        names = [f"b{number}-{each}" for each in range(6)]
        for name in names:
            dataset.branch_create(name)
        deleted = at_once([partial(dataset.branch_delete, name) for name in names])
        assert [each for each in deleted if isinstance(each, Exception)] == []
        assert dataset.branch_list() == []
        assert list(dataset.home.store().list("tree")) == []


def test_a_name_and_a_name_inside_its_folder_are_never_both_made(
    dataset: ab.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two creators that both looked before either wrote: each sees the other afterwards."""
    make, both_looked = lance.LanceDataset.commit, threading.Barrier(2, timeout=60)

    def make_together(*args: Any, **options: Any) -> lance.LanceDataset:
        both_looked.wait()
        return make(*args, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", make_together)
    before = {info.path for info in dataset.home.store().list()}

    def attempt(name: str) -> str | None:
        try:
            return dataset.branch_create(name).name
        except errors.ConflictError:
            return None

    with ThreadPoolExecutor(2) as pool:
        made = [name for name in pool.map(attempt, ["a", "a/x"]) if name is not None]
    assert len(made) <= 1
    assert [branch.name for branch in dataset.branch_list()] == made
    assert all(ids(dataset.branch_checkout(name)) == [0, 1, 2, 3] for name in made)
    after = {info.path for info in dataset.home.store().list()}
    assert made or after == before
    assert dataset.doctor().findings == ()


@pytest.mark.parametrize("name", ["7", "0"])
def test_branches_and_tags_that_are_numbers_and_exist_are_read_by_name(dataset: ab.Dataset, name: str) -> None:
    dataset.open().create_branch(name, 1)
    assert ids(dataset.branch_checkout(name)) == [0, 1]
    assert dataset.branch_create("new", name).parent_branch == name
    dataset.branch_delete("new")
    dataset.branch_delete(name)
    dataset.open().tags.create(name, 2)
    assert ids(dataset.tag_checkout(name)) == [0, 1, 2]
    assert dataset.branch_create("new", name).parent_version == 2
    dataset.tag_delete(name)
    assert dataset.tag_list() == []


def test_a_branch_whose_parent_is_deleted_at_the_same_time_is_rolled_back(
    dataset: ab.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset.branch_create("parent")
    make = lance.LanceDataset.commit

    def make_late(*args: Any, **options: Any) -> lance.LanceDataset:
        monkeypatch.undo()
        dataset.branch_create("other")
        made = make(*args, **options)
        dataset.home.store().delete("_refs/branches/parent.json")  # the first step of its deletion
        return made

    monkeypatch.setattr(lance.LanceDataset, "commit", make_late)
    with pytest.raises(errors.BranchNotFoundError, match="no branch 'parent'"):
        dataset.branch_create("child", "parent")
    assert [branch.name for branch in dataset.branch_list()] == ["other"]
    assert list(dataset.home.store().list("tree/child")) == []


def test_a_branch_that_gets_a_child_while_it_is_deleted_is_kept(
    dataset: ab.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child's ref comes between the two looks of the deletion."""
    dataset.branch_create("parent")
    dataset.branch_create("child", "parent")
    store = dataset.home.store()
    ref = store.get("_refs/branches/child.json")
    store.delete("_refs/branches/child.json")
    delete = type(store).delete

    def delete_first(self: Any, path: str) -> None:
        delete(self, path)
        store.put("_refs/branches/child.json", ref)

    with monkeypatch.context() as during:
        during.setattr(type(store), "delete", delete_first)
        with pytest.raises(errors.BranchInUseError, match="is the parent of 'child'"):
            dataset.branch_delete("parent")
    assert [branch.name for branch in dataset.branch_list()] == ["child", "parent"]
    assert dataset.doctor().findings == ()


def lose_ref(dataset: ab.Dataset, name: str) -> None:
    """Leave what a creator leaves that fails at the ref of a branch."""
    dataset.home.store().delete(f"_refs/branches/{name}.json")


@pytest.mark.s3
def test_creation_that_failed_at_the_ref_is_repeated(dataset: ab.Dataset) -> None:
    for version in (2, 3):
        name = f"from-{version}"
        dataset.branch_create(name, version)
        lose_ref(dataset, name)
        assert dataset.branch_create(name, version).parent_version == version
        assert ids(dataset.branch_checkout(name)) == list(range(version + 1))
        dataset.branch_checkout(name).append(pa.table({"id": pa.array([9], pa.int64())}))
        assert ids(dataset.branch_checkout(name))[-1] == 9
    # Files that come before the first manifest do not make it fail.
    dataset.home.store().put("tree/early/_transactions/1-x.txn", b"")
    dataset.branch_create("early", 1)
    assert ids(dataset.branch_checkout("early")) == [0, 1]
    assert dataset.doctor().is_clean


def test_files_of_another_state_are_not_taken_for_an_unfinished_branch(dataset: ab.Dataset) -> None:
    rows = [pa.table({"id": pa.array([number], pa.int64())}) for number in (10, 20, 30)]
    # From another version.
    dataset.branch_create("a", 2)
    lose_ref(dataset, "a")
    # From a branch that was deleted. Another one has its name and the same version.
    dataset.branch_create("source")
    dataset.branch_checkout("source").append(rows[0])
    dataset.branch_create("b", "source")
    lose_ref(dataset, "b")
    dataset.branch_delete("source")
    dataset.branch_create("source")
    dataset.branch_checkout("source").append(rows[1])
    # A branch with a commit of its own.
    dataset.branch_create("c")
    dataset.branch_checkout("c").append(rows[2])
    lose_ref(dataset, "c")
    for name, source in (("a", 3), ("b", "source"), ("c", 3)):
        with pytest.raises(errors.BranchExistsError, match="files of an unfinished branch"):
            dataset.branch_create(name, source)
    assert [branch.name for branch in dataset.branch_list()] == ["source"]


def test_branch_created_with_files_that_are_being_deleted_is_not_left_broken(
    dataset: ab.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset.branch_create("dev")
    store = dataset.home.store()
    delete = type(store).delete

    def create_before(self: Any, path: str) -> None:
        if path.endswith(".manifest"):
            monkeypatch.undo()
            dataset.branch_create("dev")
        delete(self, path)

    monkeypatch.setattr(type(store), "delete", create_before)
    dataset.branch_delete("dev")
    assert dataset.branch_list() == []
    assert list(store.list("tree")) == []
    dataset.branch_create("dev")
    assert ids(dataset.branch_checkout("dev")) == [0, 1, 2, 3]
    assert dataset.doctor().findings == ()
