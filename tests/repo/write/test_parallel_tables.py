"""Work on many tables of one transaction: their requests are sent at the same time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import KeyConflictError, LinkError, SchemaMismatchError
from tests.conftest import Location
from tests.faults.proxy import Meeting, Proxy, proxy_before

KEYS = [f"shop.t{number}" for number in range(8)]
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64())])
DATA_FILE = r"PUT \S*/data/\S+\.lance"
SETTLED_MANIFEST = r"PUT \S*\.lance/_versions/[0-9]{20}\.manifest"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "v": [1.0] * len(ids)}, schema=SCHEMA)


def make_tables(repo: ab.Repository, *, primary_key: tuple[str, ...] = ("id",)) -> ab.Repository:
    with repo.transaction(message="tables") as tx:
        for key in KEYS:
            tx.create_table(key, SCHEMA, primary_key=primary_key)
    return repo


@pytest.fixture
def lake(tmp_path: Path) -> ab.Repository:
    return make_tables(ab.init(f"{tmp_path}/lake"))


@pytest.fixture
def proxied(s3_location: Location) -> Iterator[tuple[Proxy, ab.Repository]]:
    """A lake behind a proxy."""
    with proxy_before(s3_location.storage_options["aws_endpoint"]) as proxy:
        options = {**s3_location.storage_options, "aws_endpoint": proxy.endpoint, "timeout": "90s"}
        yield proxy, make_tables(ab.init(s3_location / "lake", storage_options=options))


@contextmanager
def all_at_once(proxy: Proxy, pattern: str, count: int) -> Iterator[None]:
    """Hold requests that match a pattern until there are that many; fail if they are sent one after the other."""
    proxy.plan = meeting = Meeting.of_requests(pattern, count)
    yield
    assert meeting.is_held, f"{len(meeting.arrived)} of {count} requests {pattern!r} came at once"


@pytest.mark.s3
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_tables_are_staged_and_settled_at_the_same_time(proxied: tuple[Proxy, ab.Repository], write: str) -> None:
    proxy, repo = proxied
    for step, pattern in enumerate((DATA_FILE, SETTLED_MANIFEST)):
        with all_at_once(proxy, pattern, len(KEYS)), repo.transaction(message="all") as tx:
            for number, key in enumerate(KEYS):
                getattr(tx, write)(key, rows(number, 100 + step) if write == "upsert" else rows(1000 * step + number))
    snapshot = repo.snapshot()
    for number, key in enumerate(KEYS):
        expected = {number, 100, 101} if write == "upsert" else {number, 1000 + number}
        assert set(snapshot[key].to_arrow()["id"].to_pylist()) == expected


@pytest.mark.s3
def test_tables_of_a_schema_are_created_and_changed_at_the_same_time(proxied: tuple[Proxy, ab.Repository]) -> None:
    proxy, repo = proxied
    columns = {"id": "int64", "v": "float64"}
    new = {f"t{number}": {"columns": columns} for number in range(8)}
    with all_at_once(proxy, r"PUT \S*/other/\S*\.lance/_versions/[0-9]{20}\.manifest", 8):
        repo.schema_apply({"tables": {"other": new}})
    wider = {key: {"columns": {**columns, "note": "string"}} for key in new}
    with all_at_once(proxy, r"PUT \S*/other/\S*\.lance/_versions/d[0-9]+\.manifest", 8):
        repo.schema_apply({"tables": {"other": wider}})
    assert {tuple(repo.snapshot()[f"other.{name}"].schema.names) for name in new} == {("id", "v", "note")}


def test_rows_that_do_not_fit_are_refused_by_the_call(lake: ab.Repository) -> None:
    tx = lake.transaction(message="m")
    with pytest.raises(SchemaMismatchError, match="'w'"):
        tx.append(KEYS[0], pa.table({"id": [1], "w": [1]}))
    with pytest.raises(KeyConflictError, match="more than once"):
        tx.append(KEYS[0], rows(1, 1))
    with pytest.raises(SchemaMismatchError, match="no key column"):
        tx.upsert(KEYS[0], pa.table({"v": [1.0]}))
    with pytest.raises(KeyConflictError, match="more than once"):
        tx.upsert(KEYS[0], rows(2, 2))
    assert tx.commit() is None


def test_existing_key_is_reported_by_the_call_and_the_rest_can_be_published(lake: ab.Repository) -> None:
    with lake.transaction(message="first") as tx:
        tx.append(KEYS[3], rows(1))
    with lake.transaction(message="second") as tx:
        tx.append(KEYS[0], rows(1))
        for key in (KEYS[0], KEYS[3]):
            with pytest.raises(KeyConflictError, match="1 key already exists in the table"):
                tx.append(key, rows(1))
    snapshot = lake.snapshot()
    assert [snapshot[key].count_rows() for key in (KEYS[0], KEYS[3])] == [1, 1]


def test_failed_write_stays_recorded_so_that_the_commit_fails(lake: ab.Repository, tmp_path: Path) -> None:
    head = lake.head_commit_id_for_branch("main")
    tx = lake.transaction(message="second")
    for key in KEYS[:2]:
        tx.append(key, rows(1))
    home = tmp_path / "lake" / "tables" / "shop" / "t0.lance"
    (home / "data").symlink_to(tmp_path)  # writing through it is refused
    for _ in range(2):
        with pytest.raises(LinkError):
            tx[KEYS[0]].count_rows()
    with pytest.raises(LinkError):
        tx.commit()
    assert lake.head_commit_id_for_branch("main") == head


def test_append_without_rows_changes_nothing(lake: ab.Repository) -> None:
    tx = lake.transaction(message="m")
    tx.append(KEYS[0], rows())
    tx.upsert(KEYS[1], rows())
    del tx  # a ResourceWarning about lost changes would fail the test
    gc.collect()


def test_transaction_reads_its_own_rows(lake: ab.Repository) -> None:
    with lake.transaction(message="m") as tx:
        tx.append(KEYS[0], rows(1))
        tx.append(KEYS[0], rows(2))
        tx.upsert(KEYS[0], pa.table({"id": [2], "v": [5.0]}))
        assert tx[KEYS[0]].count_rows() == 2
        assert tx.update(KEYS[0], {"v": "v + 1"}, where="id = 2") == 1
        tx.append(KEYS[0], rows(3))
    found = lake.snapshot()[KEYS[0]].to_arrow().sort_by("id").to_pydict()
    assert found == {"id": [1, 2, 3], "v": [1.0, 6.0, 1.0]}


def test_dropped_and_renamed_tables_take_their_recorded_rows_along(lake: ab.Repository) -> None:
    with lake.transaction(message="m") as tx:
        tx.append(KEYS[0], rows(1))
        tx.rename_table(KEYS[0], "shop.renamed")
        tx.append(KEYS[1], rows(1))
        tx.drop_table(KEYS[1])
    snapshot = lake.sync_branch()
    assert snapshot["shop.renamed"].count_rows() == 1
    assert KEYS[1] not in snapshot


def test_memory_of_the_caller_may_change_after_the_call(lake: ab.Repository) -> None:
    numbers = np.array([1, 2, 3], dtype=np.int64)
    frame = pd.DataFrame({"id": np.array([1, 2, 3], dtype=np.int64), "v": [1.0, 1.0, 1.0]})
    with lake.transaction(message="m") as tx:
        tx.append(KEYS[0], pa.table({"id": pa.array(numbers)}))
        tx.upsert(KEYS[1], frame)
        numbers[:] = 9
        frame["id"].to_numpy()[:] = 9
    snapshot = lake.snapshot()
    for key in KEYS[:2]:
        assert sorted(snapshot[key].to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_stream_may_read_the_transaction_that_it_is_written_to(lake: ab.Repository) -> None:
    with lake.transaction(message="m") as tx:
        tx.append(KEYS[0], rows(1, 2))

        def batches() -> Iterator[pa.RecordBatch]:
            yield from tx[KEYS[0]].to_arrow().to_batches()

        tx.append(KEYS[1], pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    assert lake.snapshot()[KEYS[1]].count_rows() == 2


def test_many_small_appends_do_not_pile_up_in_memory(lake: ab.Repository) -> None:
    text = pa.schema([("id", pa.int64()), ("v", pa.large_string())])
    with lake.transaction(message="m") as tx:
        tx.create_table("shop.text", text)
        before = pa.total_allocated_bytes()
        for number in range(60):
            tx.append("shop.text", pa.table({"id": [number], "v": ["x" * 900_000]}, schema=text))
            assert pa.total_allocated_bytes() - before < 64 << 20
    assert lake.snapshot()["shop.text"].count_rows() == 60
