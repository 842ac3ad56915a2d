"""The handle of a staged version is shared by all threads: what locks a handle in Lance uses another one."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lance
import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.format.home import Home
from anabranch.format.staging import VersionRef, append, create_empty
from anabranch.format.staging.manifests import alone, find_transaction
from tests.conftest import Location

SCHEMA = pa.schema([("id", pa.int64())])


@contextmanager
def repeating(work: Callable[[], object]) -> Iterator[list[Exception]]:
    """Do something again and again beside the block; return what it raised."""
    stopped, raised = threading.Event(), list[Exception]()

    def run() -> None:
        while not stopped.is_set():
            try:
                work()
            except Exception as err:  # noqa: BLE001 - the test checks it
                raised.append(err)
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        stopped.set()
        thread.join()


@pytest.fixture
def staged(tmp_path: str) -> VersionRef:
    return append(create_empty(Home.at(f"{tmp_path}/t.lance"), SCHEMA), pa.table({"id": [1]}, schema=SCHEMA))


def test_lance_locks_a_handle_while_it_reads_a_transaction(staged: VersionRef) -> None:
    opened = alone(staged.open())
    refused = None
    with repeating(lambda: opened.read_transaction(opened.version)) as raised:
        while refused is None and not raised:
            try:
                opened.base_paths()
            except RuntimeError as err:
                refused = err
    assert "borrowed" in str(refused or raised[0])


def test_a_transaction_is_read_while_others_use_the_version(staged: VersionRef) -> None:
    opened = staged.open()
    found: list[lance.Transaction | None] = []
    with repeating(lambda: found.append(find_transaction(staged.home, staged.open(), staged.version))) as raised:
        while len(found) < 200 and not raised:
            assert opened.base_paths() == {}
    assert raised == []
    assert all(made is not None and isinstance(made.operation, lance.LanceOperation.Append) for made in found)


def test_a_table_is_read_while_an_index_is_built(location: Location) -> None:
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    numbers = np.random.default_rng(7).random(20_000 * 32, dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 32)
    rows = pa.table({"id": np.arange(20_000), "v": vectors})
    with repo.transaction() as tx:
        tx.create_table("s.vectors", rows.schema)
        tx.append("s.vectors", rows)
    table = repo.table("s.vectors")
    with repeating(lambda: (table.head(), len(table), table.schema)) as raised:
        repo.index("s.vectors", "v", type="IVF_PQ", vector=ab.VectorOptions(num_partitions=8, num_sub_vectors=4))
    assert raised == []
