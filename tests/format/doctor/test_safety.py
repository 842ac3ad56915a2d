"""Nothing live is touched: not when others act between diagnosis and repair, and not in any mess."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.format.doctor.branches import diagnose_trees
from anabranch.format.doctor.dataset_doctor import doctor
from anabranch.format.doctor.findings_and_repairs import Repairs
from anabranch.format.doctor.inventory import read_inventory
from anabranch.format.home import Home, branch_folder
from anabranch.format.layout.listing import branch_ref_path, layout, manifest_path
from tests.conftest import Location

NOW = timedelta(0)
LONG_AGO = -timedelta(days=1)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def files(home: Home) -> dict[str, bytes]:
    store = home.store()
    return {info.path: store.get(info.path) for info in store.list()}


def ids(home: Home, version: int | None = None) -> list[int]:
    return sorted(home.open(version).to_table().column("id").to_pylist())


@pytest.fixture
def home(location: Location) -> Home:
    home = Home.at(location / "t.lance", location.storage_options)
    lance.write_dataset(rows(1), home.root, storage_options=home.lance_options()).insert(rows(2))
    return home


def the_repair(home: Home) -> Callable[[], object]:
    """Return the repair of the only finding; files count as old."""
    (case,) = diagnose_trees(read_inventory(home), Repairs(home, LONG_AGO), clones={})
    assert case.repair is not None
    return case.repair


def unreferenced(home: Home) -> None:
    home.open().create_branch("x")
    home.store().delete(branch_ref_path("x"))


def without_tree(home: Home) -> None:
    home.open().create_branch("x")
    for info in list(home.store().list("tree/x")):
        home.store().delete(info.path)


def raced(home: Home) -> None:
    home.open().create_branch("x", 2)
    manifest = home.store().get(f"tree/x/{manifest_path(2)}")
    home.open().branches.delete("x")
    home.open().create_branch("x", 1)
    home.store().put(f"tree/x/{manifest_path(2)}", manifest)


def put_ref(home: Home) -> None:
    home.store().put(branch_ref_path("x"), b"{}")


def put_manifest(home: Home) -> None:
    home.store().put(f"tree/x/{manifest_path(7)}", home.store().get(manifest_path(2)))


@pytest.mark.parametrize(
    ("prepare", "write"),
    [
        (unreferenced, put_ref),
        (unreferenced, put_manifest),
        (without_tree, put_manifest),
        (raced, lambda home: home.on("x").open().insert(rows(3))),
    ],
    ids=["a ref comes", "another creator comes", "a tree comes", "a write comes"],
)
def test_a_repair_stops_when_another_process_wrote_since_the_diagnosis(
    home: Home, prepare: Callable[[Home], object], write: Callable[[Home], object]
) -> None:
    prepare(home)
    repair = the_repair(home)
    write(home)
    before = files(home)
    assert not repair()
    assert files(home) == before


def test_a_repair_stops_when_the_branch_is_being_made_again(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "t.lance")
    lance.write_dataset(rows(1), home.root)
    unreferenced(home)
    repair = the_repair(home)
    for file in layout(home).of_branch("x"):
        home.store().delete(file.path)
    unreferenced(home)
    before = files(home)
    assert not repair()
    assert files(home) == before


@pytest.mark.parametrize("prepare", [unreferenced, without_tree, raced])
def test_nothing_young_is_repaired(home: Home, prepare: Callable[[Home], object]) -> None:
    prepare(home)
    before = files(home)
    report = doctor(home, repair=True)
    assert not report.repaired
    assert [finding.repairable for finding in report.open] == [True]
    assert files(home) == before


def test_interrupted_repair_is_completed_by_the_next(home: Home) -> None:
    before = files(home)
    home.open().create_branch("x")
    home.store().delete(branch_ref_path("x"))
    assert the_repair(home) is not None
    home.store().delete(f"tree/x/{manifest_path(2)}")
    home.open().create_branch("x")
    assert ids(home.on("x")) == [1, 2]
    home.open().branches.delete("x")
    assert doctor(home, repair=True, grace=NOW).is_clean
    assert files(home) == before


PROGRAM_THAT_KILLS_ITSELF = """
import os, signal, sys, threading
import lance

root, name = sys.argv[1:]
versions = os.path.join(root, "tree", name, "_versions")

def watch():
    while not (os.path.isdir(versions) and any(file.endswith(".manifest") for file in os.listdir(versions))):
        pass
    os.kill(os.getpid(), signal.SIGKILL)

