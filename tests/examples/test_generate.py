"""The shop's files: the same for the same numbers, and like real ones."""

import filecmp
import math
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest

GENERATE = Path(__file__).parents[2] / "examples" / "shop" / "generate.py"


def generate(folder: Path, *, orders: int, late: int = 0, seed: int = 7) -> str:
    command = [sys.executable, str(GENERATE), "--orders", str(orders), "--late", str(late), "--seed", str(seed)]
    return subprocess.run([*command, "--out", str(folder)], check=True, capture_output=True, text=True).stdout


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a shop with 20,000 orders and 400 late ones."""
    folder = tmp_path_factory.mktemp("shop")
    generate(folder, orders=20_000, late=400)
    return folder


@pytest.fixture(scope="module")
def orders(files: Path) -> pa.Table:
    return pyarrow.parquet.read_table(files / "orders")


def test_the_same_numbers_give_the_same_files(files: Path, tmp_path: Path) -> None:
    generate(tmp_path, orders=20_000, late=400)
    names = files_below(files)
    assert names == files_below(tmp_path)
    assert filecmp.cmpfiles(files, tmp_path, names, shallow=False) == (names, [], [])


def test_another_seed_gives_other_files(files: Path, tmp_path: Path) -> None:
    generate(tmp_path, orders=20_000, late=400, seed=8)
    names = files_below(files)
    assert names == files_below(tmp_path)
    assert filecmp.cmpfiles(files, tmp_path, names, shallow=False) == ([], names, [])


def test_it_reports_what_it_made(tmp_path: Path) -> None:
    assert generate(tmp_path, orders=1).split() == [
        *("10", "customers", "20", "products", "1", "orders", "10", "events", "0", "late-orders")
    ]
    assert files_below(tmp_path) == [
        *("customers.csv", "events/part-0000.parquet", "orders/part-0000.parquet", "products.csv")
    ]


@pytest.mark.parametrize("wrong", [["--orders", "0"], ["--late", "-1"], ["--seed", "-1"], ["--orders", "many"]])
def test_wrong_numbers_are_refused(tmp_path: Path, wrong: list[str]) -> None:
    command = [sys.executable, str(GENERATE), "--out", str(tmp_path / "out"), *wrong]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert not (tmp_path / "out").exists()


def test_orders_are_numbered_in_time(files: Path, orders: pa.Table) -> None:
    late = pyarrow.parquet.read_table(files / "late-orders")
    assert orders["id"].to_pylist() == list(range(20_000))
    assert late["id"].to_pylist() == list(range(20_000, 20_400))
    days = pc.floor_temporal(orders["ordered_at"], unit="day").to_pylist()
    assert days == sorted(days)
    assert len(set(days)) == 300
    assert pc.min(late["ordered_at"]).as_py().date() >= days[-1].date()


def test_orders_belong_to_customers_and_products(files: Path, orders: pa.Table) -> None:
    customers = pyarrow.csv.read_csv(files / "customers.csv")
    products = pyarrow.csv.read_csv(files / "products.csv")
    events = pyarrow.parquet.read_table(files / "events")
    for table in (orders, events):
        bought = table["product_id"].to_pylist()
        assert set(bought) <= set(products["id"].to_pylist())
        assert {by for by in table["customer_id"].to_pylist() if by is not None} <= set(customers["id"].to_pylist())


def test_money_is_decimal_and_some_values_are_missing(orders: pa.Table) -> None:
    assert orders.schema.field("unit_price").type == pa.decimal128(10, 2)
    assert orders.schema.field("ordered_at").type == pa.timestamp("us")
    assert pc.min(orders["unit_price"]).as_py() > 0
    missing = {name: orders[name].null_count / 20_000 for name in orders.column_names}
    assert {name for name, part in missing.items() if part} == {"customer_id", "discount", "status"}
    assert 0.005 < missing["customer_id"] < 0.02
    assert {text.strip().lower() for text in orders["status"].to_pylist() if text} == {
        *("paid", "shipped", "delivered", "returned", "cancelled")
    }
    assert len(set(orders["status"].to_pylist())) > 10  # in many spellings


def test_few_customers_buy_most(orders: pa.Table) -> None:
    counts = sorted(pc.value_counts(orders["customer_id"].drop_null()).field("counts").to_pylist(), reverse=True)
    top = sum(counts[: len(counts) // 10])
    assert 0.35 < top / sum(counts) < 0.8


def test_events_have_vectors_that_distinguish_categories(files: Path) -> None:
    events = pyarrow.parquet.read_table(files / "events")
    assert events.schema.field("embedding").type == pa.list_(pa.field("element", pa.float32()), 16)
    names = {row["id"]: row["category"] for row in pyarrow.csv.read_csv(files / "products.csv").to_pylist()}
    vectors = events["embedding"].to_pylist()
    categories = [names[product] for product in events["product_id"].to_pylist()]

    def distance(one: int, other: int) -> float:
        return math.dist(vectors[one], vectors[other])

    closest = [min((n for n in range(200) if n != one), key=lambda n: distance(one, n)) for one in range(50)]
    assert [categories[one] for one in range(50)] == [categories[one] for one in closest]
