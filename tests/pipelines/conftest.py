"""A lake with raw tables on main and dev, and files that declare pipelines on them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from tests.command_line import invoke
from tests.lake_templates import Cast

ORDERS = "bronze.orders"
CUSTOMERS = "bronze.customers"
HEAD = 'import anabranch as ab\n\npipeline = ab.Pipeline("shop", parameters={"since": "2026-01-01", "least": 1})\n'

WriteFile = Callable[..., Path]
WriteProject = Callable[..., Path]


def orders(start: int, end: int, *, amount: float | None = None) -> pa.Table:
    """Orders of three customers on five days; each amounts to its id, by default."""
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
    answer = invoke(*args, "--json")
    return answer.code, json.loads(answer.out or answer.err)


@pytest.fixture
def lake(cast: Cast) -> ab.Repository:
    """Twenty orders of three customers on main, and a branch dev."""
    return cast(fill_lake)


def fill_lake(repo: ab.Repository) -> None:
    customers = pa.table({"id": pa.array(range(3), pa.int64()), "name": ["ann", "bob", "cem"]})
    with repo.transaction(message="Load") as tx:
        tx.create_table(ORDERS, orders(0, 1).schema, primary_key=["id"])
        tx.append(ORDERS, orders(0, 20))
        tx.create_table(CUSTOMERS, customers.schema, primary_key=["id"])
        tx.append(CUSTOMERS, customers)
    repo.branch_create("dev")


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """Write a pipeline file: the three lines that all begin with, then the given ones."""

    def write(text: str, *, name: str = "shop.py", head: str = HEAD) -> Path:
        file = tmp_path / name
        file.write_text(head + dedent(text))
        return file

    return write


@pytest.fixture
def write_project(tmp_path: Path) -> WriteProject:
    """Write the files of a project, by their paths in it; `anabranch.yml` names DuckDB unless it is given."""

    def write(files: Mapping[str, str], *, name: str = "project") -> Path:
        folder = tmp_path / name
        for path, text in {"anabranch.yml": "name: shop\nengine: duckdb\n", **files}.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text))
        return folder

    return write
