"""A lake for each test, and how Spark reads and writes it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from tests.lake_templates import Cast

ORDERS = "s.orders"
Read = Callable[..., DataFrame]
Write = Callable[..., None]


@pytest.fixture
def lake(cast: Cast) -> ab.Repository:
    """A repository with orders 0 to 99, keyed by id, each with v 'old'; in four fragments."""
    return cast(fill_lake)


def fill_lake(repo: ab.Repository) -> None:
    with repo.transaction(message="first") as tx:
        tx.create_table(ORDERS, orders(0, 1).schema, primary_key=["id"])
        for start in range(0, 100, 25):
            tx.append(ORDERS, orders(start, start + 25))


def orders(start: int, end: int, v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(range(start, end), pa.int64()), "v": [v] * (end - start)})


def slow(*case: object) -> Any:
    """A case for the proof alone: a failed job takes Spark's Python workers with it, and new ones are slow to start."""
    return pytest.param(*case, marks=pytest.mark.proof)


def options(repo: ab.Repository) -> dict[str, str]:
    return {"repo": repo.uri, **{f"secret.{name}": value for name, value in repo.storage_options.items()}}


_CATALOGS = count()


@pytest.fixture
def catalog(spark: SparkSession, lake: ab.Repository) -> str:
    """The name under which the lake is in Spark SQL: another one for each test, because the session is shared."""
    return add_catalog(lake)


def add_catalog(repo: ab.Repository) -> str:
    name = f"lake{next(_CATALOGS)}"
    ab.spark_session(repo, catalog=name)
    return name


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


@pytest.fixture
def large(spark: SparkSession) -> Iterator[None]:
    """Treat every table as one that is too large to be broadcast: only then filters are left to Lance alone."""
    with setting(spark, "spark.sql.autoBroadcastJoinThreshold", "-1"):
        yield


@pytest.fixture
def read(spark: SparkSession) -> Read:
    def load(repo: ab.Repository, key: str = ORDERS, **given: str) -> DataFrame:
        return spark.read.format("anabranch").options(**options(repo), **given).load(key)

    return load


@pytest.fixture
def write() -> Write:
    def save(frame: DataFrame, repo: ab.Repository, key: str = ORDERS, mode: str = "append", **given: str) -> None:
        frame.write.format("anabranch").mode(mode).options(**options(repo), **given).save(key)

    return save


def rows(repo: ab.Repository, ref: str = "main", key: str = ORDERS) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = repo.snapshot_of(ref)[key].to_arrow().sort_by("id").to_pylist()
    return found
