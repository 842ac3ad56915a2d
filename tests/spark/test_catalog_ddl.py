"""Tables made and changed by Spark SQL, on main and on a branch: each statement is one commit with its text."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.spark.spark_errors import spark_errors
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


@pytest.fixture(params=["main", "dev"])
def branch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(spark: SparkSession, dev: ab.Repository, catalog: str, branch: str) -> Run:
    """Run a statement with `{NAME}` for a table of the branch; it must be one commit, and of that branch alone."""
    other = "dev" if branch == "main" else "main"

    def statement(text: str) -> ab.Snapshot:
        heads = {name: dev.head_commit_id_for_branch(name) for name in ("main", "dev")}
        full = text.replace("{", f"{catalog}.").replace("}", "" if branch == "main" else ".branch_dev")
        with spark_errors():
            spark.sql(full)
        snapshot = dev.snapshot_of(branch)
        assert snapshot.commit.parent_commit_id == heads[branch]
        assert snapshot.commit.message == full
        assert dev.head_commit_id_for_branch(other) == heads[other]
        return snapshot

    return statement


def describe(spark: SparkSession, table: str) -> dict[str, str]:
    return {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE EXTENDED {table}").collect()}


@pytest.mark.s3
def test_alter_table_changes_columns(run: Run) -> None:
    run("ALTER TABLE {s.orders} ADD COLUMN n INT COMMENT 'a number'")
    run("ALTER TABLE {s.orders} ADD COLUMNS (price DECIMAL(10, 2) DEFAULT 1.50, note STRING)")
    run("ALTER TABLE {s.orders} RENAME COLUMN n TO amount")
    run("ALTER TABLE {s.orders} ALTER COLUMN amount TYPE BIGINT")
    run("ALTER TABLE {s.orders} ALTER COLUMN amount COMMENT 'how many'")
    run("ALTER TABLE {s.orders} ALTER COLUMN note SET DEFAULT 'it''s new'")
    table = run("ALTER TABLE {s.orders} DROP COLUMN v")[ORDERS]
    assert table.schema.names == ["id", "amount", "price", "note"]
    assert table.schema.field("amount").type == pa.int64()
    assert table.schema.field("amount").metadata == {b"anabranch:description": b"how many"}
    assert table.to_arrow(columns=["price"]).to_pydict() == {"price": [pytest.approx(1.5)] * 100}
    table = run("ALTER TABLE {s.nested} RENAME COLUMN place.zip TO code")["s.nested"]
    assert table.to_arrow(columns=["place"]).to_pylist() == [{"place": {"city": "Brno", "code": "602"}}]
    run("ALTER TABLE {s.nested} DROP COLUMN place.code")
    table = run("ALTER TABLE {s.nested} ALTER COLUMN few TYPE BIGINT")["s.nested"]
    assert table.to_arrow().to_pylist() == [{"id": 1, "place": {"city": "Brno"}, "few": 7}]
    run("ALTER TABLE {s.nested} ADD COLUMN sure INT NOT NULL DEFAULT 3")
    table = run("ALTER TABLE {s.nested} ALTER COLUMN sure DROP NOT NULL")["s.nested"]
    assert table.schema.field("sure").nullable


def test_alter_table_sets_properties_and_the_primary_key(
    run: Run, dev: ab.Repository, spark: SparkSession, catalog: str, branch: str
) -> None:
    with dev.transaction(branch) as tx:
        tx.annotate(ORDERS, {"level": "0", "unit": "kg"})
    run("ALTER TABLE {s.orders} SET TBLPROPERTIES ('team' = 'sales', 'level' = '1')")
    run("ALTER TABLE {s.orders} UNSET TBLPROPERTIES ('level')")
    run("COMMENT ON TABLE {s.orders} IS 'what was sold'")
    name = f"{catalog}.{ORDERS}" + ("" if branch == "main" else ".branch_dev")
    found = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    assert (found["team"], found["primaryKey"], found["branch"], found["unit"]) == ("sales", "id", branch, "kg")
    assert "level" not in found
    shown = describe(spark, name)
    assert shown["Comment"] == "what was sold"
    assert "primary_key" in shown
    table = run("ALTER TABLE {s.orders} UNSET TBLPROPERTIES ('primaryKey')")[ORDERS]
    assert table.primary_key == ()
    table = run("ALTER TABLE {s.orders} ADD CONSTRAINT primary_key PRIMARY KEY (id)")[ORDERS]
    assert table.primary_key == ("id",)
    table = run("ALTER TABLE {s.orders} DROP CONSTRAINT primary_key")[ORDERS]
    assert table.primary_key == ()
    table = run("ALTER TABLE {s.orders} SET TBLPROPERTIES ('primaryKey' = 'v, id')")[ORDERS]
    assert table.primary_key == ("v", "id")


def test_create_table_takes_keys_comments_and_defaults(
    run: Run, dev: ab.Repository, spark: SparkSession, catalog: str, branch: str
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
    end = "" if branch == "main" else ".branch_dev"
    table = run(f"CREATE TABLE {{s.alike}} LIKE {catalog}.s.new{end}")["s.alike"]
    assert (table.primary_key, table.schema.names) == (("id",), ["id", "at", "text", "time"])
    before = dev.head_commit_id_for_branch(branch)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {catalog}.s.new{end} (other INT)")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        spark.sql(f"CREATE TABLE {catalog}.s.new{end} (other INT)")
    assert dev.head_commit_id_for_branch(branch) == before


def test_a_python_append_takes_the_defaults_of_spark(run: Run, dev: ab.Repository, branch: str) -> None:
    run("CREATE TABLE {s.new} (id BIGINT, n INT DEFAULT -5, ok BOOLEAN DEFAULT true, price DECIMAL(5, 2) DEFAULT 1.25)")
    with dev.transaction(branch) as tx:
        tx.append("s.new", pa.table({"id": [1]}))
    found = dev.snapshot_of(branch)["s.new"].to_arrow().to_pylist()
    assert [str(value) for value in found[0].values()] == ["1", "-5", "True", "1.25"]


def test_drop_and_rename(run: Run, spark: SparkSession, catalog: str, branch: str) -> None:
    assert set(run("ALTER TABLE {s.nested} RENAME TO deep")) == {ORDERS, "s.deep"}
    assert set(run("ALTER TABLE {s.deep} RENAME TO t.deep")) == {ORDERS, "t.deep"}
    assert set(run("DROP TABLE {t.deep}")) == {ORDERS}
    end = "" if branch == "main" else ".branch_dev"
    spark.sql(f"DROP TABLE IF EXISTS {catalog}.t.deep{end}")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"DROP TABLE {catalog}.t.deep{end}")
    with pytest.raises(InvalidInputError, match="renamed"), spark_errors():
        spark.sql(f"ALTER TABLE {catalog}.s.orders{end} RENAME TO other.s.orders")


def test_show_statements(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{ORDERS}"
    assert [row.namespace for row in spark.sql(f"SHOW NAMESPACES IN {catalog}").collect()] == ["s"]
    assert sorted(row.tableName for row in spark.sql(f"SHOW TABLES IN {catalog}.s").collect()) == ["nested", "orders"]
    assert [row.col_name for row in spark.sql(f"SHOW COLUMNS IN {table}").collect()] == ["id", "v"]
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
