"""A small shop to ask in SQL."""

from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from tests.lake_templates import Cast

ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())])
CUSTOMERS = pa.schema([("name", pa.string()), ("country", pa.string())])


@pytest.fixture
def shop(cast: Cast) -> ab.Repository:
    """Orders 1 to 3 and customers Ada and Bob on main; one more order, 4, on dev."""
    return cast(make_shop)


def make_shop(repo: ab.Repository) -> ab.Repository:
    with repo.transaction(message="first", metadata={"ticket": "7"}) as tx:
        tx.create_table("in_c_sales.orders", ORDERS, primary_key=["id"])
        tx.append("in_c_sales.orders", orders(1, 2, 3))
        tx.create_table("in_c_crm.customers", CUSTOMERS)
        tx.append("in_c_crm.customers", pa.table({"name": ["Ada", "Bob"], "country": ["UK", None]}, schema=CUSTOMERS))
    repo.branch_create("dev")
    with repo.transaction("dev", message="more") as tx:
        tx.append("in_c_sales.orders", orders(4))
    return repo


def orders(*ids: int) -> pa.Table:
    names = ["Ada" if number % 2 else "Bob" for number in ids]
    return pa.table({"id": ids, "customer": names, "amount": [number * 10.0 for number in ids]}, schema=ORDERS)


def rows(repo: ab.Repository, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    """The answer, row by row."""
    return list(zip(*(column.to_pylist() for column in repo.sql(sql, **options).columns), strict=True))