dataset = lance.dataset(root)
threading.Thread(target=watch, daemon=True).start()
dataset.create_branch(name)
"""


def test_branch_can_be_created_after_a_killed_create(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "t.lance")
    dataset = lance.write_dataset(rows(1), home.root)
    before = files(home)
    # It dies right after the branch's first manifest, mostly before the ref.
    subprocess.run([sys.executable, "-c", PROGRAM_THAT_KILLS_ITSELF, home.root, "x"], check=False)
    assert doctor(home, repair=True, grace=NOW).is_clean
    if "x" in dataset.branches.list():
        dataset.branches.delete("x")
    assert files(home) == before
    dataset.create_branch("x")
    assert ids(home.on("x")) == [1]


NAMES = st.sampled_from(["a", "a/z", "b", "b/data", "c"])
STEPS = st.one_of(
    st.tuples(st.just("branch"), NAMES, st.one_of(st.none(), NAMES)),
    st.tuples(st.just("write"), NAMES, st.none()),
    st.tuples(st.just("tag"), NAMES, st.none()),
    st.tuples(st.just("delete"), NAMES, st.none()),
    st.tuples(st.just("lose ref"), NAMES, st.none()),
    st.tuples(st.just("lose tree"), NAMES, st.none()),
)


def take(home: Home, step: tuple[str, str, str | None], number: int) -> None:
    """Do what Lance lets us do; refusals are part of the game."""
    action, name, source = step
    with suppress(OSError, ValueError, RuntimeError):
        match action:
            case "branch":
                home.open().create_branch(name, (source, None))
            case "write":
                lance.dataset(home.on(name).uri).insert(rows(number))
            case "tag":
                home.open().tags.create(f"tag-{number}", (name, lance.dataset(home.on(name).uri).version))
            case "delete":
                home.open().branches.delete(name)
            case "lose ref":
                home.store().delete(branch_ref_path(name))
            case "lose tree":
                for file in layout(home).of_branch(name):
                    home.store().delete(file.path)


def readable(home: Home) -> dict[str, list[int]]:
    """What plain Lance reads on every branch and tag that it can read."""
    main = home.open()
    found = {"main": ids(home)}
    for name in layout(home).branches:
        with suppress(OSError, ValueError):
            found[f"branch {name}"] = sorted(main.checkout_version((name, None)).to_table().column("id").to_pylist())
    for name in main.tags.list():
        with suppress(OSError, ValueError):
            found[f"tag {name}"] = sorted(main.checkout_version(name).to_table().column("id").to_pylist())
    return found


@given(st.lists(STEPS, min_size=1, max_size=14))
def test_readable_refs_have_the_same_rows_after_a_repair(steps: list[tuple[str, str, str | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home.at(f"{folder}/t.lance")
        lance.write_dataset(rows(0), home.root)
        for number, step in enumerate(steps, start=1):
            take(home, step, number)
        live = {file.path for file in layout(home).files if file.has_ref}
        before, seen = files(home), readable(home)
        report = doctor(home, repair=True, grace=NOW)
        after = files(home)
        now, found_again = readable(home), {path for finding in report.repaired for path in finding.paths}
        assert {name: now.get(name) for name in seen} == seen
        # More can be read only where a branch got its metadata back, by itself or through a tag.
        assert not now.keys() - seen.keys() or any(path.startswith("_refs/branches/") for path in found_again)
        # Live files stay as they are, but for the metadata of branches that have no files or another origin.
        touched = {path for path in live if after.get(path) != before[path]}
        assert touched <= {path for finding in report.repaired for path in finding.paths}
        assert all(path.startswith("_refs/branches/") for path in touched)
        assert not any(finding.repairable for finding in report.open)
        assert not doctor(home, repair=True, grace=NOW).repaired
        for name in layout(home).unreferenced_trees:
            finding = next(one for one in report.open if one.subject == branch_folder(name))
            assert finding.needed_by


FRACTIONS = st.floats(0, 1, exclude_max=True)
# Which file, which bytes become what, and how much of it is left.
DAMAGES = st.tuples(FRACTIONS, st.lists(st.tuples(FRACTIONS, st.integers(0, 255)), max_size=5), st.floats(0, 1))


def damaged(content: bytes, changes: list[tuple[float, int]], kept: float) -> bytes:
    changed = bytearray(content)
    for where, value in changes:
        changed[int(where * len(changed))] = value
    return bytes(changed[: round(kept * len(changed))])


@given(st.lists(DAMAGES, min_size=1, max_size=3))
def test_damage_anywhere_in_the_metadata_is_reported_and_makes_nothing_worse(
    damages: list[tuple[float, list[tuple[float, int]], float]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home.at(f"{folder}/t.lance")
        main = lance.write_dataset(rows(1), home.root)
        main.create_branch("dev")
        home.on("dev").open().insert(rows(2))
        main.create_branch("child", ("dev", None))
        main.tags.create("v1", ("dev", 2))
        main.create_branch("left")
        home.store().delete(branch_ref_path("left"))
        content = {path: data for path, data in files(home).items() if not path.startswith("tree/left/")}
        metadata = sorted(path for path in content if "data/" not in path)
        for which, changes, kept in damages:
            path = metadata[int(which * len(metadata))]
            home.store().put(path, damaged(content[path], changes, kept))
        live = {path: home.store().get(path) for path in content}
        report = doctor(home, repair=True, grace=NOW)
        after = files(home)
        corrected = {path for finding in report.repaired for path in finding.paths}
        assert all(path in after for path in live)
        assert all(after[path] == data for path, data in live.items() if path not in corrected)
