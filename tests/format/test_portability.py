"""A dataset with all there is, moved and copied: main reads at once, branches refuse, relocating makes them read."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.fragment import write_fragments

import anabranch as ab
from anabranch.errors import StaleBaseError
from anabranch.format.bases import check_bases
from anabranch.format.clone.clone import shallow_clone
from anabranch.format.clone.relocate import relocate
from anabranch.format.home import Home
from anabranch.storage import copy_between, open_store
from tests.conftest import Location

BRANCHES = ("dev", "feature/x", "feature/of-dev")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def stage(home: Home, data: pa.Table) -> int:
    base = home.open()
    operation = LanceOperation.Append(write_fragments(data, base))
    return int(lance.LanceDataset.commit(base, operation, read_version=base.version, detached=True).version)


def ids(home: Home, version: int | None = None) -> list[int]:
    return sorted(home.open(version).to_table()["id"].to_pylist())


@dataclass(frozen=True)
class LivedIn:
    """Where a dataset was made, and what each of its versions holds."""

    root: str
    staged: dict[str | None, int]
    expected: dict[str | None, list[int]]
    storage_options: dict[str, str]

    def home(self, root: str | Path, branch: str | None = None) -> Home:
        return Home.at(str(root), self.storage_options).on(branch)


def lived_in(root: str, storage_options: dict[str, str] | None = None) -> LivedIn:
    """Make a dataset with deletions, an index, branches, one of them of a branch, tags and staged versions."""
    home = Home.at(root, storage_options)
    lance.write_dataset(
        rows(1, 2, 3, 4), root, storage_options=home.lance_options(), enable_stable_row_ids=True, max_rows_per_file=2
    )
    home.open().delete("id = 4")
    home.open().create_scalar_index("id", "BTREE")
    home.open().create_branch("dev")
    home.open().create_branch("feature/x")
    home.on("dev").open().insert(rows(10))
    home.on("dev").open().delete("id = 1")
    home.open().create_branch("feature/of-dev", ("dev", home.on("dev").open().version))
    home.on("feature/of-dev").open().insert(rows(20))
    home.open().insert(rows(5))
    home.open().tags.create("v1", 1)
    home.open().tags.create("dev-v1", ("dev", home.on("dev").open().version))
    staged = {branch: stage(home.on(branch), rows(99)) for branch in (None, "dev", "feature/of-dev")}
    expected = {None: [1, 2, 3, 5], "dev": [2, 3, 10], "feature/x": [1, 2, 3], "feature/of-dev": [2, 3, 10, 20]}
    return LivedIn(root=root, staged=staged, expected=expected, storage_options=dict(storage_options or {}))


def move(old: str, new: Path) -> None:
    shutil.move(old, new)


def copy(old: str, new: Path) -> None:
    shutil.copytree(old, new)


def copy_and_forget(old: str, new: Path) -> None:
    shutil.copytree(old, new)
    shutil.rmtree(old)


def check_reads(made: LivedIn, root: str | Path) -> None:
    """All branches, tags and staged versions, through our door and Lance's own."""
    options = made.home(root).lance_options()
    for branch, expected in made.expected.items():
        home = made.home(root, branch)
        check_bases(home)
        assert ids(home) == expected
        assert home.open().count_rows("id = 2") == 1
        checked_out = lance.dataset(str(root), storage_options=options).checkout_version((branch or "main", None))
        assert sorted(checked_out.to_table()["id"].to_pylist()) == expected
        if branch in made.staged:
            assert ids(home, made.staged[branch]) == sorted([*expected, 99])
    tagged = {tag: lance.dataset(str(root), version=tag, storage_options=options) for tag in ("v1", "dev-v1")}
    assert {tag: dataset.count_rows() for tag, dataset in tagged.items()} == {"v1": 4, "dev-v1": 3}


