"""The table function `lake.nearest(table, column, vector, k)`."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import InvalidInputError, SchemaMismatchError
from anabranch.spark.tasks import spark_errors

pytestmark = pytest.mark.spark


@pytest.fixture
def points(lake: ab.Repository) -> ab.Repository:
    """Points 0 to 9 on a line, on main; those below 5 are deleted on dev."""
    vectors = pa.array([[float(n), 0.0] for n in range(10)], pa.list_(pa.float32(), 2))
    with lake.transaction() as tx:
        tx.create_table("s.points", pa.schema([("id", pa.int64()), ("v", vectors.type)]))
        tx.append("s.points", pa.table({"id": pa.array(range(10), pa.int64()), "v": vectors}))
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.delete("s.points", "id < 5")
    return lake


@pytest.mark.usefixtures("points")
def test_nearest_is_a_table_function(spark: SparkSession, catalog: str) -> None:
    def ids(arguments: str) -> list[int]:
        return [row.id for row in spark.sql(f"SELECT id FROM {catalog}.nearest({arguments})").collect()]

    assert ids("'s.points', 'v', array(4.2, 0), 3") == [4, 5, 3]
    assert len(ids("'s.points', 'v', array(4.2, 0)")) == 10
    assert ids("'s.points.branch_dev', 'v', array(4.2, 0), 2") == [5, 6]
    assert ids("'s.points', 'v', vector => array(1 + 1, sqrt(0)), k => 1, ref => 'dev'") == [5]
    assert ids("k => 1, where => 'id > 6', vector => array(0, 0), column => 'v', table => 's.points'") == [7]
    assert ids("'s.points', 'v', array_repeat(8, 2), 1") == [8]
    found = spark.sql(
        f"WITH near AS (SELECT * FROM {catalog}.nearest('s.points', 'v', array(:x, 0), 2) AS n) "
        f"SELECT o.id, o.v, near._distance FROM near JOIN {catalog}.s.orders o ON o.id = near.id ORDER BY 3",
        {"x": 4.2},
    )
    assert [(row.id, row.v) for row in found.collect()] == [(4, "old"), (5, "old")]
    spark.sql(f"USE {catalog}.s")
    try:
        assert spark.sql("SELECT id FROM nearest('s.points', 'v', array(9, 0), 1)").collect() == [(9,)]
    finally:
        spark.sql("USE spark_catalog.default")


@pytest.mark.usefixtures("points")
def test_wrong_calls_of_nearest_name_the_argument(spark: SparkSession, catalog: str) -> None:
    wrong = [
        ("'s.points', 'v'", "the argument 'vector' of nearest() is missing"),
        ("'s.points', 'v', array(1, 2), 3, metric => 'dot'", "nearest() has no argument 'metric'"),
        ("'s.points', 'v', array(1, 2), table => 's.points'", "the argument 'table' of nearest() is given twice"),
        ("'s.points', 'v', array(1, 2), 3, 'true', 'main', 7", "nearest() has more than 6 arguments"),
        ("'s.points', 'v', array(rand(), 2)", "the argument 'vector' of nearest() is not constant"),
        ("'s.points', 'v', array(x, 2)", "the argument 'vector' of nearest() cannot be computed"),
        ("'s.points', 'v', 'x'", "the argument 'vector' of nearest() is STRING, not ARRAY<DOUBLE>"),
        ("'s.points', 'v', array(1, NULL)", "the vector of nearest() has a null at position 1"),
        ("'s points', 'v', array(1, 2)", "'s points' is not the name of a table"),
        ("'s.points', 'v', array(1, 2, 3)", "the vector has 3 dimensions, and column 'v' expects 2"),
        ("'s.points', 'id', array(1, 2)", "column 'id' is int64 and holds no vectors"),
        ("'s.points', 'v', array(1, 2), 0", "0 nearest rows cannot be found"),
    ]
    for arguments, problem in wrong:
        with pytest.raises(InvalidInputError) as caught, spark_errors():
            spark.sql(f"SELECT * FROM {catalog}.nearest({arguments})").collect()
        assert problem in caught.value.problem, arguments
        assert caught.value.hint, arguments
    with pytest.raises(SchemaMismatchError, match="'w'"), spark_errors():
        spark.sql(f"SELECT * FROM {catalog}.nearest('s.points', 'w', array(1, 2))").collect()
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"SELECT * FROM {catalog}.nearest('s.lines', 'v', array(1, 2))")
