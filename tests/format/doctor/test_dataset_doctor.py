"""Leftovers of crashes and races: found, repaired where that is safe, and nothing live touched.

Most leftovers are made by letting Lance do the first half of its work and undoing or preventing the second.
"""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import DatasetNotFoundError
from anabranch.format.bases import add_base, append_to_base
from anabranch.format.clone.clone import shallow_clone
from anabranch.format.doctor.dataset_doctor import doctor
from anabranch.format.doctor.findings_and_repairs import DoctorReport, Finding, FindingKind, Severity
from anabranch.format.home import Home, branch_folder
from anabranch.format.layout.listing import branch_ref_path, manifest_path, tag_ref_path
from anabranch.format.layout.manifest import read_manifest, with_base_paths
from anabranch.format.refs.refs import get_branch
from anabranch.format.staging import VersionRef, append, fork
from anabranch.storage import open_store
from tests.conftest import Location

NOW = timedelta(0)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def home(location: Location) -> Home:
    """Two versions on main, a branch with rows of its own, a branch of that branch, a nested name, and a tag."""
    home = Home.at(location / "t.lance", location.storage_options)
    dataset = lance.write_dataset(rows(1, 2, 3), home.root, storage_options=home.lance_options())
    dataset.insert(rows(4))
    dataset.create_branch("dev")
    home.on("dev").open().insert(rows(5))
    home.on("dev").open().delete("id = 1")
    dataset.create_branch("dev-child", ("dev", None))
    dataset.create_branch("a/z", 1)
    dataset.tags.create("v1", 1)
    return home


def files(home: Home) -> dict[str, bytes]:
    store = home.store()
    return {info.path: store.get(info.path) for info in store.list()}


def ids(home: Home, version: int | str | None = None) -> list[int]:
    found = lance.dataset(home.uri, version=version, storage_options=home.lance_options()).to_table()
    return sorted(found.column("id").to_pylist())


def only(report: DoctorReport) -> Finding:
    (finding,) = report.findings
    return finding


def kinds(report: DoctorReport) -> list[FindingKind]:
    return [finding.kind for finding in report.open]


def repaired(home: Home) -> DoctorReport:
    return doctor(home, repair=True, grace=NOW)


@pytest.mark.s3
def test_a_healthy_dataset_has_no_findings_and_is_left_as_it_is(home: Home) -> None:
    home.open().create_scalar_index("id", "BTREE")
    home.on("dev").open().create_scalar_index("id", "BTREE")
    before = files(home)
    assert doctor(home).findings == ()
    assert repaired(home).findings == ()
    assert files(home) == before


@pytest.mark.s3
def test_a_tree_without_a_ref_is_removed_and_its_name_is_free_again(home: Home) -> None:
    before = files(home)
    home.open().create_branch("x")
    home.store().delete(branch_ref_path("x"))
    finding = only(doctor(home))
    assert (finding.kind, finding.severity) == (FindingKind.UNREFERENCED_TREE, Severity.WARNING)
    assert (finding.subject, finding.repairable, finding.repaired) == ("tree/x", True, False)
    with pytest.raises(OSError, match="Clone operation"):
        home.open().create_branch("x")
    assert only(repaired(home)).repaired
    assert files(home) == before
    assert doctor(home).findings == ()
    home.open().create_branch("x")
    assert ids(home.on("x")) == [1, 2, 3, 4]


def test_a_creation_that_broke_off_is_undone(tmp_path: Path) -> None:
    home = Home.at(str(tmp_path / "t.lance"))
    dataset = lance.write_dataset(rows(1), home.root)
    # Lance writes the tree, then cannot put the ref into a folder that leads nowhere.
    refs = Path(home.root, "_refs")
    refs.mkdir()
    (refs / "branches").symlink_to(tmp_path / "nowhere" / "at-all")
    with pytest.raises(OSError, match="nable to"):
        dataset.create_branch("x")
    (refs / "branches").unlink()
    assert only(repaired(home)).kind is FindingKind.UNREFERENCED_TREE
    dataset.create_branch("x")
    assert ids(home.on("x")) == [1]


@pytest.mark.s3
def test_a_tree_around_a_live_branch_loses_only_its_own_files(home: Home) -> None:
    before = files(home)
    home.open().create_branch("a")
    home.on("a").open().insert(rows(9))
    home.open().branches.delete("a")  # leaves the files, because of a/z
    assert any(path.startswith("tree/a/_versions/") for path in files(home))
    finding = only(repaired(home))
    assert (finding.kind, finding.subject, finding.repaired) == (FindingKind.ZOMBIE_TREE, "tree/a", True)
    assert files(home) == before
    assert ids(home.on("a/z")) == [1, 2, 3]
    home.open().create_branch("a")


