"""Make the data of a shop that does not exist: customers, products, orders, and events with vectors.

    python examples/shop/generate.py --orders 100000 --seed 7 --out shop-files

The same numbers give the same files. Rows are made and written in parts: memory does not grow with their number.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

# Rows that are made together; the number of rows in a file of orders or events.
PART = 250_000
FIRST_DAY = np.datetime64("2026-01-01")
DAYS = 300
VECTOR_SIZE = 16

FIRST_NAMES = [
    "Ada", "Alan", "Annie", "Barbara", "Chien-Shiung", "Claude", "Donald", "Dorothy", "Edsger", "Emmy",
    "Evelyn", "Frances", "Grace", "Hedy", "Jean", "Joan", "John", "Katherine", "Ken", "Leslie", "Lise",
    "Margaret", "Maria", "Mary", "Niklaus", "Radia", "Rosalind", "Sofia", "Tim", "Vera",
]  # fmt: skip
LAST_NAMES = [
    "Allen", "Babbage", "Berners-Lee", "Bell", "Blackwell", "Borg", "Curie", "Dijkstra", "Franklin", "Germain",
    "Hamilton", "Hopper", "Johnson", "Kovalevskaya", "Lamarr", "Lamport", "Lovelace", "Meitner", "Mirzakhani",
    "Noether", "O'Neil", "Perlman", "Rubin", "Shannon", "Thompson", "Turing", "Vaughan", "Wilson", "Wirth", "Wu",
]  # fmt: skip
COUNTRIES = ["DE", "US", "FR", "GB", "CZ", "PL", "NL", "AT", "CH", "JP"]
CATEGORIES = ["tea", "coffee", "spices", "cups", "books", "honey", "chocolate", "kettles"]
KINDS = ["green", "black", "wild", "smoked", "small", "large", "old", "fine", "blue", "plain"]
STATUSES = ["paid", "shipped", "delivered", "returned", "cancelled"]
# As people and programs type them.
SPELLINGS: list[Callable[[str], str]] = [*[str] * 5, str.upper, str.title, " {}".format]
# In percent.
DISCOUNTS = [5, 10, 15, 20]
CHANNELS = ["web", "app", "phone"]
EVENT_KINDS = ["view", "cart", "search", "review"]
# Of the day's orders, how many come in each hour, from midnight on.
HOURS = np.array([2, 1, 1, 1, 1, 2, 4, 7, 9, 10, 10, 11, 12, 11, 10, 10, 11, 13, 15, 17, 16, 12, 7, 4], float)


@dataclass(frozen=True, kw_only=True)
class Shop:
    """How much there is of everything; `late` orders come after the others, to load some more."""

    orders: int
    late: int
    seed: int

    @property
    def customers(self) -> int:
        return max(10, self.orders // 40)

    @property
    def products(self) -> int:
        return min(1_000, max(20, self.orders // 200))

    @property
    def events(self) -> int:
        return max(10, self.orders // 10)

    def random(self, *what: int) -> np.random.Generator:
        """Chance for one part of one table, whatever is made before or after it."""
        return np.random.default_rng([self.seed, *what])


def write_shop(shop: Shop, folder: Path) -> dict[str, int]:
    """Write all files; how many rows each table has."""
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.csv.write_csv(make_customers(shop), folder / "customers.csv")
    pyarrow.csv.write_csv(make_products(shop), folder / "products.csv")
    _write_parts(make_orders(shop, 0, shop.orders), folder / "orders")
    _write_parts(make_events(shop), folder / "events")
    if shop.late:
        _write_parts(make_orders(shop, shop.orders, shop.orders + shop.late), folder / "late-orders")
    return {
        "customers": shop.customers,
        "products": shop.products,
        "orders": shop.orders,
        "events": shop.events,
        "late-orders": shop.late,
    }


def make_customers(shop: Shop) -> pa.Table:
    random, count = shop.random(1), shop.customers
    first, last = random.choice(FIRST_NAMES, count), random.choice(LAST_NAMES, count)
    names = [f"{one} {other}" for one, other in zip(first, last, strict=True)]
    emails = [f"{name.lower().replace(' ', '.')}.{number}@example.com" for number, name in enumerate(names)]
    shouts = random.random(count) < 0.03  # typed by hand
    emails = [email.upper() if loud else email for email, loud in zip(emails, shouts, strict=True)]
    countries = np.array(COUNTRIES)[_skewed(random, len(COUNTRIES), count, by=1.8)]
    return pa.table(
        {
            "id": np.arange(count),
            "name": names,
            "email": pa.array(emails, mask=random.random(count) < 0.04),
            "country": pa.array(countries, mask=random.random(count) < 0.02),
            "signed_up": FIRST_DAY - random.integers(0, 1_500, count).astype("timedelta64[D]"),
            "newsletter": random.random(count) < 0.3,
        }
    )


def make_products(shop: Shop) -> pa.Table:
    random, count = shop.random(2), shop.products
    categories = random.integers(0, len(CATEGORIES), count)
    kinds, named = random.choice(KINDS, count), [CATEGORIES[number] for number in categories]
    return pa.table(
        {
            "id": np.arange(count),
            "name": [f"{kind} {name} {n}" for n, (kind, name) in enumerate(zip(kinds, named, strict=True))],
            "category": named,
            "price": _money(_prices(shop)),
            "weight_kg": pa.array(random.gamma(2, 0.4, count).round(3), mask=random.random(count) < 0.05),
        }
    )


def make_orders(shop: Shop, start: int, end: int) -> Iterator[pa.Table]:
    """Orders from one number up to another, in parts; numbers follow time."""
    prices = _prices(shop)
    for first in range(start, end, PART):
        count = min(PART, end - first)
        random = shop.random(3, first)
        ids = np.arange(first, first + count)
        products = _skewed(random, shop.products, count, by=2)
        spelled = [spell(status) for status in STATUSES for spell in SPELLINGS]
        weights = np.repeat([0.25, 0.2, 0.45, 0.06, 0.04], len(SPELLINGS)) / len(SPELLINGS)
        statuses = np.array(spelled)[random.choice(len(spelled), count, p=weights)]
        # A price is what it was when it was ordered.
        cents = (prices[products] * random.uniform(0.9, 1.1, count)).round().astype(np.int64)
        yield pa.table(
            {
                "id": ids,
                "customer_id": pa.array(_skewed(random, shop.customers, count, by=3), mask=random.random(count) < 0.01),
                "product_id": products,
                "ordered_at": _times(random, ids, orders=shop.orders),
                "quantity": _quantities(random, count),
                "unit_price": _money(cents),
                "discount": pa.array(random.choice(DISCOUNTS, count), pa.int32(), mask=random.random(count) < 0.8),
                "status": pa.array(statuses, mask=random.random(count) < 0.01),
                "channel": np.array(CHANNELS)[random.choice(3, count, p=[0.6, 0.35, 0.05])],
            }
        )


def make_events(shop: Shop) -> Iterator[pa.Table]:
    """Views of products; the vectors of one category are close together."""
    categories = shop.random(2).integers(0, len(CATEGORIES), shop.products)  # as in make_products
    centres = shop.random(4).normal(size=(len(CATEGORIES), VECTOR_SIZE))
    for first in range(0, shop.events, PART):
        count = min(PART, shop.events - first)
        random = shop.random(5, first)
        ids = np.arange(first, first + count)
        products = _skewed(random, shop.products, count, by=1.5)
        vectors = centres[categories[products]] + random.normal(scale=0.3, size=(count, VECTOR_SIZE))
        flat = pa.array(vectors.astype(np.float32).ravel())
        yield pa.table(
            {
                "id": ids,
                "customer_id": pa.array(_skewed(random, shop.customers, count, by=2), mask=random.random(count) < 0.2),
                "product_id": products,
                "kind": np.array(EVENT_KINDS)[random.choice(4, count, p=[0.75, 0.12, 0.1, 0.03])],
                "at": _times(random, ids, orders=shop.events),
                "embedding": pa.FixedSizeListArray.from_arrays(flat, VECTOR_SIZE),
            }
        )


def _prices(shop: Shop) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The list price of each product, in cents."""
    return np.clip(shop.random(6).lognormal(7.2, 0.9, shop.products), 99, 99_900).astype(np.int64)


