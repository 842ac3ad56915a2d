"""Overlay files of adopted external writes: gc keeps them, also for clones; doctor and the storage report see them."""

import json
from pathlib import Path

import lance
import pytest

import anabranch as ab
from anabranch.format.bases import list_data_files
from anabranch.format.home import Home
from tests.command_line import invoke
from tests.format.overlays import ENABLE, add_overlay
from tests.repo.conftest import ORDERS, append, ids, raw
from tests.repo.gc.object_ages import pass_time

pytestmark = pytest.mark.local


@pytest.fixture(autouse=True)
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENABLE, "1")


@pytest.fixture
def overlay(lake: ab.Repository) -> str:
    """Adopt an external write that replaces a value by an overlay; return the path of its file."""
    home = Home.at(raw(lake).uri)
    path = add_overlay(home, "v", {0: "theirs"})
    lake.adopt(ORDERS)
    return str(Path(home.root, path))


def shown(lake: ab.Repository) -> list[str]:
    return [row["v"] for row in lake.snapshot_of("main")[ORDERS].to_arrow().sort_by("id").to_pylist()]


def test_gc_keeps_overlay_files(lake: ab.Repository, overlay: str) -> None:
    assert shown(lake)[0] == "theirs"
    append(lake, 4)
    pass_time(lake)
    report = lake.gc(keep_last=1)
    assert report.damaged == ()
    assert Path(overlay).exists()
    assert shown(lake)[0] == "theirs"
    assert lance.dataset(raw(lake).uri).to_table(filter="id = 1")["v"].to_pylist() == ["theirs"]
    assert ids(lake.snapshot_of("main")) == [1, 2, 3, 4]


def test_doctor_needs_overlay_files_and_reports_a_missing_one(lake: ab.Repository, overlay: str) -> None:
    assert lake.doctor().findings == ()
    Path(overlay).unlink()
    found = {str(finding.kind): finding for finding in lake.doctor().findings}
    assert "missing_data_file" in found
    finding = found["missing_data_file"]
    assert str(Path(lake.uri, finding.subject)) == overlay
    assert (finding.severity, finding.tables, finding.refs) == ("error", (ORDERS,), ("main",))
    answer = invoke("doctor", "--repo", lake.uri, "--json")
    assert any(one["kind"] == "missing_data_file" for one in json.loads(answer.out)["findings"])


def test_storage_report_counts_overlay_files(lake: ab.Repository, overlay: str) -> None:
    path = Path(overlay)
    size, data = path.stat().st_size, path.read_bytes()
    measured = sum(group.usage.bytes for group in lake.storage_report().groups)
    path.unlink()
    without = sum(group.usage.bytes for group in lake.storage_report().groups)
    path.write_bytes(data)
    assert measured - without == size


def test_size_of_a_table_counts_overlay_files(lake: ab.Repository, overlay: str) -> None:
    table = lake.snapshot_of("main")[ORDERS]
    version_ref = table.version_ref
    listed = list_data_files(version_ref.home, version_ref.version)
    assert any(file.uri == overlay for file in listed)
    assert table.size_bytes == sum(file.bytes or 0 for file in listed)


def test_gc_keeps_overlay_files_for_a_clone(lake: ab.Repository, overlay: str, tmp_path: Path) -> None:
    clone = ab.clone(lake.uri, tmp_path / "clone", shallow=True)
    lake.compact([ORDERS])
    append(lake, 4)
    pass_time(lake)
    assert lake.gc(keep_last=1).damaged == ()
    assert Path(overlay).exists()
    assert shown(clone)[0] == "theirs"
    assert clone.doctor().findings == ()
