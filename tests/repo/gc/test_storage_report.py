"""The storage report: whose the bytes are, judged by what a collection really frees."""

from pathlib import Path

import lance
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import BranchNotFoundError, InvalidInputError, NotFoundError, TableNotFoundError
from anabranch.format.bases import Usage
from anabranch.repo.gc.collection import GcStage
from anabranch.repo.gc.roots import HolderKind
from anabranch.repo.gc.storage_report import RepositoryStorage
from anabranch.repo.repository import Repository
from tests.lake_templates import Cast
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, entry, fill_lake, objects, table
from tests.repo.gc.object_ages import pass_time

pytestmark = pytest.mark.local


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    """On local disk, where a test can let time pass."""
    repo = ab.init(tmp_path / "lake", actor="ada")
    fill_lake(repo)
    return repo


def overwrite(repo: Repository, *ids: int, branch: str | None = None) -> None:
    with repo.transaction(branch) as tx:
        tx.overwrite(ORDERS, table(*ids))


def names(report: RepositoryStorage, kind: HolderKind) -> list[str]:
    return [holder.name for holder in report.holders if holder.kind is kind]


def freed_without_leases(repo: Repository) -> int:
    """The bytes of tables that a collection frees."""
    return sum(found.bytes for found in repo.gc().objects if found.path.startswith("tables/"))


@pytest.mark.s3
def test_everything_is_counted_once(cast: Cast) -> None:
    lake = cast(fill_lake)
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    lake.tag_create("v1")
    overwrite(lake, 7)
    report = lake.storage_report()
    # The report asks the store for the time, which is one more object.
    there = objects(lake)
    assert report.total == Usage(files=len(there), bytes=sum(there.values()))
    for holder in report.holders:
        assert holder.own + holder.shared == holder.head + holder.history == holder.total
        tables = report.tables_of(holder.name)
        assert sum((each.total for each in tables), Usage()) == holder.total
        assert sum((each.own for each in tables), Usage()) == holder.own
    assert [holder.name for holder in report.holders] == ["main", "dev", "tag v1"]
    assert [(each.dataset, each.tables) for each in report.tables] == [
        ("in_c_sales/customers.lance", (CUSTOMERS,)),
        ("in_c_sales/orders.lance", (ORDERS,)),
    ]


