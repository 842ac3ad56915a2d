"""Cleanup after random histories, and cleanup that is interrupted at each step."""

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import ConflictError
from anabranch.format.home import Home
from tests.format.live_files import list_live_files
from tests.format.trees import contents

NOW = timedelta(0)

Location = tuple[str, int]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


class History:
    """A dataset with branches, tags, clones and a cold tier, changed by random steps."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.cold = folder / "cold"
        self.root = str(folder / "t.lance")
        lance.write_dataset(rows(*range(8)), self.root, max_rows_per_file=4, enable_stable_row_ids=True)
        self.dataset = ab.dataset(self.root)
        self.dataset.base_add(self.cold, name="cold", is_dataset_root=self.rng.random() < 0.5)
        self._next = 100

    def grow(self, steps: int) -> None:
        choices = [self.append, self.append, self.delete, self.move, self.move, self.compact, self.overwrite]
        choices += [self.branch, self.tag, self.drop_tag, self.drop_branch, self.clone, self.drop_clone, self.index]
        for _ in range(steps):
            # What others need is not deleted.
            with suppress(ConflictError):
                self.rng.choice(choices)()

    def head(self) -> ab.Dataset:
        names = ["main", *(branch.name for branch in self.dataset.branch_list())]
        return self.dataset.branch_checkout(self.rng.choice(names))

    def uri_of(self, branch: str) -> str:
        return self.root if branch == "main" else f"{self.root}/tree/{branch}"

    def new(self) -> int:
        self._next += 1
        return self._next

    def any_version(self) -> Location:
        head = self.head()
        return head.branch, self.rng.choice(head.version_list())

    def append(self) -> None:
        head = self.head()
        bases = ["root", *(base.name for base in head.base_list() if base.name == "cold")]
        head.append(rows(self.new(), self.new()), base=self.rng.choice(bases))

    def delete(self) -> None:
        lance.dataset(self.uri_of(self.head().branch)).delete(f"id % 7 = {self.rng.randrange(7)}")

    def overwrite(self) -> None:
        if self.rng.random() < 0.3:
            lance.write_dataset(rows(self.new()), self.uri_of(self.head().branch), mode="overwrite")

    def index(self) -> None:
        lance.dataset(self.uri_of(self.head().branch)).create_scalar_index("id", "BTREE", replace=True)

    def move(self) -> None:
        head = self.head()
        found = [fragment.fragment_id for fragment in head.open().get_fragments()]
        bases = ["root", *(base.name for base in head.base_list() if base.name == "cold")]
        if found:
            chosen = self.rng.sample(found, self.rng.randint(1, len(found)))
            head.move_fragments(to=self.rng.choice(bases), fragments=chosen)

    def compact(self) -> None:
        self.head().compact()

    def branch(self) -> None:
        self.dataset.branch_create(f"b{self.new()}", self.any_version())

    def drop_branch(self) -> None:
        if branches := self.dataset.branch_list():
            self.dataset.branch_delete(self.rng.choice(branches).name)

    def tag(self) -> None:
        self.dataset.tag_create(f"t{self.new()}", self.any_version())

    def drop_tag(self) -> None:
        if tags := self.dataset.tag_list():
            self.dataset.tag_delete(self.rng.choice(tags).name)

    def clone(self) -> None:
        made = self.dataset.shallow_clone(self.folder / f"clone{self.new()}.lance", self.any_version())
        clone = ab.dataset(str(made.uri))
        clone.append(rows(self.new()))
        found = [fragment.fragment_id for fragment in clone.open().get_fragments()]
        if any(base.name == "cold" for base in clone.base_list()) and self.rng.random() < 0.5:
            clone.move_fragments(to="cold", fragments=found[:1])

    def drop_clone(self) -> None:
        if clones := self.dataset.clone_list():
            self.dataset.clone_drop(str(self.rng.choice(clones).uri))

    def versions(self) -> dict[Location, list[int]]:
        """The rows of each version of each branch, read by plain pylance."""
        found = {}
        for branch in ["main", *(info.name for info in self.dataset.branch_list())]:
            for version in self.dataset.branch_checkout(branch).version_list():
                opened = lance.dataset(self.uri_of(branch), version=version)
                found[branch, version] = sorted(opened.to_table()["id"].to_pylist())
        return found

    def clones(self) -> dict[str, list[int]]:
        uris = [str(clone.uri) for clone in self.dataset.clone_list()]
        return {uri: sorted(lance.dataset(uri).to_table()["id"].to_pylist()) for uri in uris}

    def expected(self, keep_last: int) -> set[Location]:
        """Which versions stay, by the words of the documentation."""
        tags = {(tag.branch or "main", tag.version) for tag in self.dataset.tag_list()}
        forks = {(info.parent_branch or "main", info.parent_version) for info in self.dataset.branch_list()}
        newest: set[Location] = {(info.name, info.parent_version) for info in self.dataset.branch_list()}
        for branch in ["main", *(info.name for info in self.dataset.branch_list())]:
            newest |= {
                (branch, version) for version in self.dataset.branch_checkout(branch).version_list()[-keep_last:]
            }
        return tags | forks | newest

    def referenced(self) -> set[str]:
        """The files that some version of the dataset or of a clone needs, by pylance."""
        homes = [Home.at(self.root), *(Home.at(self.root).on(info.name) for info in self.dataset.branch_list())]
        homes += [Home.at(uri) for uri in self.clones()]
        return {file.uri for home in homes for version in _versions(home) for file in list_live_files(home, version)}

    def present(self, *folders: Path) -> set[str]:
        """The data files, deletion files and index folders below some folders."""
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        found = set()
        for path in files:
            if path.parent.parent.name == "_indices":
                found.add(str(path.parent))
            elif path.parent.name in {"data", "_deletions"} or path.parent == self.cold:
                found.add(str(path))
        return found


def _versions(home: Home) -> Iterator[lance.LanceDataset]:
    for ref in home.open().version_refs():
        yield home.open(int(ref["version"]))


def check_cleanup(history: History) -> None:
    """Clean up, and compare all that the documentation promises."""
    keep_last = history.rng.randint(1, 3)
    bases = ["cold"] if history.rng.random() < 0.6 else []
    before, clones, kept = history.versions(), history.clones(), history.expected(keep_last)
    all_before = contents(str(history.folder))
    planned = history.dataset.cleanup(keep_last=keep_last, grace=NOW, bases=bases, dry_run=True)
    assert contents(str(history.folder)) == all_before
    done = history.dataset.cleanup(keep_last=keep_last, grace=NOW, bases=bases)
    all_after = contents(str(history.folder))
    record = "t.lance/_cleanup/unused.json"
    removed = {str(history.folder / path) for path in all_before.keys() - all_after.keys() - {record}}
    named = {file.path if file.path.startswith("/") else f"{history.root}/{file.path}" for file in done.files}
    assert removed == named
    assert set(planned.files) == set(done.files)
    assert set(planned.versions) == set(done.versions) == before.keys() - kept
    assert history.versions() == {location: before[location] for location in kept}
    assert history.clones() == clones
    folders = [Path(history.root), history.cold] if bases else [Path(history.root)]
    assert history.present(*folders) <= history.referenced()
    assert history.dataset.doctor().is_clean


@pytest.mark.parametrize("seed", range(3))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for _ in range(2):
        history.grow(20)
        check_cleanup(history)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_histories(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for _ in range(3):
        history.grow(25)
        check_cleanup(history)


class Killed(BaseException):
    """The process ends here."""


def test_an_interruption_at_any_step_leaves_a_dataset_that_opens_and_can_be_cleaned(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    root = str(lake / "t.lance")
    lance.write_dataset(rows(*range(8)), root, max_rows_per_file=4)
    dataset = ab.dataset(root)
    dataset.branch_create("dev")
    dataset.branch_checkout("dev").append(rows(50))
    dataset.base_add(lake / "cold", name="cold")
    dataset.move_fragments(to="cold", fragments=[0, 1])
    dataset.move_fragments(to="root", fragments=[1])
    dataset.append(rows(9))
    lance.dataset(root).delete("id = 0")
    shutil.copytree(lake, tmp_path / "saved")
    planned = dataset.cleanup(keep_last=1, grace=NOW, bases=["cold"], dry_run=True)
    assert {file.path.startswith("/") for file in planned.files} == {True, False}
    gone = {Path(file.path) if file.path.startswith("/") else Path(root, file.path) for file in planned.files}
    for step in range(len(planned.files) + 1):
        shutil.rmtree(lake)
        shutil.copytree(tmp_path / "saved", lake)

        def interrupt(reached: ab.Progress, step: int = step) -> None:
            if reached.done == step:
                raise Killed

        with suppress(Killed):
            dataset.cleanup(keep_last=1, grace=NOW, bases=["cold"], progress=interrupt)
        assert lance.dataset(root).to_table()["id"].to_pylist() == [1, 2, 3, 4, 5, 6, 7, 9]
        assert lance.dataset(f"{root}/tree/dev").count_rows() == 9
        dataset.cleanup(keep_last=1, grace=NOW, bases=["cold"])
        assert not any(path.exists() for path in gone), step
        assert lance.dataset(root).to_table()["id"].to_pylist() == [1, 2, 3, 4, 5, 6, 7, 9]
        assert lance.dataset(f"{root}/tree/dev").count_rows() == 9
        assert dataset.cleanup(keep_last=1, grace=NOW, bases=["cold"]).files == ()
        assert dataset.doctor().is_clean
