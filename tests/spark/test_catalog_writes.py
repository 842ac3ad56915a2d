"""SQL that changes rows: each statement is one commit on its branch, with the statement as message."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import anabranch as ab
from anabranch.errors import KeyConflictError, WriteConflictError
from anabranch.spark.tasks import spark_errors
from tests.spark.conftest import ORDERS, orders, rows

pytestmark = pytest.mark.spark

KEYLESS = "s.events"


@pytest.fixture
def dev(lake: ab.Repository) -> ab.Repository:
    """The lake with a branch `dev`, and a table without a key."""
    with lake.transaction() as tx:
        tx.create_table(KEYLESS, orders(0, 1).schema)
        tx.append(KEYLESS, orders(0, 20))
    lake.branch_create("dev")
    return lake


@contextmanager
def one_commit(repo: ab.Repository, *, branch: str = "dev", message: str | None = None) -> Iterator[None]:
    """Check that one commit is made on a branch, and none on the other."""
    other = "main" if branch == "dev" else "dev"
    before, untouched = repo.head_commit_id_for_branch(branch), repo.head_commit_id_for_branch(other)
    yield
    commit = repo.snapshot_of(branch).commit
    assert commit.parent_commit_id == before
    assert repo.head_commit_id_for_branch(other) == untouched
    if message is not None:
        assert commit.message == message


def run(spark: SparkSession, repo: ab.Repository, sql: str, *, branch: str = "dev") -> None:
    with one_commit(repo, branch=branch, message=sql), spark_errors():
        spark.sql(sql)


def values(repo: ab.Repository, ref: str = "dev", key: str = ORDERS) -> dict[int, str]:
    return {row["id"]: row["v"] for row in rows(repo, ref, key)}


def test_statements_change_rows_of_several_fragments(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{ORDERS}.branch_dev"
    expected = values(dev, "main")

    run(spark, dev, f"INSERT INTO {table} VALUES (100, 'a'), (101, 'b')")
    run(spark, dev, f"INSERT INTO {table} (id) VALUES (102)")
    run(spark, dev, f"INSERT INTO {table} SELECT id + 1000, v FROM {catalog}.{ORDERS} WHERE id < 3")
    run(spark, dev, f"UPDATE {table} SET v = concat(v, '!') WHERE id % 10 = 3 AND id < 100")
    run(spark, dev, f"DELETE FROM {table} WHERE id < 5")
    run(spark, dev, f"DELETE FROM {table} WHERE length(v) = 3 AND id % 7 = 0")
    expected |= {100: "a", 101: "b", 102: None, 1000: "old", 1001: "old", 1002: "old"}  # type: ignore[dict-item]
    expected |= dict.fromkeys(range(3, 100, 10), "old!")
    expected = {n: v for n, v in expected.items() if n >= 5 and not (v == "old" and n % 7 == 0)}
    assert values(dev) == expected

    run(
        spark,
        dev,
        f"MERGE INTO {table} t USING (SELECT * FROM VALUES (100, 'm'), (6, NULL), (3000, 'n') AS x (id, v)) s"
        " ON t.id = s.id"
        " WHEN MATCHED AND s.v IS NULL THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED THEN INSERT *"
        " WHEN NOT MATCHED BY SOURCE AND t.id = 8 THEN UPDATE SET v = 'lonely'"
        " WHEN NOT MATCHED BY SOURCE AND t.id > 1000 THEN DELETE",
    )
    expected |= {100: "m", 3000: "n", 8: "lonely"}
    expected = {n: v for n, v in expected.items() if n not in {6, 1001, 1002}}
    assert values(dev) == expected

    run(spark, dev, f"UPDATE {table} SET id = id + 5000 WHERE id IN (100, 101)")
    expected |= {5100: expected.pop(100), 5101: expected.pop(101)}
    assert values(dev) == expected
    assert dev.doctor(rows=True).is_clean


def test_rows_keep_their_ids_without_a_key(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{KEYLESS}.branch_dev"
    run(spark, dev, f"UPDATE {table} SET v = 'new' WHERE id = 7 OR id = 8")
    run(
        spark, dev, f"MERGE INTO {table} t USING (SELECT 9 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'm'"
    )
    [diff] = dev.diff("main", "dev").tables
    assert (diff.counts.inserted, diff.counts.updated, diff.counts.deleted) == (0, 3, 0)


def test_bad_rows_change_nothing(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{ORDERS}.branch_dev"
    before = dev.head_commit_id_for_branch("dev")
    dev.tag_create("v1")
    for sql, error in [
        (f"INSERT INTO {table} VALUES (5, 'there')", KeyConflictError),
        (f"INSERT INTO {table} VALUES (200, 'a'), (200, 'b')", KeyConflictError),
        (f"UPDATE {table} SET id = 9 WHERE id = 10", KeyConflictError),
        (f"UPDATE {table} SET id = 1000 WHERE id < 3", KeyConflictError),
        (f"MERGE INTO {table} t USING (SELECT -1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (7)",
         KeyConflictError),
        (f"INSERT INTO {table} VALUES (300, raise_error('stop'))", Exception),
        (f"INSERT INTO {catalog}.{ORDERS}.tag_v1 VALUES (300, 'x')", Exception),
    ]:  # fmt: skip
        with pytest.raises(error), spark_errors():
            spark.sql(sql)
    with pytest.raises(Exception, match="option 'brnch' is not known"):
        spark.range(1).select("id", sf.lit("x").alias("v")).writeTo(table).option("brnch", "x").append()
    assert dev.head_commit_id_for_branch("dev") == before
    assert dev.doctor().is_clean


def test_commits_during_a_statement_are_kept_or_refused(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    """The function that the statement calls makes a commit: after the rows were read, before they are published."""
    uri, table = dev.uri, f"{catalog}.{ORDERS}.branch_dev"

    def commit(number: int, where: str) -> str:
        with ab.open(uri, branch="dev").transaction() as tx:
            tx.update(ORDERS, {"v": "'theirs'"}, where=where)
        return f"mine {number}"

    spark.udf.register("commit_between", commit)
    with pytest.raises(WriteConflictError, match="files were moved by another commit"), spark_errors():
        spark.sql(f"UPDATE {table} SET v = commit_between(id, 'id = 2') WHERE id = 1")  # both write the branch first
    spark.sql(f"UPDATE {table} SET v = commit_between(id, 'id = 2') WHERE id = 1")
    assert (values(dev)[1], values(dev)[2]) == ("mine 1", "theirs")
    with pytest.raises(WriteConflictError, match=f"'{ORDERS}'.*changed by another commit"), spark_errors():
        spark.sql(f"UPDATE {table} SET v = commit_between(id, 'id = 3') WHERE id = 3")
    assert values(dev)[3] == "theirs"
    spark.sql(f"INSERT INTO {table} SELECT 700, commit_between(700, 'id = 4')")
    assert (values(dev)[4], values(dev)[700]) == ("theirs", "mine 700")
