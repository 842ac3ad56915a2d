"""The same pipeline file on one machine, on a standalone cluster and over Spark Connect, by the command line."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import anabranch as ab
from tests.pipelines.conftest import ORDERS, WriteFile, orders
from tests.spark.clusters import Cluster, cluster_environment, connect_server, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.proof]

PROJECT = Path(__file__).parents[2]

FIVE = """
    from pyspark.sql import functions as f

    pipeline.sql("silver.orders", "SELECT o.* FROM bronze.orders o WHERE day >= :since", primary_key=["id"])
    pipeline.sql("silver.seen", "SELECT id FROM bronze.orders", write="append", incremental=["bronze.orders"])

    def doubled(batches):
        import pyarrow.compute as pc

        for batch in batches:
            yield batch.set_column(1, "revenue", pc.multiply(batch.column("revenue"), FACTOR))

    FACTOR = 2.0

    @pipeline.table("gold.revenue", inputs=["silver.orders", "bronze.customers"], primary_key=["name"], write="upsert")
    def revenue(orders, customers, *, least):
        joined = orders.filter(orders.id >= least).join(customers, orders.customer == customers.id)
        found = joined.groupBy("name").agg(f.sum("amount").alias("revenue"))
        return found.mapInArrow(doubled, found.schema)

    pipeline.sql("gold.days", "SELECT day, count(*) AS n FROM silver.orders GROUP BY day", primary_key=["day"])
    pipeline.sql("gold.all", "SELECT count(*) AS n FROM gold.days JOIN gold.revenue")
    pipeline.check("revenue", "SELECT * FROM gold.revenue WHERE revenue < 0")
"""


@contextmanager
def one_machine(folder: Path) -> Iterator[Cluster]:
    yield Cluster(master="local[*]", python=sys.executable, folder=folder)


@pytest.mark.parametrize("start", [one_machine, standalone_cluster, connect_server])
def test_the_same_file_runs_everywhere(
    lake: ab.Repository,
    write_file: WriteFile,
    tmp_path: Path,
    start: Callable[[Path], AbstractContextManager[Cluster]],
) -> None:
    file = write_file(FIVE)
    with start(tmp_path / "cluster") as cluster:
        first = run(lake, file, cluster)
        with lake.transaction("dev") as tx:
            tx.append(ORDERS, orders(20, 30))
        second = run(lake, file, cluster)
    assert first == {"silver.orders": 20, "silver.seen": 20, "gold.revenue": 3, "gold.days": 5, "gold.all": 1}
    assert second == {"silver.orders": 30, "silver.seen": 30, "gold.revenue": 3, "gold.days": 5, "gold.all": 1}
    found = {row["name"]: row["revenue"] for row in lake.snapshot_of("dev")["gold.revenue"].to_arrow().to_pylist()}
    assert found == {name: 2.0 * sum(range(number, 30, 3)) for number, name in enumerate(["ann", "bob", "cem"])}
    assert len(lake.list_commits("dev")) == len(lake.list_commits("main")) + 3


def run(lake: ab.Repository, file: Path, cluster: Cluster) -> dict[str, int]:
    environment = cluster_environment(cluster.python)
    options = [part for name, value in lake.storage_options.items() for part in ("-o", f"{name}={value}")]
    command = [sys.executable, "-m", "anabranch.cli.main", "pipeline", "run", str(file), "--branch", "dev", "--json"]
    command += ["--repo", lake.uri, "--master", cluster.master, *options]
    answer = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr[-5000:]
    return {output["key"]: output["rows"] for output in json.loads(answer.stdout)["outputs"]}