@pytest.mark.parametrize("carry", [move, copy], ids=["moved", "copied"])
def test_no_door_leads_to_the_original(tmp_path: Path, carry: Callable[[str, Path], None]) -> None:
    made = lived_in(str(tmp_path / "old" / "t.lance"))
    carry(made.root, new := tmp_path / "new.lance")
    dataset = ab.dataset(new)
    assert sorted(dataset.to_arrow()["id"].to_pylist()) == made.expected[None]
    before = {info.path: info.size for info in dataset.home.store().list()}
    doors: list[Callable[[], object]] = [
        lambda: dataset.branch_checkout("dev"),
        lambda: dataset.tag_checkout("dev-v1"),
        lambda: dataset.branch_create("child", "dev"),
        lambda: dataset.fork_branch_from_state("feature/of-dev", "child", 6),
        lambda: dataset.shallow_clone(tmp_path / "clone.lance", "dev"),
        lambda: dataset.deep_clone(tmp_path / "clone.lance", "dev-v1"),
        lambda: ab.dataset(new / "tree" / "dev"),
        lambda: ab.dataset(new / "tree" / "feature" / "of-dev"),
    ]
    for door in doors:
        with pytest.raises(StaleBaseError, match="relocate the dataset"):
            door()
    assert {info.path: info.size for info in dataset.home.store().list()} == before
    dataset.relocate()
    shutil.rmtree(tmp_path / "old")
    for branch in BRANCHES:
        assert sorted(dataset.branch_checkout(branch).to_arrow()["id"].to_pylist()) == made.expected[branch]


@pytest.mark.parametrize("carry", [move, copy], ids=["moved", "copied"])
def test_main_reads_at_once_and_branches_refuse(tmp_path: Path, carry: Callable[[str, Path], None]) -> None:
    made = lived_in(str(tmp_path / "old" / "t.lance"))
    carry(made.root, new := tmp_path / "new.lance")
    assert ids(made.home(new)) == made.expected[None]
    assert ids(made.home(new), made.staged[None]) == [*made.expected[None], 99]
    check_bases(made.home(new))
    for branch in BRANCHES:
        with pytest.raises(StaleBaseError, match=r"inherits files from .*old/t\.lance.*relocate"):
            check_bases(made.home(new, branch))


@pytest.mark.parametrize("carry", [move, copy_and_forget], ids=["moved", "copied"])
def test_relocated_branches_read_the_new_location_only(tmp_path: Path, carry: Callable[[str, Path], None]) -> None:
    made = lived_in(str(tmp_path / "old" / "t.lance"))
    carry(made.root, new := tmp_path / "a much longer way" / "new.lance")
    report = relocate(made.home(new))
    assert report.unexplained == ()
    assert report.changes == {made.root: str(new), f"{made.root}/tree/dev": f"{new}/tree/dev"}
    assert all(path.startswith("tree/") for path in report.rewritten)
    check_reads(made, new)


def test_a_relocated_copy_and_its_original_live_on_apart(tmp_path: Path) -> None:
    made = lived_in(str(tmp_path / "t.lance"))
    shutil.copytree(made.root, new := tmp_path / "new.lance")
    relocate(made.home(new))
    before = {path: path.read_bytes() for path in Path(made.root).rglob("*") if path.is_file()}
    for branch in (None, *BRANCHES):
        made.home(new, branch).open().insert(rows(77))
        made.home(new, branch).open().delete("id = 2")
        made.home(new, branch).open().optimize.compact_files()
        assert ids(made.home(new, branch)) == sorted({*made.expected[branch], 77} - {2})
    assert {path: path.read_bytes() for path in Path(made.root).rglob("*") if path.is_file()} == before
    check_reads(made, made.root)


def test_relocated_branches_are_branched_tagged_and_deleted_by_plain_pylance(tmp_path: Path) -> None:
    made = lived_in(str(tmp_path / "t.lance"))
    move(made.root, new := tmp_path / "new.lance")
    relocate(made.home(new))
    dataset = lance.dataset(str(new))
    dataset.create_branch("fresh", ("feature/of-dev", None))
    dataset.tags.create("again", ("feature/x", None))
    assert ids(made.home(new, "fresh")) == made.expected["feature/of-dev"]
    dataset.branches.delete("fresh")
    dataset.branches.delete("feature/of-dev")
    assert set(dataset.branches.list()) == {"dev", "feature/x"}
    restored = lance.Transaction(
        made.home(new, "dev").open().version, LanceOperation.Restore(made.staged["dev"]), transaction_properties={}
    )
    lance.LanceDataset.commit(made.home(new, "dev").open(), restored)
    assert ids(made.home(new, "dev")) == [2, 3, 10, 99]


