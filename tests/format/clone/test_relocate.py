"""Relocating, manifest by manifest: what changes, what does not, and what happens when it is cut short."""

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.errors import (
    BaseNotFoundError,
    DamagedFileError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidPathError,
)
from anabranch.format.bases import check_bases
from anabranch.format.clone.relocate import UnexplainedBase, relocate
from anabranch.format.home import Home
from anabranch.format.layout.listing import manifest_path
from anabranch.format.layout.manifest import read_manifest
from anabranch.format.layout.messages import Manifest
from anabranch.format.staging import VersionRef, append
from tests.conftest import Location


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(home: Home) -> list[int]:
    return sorted(home.open().to_table()["id"].to_pylist())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A dataset with two branches and a branch of a branch, several versions each."""
    home = Home.at(str(tmp_path / "old.lance"))
    lance.write_dataset(rows(1), home.root)
    for name, source in {"dev": None, "fix": None, "dev-2": ("dev", None)}.items():
        home.open().create_branch(name, source)
        home.on(name).open().insert(rows(2))
        home.on(name).open().insert(rows(3))
    return tmp_path / "old.lance"


@pytest.fixture
def moved(old: Path, tmp_path: Path) -> Home:
    shutil.move(old, tmp_path / "new.lance")
    return Home.at(str(tmp_path / "new.lance"))


def contents(root: str | Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def manifests(root: str | Path) -> list[Path]:
    return sorted(Path(root).rglob("*.manifest"))


def add_base(home: Home, path: str, *, name: str | None = None, is_dataset_root: bool = True) -> None:
    home.open().add_bases([lance.DatasetBasePath(path, name=name, is_dataset_root=is_dataset_root)])


def without_base_paths(data: bytes) -> tuple[bytes, bytes]:
    """All of a manifest file but the base paths: what lies before the message, its other fields, and the footer."""
    position = int.from_bytes(data[-16:-8], "little")
    size = int.from_bytes(data[position : position + 4], "little")
    message = Manifest.parse(data[position + 4 : position + 4 + size], "manifest")
    message.ClearField("base_paths")
    return data[:position] + data[position + 4 + size :], message.SerializeToString()


def test_only_base_paths_of_branches_change(old: Path, moved: Home) -> None:
    before = contents(moved.root)
    report = relocate(moved)
    after = contents(moved.root)
    changed = sorted(path for path in after if after[path] != before[path])
    assert after.keys() == before.keys()
    assert changed == list(report.rewritten)
    assert changed == sorted(str(path.relative_to(moved.root)) for path in manifests(Path(moved.root, "tree")))
    assert set(report.unchanged) == {path for path in before if path.endswith(".manifest")} - set(changed)
    for path in changed:
        assert without_base_paths(after[path]) == without_base_paths(before[path])
        old_bases, new_bases = (read_manifest(content[path]).base_paths for content in (before, after))
        assert [(base.id, base.name, base.is_dataset_root) for base in old_bases] == [
            (base.id, base.name, base.is_dataset_root) for base in new_bases
        ]
        assert [base.path.replace(str(old), moved.root) for base in old_bases] == [base.path for base in new_bases]


def test_a_second_run_changes_nothing(moved: Home) -> None:
    relocate(moved)
    before = contents(moved.root)
    report = relocate(moved)
    assert (report.rewritten, report.changes) == ((), {})
    assert len(report.unchanged) == len(manifests(moved.root))
    assert contents(moved.root) == before


def test_a_dataset_that_did_not_move_needs_nothing(old: Path) -> None:
    before = contents(old)
    assert relocate(Home.at(str(old))).rewritten == ()
    assert contents(old) == before


def test_interrupted_relocation_is_completed_by_the_next(moved: Home, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    total = len(manifests(Path(moved.root, "tree")))
    for last in range(1, total):
        shutil.copytree(moved.root, tmp_path / f"{last}.lance")
        home = Home.at(str(tmp_path / f"{last}.lance"))

        def die(done: int, of: int, *, last: int = last) -> None:
            assert of == total
            if done == last:
                raise Killed

        with pytest.raises(Killed):
            relocate(home, progress=die)
        report = relocate(home)
        assert len(report.rewritten) == total - last
        for branch in ("dev", "fix", "dev-2"):
            for version in home.on(branch).open().versions():
                check_bases(home.on(branch))
                assert home.on(branch).open(version["version"]).to_table().num_rows > 0
        assert relocate(home).rewritten == ()


def test_progress_counts_to_the_end(moved: Home) -> None:
    seen: list[tuple[int, int]] = []
    report = relocate(moved, progress=lambda done, total: seen.append((done, total)))
    total = len(report.rewritten)
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_a_damaged_manifest_stops_it_before_anything_changes(moved: Home) -> None:
    Path(manifests(Path(moved.root, "tree"))[-1]).write_bytes(b"noise")
    before = contents(moved.root)
    with pytest.raises(DamagedFileError, match=r"tree/fix/_versions/\d+\.manifest"):
        relocate(moved)
    assert contents(moved.root) == before


def test_a_location_without_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError):
        relocate(Home.at(str(tmp_path / "nothing.lance")))


def test_each_of_two_moves_is_found(moved: Home, tmp_path: Path) -> None:
    """A branch made after the first move knows another former root than those from before it."""
    moved.open().create_branch("later")
    shutil.move(moved.root, tmp_path / "third.lance")
    home = Home.at(str(tmp_path / "third.lance"))
    report = relocate(home)
    assert set(report.changes) == {str(tmp_path / "old.lance"), str(tmp_path / "old.lance/tree/dev"), moved.root}
    assert {branch: ids(home.on(branch)) for branch in ("dev", "later", "dev-2")} == {
        "dev": [1, 2, 3],
        "later": [1],
        "dev-2": [1, 2, 2, 3, 3],
    }


def test_bases_listed_on_main_stay(old: Path, tmp_path: Path) -> None:
    cold = str(tmp_path / "cold")
    add_base(Home.at(str(old)), cold)
    Home.at(str(old)).open().create_branch("tiered")
    shutil.move(old, tmp_path / "new.lance")
    home = Home.at(str(tmp_path / "new.lance"))
    report = relocate(home)
    assert cold not in report.changes
    assert report.unexplained == ()
    assert {base.path for base in home.on("tiered").open().base_paths().values()} == {cold, home.root}


def test_a_stale_base_that_was_not_the_root_is_left_and_reported(old: Path, tmp_path: Path) -> None:
    archive = str(tmp_path / "archive")
    add_base(Home.at(str(old)).on("dev"), archive, name="archive")
    shutil.move(old, tmp_path / "new.lance")
    home = Home.at(str(tmp_path / "new.lance"))
    report = relocate(home)
    assert report.unexplained == (UnexplainedBase(branch="dev", path=archive),)
    assert {base.path for base in home.on("dev").open().base_paths().values()} == {home.root, archive}


@pytest.fixture
def nameless(tmp_path: Path) -> Path:
    """A dataset whose branch inherited a nameless root from main, which main no longer lists."""
    home = Home.at(str(tmp_path / "nameless.lance"))
    lance.write_dataset(rows(1), home.root)
    add_base(home, str(tmp_path / "forgotten"))
    home.open().create_branch("dev")
    lance.LanceDataset.commit(home.open(), lance.LanceOperation.Restore(1), read_version=2)
    Path(home.root, manifest_path(2)).unlink()
    return tmp_path / "nameless.lance"


def test_nothing_is_guessed_on_a_dataset_that_was_not_moved(nameless: Path, tmp_path: Path) -> None:
    before = contents(nameless)
    report = relocate(Home.at(str(nameless)).on("dev"))
    assert report.unexplained == (UnexplainedBase(branch="dev", path=str(tmp_path / "forgotten")),)
    assert contents(nameless) == before


def test_where_two_bases_could_be_the_former_root_the_user_decides(nameless: Path, tmp_path: Path) -> None:
    shutil.move(nameless, tmp_path / "new.lance")
    home = Home.at(str(tmp_path / "new.lance"))
    unsure = relocate(home)
    assert unsure.rewritten == ()
    assert {base.path for base in unsure.unexplained} == {str(nameless), str(tmp_path / "forgotten")}
    report = relocate(home, mapping={str(nameless): home.root})
    assert report.changes == {str(nameless): home.root}
    assert ids(home.on("dev")) == [1]


@pytest.mark.s3
def test_a_mapping_moves_all_below_a_prefix_on_main_too(location: Location) -> None:
    home = Home.at(location / "t.lance", location.storage_options)
    lance.write_dataset(rows(1), home.root, storage_options=home.lance_options())
    add_base(home, location / "tiers/cold", name="cold")
    add_base(home, location / "tiers-not-these/files", name="files", is_dataset_root=False)
    report = relocate(home, mapping={location / "tiers/": location / "archive/2026"})
    assert report.changes == {location / "tiers/cold": location / "archive/2026/cold"}
    assert {base.name: base.path for base in home.open().base_paths().values()} == {
        "cold": location / "archive/2026/cold",
        "files": location / "tiers-not-these/files",
    }
    assert relocate(home, mapping={location / "tiers": location / "archive/2026"}).rewritten == ()


def test_the_longest_prefix_wins(old: Path, tmp_path: Path) -> None:
    home = Home.at(str(old))
    for name in ("a", "a/b"):
        add_base(home, f"/old/{name}", name=name.replace("/", "-"))
    report = relocate(home, mapping={"/old": "/new", "/old/a/b": "/elsewhere"})
    assert report.changes == {"/old/a": "/new/a", "/old/a/b": "/elsewhere"}


@pytest.mark.parametrize(
    ("mapping", "error", "message"),
    [
        ({"/nowhere": "/new"}, BaseNotFoundError, r"no base path is '/nowhere'.*the base paths are: .*/old/cold"),
        ({"/old/col": "/new"}, BaseNotFoundError, "no base path is '/old/col'"),
        ({"/old/cold": "/old/cold/"}, InvalidInputError, "mapped to itself"),
        ({"/old": "/old/deeper"}, InvalidInputError, "which the mapping moves again"),
        ({"/old": "/new", "/new": "/old/cold"}, InvalidInputError, "which the mapping moves again"),
        ({"/old": ""}, InvalidPathError, "empty"),
        ({"/old": "ftp://host/x"}, InvalidPathError, "scheme 'ftp'"),
    ],
)
def test_a_wrong_mapping_is_refused_and_changes_nothing(
    old: Path, mapping: dict[str, str], error: type[Exception], message: str
) -> None:
    add_base(Home.at(str(old)), "/old/cold", name="cold")
    before = contents(old)
    with pytest.raises(error, match=message):
        relocate(Home.at(str(old)), mapping=mapping)
    assert contents(old) == before


def test_relative_base_of_a_clone_is_mapped_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lance.write_dataset(rows(1), "t.lance").shallow_clone("c.lance", 1)
    monkeypatch.chdir("/")
    clone = Home.at(str(tmp_path / "c.lance"))
    relocate(clone, mapping={"t.lance": str(tmp_path / "t.lance")})
    assert ids(clone) == [1]


def test_an_unfinished_manifest_is_relocated_as_well(moved: Home) -> None:
    """Managed commits leave `.manifest-{uuid}` files, which the next reader turns into versions."""
    first = manifests(Path(moved.root, "tree/dev/_versions"))[0]
    unfinished = first.with_name(f"{2**64 - 1 - 9:020d}.manifest-0b6f2a7e-0000-4000-8000-000000000000")
    shutil.copy(first, unfinished)
    relocate(moved)
    assert {base.path for base in read_manifest(unfinished.read_bytes()).base_paths} == {moved.root}


def test_a_staged_version_opened_before_is_read_again(tmp_path: Path) -> None:
    home = Home.at(str(tmp_path / "old.lance"))
    lance.write_dataset(rows(1), home.root, enable_stable_row_ids=True)
    home.open().create_branch("dev")
    staged = append(VersionRef(home=home.on("dev"), version=1), rows(2)).version
    shutil.move(home.root, tmp_path / "new.lance")
    moved = Home.at(str(tmp_path / "new.lance"))
    moved.on("dev").open(staged)
    relocate(moved)
    assert sorted(moved.on("dev").open(staged).to_table()["id"].to_pylist()) == [1, 2]
