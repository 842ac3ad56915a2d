"""What Lance writes where, and what it does about leftovers: facts that names, layout, deletions and doctor rest on."""

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from anabranch.format.home import Home
from anabranch.format.layout.listing import manifest_path
from anabranch.format.layout.manifest import read_manifest
from anabranch.format.layout.messages import Fragment
from tests.format.overlays import ENABLE, add_overlay

BITMAP_FROM = 5000


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "t.lance"
    lance.write_dataset(rows(1, 2, 3), str(root))
    return root


def opened(root: Path) -> lance.LanceDataset:
    return lance.dataset(str(root))


def paths(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_new_dataset_has_four_files_one_of_them_a_hint(root: Path) -> None:
    assert sorted(path.rpartition(".")[2] for path in paths(root)) == ["json", "lance", "manifest", "txn"]
    assert json.loads((root / "_versions" / "latest_version_hint.json").read_text()) == {"version": 1}


def test_a_staged_version_writes_its_read_version_into_the_transactions_name(root: Path) -> None:
    main = opened(root)
    first = lance.LanceDataset.commit(
        main, lance.LanceOperation.Append(write_fragments(rows(4), main)), read_version=1, detached=True
    )
    lance.LanceDataset.commit(
        first, lance.LanceOperation.Append(write_fragments(rows(5), first)), read_version=first.version, detached=True
    )
    assert any(path.name.startswith(f"{first.version}-") for path in (root / "_transactions").iterdir())


def test_staged_versions_need_the_second_manifest_scheme(tmp_path: Path) -> None:
    main = lance.write_dataset(rows(1), str(tmp_path / "v1.lance"), enable_v2_manifest_paths=False)
    with pytest.raises(OSError, match="detached commits cannot be used with v1 manifest paths"):
        lance.LanceDataset.commit(main, lance.LanceOperation.Append([]), read_version=1, detached=True)


@pytest.mark.parametrize(("count", "kind"), [(BITMAP_FROM - 1, "arrow"), (BITMAP_FROM, "bin")])
def test_deletions_become_a_bitmap_by_their_number_not_their_share(tmp_path: Path, count: int, kind: str) -> None:
    for size in (2 * BITMAP_FROM, 10 * BITMAP_FROM):
        root = tmp_path / f"{size}.lance"
        lance.write_dataset(rows(*range(size)), str(root)).delete(f"id < {count}")
        (path,) = (root / "_deletions").iterdir()
        assert path.name.startswith("0-1-")
        assert path.suffix == f".{kind}"


def test_a_branch_of_another_script_has_a_quoted_ref(root: Path) -> None:
    opened(root).create_branch("é/x")
    assert paths(root / "_refs") == {"branches/%C3%A9%2Fx.json"}
    assert (root / "tree" / "é" / "x" / "_versions").is_dir()


def test_a_first_version_records_what_it_was_cloned_from(root: Path) -> None:
    opened(root).create_branch("dev")
    opened(root / "tree" / "dev").insert(rows(4))
    opened(root).create_branch("child", ("dev", 2))
    for branch, parent, version in (("dev", None, 1), ("child", "dev", 2)):
        transaction = opened(root / "tree" / branch).read_transaction(version)
        assert transaction is not None
        operation = transaction.operation
        assert isinstance(operation, lance.LanceOperation.Clone)
        assert (operation.ref_name, operation.ref_version) == (parent, version)


@pytest.mark.parametrize("version", [1, 2])
def test_a_tree_without_a_ref_blocks_its_name_and_gathers_transactions(root: Path, version: int) -> None:
    opened(root).insert(rows(4))
    opened(root).create_branch("x", 2)
    (root / "_refs" / "branches" / "x.json").unlink()
    before = paths(root / "tree" / "x")
    with pytest.raises(OSError, match=r"Clone operation should not|was not found"):
        opened(root).create_branch("x", version)
    with pytest.raises(ValueError, match="does not exist"):
        opened(root).branches.delete("x")
    assert {Path(path).parts[0] for path in paths(root / "tree" / "x") - before} <= {"_transactions", "_versions"}


def test_empty_folders_do_not_block_a_name(root: Path) -> None:
    for folder in ("_versions", "_transactions", "data"):
        (root / "tree" / "x" / folder).mkdir(parents=True)
    opened(root).create_branch("x")
    assert opened(root / "tree" / "x").count_rows() == 3


def test_deleting_a_branch_around_another_leaves_its_files(root: Path) -> None:
    for name in ("a", "a/z"):
        opened(root).create_branch(name)
    opened(root).branches.delete("a")
    assert "branches/a.json" not in paths(root / "_refs")
    assert any(path.startswith("_versions/") for path in paths(root / "tree" / "a"))


def test_a_stale_handle_writes_to_a_deleted_branch(root: Path) -> None:
    opened(root).create_branch("x")
    stale = opened(root / "tree" / "x")
    opened(root).branches.delete("x")
    assert not (root / "tree" / "x").exists()
    stale.insert(rows(9))
    assert opened(root / "tree" / "x").version == 2
    assert "x" not in opened(root).branches.list()


def test_one_damaged_ref_breaks_the_list_of_branches(root: Path) -> None:
    opened(root).create_branch("x")
    opened(root).create_branch("y")
    (root / "_refs" / "branches" / "x.json").write_text("{")
    with pytest.raises(RuntimeError, match="EOF while parsing"):
        opened(root).branches.list()


def test_a_branch_opens_without_its_hint(root: Path) -> None:
    opened(root).create_branch("x")
    (root / "tree" / "x" / "_versions" / "latest_version_hint.json").unlink()
    assert opened(root / "tree" / "x").version == 1
    (root / "_versions" / "latest_version_hint.json").write_text('{"version": 99}')
    assert opened(root).version == 1


def test_writer_with_an_old_handle_searches_for_newer_versions_from_the_hint_on(root: Path) -> None:
    """Where a version in between is gone, it writes below the newest version, and its rows are lost."""
    hint = root / "_versions" / "latest_version_hint.json"
    stale, another = opened(root), opened(root)
    for number in range(4, 8):
        opened(root).insert(rows(number))
    for version in (2, 3):
        (root / "_versions" / f"{2**64 - 1 - version}.manifest").unlink()
    hint.write_text('{"version": 1}')
    stale.insert(rows(50))
    assert (stale.version, opened(root).version) == (2, 5)
    hint.unlink()
    another.insert(rows(51))
    assert (another.version, opened(root).version) == (6, 6)


def test_bookkeeping_poses_as_an_index_without_files(tmp_path: Path) -> None:
    root = tmp_path / "wal.lance"
    key = pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    dataset = lance.write_dataset(pa.table({"id": [1]}, schema=pa.schema([key])), str(root))
    dataset.initialize_mem_wal()
    assert [index.name for index in dataset.describe_indices()] == ["__lance_mem_wal"]
    assert not (root / "_indices").exists()


def test_lance_puts_a_branch_elsewhere_where_the_root_has_a_question_mark(tmp_path: Path) -> None:
    made = lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "a?b" / "t.lance"))
    made.create_branch("dev")
    assert not (tmp_path / "a?b" / "t.lance" / "tree").exists()
    assert (tmp_path / "a" / "tree").is_dir()