def test_what_a_stale_handle_wrote_to_a_deleted_branch_is_removed(home: Home) -> None:
    before = files(home)
    home.open().create_branch("x")
    stale = home.on("x").open()
    home.open().branches.delete("x")
    stale.insert(rows(9))
    finding = only(doctor(home))
    assert (finding.kind, finding.subject) == (FindingKind.ZOMBIE_TREE, "tree/x")
    assert "deleted" in finding.explanation
    repaired(home)
    assert files(home) == before


@pytest.mark.s3
def test_a_young_tree_may_be_a_branch_in_the_making(home: Home) -> None:
    home.open().create_branch("x")
    home.store().delete(branch_ref_path("x"))
    before = files(home)
    report = doctor(home, repair=True)
    assert kinds(report) == [FindingKind.UNREFERENCED_TREE]
    assert files(home) == before


def test_an_unknown_file_in_an_unreferenced_tree_is_left_alone(home: Home) -> None:
    home.open().create_branch("x")
    home.store().delete(branch_ref_path("x"))
    home.store().put("tree/x/notes.txt", b"mine")
    report = repaired(home)
    assert [finding.kind for finding in report.repaired] == [FindingKind.UNREFERENCED_TREE]
    assert kinds(report) == [FindingKind.UNKNOWN_FILE]
    assert report.is_clean
    assert home.store().get("tree/x/notes.txt") == b"mine"


@pytest.mark.s3
def test_a_branch_that_lost_its_metadata_gets_it_back_from_its_first_version(home: Home) -> None:
    before, was = files(home), get_branch(home, "dev")
    home.store().delete(branch_ref_path("dev"))
    finding = only(repaired(home))
    assert (finding.kind, finding.subject) == (FindingKind.MISSING_REF, branch_ref_path("dev"))
    assert (finding.needed_by, finding.repaired) == (("branch 'dev-child'",), True)
    now = get_branch(home, "dev")
    assert (now.parent_branch, now.parent_version) == (was.parent_branch, was.parent_version)
    assert {path: data for path, data in files(home).items() if path in before and path != finding.subject} == {
        path: data for path, data in before.items() if path != finding.subject
    }
    assert set(home.open().branches.list()) == {"a/z", "dev", "dev-child"}
    assert ids(home.on("dev")) == ids(home.on("dev-child")) == [2, 3, 4, 5]
    home.open().create_branch("again", ("dev", None))
    assert doctor(home).findings == ()


def test_a_branch_with_rows_of_its_own_is_not_removed_for_want_of_metadata(home: Home) -> None:
    home.open().branches.delete("dev-child")
    home.store().delete(branch_ref_path("dev"))
    assert [finding.kind for finding in repaired(home).repaired] == [FindingKind.MISSING_REF]
    assert ids(home.on("dev")) == [2, 3, 4, 5]


def test_what_an_interrupted_deletion_left_is_removed(home: Home) -> None:
    """A deletion removes the metadata, then the first version: without that it is not taken for a lost ref."""
    home.open().branches.delete("dev-child")
    home.store().delete(branch_ref_path("dev"))
    home.store().delete(f"tree/dev/{manifest_path(2)}")
    finding = only(repaired(home))
    assert (finding.kind, finding.repaired) == (FindingKind.ZOMBIE_TREE, True)
    assert not any(path.startswith("tree/dev/") for path in files(home))


def test_branches_of_branches_get_their_metadata_back_one_after_the_other(home: Home) -> None:
    home.open().create_branch("grandchild", ("dev-child", None))
    for name in ("dev", "dev-child"):
        home.store().delete(branch_ref_path(name))
    report = repaired(home)
    assert report.is_clean
    assert [finding.kind for finding in report.repaired] == [FindingKind.MISSING_REF] * 2
    assert get_branch(home, "dev-child").parent_branch == "dev"
    assert doctor(home).findings == ()


def test_a_moved_dataset_keeps_the_trees_its_branches_will_need(tmp_path: Path, home: Home) -> None:
    home.store().delete(branch_ref_path("dev"))
    moved = Home.at(str(tmp_path / "moved.lance"))
    store = moved.store()
    for path, data in files(home).items():
        store.put(path, data)
    report = repaired(moved)
    assert FindingKind.STALE_BASE in kinds(report)
    assert files(moved) == files(home)


