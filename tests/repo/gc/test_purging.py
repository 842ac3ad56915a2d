"""A branch purged when it is deleted: its own tables go at once, and nothing else."""

from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BranchNotFoundError, CollectedError
from tests.repo.gc.interrupting import interrupted

ORDERS = "s.orders"
NOTES = "s.notes"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def rows(*ids: int, v: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> ab.Repository:
    repo = ab.init(tmp_path / "lake")
    with repo.transaction() as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, rows(1, 2, 3))
    return repo


def write_on(repo: ab.Repository, branch: str) -> str:
    with repo.transaction(branch) as tx:
        tx.upsert(ORDERS, rows(2, v=branch))
        tx.create_table(NOTES, SCHEMA)
        tx.append(NOTES, rows(7))
    return repo.head_commit_id_for_branch(branch)


def table_files(repo: ab.Repository) -> dict[str, bytes]:
    tables = Path(repo.uri, "tables")
    return {str(path.relative_to(tables)): path.read_bytes() for path in tables.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", ["live", "pinned"])
def test_a_purged_branch_leaves_no_file_and_touches_no_other(lake: ab.Repository, mode: str) -> None:
    before = table_files(lake)
    lake.branch_create_from("main", "dev", mode=mode)
    commit = write_on(lake, "dev")
    assert table_files(lake).keys() > before.keys()
    lake.branch_delete("dev", purge=True)
    assert table_files(lake) == before
    with pytest.raises(CollectedError, match=commit):
        lake.snapshot_of(commit)
    with pytest.raises(CollectedError):
        lake.branch_restore("dev")
    assert [branch.name for branch in lake.branch_list()] == ["main"]


def test_a_branch_that_was_deleted_before_can_be_purged_once(lake: ab.Repository) -> None:
    before = table_files(lake)
    lake.branch_create("dev")
    write_on(lake, "dev")
    lake.branch_delete("dev")
    lake.branch_delete("dev", purge=True)
    assert table_files(lake) == before
    with pytest.raises(CollectedError):
        lake.branch_restore("dev")
    with pytest.raises(BranchNotFoundError):
        lake.branch_delete("dev", purge=True)


def test_what_a_tag_holds_survives_a_purge(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    write_on(lake, "dev")
    lake.tag_create("kept", ref="dev")
    later = write_more(lake)
    lake.branch_delete("dev", purge=True)
    assert lake.snapshot_of("kept")[ORDERS].to_arrow(where="v = 'dev'")["id"].to_pylist() == [2]
    assert lake.snapshot_of("kept")[NOTES].to_arrow()["id"].to_pylist() == [7]
    with pytest.raises(CollectedError):
        lake.snapshot_of(later)


def write_more(repo: ab.Repository) -> str:
    with repo.transaction("dev") as tx:
        tx.append(ORDERS, rows(9, v="later"))
    return repo.head_commit_id_for_branch("dev")


def test_what_another_branch_took_over_survives_a_purge(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    commit = write_on(lake, "dev")
    lake.branch_create_from(commit, "other")
    lake.branch_delete("dev", purge=True)
    assert lake.snapshot_of("other")[ORDERS].to_arrow(where="v = 'dev'")["id"].to_pylist() == [2]
    with lake.transaction("other") as tx:
        tx.append(ORDERS, rows(4))
        tx.append(NOTES, rows(8))
    assert lake.snapshot_of("other")[NOTES].count_rows() == 2
    lake.branch_delete("other", purge=True)
    assert set(lake.snapshot()) == {ORDERS}
    assert lake.snapshot()[ORDERS].to_arrow().num_rows == 3


def test_a_name_can_be_used_again_after_a_purge(lake: ab.Repository) -> None:
    for _ in range(3):
        lake.branch_create_from("main", "dev", mode="live")
        write_on(lake, "dev")
        assert lake.snapshot_of("dev")[NOTES].to_arrow()["id"].to_pylist() == [7]
        lake.branch_delete("dev", purge=True)
    assert lake.gc(dry_run=True).damaged == ()


def test_a_table_of_another_branch_made_at_the_same_location_survives(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.branch_create("other")
    write_on(lake, "dev")
    write_on(lake, "other")
    lake.branch_delete("dev", purge=True)
    assert lake.snapshot_of("other")[NOTES].to_arrow()["id"].to_pylist() == [7]
    assert lake.snapshot_of("other")[ORDERS].to_arrow(where="v = 'other'")["id"].to_pylist() == [2]


def test_a_branch_whose_name_starts_with_the_purged_one_survives(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.branch_create("dev/x")
    write_on(lake, "dev")
    write_on(lake, "dev/x")
    lake.branch_delete("dev", purge=True)
    assert lake.snapshot_of("dev/x")[NOTES].to_arrow()["id"].to_pylist() == [7]
    assert lake.snapshot_of("dev/x")[ORDERS].to_arrow(where="v = 'dev/x'")["id"].to_pylist() == [2]


def test_a_branch_made_again_while_the_old_one_is_purged_survives(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    write_on(lake, "dev")

    def make_again() -> None:
        lake.branch_create("dev")
        write_on(lake, "dev")

    def is_about_to_look(operation: str, path: str) -> bool:
        return operation.startswith("put") and path.startswith("_gc/removing/")

    interrupted(lake, is_about_to_look, make_again).branch_delete("dev", purge=True)
    assert lake.snapshot_of("dev")[NOTES].to_arrow()["id"].to_pylist() == [7]
    assert lake.snapshot_of("dev")[ORDERS].to_arrow(where="v = 'dev'")["id"].to_pylist() == [2]


def test_what_a_tag_holds_of_an_earlier_branch_of_that_name_survives(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    write_on(lake, "dev")
    lake.tag_create("kept", ref="dev")
    lake.branch_delete("dev")
    lake.branch_create("dev")
    write_on(lake, "dev")
    lake.branch_delete("dev", purge=True)
    assert lake.snapshot_of("kept")[NOTES].to_arrow()["id"].to_pylist() == [7]
    assert lake.snapshot_of("kept")[ORDERS].to_arrow(where="v = 'dev'")["id"].to_pylist() == [2]


def test_a_deleted_branch_that_was_made_from_it_can_come_back(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    commit = write_on(lake, "dev")
    lake.branch_create_from(commit, "other")
    with lake.transaction("other") as tx:
        tx.append(ORDERS, rows(4))
    lake.branch_delete("other")
    lake.branch_delete("dev", purge=True)
    lake.branch_restore("other")
    assert lake.snapshot_of("other")[ORDERS].to_arrow()["id"].sort().to_pylist() == [1, 2, 3, 4]


def test_runs_of_a_purged_branch_leave_no_file(lake: ab.Repository) -> None:
    before = table_files(lake)
    lake.branch_create("dev")
    runs = [lake.begin_run("dev") for _ in range(2)]
    for number, run in enumerate(runs, start=4):
        with run.transaction() as tx:
            tx.append(ORDERS, rows(number))
    runs[0].publish()
    runs[1].abort()
    lake.branch_delete("dev", purge=True)
    assert table_files(lake) == before
    assert lake.gc(dry_run=True).damaged == ()
    assert lake.doctor().findings == ()
