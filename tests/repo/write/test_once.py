"""Changes that are published once, although the put of a first attempt arrives only after its writer gave up."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import StorageUnavailableError
from anabranch.ids import TableKey
from anabranch.repo.log.commits import Once
from anabranch.repo.runs.engine_access import EngineAccess, StreamBatch
from anabranch.storage import ObjectStore
from anabranch.testing import WrappedStore
from tests.repo.conftest import CUSTOMERS, another, ids, table

T = TypeVar("T")


class LateStore(WrappedStore):
    """Report the first put of an entry of main as failed, and carry it out right before the next one."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._late: Callable[[], object] | None = None
        self._has_failed = False

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:  # noqa: ARG002
        return send()

    def put_if_absent(self, path: str, data: bytes, *, durable: bool = True, after: Sequence[str] = ()) -> None:
        if path.rpartition("/")[0] == "_versions/main" and not self._has_failed:
            # Like an object store, without the files that a local disk makes durable together with the entry.
            self._has_failed, self._late = True, lambda: self._inner.put_if_absent(path, data)
            raise StorageUnavailableError("no answer", hint="try again")
        if path.rpartition("/")[0] == "_versions/main" and self._late is not None:
            late, self._late = self._late, None
            late()
        self._inner.put_if_absent(path, data, durable=durable, after=after)


@pytest.fixture
def late(lake: ab.Repository) -> ab.Repository:
    with lake.transaction() as tx:
        tx.set_primary_key(CUSTOMERS, [])  # so that a row that is written twice is there twice
    return testing.open(lake, store=LateStore(testing.store_of(lake)))


def append_once(repo: ab.Repository, value: str, number: int) -> ab.GraphCommit | None:
    version = repo.branch_get("main").version
    once = Once(key="import", value=value, after=version)
    with EngineAccess(repo).transaction_once(once, message=value) as tx:
        tx.append(CUSTOMERS, table(number))
    return tx.published


def test_commit_whose_put_arrives_late_is_published_once(lake: ab.Repository, late: ab.Repository) -> None:
    once = Once(key="import", value="a", since=0)
    with pytest.raises(StorageUnavailableError), EngineAccess(late).transaction_once(once) as tx:
        tx.append(CUSTOMERS, table(30))
    with EngineAccess(late).transaction_once(once) as tx:
        tx.append(CUSTOMERS, table(30))
    assert tx.published == another(lake).snapshot().commit
    assert tx.published is not None
    assert tx.published.metadata == {"import": "a"}
    assert ids(another(lake), CUSTOMERS) == [10, 20, 30]
    assert lake.doctor().is_clean


def test_batch_whose_put_arrives_late_is_published_once(lake: ab.Repository, late: ab.Repository) -> None:
    batch = StreamBatch(query="q", epoch=0, table=TableKey.parse(CUSTOMERS))
    with pytest.raises(StorageUnavailableError):
        EngineAccess(late).publish_batch(batch, lambda tx: tx.append(CUSTOMERS, table(30)))
    assert EngineAccess(late).publish_batch(batch, lambda tx: tx.append(CUSTOMERS, table(30))) is None
    assert ids(another(lake), CUSTOMERS) == [10, 20, 30]


def test_run_whose_put_arrives_late_is_published_once(lake: ab.Repository, late: ab.Repository) -> None:
    run = late.begin_run()
    with run.transaction() as tx:
        tx.append(CUSTOMERS, table(30))
    assert run.publish() == another(lake).snapshot().commit  # the abandoned put is fenced off, and found
    assert ids(another(lake), CUSTOMERS) == [10, 20, 30]


def test_change_of_another_value_is_another_change(lake: ab.Repository) -> None:
    first = append_once(lake, "a", 30)
    second = append_once(lake, "b", 31)
    assert first is not None
    assert second is not None
    assert second.parent_commit_id == first.graph_commit_id
