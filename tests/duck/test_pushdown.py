"""Columns and filters reach Lance, and the rows are the same as if they had not."""

import datetime as dt
import math
import re
from decimal import Decimal
from pathlib import Path

import duckdb
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given

import anabranch as ab
from anabranch.format import staging
from anabranch.format.scan import ArrowDataset
from tests.duck.conftest import rows

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("tiny", pa.uint8()),
        ("huge", pa.uint64()),
        ("f", pa.float64()),
        ("f32", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.time64("us")),
        ("tn", pa.time64("ns")),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("n", pa.decimal128(10, 2)),
        ("bin", pa.binary()),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.float64())])),
    ]
)
TEXTS = ["", "a'b", '"', "\\", "%", "é", "null", "ab", "a\nb", "A"]
FLOATS = [0.0, -0.0, 1.5, -2.0, 1e300, math.inf, -math.inf, math.nan]
DAYS = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
TIMES = [dt.time(0), dt.time(12, 30, 1, 5), dt.time(23, 59, 59)]
MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2024, 2, 29, 12), dt.datetime(2300, 1, 1)]
VALUES: dict[str, list[object]] = {
    "i": [0, 1, -1, 7, 2**63 - 1, -(2**63)],
    "tiny": [0, 1, 255],
    "huge": [0, 1, 2**64 - 1],
    "f": list(FLOATS),
    "f32": [0.0, -0.0, 0.1, math.nan],
    "s": list(TEXTS),
    "b": [True, False],
    "d": list(DAYS),
    "t": list(TIMES),
    "tn": list(TIMES),
    "moment": [moment.replace(tzinfo=dt.UTC) for moment in MOMENTS],
    "local": list(MOMENTS),
    "n": [Decimal("0.00"), Decimal("-1.25"), Decimal("99999999.99")],
    "bin": [b"", b"a\0b", b"'"],
}


def _table() -> pa.Table:
    """Every value and null of every column, each in some company of the others."""
    length = 24
    columns = {name: [[*found, None][n % (len(found) + 1)] for n in range(length)] for name, found in VALUES.items()}
    columns["st"] = [None if n % 7 == 6 else {"x": n % 3, "y": FLOATS[n % 8]} for n in range(length)]
    return pa.table(columns, schema=SCHEMA)


def _without_times() -> pa.Table:
    """The columns without times, beside which Lance refuses all filters of engines."""
    return _table().drop_columns(["t", "tn"])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ab.Repository:
    repo = ab.init(tmp_path_factory.mktemp("pushdown") / "lake")
    with repo.transaction() as tx:
        tx.create_table("s.t", SCHEMA)
        tx.create_table("s.p", _without_times().schema)
    for start, length in ((0, 10), (10, 14)):
        with repo.transaction() as tx:
            tx.append("s.t", _table().slice(start, length))
            tx.append("s.p", _without_times().slice(start, length))
    return repo


@pytest.fixture(scope="module")
def reference() -> duckdb.DuckDBPyConnection:
    """The same rows inside DuckDB, where nothing is pushed anywhere."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("source", _table())
    connection.execute(
        "CREATE SCHEMA s; CREATE TABLE s.t AS FROM source; CREATE TABLE s.u AS FROM s.t; CREATE VIEW s.p AS FROM s.t"
    )
    return connection


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        left, right = draw(conditions(depth - 1)), draw(conditions(depth - 1))
        return draw(st.sampled_from([f"({left} AND {right})", f"({left} OR {right})", f"(NOT {left})"]))
    column = draw(st.sampled_from(sorted(VALUES)))
    values = st.sampled_from(VALUES[column]).map(lambda value: _literal(column, value))
    forms = [
        st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"]), values).map(
            lambda pair: f"{column} {pair[0]} {pair[1]}"
        ),
        st.lists(values, min_size=1, max_size=4).map(lambda found: f"{column} IN ({', '.join(found)})"),
        st.lists(values, min_size=1, max_size=4).map(lambda found: f"{column} NOT IN ({', '.join(found)})"),
        st.tuples(values, values).map(lambda pair: f"{column} BETWEEN {pair[0]} AND {pair[1]}"),
        st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL"]),
        st.sampled_from([f"s LIKE '{pattern}'" for pattern in ("a%", "%b", "a_b", "A", "%")]),
        st.sampled_from(["st.x = 1", "st.x > 0", "st.y > 1", "st.y <= 0", "st.y = 'nan'", "st.x IS NULL", "i = tiny"]),
    ]
    return draw(st.one_of(forms))


def _literal(column: str, value: object) -> str:
    kinds = {"f32": "FLOAT", "f": "DOUBLE", "huge": "UBIGINT", "tiny": "UTINYINT", "i": "BIGINT", "n": "DECIMAL(10, 2)"}
    kinds |= {"d": "DATE", "t": "TIME", "tn": "TIME_NS", "moment": "TIMESTAMPTZ", "local": "TIMESTAMP", "b": "BOOLEAN"}
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    text = str(value).replace("'", "''")
    return f"'{text}'" if column == "s" else f"'{text}'::{kinds[column]}"


@given(conditions())
@example("f > 1.5::DOUBLE")
@example("f <= 'nan'::DOUBLE")
@example("f >= 0::DOUBLE AND f <> 'inf'::DOUBLE")
@example("huge IN (1::UBIGINT, 18446744073709551615::UBIGINT)")
@example("tn = '12:30:01'::TIME_NS")
@example("st IN ({'x': 0, 'y': 0.0})")
def test_the_same_rows_come_with_and_without_pushing(
    lake: ab.Repository, reference: duckdb.DuckDBPyConnection, condition: str
) -> None:
    columns = "i, f::VARCHAR, s, d, st::VARCHAR"
    has_times = re.search(r"\btn?\b", condition)
    for table in ("s.t",) if has_times else ("s.t", "s.p"):
        sql = f"SELECT {columns} FROM {table} WHERE {condition} ORDER BY ALL"
        assert rows(lake, sql) == reference.execute(sql).fetchall()


def test_explain_shows_the_columns_and_filters_that_are_pushed(lake: ab.Repository) -> None:
    plan = lake.sql("EXPLAIN SELECT s FROM s.t WHERE i > 3 AND f < 2.5").column("explain_value")[0].as_py()
    assert "Projections: s" in plan
    assert "i>3" in plan
    assert "f<2.5" in plan
    assert "FILTER" not in plan
    assert "tiny" not in plan
    assert "rows" in lake.sql("explain analyze SELECT s FROM s.t").column("explain_value")[0].as_py()


def _spy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plans of Lance behind the queries that follow."""
    plans: list[str] = []
    scanner = ArrowDataset.scanner

    def note(self: ArrowDataset, *args: object, **options: object) -> object:
        scan = scanner(self, *args, **options)  # type: ignore[arg-type]
        plans.append(scan.explain())
        return scan

    monkeypatch.setattr(ArrowDataset, "scanner", note)
    return plans


