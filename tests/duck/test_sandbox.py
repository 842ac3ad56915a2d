"""SQL reads tables of the repository, and does nothing else."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.duck.engine import Database
from anabranch.errors import AnabranchError, InvalidExpressionError, TableNotFoundError
from tests.duck.conftest import make_shop, rows

SECRET = "the-secret"  # noqa: S105 - what no query may find


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ab.Repository:
    return make_shop(ab.init(tmp_path_factory.mktemp("sandbox") / "lake"))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANABRANCH_TEST_SECRET", SECRET)
    path = tmp_path / "secret.csv"
    path.write_text(f"word\n{SECRET}\n")
    return path


READING = [
    "FROM '{file}'",
    'FROM "{file}"',
    "FROM '{file}' AS t",
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_csv_auto(['{file}'])",
    "FROM READ_TEXT('{file}')",
    "FROM read_blob('{file}')",
    "FROM read_json('{file}')",
    "FROM read_parquet('{file}')",
    "FROM parquet_metadata('{file}')",
    "FROM sniff_csv('{file}')",
    "FROM read_duckdb('{file}')",
    "FROM glob('{file}')",
    "FROM main.glob('{file}')",
    "FROM system.main.glob('{file}')",
    "FROM 'https://example.com/x.parquet'",
    "FROM 's3://bucket/x.parquet'",
    "FROM query('FROM ''{file}''')",
    "FROM query_table(['{file}'])",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "SELECT (SELECT count(*) FROM read_text('{file}'))",
    "SELECT 1 UNION ALL SELECT count(*) FROM read_text('{file}')",
    "WITH x AS (FROM read_text('{file}')) FROM x",
    "FROM in_c_sales.orders o, LATERAL (FROM read_text('{file}'))",
    "SELECT id FROM in_c_sales.orders WHERE customer IN (SELECT content FROM read_text('{file}'))",
    "DESCRIBE '{file}'",
    "SUMMARIZE '{file}'",
    "EXPLAIN FROM '{file}'",
    "PIVOT '{file}' ON word IN ('a') USING count(*)",
    "SELECT getenv('ANABRANCH_TEST_SECRET')",
    "SELECT main.\"getenv\"('ANABRANCH_TEST_SECRET')",
    "FROM python_variable",
    "SELECT * FROM python_variable AT 'main'",
]


@pytest.mark.parametrize("sql", READING)
def test_no_file_network_variable_or_environment_is_read(shop: ab.Repository, file: Path, sql: str) -> None:
    python_variable = pa.table({"word": [SECRET]})
    with pytest.raises((InvalidExpressionError, TableNotFoundError)) as caught:
        shop.sql(sql.format(file=file))
    assert SECRET not in str(caught.value)
    assert python_variable.num_rows == 1


WRITING = [
    "INSERT INTO in_c_sales.orders VALUES (9, 'Eve', 1.0)",
    "UPDATE in_c_sales.orders SET amount = 0",
    "DELETE FROM in_c_sales.orders",
    "MERGE INTO in_c_sales.orders USING in_c_crm.customers ON true WHEN MATCHED THEN DELETE",
    "TRUNCATE in_c_sales.orders",
    "ALTER TABLE in_c_sales.orders ADD COLUMN x INT",
    "CREATE TABLE x AS SELECT 1",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE OR REPLACE MACRO abs(x) AS 0",
    "CREATE SECRET s (TYPE s3)",
    "DROP VIEW in_c_sales.orders",
    "COPY in_c_sales.orders TO '{file}.out'",
    "COPY (SELECT 1) TO '{file}.out'",
    "EXPORT DATABASE '{file}.out'",
    "IMPORT DATABASE '{file}'",
    "ATTACH '{file}.out' AS x",
    "DETACH x",
    "USE main",
    "SET threads = 1",
    "SET enable_external_access = true",
    "RESET threads",
    "SET VARIABLE x = 1",
    "PRAGMA threads = 1",
    "PRAGMA database_list",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CALL pragma_version()",
    "PREPARE x AS SELECT 1",
    "EXECUTE x",
    "BEGIN",
    "ROLLBACK",
    "CHECKPOINT",
    "VACUUM",
    "COMMENT ON TABLE in_c_sales.orders IS 'x'",
    "EXPLAIN INSERT INTO in_c_sales.orders VALUES (9, 'Eve', 1.0)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}.out'",
    "SELECT 1; COPY (SELECT 1) TO '{file}.out'",
    "SELECT 1; SELECT 2",
    "; COPY (SELECT 1) TO '{file}.out'",
    "-- a comment\rCREATE TABLE x AS SELECT 1;\n EXPLAIN SELECT 1",
    "/* a /* nested */ comment */ CREATE TABLE x AS SELECT 1",
    "WITH x AS (DELETE FROM in_c_sales.orders RETURNING *) FROM x",
    "SELECT * INTO x FROM in_c_sales.orders",
    "FROM enable_logging()",
    "FROM checkpoint()",
    "FROM truncate_duckdb_logs()",
    "SELECT write_log('x')",
    "SELECT nextval('x')",
]


@pytest.mark.parametrize("sql", WRITING)
def test_nothing_is_written(shop: ab.Repository, tmp_path: Path, file: Path, sql: str) -> None:
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(InvalidExpressionError):
        shop.sql(sql.format(file=file))
    assert sorted(os.listdir(tmp_path)) == before
    assert rows(shop, "SELECT count(*), sum(amount), sum(abs(-1)) FROM in_c_sales.orders") == [(3, 60.0, 3)]


LOOKING_INSIDE = [
    "FROM duckdb_settings()",
    "FROM duckdb_settings",
    "FROM duckdb_secrets()",
    "FROM duckdb_databases()",
    "FROM duckdb_logs",
    "FROM duckdb_tables",
    "FROM which_secret('s3://x', 's3')",
    "FROM information_schema.tables",
    "FROM pg_catalog.pg_tables",
    "FROM sqlite_master",
    "FROM system.main.duckdb_settings",
    'FROM temp.main."source 0"',
    'FROM in_c_sales.orders, "source 0"',
    "FROM memory.main.x",
    "FROM pragma_table_info('x')",
    "FROM histogram('x', 'y')",
    "FROM test_all_types()",
    "FROM arrow_scan(1::POINTER, 2::POINTER, 3::POINTER)",
    "FROM pandas_scan(1::POINTER)",
    "SELECT current_setting('threads')",
    "SELECT getvariable('x')",
    "SELECT sleep_ms(1)",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SHOW DATABASES",
    "DESCRIBE",
    # A name is hidden by a common table expression only where that can be seen.
    "SELECT * FROM duckdb_settings, (WITH duckdb_settings AS (SELECT 1) FROM duckdb_settings)",
    "WITH duckdb_settings AS (SELECT * FROM duckdb_settings) FROM duckdb_settings",
    "WITH a AS (FROM duckdb_settings), duckdb_settings AS (SELECT 1) FROM a",
    "WITH a AS (WITH duckdb_settings AS (SELECT 1) FROM duckdb_settings) FROM a, duckdb_settings",
    "(WITH duckdb_settings AS (SELECT 1) FROM duckdb_settings) UNION ALL BY NAME FROM duckdb_settings",
]


@pytest.mark.parametrize("sql", LOOKING_INSIDE)
def test_the_engine_itself_is_not_seen(shop: ab.Repository, sql: str) -> None:
    with pytest.raises((InvalidExpressionError, TableNotFoundError)):
        shop.sql(sql)


def test_the_engine_is_locked_even_for_what_gets_past_the_checks() -> None:
    session = Database().session()
    run = session.connection.execute
    for sql in (
        "FROM '/etc/passwd'",
        "FROM read_text('/etc/passwd')",
        "FROM glob('/etc/*')",
        "COPY (SELECT 1) TO '/tmp/anabranch-test-out.csv'",
        "ATTACH '/tmp/anabranch-test.db' AS x",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET threads = 64",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE PERSISTENT SECRET s (TYPE s3)",
        "SELECT getenv('HOME')",
    ):
        with pytest.raises(Exception, match=r"(?s)Error"):
            run(sql)
    python_variable = [SECRET]
    with pytest.raises(Exception, match="python_variable"):
        run("FROM python_variable")
    assert python_variable == [SECRET]
    session.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
        "SELECT " + "+".join(["1"] * 900),
        "SELECT " + "+".join(["1"] * 5_000),
        "SELECT * FROM " + "(FROM " * 800 + "in_c_sales.orders" + ")" * 800,
        "/**/" * 500 + "x",
        "FROM in_c_sales" + "/**/" * 500 + "x",
        "SELECT repeat('x', 100_000_000_000)",
    ],
)
def test_huge_queries_are_refused_not_suffered(shop: ab.Repository, sql: str) -> None:
    with pytest.raises(AnabranchError):
        shop.sql(sql)
    assert rows(shop, "SELECT 1") == [(1,)]