def test_a_tree_that_a_tag_names_gets_its_metadata_back(home: Home) -> None:
    home.open().create_branch("x")
    home.open().tags.create("release", ("x", 2))
    home.store().delete(branch_ref_path("x"))
    assert kinds(doctor(home)) == [FindingKind.BROKEN_TAG, FindingKind.MISSING_REF]
    assert repaired(home).is_clean
    assert ids(home, "release") == [1, 2, 3, 4]


def test_a_tree_that_a_known_clone_reads_is_kept(home: Home, location: Location) -> None:
    home.open().create_branch("x")
    home.on("x").open().insert(rows(9))
    clone = Home.at(location / "clone.lance", location.storage_options)
    home.on("x").open().shallow_clone(clone.root, 3, storage_options=home.lance_options())
    home.store().delete(branch_ref_path("x"))
    home.store().delete(f"tree/x/{manifest_path(2)}")
    before = files(home)
    assert doctor(home, repair=True, grace=NOW, clones=[clone]).findings[0].needed_by == (f"clone {clone.root!r}",)
    assert files(home) == before
    gone = Home.at(location / "gone.lance", location.storage_options)
    assert doctor(home, repair=True, grace=NOW, clones=[gone]).is_clean
    assert not any(path.startswith("tree/x/") for path in files(home))
    assert kinds(doctor(clone)) == [FindingKind.MISSING_DATA_FILE]


@pytest.mark.s3
def test_ref_without_files_is_removed(home: Home) -> None:
    before = files(home)
    home.open().create_branch("x")
    for info in list(home.store().list(branch_folder("x"))):
        home.store().delete(info.path)
    finding = only(doctor(home))
    assert (finding.kind, finding.severity) == (FindingKind.MISSING_TREE, Severity.ERROR)
    assert only(repaired(home)).repaired
    assert files(home) == before
    home.open().create_branch("x")


def test_ref_without_manifests_is_removed_with_its_other_files(home: Home) -> None:
    before = files(home)
    home.open().create_branch("x")
    home.store().delete(f"tree/x/{manifest_path(2)}")
    report = repaired(home)
    assert [finding.kind for finding in report.repaired] == [FindingKind.MISSING_TREE, FindingKind.UNREFERENCED_TREE]
    assert files(home) == before


def test_a_branch_that_lost_its_manifests_but_not_its_data_is_not_given_up(home: Home) -> None:
    home.open().create_branch("x")
    home.on("x").open().insert(rows(9))
    for version in (2, 3):
        home.store().delete(f"tree/x/{manifest_path(version)}")
    before = files(home)
    report = repaired(home)
    assert kinds(report)[0] is FindingKind.MISSING_TREE
    assert "backup" in report.findings[0].remedy
    assert files(home) == before


@pytest.mark.parametrize("user", ["branch", "tag"])
def test_a_ref_without_tree_is_kept_while_it_is_needed(home: Home, user: str) -> None:
    home.open().create_branch("x")
    if user == "tag":
        home.open().tags.create("needs-x", ("x", 2))
    else:
        home.open().create_branch("needs-x", ("x", None))
    for info in list(home.store().list(branch_folder("x"))):
        home.store().delete(info.path)
    before = files(home)
    (finding,) = (one for one in repaired(home).open if one.kind is FindingKind.MISSING_TREE)
    assert finding.needed_by == (f"{user} 'needs-x'",)
    assert files(home) == before


def lose_the_race(home: Home, name: str) -> None:
    """Leave what two creators of one name leave: the ref names version 1, the tree opens at the loser's version 2."""
    store = home.store()
    home.open().create_branch(name, 2)
    losers = {info.path: store.get(info.path) for info in store.list(branch_folder(name))}
    home.open().branches.delete(name)
    home.open().create_branch(name, 1)
    for path, data in losers.items():
        store.put(path, data)
    assert get_branch(home, name).parent_version == 1
    assert home.on(name).open().version == 2


@pytest.mark.s3
def test_the_manifest_of_a_creator_that_lost_is_removed(home: Home) -> None:
    lose_the_race(home, "x")
    finding = only(doctor(home))
    assert (finding.kind, finding.severity) == (FindingKind.MISMATCHED_TREE, Severity.ERROR)
    assert "made from version 1 of main" in finding.explanation
    assert "copy of version 2 of main" in finding.explanation
    assert only(repaired(home)).repaired
    assert doctor(home).findings == ()
    assert ids(home.on("x")) == [1, 2, 3]
    home.on("x").open().insert(rows(7))
    assert ids(home.on("x")) == [1, 2, 3, 7]


