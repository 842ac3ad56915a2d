"""Creating tables costs the same for each table, however many a transaction creates."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from tests.conftest import Location
from tests.faults.fault_injection import FaultInjection, all_stores_through

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
FEW, MANY = 4, 40

Create = Callable[[ab.Repository, int], object]


def in_transaction(repo: ab.Repository, count: int) -> None:
    with repo.transaction() as tx:
        for number in range(count):
            tx.create_table(f"s.t{number}", SCHEMA, primary_key=["id"])


def by_schema(repo: ab.Repository, count: int) -> None:
    columns = {"id": {"type": "int64"}, "v": {"type": "string"}}
    tables = {f"t{number}": {"columns": columns, "primary_key": ["id"]} for number in range(count)}
    repo.schema_apply({"tables": {"s": tables}})


def cost_of(
    create: Create, location: Location, count: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, Counter[str]]:
    """Return the number of datasets that were opened, and the requests by kind."""
    opened: list[str] = []
    open_dataset = lance.dataset

    def open_counted(uri: str, *args: Any, **options: Any) -> lance.LanceDataset:
        if "/tables/" in uri:
            opened.append(uri)
        return open_dataset(uri, *args, **options)

    root = location / f"lake-{count}"
    ab.init(root, storage_options=location.storage_options)
    injection = FaultInjection()
    with all_stores_through(injection), monkeypatch.context() as patch:
        patch.setattr(lance, "dataset", open_counted)
        repo = ab.open(root, storage_options=location.storage_options)
        injection.arm()
        create(repo, count)
    assert len(ab.open(root, storage_options=location.storage_options).snapshot()) == count
    return len(opened), Counter(request.partition(" ")[0] for request in injection.requests)


@pytest.mark.s3
@pytest.mark.parametrize("create", [in_transaction, by_schema])
def test_cost_of_a_new_table_does_not_grow(location: Location, create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    few_opened, few = cost_of(create, location, FEW, monkeypatch)
    many_opened, many = cost_of(create, location, MANY, monkeypatch)
    assert (few_opened, many_opened) == (0, 0)
    new = MANY - FEW
    assert (many - few).total() <= 3 * new  # the size of the manifest, the mark, and whether the mark has to be synced
    assert many["put_if_absent"] - few["put_if_absent"] == new


def test_new_table_takes_the_folder_of_one_that_was_dropped_but_not_of_one_that_was_renamed(
    repo: ab.Repository,
) -> None:
    in_transaction(repo, 2)
    with repo.transaction() as tx:
        tx.rename_table("s.t0", "s.kept")
        tx.create_table("s.t0", SCHEMA)
        tx.drop_table("s.t1")
        tx.create_table("s.t1", SCHEMA)
        tx.create_table("s.t2", SCHEMA)
        tx.drop_table("s.t2")
        tx.create_table("s.t2", SCHEMA)
    folders = {str(key): entry.dataset for key, entry in repo.snapshot().entries.items()}
    assert folders["s.kept"] == "s/t0.lance"
    assert folders["s.t0"] != "s/t0.lance"
    assert folders["s.t1"] == "s/t1.lance"
    assert len(set(folders.values())) == 4