def test_a_slice_of_structs_in_structs_makes_the_writer_panic(tmp_path: Path) -> None:
    kind = pa.struct([("deep", pa.struct([("m", pa.int64())]))])
    rows = pa.table({"s": pa.array([{"deep": {"m": 1}}, {"deep": None}, None], kind)})
    with pytest.raises(BaseException, match="assertion failed: end <= self"):
        lance.write_dataset(rows.slice(1), tmp_path / "slice.lance")
    taken = rows.take(pa.array([1, 2]))  # the same rows, copied
    assert lance.write_dataset(taken, tmp_path / "copy.lance").to_table().equals(taken)


def test_overlays_are_written_but_opened_only_on_request(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overlay file lies among the data files, and its fragment names it in field 11 of its description."""
    monkeypatch.setenv(ENABLE, "1")
    home = Home.at(root)
    path = add_overlay(home, "id", {1: 20})
    assert Path(root, path).parent == root / "data"
    assert opened(root).to_table()["id"].to_pylist() == [1, 20, 3]
    (fragment,) = read_manifest(home.store().get(manifest_path(2))).fragments
    (overlay,) = Fragment.parse(fragment, "fragment").overlays
    assert overlay.data_file.path == Path(path).name
    monkeypatch.delenv(ENABLE)
    with pytest.raises(ValueError, match="cannot be read by this version of Lance"):
        opened(root)