@pytest.mark.parametrize("built", ["a write", "a tag", "a branch"])
def test_a_ref_is_corrected_where_something_was_built_on_the_losers_version(home: Home, built: str) -> None:
    lose_the_race(home, "x")
    if built == "a write":
        home.on("x").open().insert(rows(7))
    elif built == "a tag":
        home.open().tags.create("on-x", ("x", 2))
    else:
        home.open().create_branch("on-x", ("x", 2))
    before, seen = files(home), ids(home.on("x"))
    assert only(repaired(home)).repaired
    after = files(home)
    assert {path for path in after if after[path] != before.get(path)} == {branch_ref_path("x")}
    assert set(after) == set(before)
    assert doctor(home).findings == ()
    assert get_branch(home, "x").parent_version == 2
    assert ids(home.on("x")) == seen
    assert home.open().branches.list()["x"]["parent_version"] == 2


def test_a_ref_that_names_the_wrong_parent_branch_is_corrected(home: Home) -> None:
    home.open().create_branch("x", ("dev", 3))
    ref = home.store().get(branch_ref_path("x"))
    home.open().create_branch("y", ("a/z", 1))
    home.store().put(branch_ref_path("x"), home.store().get(branch_ref_path("y")))
    assert only(repaired(home)).repaired
    assert (get_branch(home, "x").parent_branch, get_branch(home, "x").parent_version) == ("dev", 3)
    assert home.open().branches.list()["x"]["parent_branch"] == "dev"
    assert b'"dev"' in ref
    with pytest.raises(OSError, match=r"[Rr]ef conflict"):
        home.open().branches.delete("dev")


def test_a_tree_with_another_branchs_manifest_is_reported(home: Home) -> None:
    home.open().create_branch("x")
    stolen = home.store().get(f"tree/dev/{manifest_path(4)}")
    home.store().put(f"tree/x/{manifest_path(4)}", stolen)
    assert read_manifest(stolen).branch == "dev"
    before = files(home)
    finding = next(one for one in repaired(home).open if one.kind is FindingKind.MISMATCHED_TREE)
    assert "belongs to branch 'dev'" in finding.explanation
    assert files(home) == before


def test_staged_versions_and_forks_of_them_are_healthy(home: Home) -> None:
    head = VersionRef(home=home, version=home.open().version)
    staged = append(head, rows(8))
    forked = fork(staged, "from-staged")
    fork(append(VersionRef(home=forked, version=forked.open().version), rows(9)), "from-fork")
    assert doctor(home).findings == ()


def test_a_fork_of_a_staged_version_without_an_ordinary_one_is_reported(home: Home) -> None:
    main = home.open()
    staged = lance.LanceDataset.commit(
        main, lance.LanceOperation.Append([]), read_version=main.version, detached=True
    ).version
    main.create_branch("x", staged)
    assert kinds(repaired(home)) == [FindingKind.NO_ORDINARY_VERSION]


UNREADABLE = [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"parentVersion": "x"}', b"[" * 100_000, b"null"]


@pytest.mark.parametrize("damage", UNREADABLE, ids=repr)
def test_a_tag_that_cannot_be_read_is_reported_and_left(home: Home, damage: bytes) -> None:
    path = tag_ref_path("v1")
    home.store().put(path, damage)
    before = files(home)
    finding = only(repaired(home))
    assert (finding.kind, finding.subject, finding.severity) == (FindingKind.DAMAGED_REF, path, Severity.ERROR)
    assert "delete the tag" in finding.remedy
    assert files(home) == before


@pytest.mark.parametrize("damage", UNREADABLE, ids=repr)
def test_metadata_that_cannot_be_read_is_rebuilt_from_the_first_version(home: Home, damage: bytes) -> None:
    path = branch_ref_path("dev")
    before, was = files(home), get_branch(home, "dev")
    home.store().put(path, damage)
    finding = only(repaired(home))
    assert (finding.kind, finding.subject, finding.repaired) == (FindingKind.DAMAGED_REF, path, True)
    now = get_branch(home, "dev")
    assert (now.parent_branch, now.parent_version) == (was.parent_branch, was.parent_version)
    assert {**files(home), path: b""} == {**before, path: b""}
    assert set(home.open().branches.list()) == {"a/z", "dev", "dev-child"}
    assert doctor(home).findings == ()


