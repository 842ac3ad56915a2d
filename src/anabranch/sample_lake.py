"""The sample lake of `anabranch demo`: a small shop whose history has something to show for every command."""

import os
import shutil
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from anabranch.bootstrap import init_repository, open_repository
from anabranch.errors import ConflictError
from anabranch.pipelines.pipeline import Pipeline
from anabranch.repo.repository import Repository

DEMO_FOLDER = "anabranch-demo"
PIPELINE_FILE = "report.py"
_LAKE = "lake"
# The two people whose commits the lake has.
_ADA, _BEN = "ada", "ben"

_CITIES = ("Prague", "Brno", "Vienna", "Berlin", "Lisbon")
_NAMES = ("Ana", "Bo", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jan", "Kim", "Leo")
_PRODUCTS = (
    ("green tea", "tea", "12.50"),
    ("black tea", "tea", "9.90"),
    ("mint tea", "tea", "7.40"),
    ("espresso", "coffee", "14.00"),
    ("filter coffee", "coffee", "11.20"),
    ("cup", "kitchen", "8.00"),
    ("teapot", "kitchen", "34.50"),
    ("grinder", "kitchen", "59.00"),
)
_FIRST_DAY = datetime(2026, 1, 1, 9)
_ORDERS_PER_DAY = 6


def _schema(**kinds: pa.DataType) -> pa.Schema:
    """Return a schema whose first column is the key, which has no nulls."""
    key, *others = (pa.field(name, kind) for name, kind in kinds.items())
    return pa.schema([key.with_nullable(nullable=False), *others])


_CUSTOMER_SCHEMA = _schema(id=pa.int64(), name=pa.string(), city=pa.string(), email=pa.string())
_PRODUCT_SCHEMA = _schema(id=pa.int64(), name=pa.string(), category=pa.string(), price=pa.decimal128(10, 2))
_VECTOR_SCHEMA = _schema(product_id=pa.int64(), embedding=pa.list_(pa.float32(), 4))
_ORDER_SCHEMA = _schema(
    id=pa.int64(),
    customer_id=pa.int64(),
    product_id=pa.int64(),
    quantity=pa.int64(),
    amount=pa.decimal128(10, 2),
    status=pa.string(),
    ordered_at=pa.timestamp("us"),
)
_PIPELINE = '''"""Build the reports of the shop: anabranch pipeline run report.py"""

import anabranch as ab

report = ab.Pipeline("report", engine="duckdb")

report.sql(
    "report.daily_revenue",
    """
    SELECT CAST(ordered_at AS DATE) AS day, count(*) AS orders, sum(amount) AS revenue
    FROM shop.orders GROUP BY day
    """,
    primary_key=["day"],
    checks=[{"not_null": "revenue"}],
)
report.sql(
    "report.customer_value",
    """
    SELECT c.id AS customer_id, c.city, count(*) AS orders, sum(o.amount) AS spent
    FROM shop.orders o JOIN shop.customers c ON c.id = o.customer_id GROUP BY c.id, c.city
    """,
    primary_key=["customer_id"],
)
'''


def make_demo(folder: str | os.PathLike[str] | None = None) -> Repository:
    """Make a small shop lake to try things on, and open it. By default in the new folder `anabranch-demo`.

    The repository is the folder `lake` in it, and the file `report.py` beside it is the pipeline that built the
    reports. It has six tables, a merged branch, the branch `sale` with a conflict, the live branch `preview`, a tag
    and a run. The rows are always the same. It needs no Spark. Raise ConflictError if the folder is not empty. After an
    error, what was made is removed.

    >>> repo = ab.demo("my-shop")
    >>> [branch.name for branch in repo.branch_list()], [tag.name for tag in repo.tag_list()]
    (['main', 'preview', 'sale'], ['v1.0'])
    """
    target = Path(DEMO_FOLDER if folder is None else folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConflictError(f"the folder '{target}' is not empty", hint="name another folder, or delete this one")
    is_new = not target.exists()
    target.mkdir(parents=True, exist_ok=True)
    try:
        return _fill(target)
    # Half a lake has no use, and the next call would refuse the folder.
    except BaseException:
        shutil.rmtree(target / _LAKE, ignore_errors=True)
        (target / PIPELINE_FILE).unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):
                target.rmdir()
        raise


def _fill(target: Path) -> Repository:
    lake = target / _LAKE
    # Making the lake does not wait for the disk: if the power fails, it can be made again.
    ada = init_repository(lake, actor=_ADA, durability="none")
    ben = open_repository(lake, actor=_BEN, durability="none")
    _load_shop(ada, ben)
    (target / PIPELINE_FILE).write_text(_PIPELINE, encoding="utf-8")
    Pipeline.load(target / PIPELINE_FILE).run(ada, message="Build the reports")
    ada.tag_create("v1.0", description="the first reports")
    _start_sale(ben)
    _merge_new_customers(ada)
    _start_preview(ada)
    _continue_main(ada, ben)
    return open_repository(lake)


def _load_shop(ada: Repository, ben: Repository) -> None:
    with ada.transaction(message="Load customers and products") as tx:
        tx.create_table("shop.customers", _CUSTOMER_SCHEMA, primary_key=["id"])
        tx.append("shop.customers", _customers(40))
        tx.create_table("shop.products", _PRODUCT_SCHEMA, primary_key=["id"])
        tx.append("shop.products", _products())
        tx.create_table("shop.product_vectors", _VECTOR_SCHEMA, primary_key=["product_id"])
        tx.append("shop.product_vectors", _vectors())
    ada.load("shop.orders", _orders(0, days=31), primary_key=["id"], message="Load the orders of January")
    ben.index("shop.orders", "customer_id")


def _start_sale(ben: Repository) -> None:
    """Make a pinned branch that changes a price, which main changes later: a conflict."""
    ben.branch_create("sale", description="prices for the spring sale")
    ben.update("shop.products", {"price": "9.90"}, "name = 'green tea'", branch="sale", message="Green tea on sale")
    gift = {"id": 9, "name": "gift box", "category": "kitchen", "price": Decimal("25.00")}
    ben.append("shop.products", [gift], branch="sale", message="Add a gift box")


def _merge_new_customers(ada: Repository) -> None:
    """Make a branch, merge it and delete it, so that the graph has a merge and there is a branch to restore."""
    ada.branch_create("new-customers")
    ada.append("shop.customers", _customers(3, first=41), branch="new-customers", message="Add three customers")
    ada.merge("new-customers", "main")
    ada.branch_delete("new-customers")


def _start_preview(ada: Repository) -> None:
    """Make a live branch: it has its own copy of the customers, and follows main in all other tables."""
    ada.branch_create("preview", mode="live", description="a loyalty level for customers")
    with ada.transaction("preview", message="Add a loyalty level") as tx:
        tx.add_columns("shop.customers", {"level": "'basic'"})
        tx.update("shop.customers", {"level": "'gold'"}, "id % 5 = 0")


def _continue_main(ada: Repository, ben: Repository) -> None:
    ada.update("shop.products", {"price": "13.50"}, "name = 'green tea'", message="Green tea costs more")
    ben.append("shop.orders", _orders(31, days=28), message="Add the orders of February")
    # A mistake and its undo, so that `reflog` and `redo` have something to show.
    ben.delete("shop.orders", "status = 'open'", message="Delete open orders by mistake")
    ben.undo()
    ben.update("shop.customers", {"city": "'Vienna'"}, "id IN (3, 13)", message="Fix the city of two customers")


def _customers(number: int, *, first: int = 1) -> pa.Table:
    ids = range(first, first + number)
    names = [f"{_NAMES[n % len(_NAMES)]} {chr(ord('A') + n % 26)}." for n in ids]
    columns = {
        "id": list(ids),
        "name": names,
        "city": [_CITIES[n * 7 % len(_CITIES)] for n in ids],
        "email": [f"customer{n}@example.com" for n in ids],
    }
    return pa.table(columns, schema=_CUSTOMER_SCHEMA)


def _products() -> pa.Table:
    ids = range(1, len(_PRODUCTS) + 1)
    names, categories, prices = zip(*_PRODUCTS, strict=True)
    return pa.table([ids, names, categories, list(map(Decimal, prices))], schema=_PRODUCT_SCHEMA)


def _vectors() -> pa.Table:
    """Return a vector for each product; products of one category are close to each other."""
    categories = sorted({category for _, category, _ in _PRODUCTS})
    vectors = []
    for number, (_, category, _) in enumerate(_PRODUCTS):
        # A small part that depends on the number, so that no two products have the same vector.
        vector = [0.05 * number, 0.0, 0.0, 0.0]
        vector[1 + categories.index(category)] = 1.0
        vectors.append(vector)
    return pa.table({"product_id": list(range(1, len(_PRODUCTS) + 1)), "embedding": vectors}, schema=_VECTOR_SCHEMA)


def _orders(first_day: int, *, days: int) -> pa.Table:
    """Return the orders of some days, the same number on each day."""
    rows = []
    for number in range(first_day * _ORDERS_PER_DAY, (first_day + days) * _ORDERS_PER_DAY):
        # The factors have no common divisor with the moduli, so that every value occurs. Unlike random numbers, the
        # values are the same in each lake.
        product = number * 5 % len(_PRODUCTS)
        quantity = 1 + number * 3 % 4
        rows.append(
            {
                "id": number + 1,
                "customer_id": 1 + number * 11 % 40,
                "product_id": product + 1,
                "quantity": quantity,
                "amount": quantity * Decimal(_PRODUCTS[product][2]),
                "status": "open" if number % 9 == 0 else "paid",
                "ordered_at": _FIRST_DAY + timedelta(days=number // _ORDERS_PER_DAY, minutes=number * 37 % 600),
            }
        )
    return pa.Table.from_pylist(rows, schema=_ORDER_SCHEMA)