@pytest.mark.parametrize(
    ("condition", "pushed"),
    [
        ("i > 3", "i > Int64(3)"),
        ("s = 'a''b'", 's = Utf8("a\'b")'),
        ("s LIKE 'ab%'", 's >= Utf8("ab") AND s < Utf8("ac")'),
        ("i IN (1, 2, 3)", "i >= Int64(1) AND i <= Int64(3)"),
        ("d >= DATE '2024-02-29'", 'd >= Date32("2024-02-29")'),
        ("moment < '2024-02-29'", 'moment < TimestampMicrosecond(1709164800000000, Some("UTC"))'),
        ("local = '2024-02-29'", "local = TimestampMicrosecond(1709164800000000, None)"),
        ("i > ?", "i > Int64(41)"),
    ],
)
def test_lance_reads_only_the_columns_and_rows_asked_for(
    lake: ab.Repository, monkeypatch: pytest.MonkeyPatch, condition: str, pushed: str
) -> None:
    plans = _spy(monkeypatch)
    column = condition.split()[0]
    lake.sql(f"SELECT {column} FROM s.p WHERE {condition}", params=[41] if "?" in condition else None)
    (plan,) = plans
    assert pushed in plan
    assert f"projection=[{column}]" in plan


@pytest.mark.parametrize("condition", ["tiny = 3", "i IN (1, 2, 3, 5)", "f > 2.5"])
def test_lance_reads_all_rows_for_filters_that_it_cannot_decide(
    lake: ab.Repository, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    plans = _spy(monkeypatch)
    column = condition.split()[0]
    lake.sql(f"SELECT {column} FROM s.p WHERE {condition}")
    assert all("full_filter=--" in plan for plan in plans)
    assert f"projection=[{column}]" in plans[-1]


def test_counting_reads_one_column(lake: ab.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = _spy(monkeypatch)
    assert rows(lake, "SELECT count(*) FROM s.t") == [(24,)]
    assert "projection=[i]" in plans[0]


def test_an_index_finds_the_rows_of_a_query(tmp_path: Path) -> None:
    repo = ab.init(tmp_path / "lake")
    with repo.transaction() as tx:
        tx.create_table("s.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), primary_key=["id"])
        tx.append("s.t", pa.table({"id": range(1000), "v": ["x"] * 1000}))
    dataset = ArrowDataset(staging.index(repo.snapshot()["s.t"].version_ref, "id", staging.IndexKind.BTREE))
    assert "ScalarIndexQuery" in dataset.scanner(["v"], pc.field("id") == 7).explain()
    assert dataset.scanner(["id"], pc.field("id") == 7).to_table().to_pydict() == {"id": [7]}


def test_less_is_read_from_the_disk(tmp_path: Path) -> None:
    repo = ab.init(tmp_path / "lake")
    noise = np.random.default_rng(1).bytes(2_000_000)
    with repo.transaction() as tx:
        tx.create_table("s.t", pa.schema([("id", pa.int64()), ("blob", pa.binary())]))
        tx.append("s.t", pa.table({"id": range(200), "blob": [noise[n * 10_000 :][:10_000] for n in range(200)]}))
    opened = repo.snapshot()["s.t"].to_dataset()._opened
    opened.io_stats_incremental()
    assert rows(repo, "SELECT sum(id) FROM s.t") == [(19900,)]
    few = opened.io_stats_incremental().read_bytes
    assert rows(repo, "SELECT sum(octet_length(blob)) FROM s.t") == [(2_000_000,)]
    many = opened.io_stats_incremental().read_bytes
    assert rows(repo, "SELECT octet_length(blob) FROM s.t WHERE id = 77") == [(10_000,)]
    one = opened.io_stats_incremental().read_bytes
    assert few < 100_000 < 1_000_000 < many
    assert one < 500_000
