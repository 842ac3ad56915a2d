"""Orders that arrive as files, cleaned, into the table `shop.orders` on the branch `dev` of a lake."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).resolve().parents[1]
spark = SparkSession.active()

dp.create_sink(
    "orders_of_the_lake",
    "anabranch",
    {
        "repo": str(HERE / "lake"),
        "path": "shop.orders",
        "branch": "dev",
        "primaryKey": "id",
        "upsert": "true",
        "message": "Orders that arrived",
    },
)


@dp.temporary_view
def good_orders() -> DataFrame:
    files = spark.readStream.schema("id BIGINT, customer STRING, amount DECIMAL(12, 2), ordered_at TIMESTAMP")
    return (
        files.json(str(HERE / "arrived"))
        .where("amount > 0")
        .selectExpr("id", "trim(customer) AS customer", "amount", "ordered_at")
    )


@dp.append_flow(target="orders_of_the_lake")
def orders_into_the_lake() -> DataFrame:
    return spark.readStream.table("good_orders")
