"""Tables made and changed by Spark SQL: comments, defaults, keys and properties, and what is refused."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.spark.tasks import spark_errors
from tests.spark.conftest import ORDERS

pytestmark = pytest.mark.spark

Run = Callable[[str], ab.Snapshot]


@pytest.fixture
def dev(lake: ab.Repository) -> ab.Repository:
    """The lake with a tag and a branch `dev`, and a table with a nested column."""
    nested = pa.table({"id": [1], "place": [{"city": "Brno", "zip": "602"}], "few": pa.array([7], pa.int32())})
    with lake.transaction() as tx:
        tx.create_table("s.nested", nested.schema)
        tx.append("s.nested", nested)
    lake.tag_create("v1")
    lake.branch_create("dev")
    return lake


@pytest.fixture
def run(spark: SparkSession, dev: ab.Repository, catalog: str) -> Run:
    """Run a statement with `{NAME}` for a table of the branch `dev`."""

    def statement(text: str) -> ab.Snapshot:
        with spark_errors():
            spark.sql(text.replace("{", f"{catalog}.").replace("}", ".branch_dev"))
        return dev.snapshot_of("dev")

    return statement


def describe(spark: SparkSession, table: str) -> dict[str, str]:
    return {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE EXTENDED {table}").collect()}


def test_alter_table_keeps_types_comments_and_defaults(run: Run) -> None:
    run("ALTER TABLE {s.orders} ADD COLUMNS (n INT COMMENT 'a number', price DECIMAL(10, 2) DEFAULT 1.50)")
    run("ALTER TABLE {s.orders} ALTER COLUMN n TYPE BIGINT")
    table = run("ALTER TABLE {s.orders} ALTER COLUMN n COMMENT 'how many'")[ORDERS]
    assert table.schema.field("n").type == pa.int64()
    assert table.schema.field("n").metadata[b"anabranch:description"] == b"how many"
    assert table.to_arrow(columns=["price"]).to_pydict() == {"price": [pytest.approx(1.5)] * 100}
    assert (
        not run("ALTER TABLE {s.nested} ADD COLUMN sure INT NOT NULL DEFAULT 3")["s.nested"]
        .schema.field("sure")
        .nullable
    )
    assert run("ALTER TABLE {s.nested} ALTER COLUMN sure DROP NOT NULL")["s.nested"].schema.field("sure").nullable


def test_alter_table_sets_properties_and_the_primary_key(
    run: Run, dev: ab.Repository, spark: SparkSession, catalog: str
) -> None:
    with dev.transaction("dev") as tx:
        tx.annotate(ORDERS, {"level": "0", "unit": "kg"})
    run("ALTER TABLE {s.orders} SET TBLPROPERTIES ('team' = 'sales', 'level' = '1')")
    run("ALTER TABLE {s.orders} UNSET TBLPROPERTIES ('level')")
    run("COMMENT ON TABLE {s.orders} IS 'what was sold'")
    name = f"{catalog}.{ORDERS}.branch_dev"
    found = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    assert (found["team"], found["primaryKey"], found["branch"], found["unit"]) == ("sales", "id", "dev", "kg")
    assert "level" not in found
    shown = describe(spark, name)
    assert shown["Comment"] == "what was sold"
    assert "primary_key" in shown
    table = run("ALTER TABLE {s.orders} SET TBLPROPERTIES ('primaryKey' = 'v, id')")[ORDERS]
    assert table.primary_key == ("v", "id")


def test_create_table_takes_keys_comments_and_defaults(
    run: Run, dev: ab.Repository, spark: SparkSession, catalog: str
) -> None:
    snapshot = run(
        "CREATE TABLE {s.new} (id BIGINT COMMENT 'the key', at DATE DEFAULT DATE '2026-01-31', "
        "text STRING DEFAULT 'x', time TIMESTAMP DEFAULT current_timestamp(), PRIMARY KEY (id)) "
        "USING anabranch COMMENT 'new' TBLPROPERTIES ('team' = 'sales')"
    )
    table = snapshot["s.new"]
    assert table.primary_key == ("id",)
    assert table.schema.metadata == {b"anabranch:description": b"new", b"anabranch:property:team": b"sales"}
    assert table.schema.field("id").metadata == {b"anabranch:description": b"the key"}
    assert table.schema.field("at").metadata == {b"anabranch:default": b"DATE '2026-01-31'"}
    for name, more in {
        "by_property": "TBLPROPERTIES ('primaryKey' = 'a,b')",
        "by_option": "OPTIONS (primaryKey = 'a,b')",
        "by_constraint": "",
    }.items():
        constraint = "" if more else ", PRIMARY KEY (a, b)"
        snapshot = run(f"CREATE TABLE {{s.{name}}} (a INT, b STRING NOT NULL, c DOUBLE{constraint}) {more}".strip())
        assert snapshot[f"s.{name}"].primary_key == ("a", "b")
    before = dev.head_commit_id_for_branch("dev")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {catalog}.s.new.branch_dev (other INT)")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        spark.sql(f"CREATE TABLE {catalog}.s.new.branch_dev (other INT)")
    assert dev.head_commit_id_for_branch("dev") == before


def test_a_python_append_takes_the_defaults_of_spark(run: Run, dev: ab.Repository) -> None:
    run("CREATE TABLE {s.new} (id BIGINT, n INT DEFAULT -5, ok BOOLEAN DEFAULT true, price DECIMAL(5, 2) DEFAULT 1.25)")
    with dev.transaction("dev") as tx:
        tx.append("s.new", pa.table({"id": [1]}))
    found = dev.snapshot_of("dev")["s.new"].to_arrow().to_pylist()
    assert [str(value) for value in found[0].values()] == ["1", "-5", "True", "1.25"]


def test_a_rename_stays_in_the_catalog_and_a_drop_needs_a_table(
    spark: SparkSession, dev: ab.Repository, catalog: str
) -> None:
    before = dev.head_commit_id_for_branch("dev")
    spark.sql(f"DROP TABLE IF EXISTS {catalog}.t.deep.branch_dev")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"DROP TABLE {catalog}.t.deep.branch_dev")
    with pytest.raises(InvalidInputError, match="renamed"), spark_errors():
        spark.sql(f"ALTER TABLE {catalog}.s.orders.branch_dev RENAME TO other.s.orders")
    assert dev.head_commit_id_for_branch("dev") == before


def test_show_statements(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{ORDERS}"
    described = describe(spark, table)
    text = " ".join(f"{name} {value}" for name, value in described.items())
    for part in (dev.head_commit_id_for_branch("main"), "branch=main", "rows=100", "bytes=", "PRIMARY KEY (id)"):
        assert part in text
    created = spark.sql(f"SHOW CREATE TABLE {table}").first()[0]  # type: ignore[index]
    assert "PRIMARY KEY (id)" in created
    spark.sql(created.replace(table, f"{catalog}.s.again"))
    assert dev.snapshot_of("main")["s.again"].primary_key == ("id",)


REFUSED = (
    ("CREATE TABLE {s.x} (a INT) USING parquet", "parquet"),
    ("CREATE TABLE {s.x} (a INT, b INT) PARTITIONED BY (b)", "PARTITIONED BY"),
    ("CREATE TABLE {s.x} (a INT) LOCATION '/x'", "LOCATION"),
    ("CREATE TABLE {s.x} (a INT, CHECK (a > 0))", "CHECK"),
    ("CREATE TABLE {s.x} (a INT DEFAULT rand())", "default|DEFAULT"),
    ("ALTER TABLE {s.orders} DROP COLUMN id", "primary key"),
    ("ALTER TABLE {s.orders} ADD COLUMN n INT NOT NULL", "nulls"),
    ("ALTER TABLE {s.orders} ADD COLUMN n INT FIRST", "position"),
    ("ALTER TABLE {s.orders} ALTER COLUMN v FIRST", "UpdateColumnPosition"),
    ("ALTER TABLE {s.nested} ADD COLUMN place.country STRING", "place.country"),
    ("ALTER TABLE {s.orders} SET TBLPROPERTIES ('commit' = 'x')", "commit"),
    ("ALTER TABLE {s.orders} ADD CONSTRAINT k PRIMARY KEY (v)", "primary key"),
    ("DROP TABLE {s.orders.tag_v1}", "read-only"),
    ("ALTER TABLE {s.orders.tag_v1} ADD COLUMN n INT", "read-only"),
    ("ALTER TABLE {s.orders.tag_v1} RENAME TO s.x", "read-only"),
    ("CREATE TABLE {s.x.tag_v1} (a INT)", "read-only"),
)


def test_what_cannot_be_done_is_refused(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    before = dev.head_commit_id_for_branch("main")
    for statement, problem in REFUSED:
        with pytest.raises((AnabranchError, PySparkException), match=problem), spark_errors():
            spark.sql(statement.replace("{", f"{catalog}.").replace("}", ""))
    assert dev.head_commit_id_for_branch("main") == before
