"""Tables of one merge are compared and staged in parallel, and the result does not depend on it."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.format import home
from anabranch.repo.merge import combiner
from anabranch.repo.merge.conflict_types import Conflict
from tests.conftest import Location
from tests.faults.proxy import Meeting, Proxy, proxy_before

KEYS = [f"s.t{number}" for number in range(4)]
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])


def rows(*ids: int, a: int = 0, b: int = 0) -> pa.Table:
    return pa.table({"id": ids, "a": [a] * len(ids), "b": [b] * len(ids)}, schema=SCHEMA)


def fork(repo: ab.Repository) -> ab.Repository:
    """Tables of which dev changed `a` and main changed `b`, in the same rows."""
    with repo.transaction() as tx:
        for key in KEYS:
            tx.create_table(key, SCHEMA, primary_key=["id"])
            tx.append(key, rows(1, 2, 3))
    repo.branch_create("dev")
    for branch, column in (("dev", "a"), ("main", "b")):
        with repo.transaction(branch) as tx:
            for number, key in enumerate(KEYS):
                tx.update(key, {column: "7"}, where=f"id <= {number % 3 + 1}")
    return repo


@pytest.fixture
def forked(repo: ab.Repository) -> ab.Repository:
    return fork(repo)


def contents(repo: ab.Repository) -> dict[str, list[tuple[int, int, int]]]:
    snapshot = repo.snapshot_of("main")
    return {key: sorted(tuple(row.values()) for row in snapshot[key].to_arrow().to_pylist()) for key in KEYS}


MERGED = {
    key: [(row, 7, 7) if row <= number % 3 + 1 else (row, 0, 0) for row in (1, 2, 3)] for number, key in enumerate(KEYS)
}


def table_of_data(method: str, path: str) -> str | None:
    """The table of which a data file is written."""
    found = [key for key in KEYS if f"/{key.removeprefix('s.')}.lance/" in path]
    return found[0] if method == "PUT" and "/data/" in path and found else None


def opened_version(method: str, path: str) -> str | None:
    """The staged version that is opened."""
    return path if method == "HEAD" and "/_versions/d" in path else None


@pytest.fixture
def proxy(s3_location: Location) -> Iterator[Proxy]:
    with proxy_before(s3_location.storage_options["aws_endpoint"]) as proxy:
        yield proxy


def open_through(proxy: Proxy, location: Location) -> ab.Repository:
    """Open a lake through a proxy, without what this process has read of its tables."""
    home._HANDLES.forget(lambda _: True)
    options = {**location.storage_options, "aws_endpoint": proxy.endpoint, "timeout": "90s"}
    return ab.open(location / "lake", storage_options=options)


@pytest.mark.xdist_group("s3")
def test_all_tables_of_a_merge_are_written_at_the_same_time(s3_location: Location, proxy: Proxy) -> None:
    fork(ab.init(s3_location / "lake", storage_options=s3_location.storage_options))
    repo = open_through(proxy, s3_location)
    proxy.plan = meeting = Meeting(party_of=table_of_data, parties=len(KEYS))
    repo.merge("dev")
    assert meeting.arrived == {*KEYS}
    assert not meeting.has_failed
    assert contents(repo) == MERGED


@pytest.mark.xdist_group("s3")
def test_base_and_both_sides_of_a_table_are_opened_at_the_same_time(s3_location: Location, proxy: Proxy) -> None:
    repo = ab.init(s3_location / "lake", storage_options=s3_location.storage_options)
    with repo.transaction() as tx:
        tx.create_table(KEYS[0], SCHEMA, primary_key=["id"])
        tx.append(KEYS[0], rows(1, 2, 3))
    repo.branch_create("dev")
    for branch, column in (("dev", "a"), ("main", "b")):
        with repo.transaction(branch) as tx:
            tx.update(KEYS[0], {column: "7"}, where="id = 1")
    repo = open_through(proxy, s3_location)
    proxy.plan = meeting = Meeting(party_of=opened_version, parties=3)
    repo.merge("dev")
    assert len(meeting.arrived) == 3
    assert not meeting.has_failed
    assert repo.entity_at(KEYS[0], 1) == {"id": 1, "a": 7, "b": 7}


@pytest.mark.parametrize("most", [0, 8, 100_000])
def test_large_and_small_tables_merge_to_the_same_result(
    forked: ab.Repository, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Tables of more rows than the limit are merged one after the other."""
    monkeypatch.setattr(combiner, "_MOST_ROWS_IN_PARALLEL", most)
    planned = forked.merge("dev", dry_run=True).plan
    assert [(table.table, table.counts.updated) for table in planned.tables] == [
        (key, number % 3 + 1) for number, key in enumerate(KEYS)
    ]
    assert forked.merge("dev").plan == planned
    assert contents(forked) == MERGED


def test_resolver_functions_are_called_table_by_table(forked: ab.Repository) -> None:
    """A function of a user need not be ready for calls of several threads at the same time."""
    with forked.transaction("main") as tx:
        for key in KEYS:
            tx.update(key, {"a": "5"}, where="id = 1")
    calls: list[str] = []
    is_running = threading.Lock()

    def decide(conflict: Conflict) -> int:
        assert is_running.acquire(blocking=False)
        calls.append(conflict.table)
        is_running.release()
        return int(conflict.source + conflict.target)

    forked.merge("dev", resolvers={"a": decide})
    assert calls == KEYS
    assert {found[0] for found in contents(forked).values()} == {(1, 12, 7)}


def test_conflicts_of_many_tables_are_listed_in_the_order_of_their_names(forked: ab.Repository) -> None:
    with forked.transaction("main") as tx:
        for key in KEYS:
            tx.update(key, {"a": "5"}, where="id = 1")
    with pytest.raises(MergeConflictError) as caught:
        forked.merge("dev")
    assert [found.table for found in caught.value.conflicts] == KEYS
    assert caught.value.conflicts == forked.merge("dev", dry_run=True).plan.conflicts
    assert list(caught.value.conflicts) == list(forked.conflicts("dev"))