def test_two_writers_conflict_and_rebase_on_a_relocated_branch(tmp_path: Path) -> None:
    """Rebasing reads the transactions in between, which still name the old location; nothing is read from there."""
    made = lived_in(str(tmp_path / "t.lance"))
    move(made.root, new := tmp_path / "new.lance")
    relocate(made.home(new))
    one, two = made.home(new, "feature/x").open(), made.home(new, "feature/x").open()
    one.insert(rows(31))
    two.insert(rows(32))
    assert ids(made.home(new, "feature/x")) == [1, 2, 3, 31, 32]
    fork = made.home(new, "feature/x").open().read_transaction(3)
    assert fork is not None
    assert type(fork.operation).__name__ == "Clone"


def test_a_dataset_made_by_a_relative_path_is_relocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lance.write_dataset(rows(1), "t.lance").create_branch("dev")
    lance.dataset("t.lance/tree/dev").insert(rows(2))
    lance.dataset("./t.lance").create_branch("dotted")
    lance.dataset("t.lance").create_branch("nested", ("dev", None))
    monkeypatch.chdir("/")
    root = Home.at(str(tmp_path / "t.lance"))
    with pytest.raises(StaleBaseError, match=r"inherits files from 't\.lance'"):
        check_bases(root.on("dev"))
    relocate(root)
    for branch, expected in {"dev": [1, 2], "dotted": [1], "nested": [1, 2]}.items():
        check_bases(root.on(branch))
        assert ids(root.on(branch)) == expected


def test_a_copied_clone_keeps_reading_its_source(tmp_path: Path) -> None:
    source = lived_in(str(tmp_path / "source.lance"))
    shallow_clone(source.home(source.root), str(tmp_path / "clone.lance"))
    Home.at(str(tmp_path / "clone.lance")).open().create_branch("dev")
    shutil.move(tmp_path / "clone.lance", moved := tmp_path / "moved.lance")
    assert ids(Home.at(str(moved))) == source.expected[None]
    with pytest.raises(StaleBaseError, match=r"clone\.lance"):
        check_bases(Home.at(str(moved)).on("dev"))
    report = relocate(Home.at(str(moved)))
    assert report.changes == {str(tmp_path / "clone.lance"): str(moved)}
    assert ids(Home.at(str(moved)).on("dev")) == source.expected[None]


def test_a_clone_follows_its_moved_source_by_a_mapping(tmp_path: Path) -> None:
    source = lived_in(str(tmp_path / "source.lance"))
    clone = Home.at(str(tmp_path / "clone.lance"))
    shallow_clone(source.home(source.root, "feature/of-dev"), clone.root)
    clone.open().create_branch("mine")
    clone.on("mine").open().insert(rows(50))
    move(source.root, new := tmp_path / "elsewhere" / "source.lance")
    report = relocate(clone, mapping={source.root: str(new)})
    assert report.unexplained == ()
    assert ids(clone) == source.expected["feature/of-dev"]
    assert ids(clone.on("mine")) == [*source.expected["feature/of-dev"], 50]
    check_bases(clone.on("mine"))


@pytest.mark.s3
def test_a_dataset_copied_object_by_object_is_relocated(location: Location) -> None:
    made = lived_in(location / "old.lance", location.storage_options)
    whole = open_store(location.root, location.storage_options)
    for found in list(whole.list("old.lance")):
        copy_between(whole, found.path, whole, found.path.replace("old.lance", "new.lance", 1))
    new = location / "new.lance"
    with pytest.raises(StaleBaseError):
        check_bases(made.home(new, "dev"))
    relocate(made.home(new))
    for found in list(whole.list("old.lance")):
        whole.delete(found.path)
    check_reads(made, new)
    made.home(new, "feature/of-dev").open().insert(rows(30))
    assert ids(made.home(new, "feature/of-dev")) == [2, 3, 10, 20, 30]
