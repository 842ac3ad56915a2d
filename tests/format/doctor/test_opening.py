"""Doctor on datasets that Lance cannot open, wholly or in part: `ab.doctor` needs no open handle."""

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import errors
from anabranch.format.doctor.findings_and_repairs import DoctorReport, FindingKind
from anabranch.format.layout.listing import manifest_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two versions on main, a branch with three, a branch of it, a tag on each."""
    plain = lance.write_dataset(rows(1), str(tmp_path / "t.lance"))
    plain.insert(rows(2))
    plain.create_branch("dev")
    for number in (3, 4):
        lance.dataset(f"{plain.uri}/tree/dev").insert(rows(number))
    plain.create_branch("child", ("dev", None))
    plain.tags.create("v1", 1)
    plain.tags.create("on-dev", ("dev", 3))
    return tmp_path / "t.lance"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def kinds(report: DoctorReport) -> set[object]:
    return {finding.kind for finding in report.open}


def test_a_healthy_dataset_is_in_order(root: Path) -> None:
    assert ab.doctor(root).findings == ()
    assert ab.doctor(root / "tree/dev").root == str(root)


@pytest.mark.parametrize("rewritten", [1, 2, 3])
def test_a_relocation_that_was_killed_late_is_reported(root: Path, tmp_path: Path, rewritten: int) -> None:
    """The newest versions read the new location, older ones still the original."""
    copy = tmp_path / "copy.lance"
    shutil.copytree(root, copy)

    def stop(step: ab.Progress) -> None:
        if step.done == rewritten:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ab.dataset(copy).relocate(progress=stop)
    report = ab.doctor(copy)
    assert FindingKind.STALE_BASE in kinds(report)
    assert not report.is_clean
    ab.dataset(copy).relocate()
    assert ab.doctor(copy).findings == ()


def test_only_old_versions_that_read_the_original_are_named(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.lance"
    shutil.copytree(root, copy)
    ab.dataset(copy).relocate()
    first = f"tree/dev/{manifest_path(2)}"
    shutil.copy(root / first, copy / first)
    (finding,) = ab.doctor(copy).findings
    assert (finding.kind, finding.subject, finding.paths) == (FindingKind.STALE_BASE, "tree/dev", (first,))
    assert "only in older versions (2)" in finding.explanation
    assert "relocate" in finding.remedy


STRAYS = ["0.manifest", "7.manifest", "018446744073709551613.manifest", f"{0:020d}.manifest"]


@pytest.mark.parametrize("content", ["copy", "noise"])
@pytest.mark.parametrize("branch", ["", "tree/dev/"])
@pytest.mark.parametrize("name", STRAYS)
def test_a_stray_manifest_that_stops_lance_is_named(root: Path, name: str, branch: str, content: str) -> None:
    versions = root / branch / "_versions"
    stray = versions / name
    stray.write_bytes((root / branch / manifest_path(2)).read_bytes() if content == "copy" else b"noise")
    with pytest.raises(Exception):  # noqa: B017, PT011 - Lance raises several kinds
        lance.dataset(str(root / branch))
    report = ab.doctor(root)
    assert not report.is_clean
    found = [finding for finding in report.findings if finding.kind is FindingKind.STRAY_MANIFEST]
    assert [finding.subject for finding in found] == [f"{branch}_versions/{name}"]
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    ab.doctor(root, repair=True)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    stray.unlink()
    assert ab.doctor(root).findings == ()


@pytest.mark.parametrize("name", ["abc.manifest", "99999999999999999999.manifest", "18446744073709551613.manifest.bak"])
def test_a_stray_file_that_lance_ignores_is_only_named(root: Path, name: str) -> None:
    (root / "_versions" / name).write_bytes(b"noise")
    report = ab.doctor(root)
    assert report.is_clean
    assert kinds(report) <= {FindingKind.UNKNOWN_FILE, FindingKind.STRAY_MANIFEST}


@pytest.mark.parametrize("damage", [b"", b"noise", None])
def test_a_dataset_whose_newest_version_is_damaged_is_examined(root: Path, damage: bytes | None) -> None:
    newest = root / manifest_path(2)
    newest.write_bytes(newest.read_bytes()[:-20] if damage is None else damage)
    with pytest.raises(errors.AnabranchError):
        ab.dataset(root)
    report = ab.doctor(root)
    assert not report.is_clean
    assert any(manifest_path(2) in finding.subject for finding in report.findings)


def test_a_dataset_without_any_version_on_main_is_examined(root: Path) -> None:
    shutil.rmtree(root / "_versions")
    with pytest.raises(errors.DatasetNotFoundError):
        ab.dataset(root)
    report = ab.doctor(root)
    assert FindingKind.UNOPENABLE in kinds(report)
    before = sorted(root.rglob("*"))
    ab.doctor(root, repair=True)
    assert sorted(root.rglob("*")) == before


def test_a_location_without_a_dataset_or_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(errors.DatasetNotFoundError, match="no Lance dataset"):
        ab.doctor(tmp_path)


def test_a_repository_is_examined_as_one_even_without_its_mark(tmp_path: Path) -> None:
    repo = ab.init(tmp_path / "lake", actor="ada")
    with repo.transaction() as tx:
        tx.create_table("shop.orders", rows(1).schema)
        tx.append("shop.orders", rows(1))
    assert isinstance(ab.doctor(tmp_path / "lake"), DoctorReport)
    assert ab.doctor(tmp_path / "lake").is_clean
    (tmp_path / "lake/_repo.json").unlink()
    with pytest.raises(errors.AnabranchError):
        ab.open(tmp_path / "lake")
    report = ab.doctor(tmp_path / "lake")
    assert isinstance(report, DoctorReport)
    assert not report.is_clean