def _skewed(random: np.random.Generator, among: int, count: int, *, by: float) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Numbers below `among`, the small ones far more often: few customers buy most, few products sell best."""
    return (among * random.random(count) ** by).astype(np.int64)


def _quantities(random: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Mostly one or two; some of zero, which are mistakes."""
    quantities = 1 + random.poisson(0.7, count)
    return np.where(random.random(count) < 0.005, 0, quantities).astype(np.int32)


def _times(random: np.random.Generator, ids: np.ndarray[Any, Any], *, orders: int) -> pa.Array:
    """When each happened: the days follow the numbers, more and more a day; within a day, mostly in the daytime."""
    days = (DAYS * (ids / orders) ** 0.8).astype("timedelta64[D]")
    hours = random.choice(24, len(ids), p=HOURS / HOURS.sum()).astype("timedelta64[h]")
    rest = random.integers(0, 3_600_000_000, len(ids)).astype("timedelta64[us]")
    return pa.array((FIRST_DAY + days).astype("datetime64[us]") + hours + rest, pa.timestamp("us"))


def _money(cents: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Whole cents as decimals of two digits, without a detour through Python's numbers."""
    words = np.zeros((len(cents), 2), np.int64)
    words[:, 0], words[:, 1] = cents, cents >> 63
    return pa.Array.from_buffers(pa.decimal128(10, 2), len(cents), [None, pa.py_buffer(words)])


def _write_parts(parts: Iterator[pa.Table], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        pyarrow.parquet.write_table(part, folder / f"part-{number:04d}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the files of a shop that does not exist.")
    parser.add_argument("--orders", type=int, default=100_000, help="how many orders; the rest follows from it")
    parser.add_argument("--late", type=int, default=0, help="how many more orders, in late-orders/, to load afterwards")
    parser.add_argument("--seed", type=int, default=7, help="the same seed gives the same files")
    parser.add_argument("--out", type=Path, default=Path("shop-files"), help="the folder to write to")
    given = parser.parse_args()
    if given.orders < 1 or given.late < 0 or given.seed < 0:
        parser.error("there must be an order at least, and no number may be below zero")
    counts = write_shop(Shop(orders=given.orders, late=given.late, seed=given.seed), given.out)
    for name, count in counts.items():
        print(f"{count:>12,} {name}")


if __name__ == "__main__":
    main()