def test_own_bytes_of_a_branch_are_freed_with_it(lake: Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    lake.branch_create_from("dev", "fix")
    append(lake, 5, branch="fix")
    append(lake, 6)
    pass_time(lake)
    lake.gc()
    for name in ("fix", "dev"):
        report = lake.storage_report()
        own = report.holder(name).own.bytes
        lake.branch_delete(name)
        in_grace = lake.storage_report()
        assert in_grace.holder(name).kind is HolderKind.DELETED
        pass_time(lake)
        after = lake.storage_report()
        reported = sum(each.garbage.bytes for each in after.tables)
        assert 0 < own == reported == freed_without_leases(lake)
        assert name not in [holder.name for holder in after.holders]


def test_own_bytes_of_a_tag_are_freed_with_it(lake: Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    lake.tag_create("v1", ref="dev")
    lake.branch_delete("dev")
    pass_time(lake)
    lake.gc()
    (tag,) = (each for each in lake.storage_report().holders if each.kind is HolderKind.TAG)
    assert (tag.name, tag.history) == ("tag v1", Usage())
    lake.tag_delete("v1")
    pass_time(lake)
    assert freed_without_leases(lake) == tag.own.bytes > 0


def test_a_branch_that_wrote_nothing_has_nothing_of_its_own(lake: Repository) -> None:
    lake.branch_create("pinned")
    lake.branch_create_from("main", "live", mode="live")
    report = lake.storage_report()
    main = report.holder("main")
    for name in ("pinned", "live"):
        branch = report.holder(name)
        assert branch.own == Usage()
        assert branch.head == main.head
        assert "main" in report.pinned_by(name)
    assert report.pinned_by("main")["pinned"] == report.holder("pinned").total
    overwrite(lake, 9)
    report = lake.storage_report()
    assert report.holder("pinned").head.bytes > 0
    assert report.holder("live").head == report.holder("main").head
    assert report.pinned_by("main").keys() == {"pinned", "live"}


def test_history_is_distinguished_from_the_head(lake: Repository) -> None:
    before = lake.storage_report().holder("main")
    overwrite(lake, 1)
    main = lake.storage_report().holder("main")
    orders = {each.table: each for each in lake.storage_report().tables_of("main")}
    assert main.history.bytes > before.history.bytes
    # The newest state is one small file and the manifest, and the old rows are history now.
    assert orders[ORDERS].head.bytes < before.head.bytes
    assert orders[CUSTOMERS].history.bytes < orders[ORDERS].history.bytes


def test_a_policy_shows_what_gc_would_free(lake: Repository) -> None:
    overwrite(lake, 1)
    overwrite(lake, 2)
    pass_time(lake)
    everything, little = lake.storage_report(), lake.storage_report(keep_last=1)
    reported = lake.gc(keep_last=1, dry_run=True)
    assert little.garbage == reported.objects
    assert little.freeable == Usage(files=len(reported.objects), bytes=reported.bytes)
    assert {
        reason: (each.files, each.bytes) for reason, each in little.freeable_by_reason.items()
    } == reported.by_reason
    assert little.freeable.bytes > everything.freeable.bytes
    assert little.total.bytes == everything.total.bytes
    assert lake.gc(keep_last=1).bytes == little.freeable.bytes
    assert lake.storage_report(keep_last=1).freeable == Usage()


def test_runs_clones_and_lance_tags_are_reported(lake: Repository, tmp_path: Path) -> None:
    run = lake.begin_run()
    with run.transaction() as tx:
        tx.append(ORDERS, table(8))
    ab.clone(lake.uri, tmp_path / "copy", shallow=True)
    dataset = lance.dataset(str(Path(lake.uri, "tables/in_c_sales/customers.lance")))
    dataset.tags.create("mine", dataset.version)
    report = lake.storage_report()
    assert names(report, HolderKind.RUN) == [f"run {run.id}"]
    assert report.holder(f"run {run.id}").own.bytes > 0
    (clone,) = names(report, HolderKind.CLONE)
    assert report.holder(clone).shared.bytes > 0
    assert report.holder(HolderKind.LANCE).total.bytes > 0
    assert {clone, f"run {run.id}", HolderKind.LANCE} <= report.pinned_by("main").keys()
    run.abort()


def test_a_part_can_be_reported(lake: Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    whole = lake.storage_report()
    one = lake.storage_report(tables=[CUSTOMERS])
    assert [each.tables for each in one.tables] == [(CUSTOMERS,)]
    assert one.tables[0] in whole.tables
    assert one.metadata == {}
    of_dev = lake.storage_report(branch="dev")
    assert of_dev.holders == (whole.holder("dev"),)
    assert of_dev.pinned_by("dev") == whole.pinned_by("dev")
    assert lake.storage_report(branch="dev", tables=[ORDERS]).tables_of("dev") == whole.tables_of("dev")[1:]


def test_a_renamed_table_is_known_by_both_names(lake: Repository) -> None:
    with lake.transaction() as tx:
        tx.rename_table(ORDERS, "in_c_sales.sold")
    report = lake.storage_report()
    assert (ORDERS, "in_c_sales.sold") in [each.tables for each in report.tables]
    assert {each.table for each in report.tables_of("main")} == {CUSTOMERS, ORDERS, "in_c_sales.sold"}


def test_missing_files_are_reported_and_nothing_of_that_table_would_be_freed(lake: Repository) -> None:
    overwrite(lake, 1)
    pass_time(lake)
    (file,) = (
        testing.repo_store_of(lake)
        .config.home_of(entry(lake))
        .open(entry(lake).version)
        .get_fragments()[0]
        .data_files()
    )
    path = next(Path(lake.uri).rglob(str(file.path)))
    path.unlink()
    report = lake.storage_report(keep_last=1)
    assert report.damaged == (str(path.relative_to(lake.uri)),)
    assert [each.garbage for each in report.tables if ORDERS in each.tables] == [Usage()]


def test_what_is_collected_concurrently_is_not_missed(lake: Repository) -> None:
    overwrite(lake, 1)
    overwrite(lake, 2)
    pass_time(lake)
    freed: list[int] = []

    def collect(step: ab.Progress) -> None:
        if step.stage == GcStage.READING and step.done == step.total and not freed:
            freed.append(another(lake).gc(keep_last=1).bytes)

    report = lake.storage_report(progress=collect)
    assert freed[0] > 0
    assert report.damaged == ()
    assert report == lake.storage_report()


def test_storage_report_reports_progress_and_refuses_bad_input(lake: Repository) -> None:
    steps: list[tuple[str, int, int]] = []
    lake.storage_report(progress=lambda step: steps.append((step.stage, step.done, step.total)))
    assert steps[-1] == (GcStage.SWEEPING, 2, 2)
    with pytest.raises(BranchNotFoundError):
        lake.storage_report(branch="nope")
    with pytest.raises(TableNotFoundError, match=r"in_c_sales\.nope"):
        lake.storage_report(tables=["in_c_sales.nope"])
    with pytest.raises(InvalidInputError, match="tables must be a list"):
        lake.storage_report(tables=ORDERS)
    with pytest.raises(NotFoundError, match="nope"):
        lake.storage_report().holder("nope")
