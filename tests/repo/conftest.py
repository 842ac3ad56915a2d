"""A fresh repository, and what tests ask about one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.bootstrap import ENGINES
from anabranch.ids import TableKey
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.storage import open_store
from anabranch.storage.options import lance_options
from tests.conftest import Location
from tests.lake_templates import Cast
from tests.processes import Program

ORDERS = "in_c_sales.orders"
CUSTOMERS = "in_c_sales.customers"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "both_engines(spark_is_slow): rows are compared in this process, and once more by Spark"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("both_engines")
    if marker is not None:
        marks = [pytest.mark.spark, *([pytest.mark.proof] if marker.kwargs.get("spark_is_slow") else [])]
        spark = pytest.param("spark", marks=marks)
        metafunc.parametrize("engine", ["local", spark], indirect=True)


@pytest.fixture(scope="session")
def process_pool() -> Iterator[Program]:
    """A process that forks others off itself."""
    with Program("process_pool") as program:
        yield program


@pytest.fixture
def every(request: pytest.FixtureRequest) -> int:
    """The distance between the points at which a module kills processes. With --proof every point is tried."""
    return 1 if request.config.getoption("--proof") else int(request.module.EVERY_NTH_POINT)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """What compares rows."""
    return str(getattr(request, "param", "local"))


@pytest.fixture
def repo(location: Location, engine: str) -> ab.Repository:
    """An empty repository."""
    made = ab.init(location / "lake", storage_options=location.storage_options, actor="ada")
    return made if engine == "local" else on_spark(made)


@pytest.fixture
def lake(cast: Cast, engine: str) -> ab.Repository:
    """A repository with orders 1, 2 and 3 ('a', 'b', 'c'), keyed by id, and customers 10 and 20, without a key."""
    made = cast(fill_lake)
    return made if engine == "local" else on_spark(made)


def fill_lake(repo: ab.Repository) -> None:
    with repo.transaction(message="first") as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, table(1, 2, 3))
        tx.create_table(CUSTOMERS, SCHEMA)
        tx.append(CUSTOMERS, table(10, 20))


def on_spark(repo: ab.Repository) -> ab.Repository:
    """The same, with all rows compared by Spark, however few there are."""
    from anabranch.duck.comparer import single_comparer
    from anabranch.spark.comparer import Sizes, SparkComparer

    comparer = SparkComparer(single_comparer, sizes=Sizes(fewest_buckets=2))
    return ab.Repository(testing.config_of(repo), engines=replace(ENGINES, load_comparer=lambda: comparer))


def table(*ids: int, v: str | None = None) -> pa.Table:
    """Rows with these ids; v is a letter for each, unless it is given for all."""
    values = [v if v is not None else chr(ord("a") + (number - 1) % 26) for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())})


def append(repo: ab.Repository, *ids: int, branch: str | None = None, key: str = ORDERS) -> ab.GraphCommit:
    """Append rows in a commit of their own."""
    with repo.transaction(branch, message=f"append {ids}") as tx:
        tx.append(key, table(*ids))
    assert tx.published is not None
    return tx.published


def another(repo: ab.Repository, branch: str | None = None) -> ab.Repository:
    """A second handle on the same repository."""
    options = repo.storage_options
    return ab.open(repo.uri, branch=branch or repo.branch, storage_options=options, actor=repo.actor)


def ids(source: Table | ab.Repository | Snapshot, key: str = ORDERS) -> list[int]:
    """The ids in a table, in order."""
    if isinstance(source, ab.Repository):
        source = source.snapshot_of(source.branch)
    if isinstance(source, Snapshot):
        source = source[key]
    return sorted(source.to_arrow(columns=["id"]).column("id").to_pylist())


def rows(source: Table | lance.LanceDataset) -> list[dict[str, Any]]:
    found: pa.Table = source.to_table() if isinstance(source, lance.LanceDataset) else source.to_arrow()
    return sorted(found.to_pylist(), key=repr)


def entry(repo: ab.Repository, key: str = ORDERS, ref: str | None = None) -> TableEntry:
    return repo.snapshot_of(ref or repo.branch).entries[TableKey.parse(key)]


def raw(repo: ab.Repository, key: str = ORDERS, ref: str | None = None) -> lance.LanceDataset:
    """What any Lance tool sees at the home of a table."""
    uri = testing.config_of(repo).home_of(entry(repo, key, ref)).uri
    options = repo.storage_options
    return lance.dataset(uri, storage_options=lance_options(options) if options else None)


def objects(repo: ab.Repository, prefix: str = "") -> dict[str, int]:
    """Every object and its size."""
    store = open_store(repo.uri, repo.storage_options)
    return {info.path: info.size for info in store.list(prefix)}


def data_files(repo: ab.Repository) -> set[str]:
    return {path for path in objects(repo, "tables") if path.endswith(".lance")}


@contextmanager
def nothing_changes(repo: ab.Repository) -> Iterator[None]:
    """Logs, commits and the heads of all tables are afterwards what they were; unread files may appear."""
    before = _state(repo)
    yield
    assert _state(repo) == before


# Whose turn it is to apply a schema, and who is alive.
_TURNS = ("_clock", "_leases/", "_versions/__schema_apply_lock__/")


def _state(repo: ab.Repository) -> tuple[dict[str, int], dict[str, int]]:
    recorded = {path: size for path, size in objects(repo).items() if not path.startswith(("tables/", *_TURNS))}
    heads = {
        f"{branch.name} {key}": int(raw(repo, key, branch.name).version)
        for branch in repo.branch_list()
        for key in repo.snapshot_of(branch.name)
    }
    return recorded, heads