@pytest.mark.parametrize(
    "path",
    [tag_ref_path("v1"), f"tree/dev/{manifest_path(3)}", "_refs/branches/x.yaml"],
    ids=["a damaged tag", "a damaged manifest", "a ref of another make"],
)
def test_nothing_is_removed_while_there_is_doubt_about_who_needs_it(home: Home, path: str) -> None:
    home.open().create_branch("x")
    home.store().delete(branch_ref_path("x"))
    home.store().put(path, b"noise")
    before = files(home)
    report = repaired(home)
    assert files(home) == before
    (finding,) = (one for one in report.open if one.kind is FindingKind.UNREFERENCED_TREE)
    assert path in finding.remedy


@pytest.mark.s3
@pytest.mark.parametrize("damage", [b"", b"noise" * 50, None], ids=["empty", "noise", "cut"])
def test_a_damaged_manifest_is_reported(home: Home, damage: bytes | None) -> None:
    path = f"tree/dev/{manifest_path(3)}"
    data = home.store().get(path)
    home.store().put(path, data[:40] if damage is None else damage)
    finding = only(doctor(home))
    assert (finding.kind, finding.subject) == (FindingKind.DAMAGED_MANIFEST, path)
    assert "version 3 of branch 'dev'" in finding.explanation


def test_a_damaged_manifest_is_reported_beside_one_with_an_old_name(home: Home) -> None:
    home.store().put("_versions/2.manifest", home.store().get(manifest_path(2)))
    home.store().put(manifest_path(2), b"noise" * 50)
    found = {(finding.kind, finding.subject) for finding in doctor(home).findings}
    assert (FindingKind.DAMAGED_MANIFEST, manifest_path(2)) in found
    assert (FindingKind.STRAY_MANIFEST, "_versions/2.manifest") in found


def test_a_manifest_under_the_wrong_name_is_reported(home: Home) -> None:
    home.store().put(manifest_path(9), home.store().get(manifest_path(2)))
    finding = only(doctor(home))
    assert (finding.kind, finding.subject) == (FindingKind.DAMAGED_MANIFEST, manifest_path(9))
    assert "is version 2 under the name of version 9" in finding.explanation


def test_damaged_manifest_in_an_unreferenced_tree_is_deleted_with_the_tree(home: Home) -> None:
    before = files(home)
    home.open().create_branch("x")
    home.store().delete(branch_ref_path("x"))
    home.store().put(f"tree/x/{manifest_path(2)}", b"noise")
    assert repaired(home).is_clean
    assert files(home) == before


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("data", FindingKind.MISSING_DATA_FILE),
        ("tree/dev/data", FindingKind.MISSING_DATA_FILE),
        ("tree/dev/_deletions", FindingKind.MISSING_DELETION_FILE),
    ],
)
def test_a_missing_file_is_reported_once_for_all_versions(home: Home, folder: str, kind: FindingKind) -> None:
    path = min(info.path for info in home.store().list(folder))
    home.store().delete(path)
    finding = only(doctor(home))
    assert (finding.kind, finding.subject) == (kind, path)
    assert f"tree/dev/{manifest_path(4)}" in finding.paths
    assert f"tree/dev-child/{manifest_path(4)}" in finding.paths


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("data", FindingKind.WRONG_SIZE),
        ("tree/dev/data", FindingKind.WRONG_SIZE),
        ("tree/dev/_deletions", FindingKind.DAMAGED_DELETION_FILE),
    ],
)
def test_a_truncated_file_is_reported(home: Home, folder: str, kind: FindingKind) -> None:
    path = min(info.path for info in home.store().list(folder))
    data = home.store().get(path)
    home.store().put(path, data[:-10])
    finding = only(doctor(home))
    assert (finding.kind, finding.subject) == (kind, path)
    assert finding.remedy == "restore it from a backup"
    home.store().put(path, data)
    assert doctor(home).findings == ()


def test_a_missing_index_is_reported(home: Home) -> None:
    home.open().create_scalar_index("id", "BTREE")
    for info in list(home.store().list("_indices")):
        home.store().delete(info.path)
    finding = only(doctor(home))
    assert finding.kind is FindingKind.MISSING_INDEX
    assert finding.subject.startswith("_indices/")


