"""A fresh repository, an engine to load with, and locations to put files."""

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch.storage import open_store
from tests.conftest import Location

ORDERS = "in_c_sales.orders"
REJECTS = "in_c_sales.orders_rejects"

Put = Callable[[str, str | bytes], str]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take an `engine` run in this process and, in Spark's lane, on Spark."""
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])


@pytest.fixture
def repo(location: Location) -> ab.Repository:
    return ab.init(location / "lake", storage_options=location.storage_options, actor="ada")


@pytest.fixture
def put(location: Location) -> Put:
    """Put a file, and return its path."""

    def put(name: str, content: str | bytes) -> str:
        data = content if isinstance(content, bytes) else content.encode()
        open_store(location / "in", location.storage_options).put(name, data)
        return location / f"in/{name}"

    return put


def rows(repo: ab.Repository, key: str = ORDERS, ref: str = "main") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = repo.snapshot_of(ref)[key].to_arrow().to_pylist()
    return found


def types(repo: ab.Repository, key: str = ORDERS) -> dict[str, str]:
    return {field.name: str(field.type) for field in repo.snapshot_of("main")[key].schema}
