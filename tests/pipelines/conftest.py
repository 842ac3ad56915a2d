"""A lake with raw tables on main and dev, and files that declare pipelines on them."""

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.main import create_app
from tests.conftest import Place

ORDERS = "bronze.orders"
CUSTOMERS = "bronze.customers"
HEAD = 'import anabranch as ab\n\npipeline = ab.Pipeline("shop", parameters={"since": "2026-01-01", "least": 1})\n'

WriteFile = Callable[..., Path]


def orders(start: int, end: int, *, amount: float | None = None) -> pa.Table:
    """Orders of three customers on five days; each amounts to its id, unless told otherwise."""
    ids = range(start, end)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": pa.array([number % 3 for number in ids], pa.int64()),
            "amount": [float(number) if amount is None else amount for number in ids],
            "day": [f"2026-01-{1 + number % 5:02d}" for number in ids],
        }
    )


def anabranch(*args: str) -> tuple[int, Any]:
    """Run the command line in this process; its exit code, and the one document it printed."""
    result = CliRunner().invoke(create_app(), [*args, "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, json.loads(result.stdout or result.stderr)


@pytest.fixture
def lake(place: Place) -> ab.Repository:
    return make_lake(place)


def make_lake(place: Place) -> ab.Repository:
    """Twenty orders of three customers on main, and a branch dev."""
    repo = ab.init(place / "lake", storage_options=place.storage_options, actor="ada")
    customers = pa.table({"id": pa.array(range(3), pa.int64()), "name": ["ann", "bob", "cem"]})
    with repo.transaction(message="Load") as tx:
        tx.create_table(ORDERS, orders(0, 1).schema, primary_key=["id"])
        tx.append(ORDERS, orders(0, 20))
        tx.create_table(CUSTOMERS, customers.schema, primary_key=["id"])
        tx.append(CUSTOMERS, customers)
    repo.branch_create("dev")
    return repo


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """Write a pipeline file: the three lines that all begin with, then the given ones."""

    def write(text: str, *, name: str = "shop.py", head: str = HEAD) -> Path:
        file = tmp_path / name
        file.write_text(head + dedent(text))
        return file

    return write