def test_bases_and_clones_are_healthy_until_a_file_elsewhere_is_missing(home: Home, location: Location) -> None:
    for name in ("cold", "warm"):
        add_base(home, location / name, name=name, is_dataset_root=name == "warm")
        append_to_base(home, rows(8), base=name)
    shallow_clone(home, location / "clone.lance")
    clone = Home.at(location / "clone.lance", location.storage_options)
    assert doctor(home).findings == doctor(clone).findings == ()
    for name in ("cold", "warm"):
        elsewhere = open_store(location / name, location.storage_options)
        (info,) = elsewhere.list()
        elsewhere.delete(info.path)
        missing = f"{location / name}/{info.path}"
        for one in (home, clone):
            assert (FindingKind.MISSING_DATA_FILE, missing) in {(f.kind, f.subject) for f in doctor(one).findings}


def test_an_empty_file_in_a_base_is_damaged_and_not_missing(home: Home, location: Location) -> None:
    add_base(home, location / "cold", name="cold")
    append_to_base(home, rows(8), base="cold")
    elsewhere = open_store(location / "cold", location.storage_options)
    (info,) = elsewhere.list()
    elsewhere.put(info.path, b"")
    finding = only(doctor(home))
    assert (finding.kind, finding.subject) == (FindingKind.WRONG_SIZE, f"{location / 'cold'}/{info.path}")


def test_a_base_that_cannot_be_asked_is_reported(tmp_path: Path) -> None:
    nowhere = {"aws_endpoint": "http://127.0.0.1:1", "allow_http": "true", "client_max_retries": "0"}
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "never-shown", "aws_region": "us-east-1"}
    home = Home.at(tmp_path / "t.lance", {**nowhere, **keys})
    lance.write_dataset(rows(1), home.root)
    add_base(Home.at(home.root), str(tmp_path / "cold"), name="cold")
    append_to_base(Home.at(home.root), rows(2), base="cold")
    store, path = home.store(), manifest_path(home.open().version)
    store.put(path, with_base_paths(store.get(path), lambda base: replace(base, path="s3://lost/cold")))
    finding = only(doctor(home))
    assert (finding.kind, finding.subject) == (FindingKind.UNCHECKED_BASE, "s3://lost/cold")
    assert "never-shown" not in str(finding)


@pytest.mark.parametrize("gone", [{"version": 99}, {"version": 1, "branch": "nobody"}])
def test_a_tag_on_nothing_is_reported(home: Home, gone: dict[str, int | str]) -> None:
    home.store().put(tag_ref_path("v1"), json.dumps({"manifestSize": 1, **gone}).encode())
    before = files(home)
    finding = only(repaired(home))
    assert (finding.kind, finding.subject) == (FindingKind.BROKEN_TAG, tag_ref_path("v1"))
    assert files(home) == before


def test_orphans_and_unknown_files_are_named_and_never_removed(home: Home) -> None:
    orphan = "data/101100101101010011010110a1b2c3d4e5f60718293a4b5c6d.lance"
    home.store().put(orphan, b"")
    home.store().put("tree/dev/notes.txt", b"mine")
    before = files(home)
    report = repaired(home)
    assert [(finding.kind, finding.paths) for finding in report.findings] == [
        (FindingKind.ORPHAN_FILES, (orphan,)),
        (FindingKind.UNKNOWN_FILE, ("tree/dev/notes.txt",)),
    ]
    assert report.is_clean
    assert files(home) == before


def test_half_written_refs_are_removed_and_half_written_data_is_left(home: Home) -> None:
    ref, data = f"_refs/branches/x.json.tmp.{'ab' * 16}", "tree/dev/data/.tmpCYeIBg"
    before = files(home)
    for path in (ref, data):
        home.store().put(path, b"{")
    assert not doctor(home, repair=True).repaired
    report = repaired(home)
    assert report.is_clean
    assert [finding.paths for finding in report.repaired] == [(ref,)]
    assert [(finding.kind, finding.paths) for finding in report.open] == [(FindingKind.TEMPORARY_FILES, (data,))]
    assert files(home) == {**before, data: b"{"}


def test_a_location_without_a_dataset_is_refused(location: Location) -> None:
    with pytest.raises(DatasetNotFoundError):
        doctor(Home.at(location / "nothing.lance", location.storage_options))


def test_progress_counts_the_versions_that_were_read(tmp_path: Path) -> None:
    root = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1]}), root)
    lance.dataset(root).insert(pa.table({"id": [2]}))
    ab.dataset(root).branch_create("dev")
    seen: list[tuple[int, int]] = []
    ab.dataset(root).doctor(progress=lambda step: seen.append((step.done, step.total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
