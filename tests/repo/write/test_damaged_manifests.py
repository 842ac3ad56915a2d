"""Manifests that were cut off or lost: ordinary ones follow from the log, staged ones from the ordinary ones."""

from collections.abc import Callable
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import AnabranchError
from anabranch.format.doctor.findings_and_repairs import FindingKind as Kind
from anabranch.format.layout.listing import manifest_path
from tests.repo.conftest import ORDERS, another, append, entry, ids, raw, rows, table

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
}

pytestmark = pytest.mark.local


@pytest.fixture(params=["main", "dev"])
def branch(request: pytest.FixtureRequest, lake: ab.Repository) -> str:
    name = str(request.param)
    if name != "main":
        lake.branch_create(name)
    append(lake, 4, branch=name)
    return name


def manifest(repo: ab.Repository, branch: str, version: int) -> Path:
    return Path(testing.config_of(repo).home_of(entry(repo, ref=branch)).uri, manifest_path(version))


def damage(path: Path, how: str) -> None:
    path.write_bytes(DAMAGES[how](path.read_bytes()))


@pytest.mark.parametrize("how", sorted(DAMAGES))
def test_writes_replace_a_settled_manifest_that_was_cut_off(lake: ab.Repository, branch: str, how: str) -> None:
    damage(manifest(lake, branch, raw(lake, ref=branch).version), how)
    append(another(lake), 5, branch=branch)
    assert ids(another(lake).snapshot_of(branch)) == [1, 2, 3, 4, 5]
    seen = raw(lake, ref=branch)
    seen.validate()  # type: ignore[no-untyped-call]
    assert rows(seen) == rows(lake.snapshot_of(branch)[ORDERS])
    assert len(seen.versions()) == seen.version - (0 if branch == "main" else 1)
    assert another(lake).doctor().findings == ()


@pytest.mark.parametrize("how", sorted(DAMAGES))
def test_doctor_replaces_a_settled_manifest_that_was_cut_off(lake: ab.Repository, branch: str, how: str) -> None:
    damage(manifest(lake, branch, raw(lake, ref=branch).version), how)
    (found,) = another(lake).doctor().findings
    assert (found.kind, found.tables, found.repairable) == (Kind.DAMAGED_MANIFEST, (ORDERS,), True)
    (found,) = another(lake).doctor(repair=True).findings
    assert found.repaired
    assert another(lake).doctor().findings == ()
    assert rows(raw(lake, ref=branch)) == rows(lake.snapshot_of(branch)[ORDERS])


@pytest.mark.parametrize("how", sorted(DAMAGES))
def test_branches_fork_a_table_whose_settled_manifest_was_cut_off(lake: ab.Repository, how: str) -> None:
    append(lake, 4)
    damage(manifest(lake, "main", raw(lake).version), how)
    lake.branch_create("dev")
    append(another(lake), 5, branch="dev")
    assert ids(another(lake).snapshot_of("dev")) == [1, 2, 3, 4, 5]
    assert rows(raw(lake, ref="dev")) == rows(lake.snapshot_of("dev")[ORDERS])


@pytest.mark.parametrize("how", [*sorted(DAMAGES), "missing"])
def test_doctor_rebuilds_a_staged_manifest_from_its_settled_twin(lake: ab.Repository, branch: str, how: str) -> None:
    path = manifest(lake, branch, entry(lake, ref=branch).version)
    before = rows(lake.snapshot_of(branch)[ORDERS])
    if how == "missing":
        path.unlink()
    else:
        damage(path, how)
    testing.config_of(lake).home_of(entry(lake, ref=branch)).forget()
    with pytest.raises(AnabranchError, match=r"doctor\(repair=True\)"):
        another(lake).snapshot_of(branch)[ORDERS].to_arrow()
    (found,) = another(lake).doctor().findings
    assert (found.tables, found.repairable) == ((ORDERS,), True)
    assert "doctor(repair=True)" in found.remedy
    (found,) = another(lake).doctor(repair=True).findings
    assert found.repaired
    assert rows(another(lake).snapshot_of(branch)[ORDERS]) == before
    append(another(lake), 5, branch=branch)
    assert rows(raw(lake, ref=branch)) == rows(another(lake).snapshot_of(branch)[ORDERS])
    assert another(lake).doctor().findings == ()


@pytest.mark.parametrize("how", [*sorted(DAMAGES), "missing"])
def test_damaged_index_does_not_block_writes_and_can_be_built_again(lake: ab.Repository, how: str) -> None:
    lake.index(ORDERS, "id")
    for path in Path(lake.uri, "tables/in_c_sales/orders.lance/_indices").glob("*/*"):
        if how == "missing":
            path.unlink()
        else:
            damage(path, how)
    fresh = another(lake)
    (found,) = fresh.doctor().findings
    assert found.kind is (Kind.MISSING_INDEX if how == "missing" else Kind.DAMAGED_INDEX)
    assert f"index('{ORDERS}', 'id')" in found.remedy
    append(fresh, 4)
    with fresh.transaction() as tx:
        tx.upsert(ORDERS, table(2, 5, v="new"))
        tx.update(ORDERS, {"v": "'newer'"}, where="id = 5")
        tx.delete(ORDERS, "id = 1")
    fresh.index(ORDERS, "id")
    found_rows = {row["id"]: row["v"] for row in rows(another(lake).snapshot()[ORDERS])}
    assert found_rows == {2: "new", 3: "c", 4: "d", 5: "newer"}
    assert raw(lake).to_table(filter="id = 5").column("v").to_pylist() == ["newer"]
