"""What a power loss leaves of calls that it cut off, in folders that no commit names."""

from pathlib import Path

import pytest

import anabranch as ab
from anabranch.format.doctor.findings_and_repairs import FindingKind as Kind
from tests.repo.conftest import ORDERS, SCHEMA, another, append, ids, table
from tests.repo.doctor.sample_repository import Files, read_all
from tests.repo.gc.object_ages import pass_time


@pytest.mark.parametrize("torn", ["empty", "half", "zeros"])
@pytest.mark.local
def test_a_table_is_created_beside_a_torn_first_manifest(lake: ab.Repository, torn: str) -> None:
    """The creation that was cut off has published nothing, so that its name is free."""
    first = min(Path(lake.uri, "tables/in_c_sales/orders.lance/_versions").glob("*.manifest"))
    data = first.read_bytes()
    left = Path(lake.uri, "tables/in_c_sales/later.lance/_versions", first.name)
    left.parent.mkdir(parents=True)
    left.write_bytes({"empty": b"", "half": data[: len(data) // 2], "zeros": bytes(len(data))}[torn])
    with lake.transaction() as tx:
        tx.create_table("in_c_sales.later", SCHEMA, primary_key=["id"])
        tx.append("in_c_sales.later", table(1))
    assert ids(another(lake).snapshot()["in_c_sales.later"]) == [1]
    pass_time(lake)
    assert str(left.relative_to(lake.uri)) in {found.path for found in lake.gc().objects}
    assert another(lake).doctor(rows=True).findings == ()


def fork_without_commit(repo: ab.Repository) -> str:
    """Begin to write to a table on a new branch, and die; return the metadata of the home that this has made."""
    repo.branch_create("cut")
    refs = Files(repo).list("tables/in_c_sales/orders.lance/_refs/branches")
    tx = repo.transaction("cut")
    tx.append(ORDERS, table(8))
    assert tx[ORDERS].count_rows() == 4  # a read stages what was only recorded
    tx.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    repo.branch_delete("cut")
    (ref,) = set(Files(repo).list("tables/in_c_sales/orders.lance/_refs/branches")) - set(refs)
    return ref


@pytest.mark.parametrize("content", [b"", bytes(200)], ids=["empty", "zeros"])
@pytest.mark.local
def test_torn_metadata_of_an_unused_home_are_reported_and_repaired(lake: ab.Repository, content: bytes) -> None:
    ref, files, before = fork_without_commit(lake), Files(lake), read_all(another(lake))
    files.put(ref, content)
    pass_time(lake)
    report = another(lake).gc()
    assert report.damaged == (ref,)
    assert not [found.path for found in report.objects if "/orders.lance/" in found.path]
    (finding,) = another(lake).doctor().findings
    assert (finding.kind, finding.subject, finding.repairable) == (Kind.DAMAGED_REF, ref, True)
    assert [finding.kind for finding in another(lake).doctor(repair=True).repaired] == [Kind.DAMAGED_REF]
    pass_time(lake)
    assert another(lake).gc().damaged == ()
    assert ref not in files.list("tables")
    assert another(lake).doctor(rows=True).findings == ()
    assert read_all(another(lake)) == before


@pytest.mark.local
def test_an_unreadable_lance_tag_keeps_what_it_may_hold(lake: ab.Repository) -> None:
    """What is tagged with plain Lance is kept; an unreadable tag does not name its version."""
    files = Files(lake)
    dataset = lake.snapshot()[ORDERS].version_ref.home.on(None).open()
    dataset.tags.create("kept", dataset.version)
    for number in (4, 5, 6):
        append(lake, number)
    tags = files.list("tables/in_c_sales/orders.lance/_refs/tags")
    (path,) = (path for path in tags if not path.endswith("/anabranch-managed.json"))
    tag = files.get(path)
    files.put(path, b"")
    pass_time(lake)
    assert another(lake).gc(keep_last=1).damaged == (path,)
    files.put(path, tag)
    assert another(lake).gc(keep_last=1).damaged == ()
    assert dataset.checkout_version("kept").count_rows() == 3
