"""Large files are imported by Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.server.settings import Limits
from tests.server.conftest import new_project, ok, serving
from tests.server.test_import import rows, send
from tests.server.test_jobs import end_of

pytestmark = pytest.mark.spark


def test_what_is_large_is_imported_by_spark_with_the_same_result(tmp_path: Path, spark: SparkSession) -> None:
    assert spark.range(1).count() == 1
    with serving(tmp_path, limits=Limits(spark_from_bytes=20)) as running, running.client() as client:
        project = new_project(client)
        branch = project.branch()
        assert ok(send(project, "id,v\n7,a\n"))["engine"] == "local"
        sent = ok(send(project, "v,id\nseven,7\neight,8\n", branch=branch, incremental=True, wait=0))
        done = end_of(client, sent["id"])["result"]
        assert (done["engine"], done["imported_rows"], done["table_row_count"]) == ("spark", 2, 2)
        assert (rows(project, branch), rows(project)) == ([(7, "seven"), (8, "eight")], [(7, "a")])
        sent = ok(send(project, "id,v\n7,seven\n8,eight\nx,nine\n", wait=0))
        error = end_of(client, sent["id"])["error"]
        assert (error["code"], error["details"]["file"], error["details"]["line"]) == ("bad_record", "orders.csv", 4)
        assert rows(project) == [(7, "a")]
