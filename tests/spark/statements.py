"""The SQL statements of the catalog and their effects, in the order in which they run on one branch of a small lake.

`{s.items}` means a table of the branch, `{system.index}` for a procedure, `{branch}` for its last argument, and
`{ref}` for the name of the branch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import anabranch as ab

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a table holds: its rows, in the order of the first columns."""

    key: str
    rows: Rows
    columns: str = "id v"
    primary_key: str = "id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A statement that is one commit with its text as message, and the table that it leaves.

    `gone` is a table that the branch does not have any more.
    """

    sql: str
    table: Table | None = None
    gone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameWrite:
    """A write of a DataFrame: one commit, whose message begins so. `act` gets the session and the name of the table."""

    act: Callable[[SparkSession, str], Any]
    table: Table
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A procedure that is one commit on the branch, the table that it leaves, and values of its first row."""

    sql: str
    table: Table
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A statement that changes nothing, and its rows; or only words that its answer holds."""

    sql: str
    rows: Rows | None = None
    words: tuple[str, ...] = ()


def fill_items(repo: ab.Repository) -> None:
    """Fill a lake with tables with a key of one column, of two columns and without a key; tag and branch it."""
    items = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "v": ["a", "b", "c", "d"]})
    lines = pa.table({"a": pa.array([1, 1, 2], pa.int32()), "b": ["x", "y", "x"], "n": pa.array([1, 2, 3], pa.int64())})
    nested = pa.table({"id": [1], "place": [{"city": "Brno", "zip": "602"}], "few": pa.array([7], pa.int32())})
    with repo.transaction(message="first") as tx:
        for key, rows, primary_key in (
            ("s.items", items, ["id"]),
            ("s.lines", lines, ["a", "b"]),
            ("s.events", items, []),
            ("s.nested", nested, []),
        ):
            tx.create_table(key, rows.schema, primary_key=primary_key)
            tx.append(key, rows)
    repo.tag_create("v1")
    repo.branch_create("dev")


def items(*rows: tuple[Any, ...], key: str = "s.items") -> Table:
    return Table(key=key, rows=list(rows))


def lines(*rows: tuple[Any, ...]) -> Table:
    return Table(key="s.lines", rows=list(rows), columns="a b n", primary_key="a b")


def events(*rows: tuple[Any, ...]) -> Table:
    return Table(key="s.events", rows=list(rows), primary_key="")


def frame(spark: SparkSession, *rows: tuple[int, str | None]) -> DataFrame:
    return spark.createDataFrame(rows, "id bigint, v string")


ROWS: tuple[Write | FrameWrite, ...] = (
    Write(
        sql="INSERT INTO {s.items} VALUES (5, 'e'), (6, 'f')",
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, "f")),
    ),
    Write(
        sql="INSERT INTO {s.items} (id) VALUES (7)",
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, "f"), (7, None)),
    ),
    Write(
        sql="INSERT INTO {s.items} BY NAME SELECT 'h' AS v, max(id) + 1 AS id FROM {s.items}",
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, "f"), (7, None), (8, "h")),
    ),
    Write(
        sql="INSERT INTO {s.items} REPLACE WHERE id >= 6 SELECT id + 100, v FROM {s.items} WHERE id = 1",
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (101, "a")),
    ),
    Write(
        sql="INSERT OVERWRITE {s.items} SELECT id, v FROM {s.items} WHERE id < 5",
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d")),
    ),
    FrameWrite(
        act=lambda spark, name: frame(spark, (5, "e")).writeTo(name).append(),
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")),
        message="Write 's.items' with Spark",
    ),
    FrameWrite(
        act=lambda spark, name: frame(spark, (5, "E"), (6, "f")).writeTo(name).option("upsert", "true").append(),
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "E"), (6, "f")),
        message="Write 's.items' with Spark",
    ),
    FrameWrite(
        act=lambda spark, name: (
            frame(spark, (7, "g")).writeTo(name).option("message", "Two go").overwrite(sf.col("id") >= 5)
        ),
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (7, "g")),
        message="Two go",
    ),
    FrameWrite(
        act=lambda spark, name: frame(spark, (8, "h")).write.insertInto(name),
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (7, "g"), (8, "h")),
        message="Write 's.items' with Spark",
    ),
    FrameWrite(
        act=lambda spark, name: frame(spark, (9, "i")).write.mode("append").saveAsTable(name),
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (7, "g"), (8, "h"), (9, "i")),
        message="Write 's.items' with Spark",
    ),
    FrameWrite(
        act=lambda spark, name: (
            frame(spark, (9, "I"), (10, "j"))
            .alias("n")
            .mergeInto(name, sf.expr(f"n.id = {name.rpartition('.')[2]}.id"))
            .whenMatched()
            .updateAll()
            .whenNotMatched()
            .insertAll()
            .whenNotMatchedBySource(sf.expr("id IN (7, 8)"))
            .delete()
            .merge()
        ),
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (9, "I"), (10, "j")),
        message="MERGE s.items",
    ),
    Write(
        sql="UPDATE {s.items} SET v = concat(v, '!') WHERE id % 2 = 0",
        table=items((1, "a"), (2, "b!"), (3, "c"), (4, "d!"), (9, "I"), (10, "j!")),
    ),
    Write(
        sql="UPDATE {s.items} SET id = id + 100 WHERE id > 8",
        table=items((1, "a"), (2, "b!"), (3, "c"), (4, "d!"), (109, "I"), (110, "j!")),
    ),
    Write(
        sql="UPDATE {s.items} SET v = upper(v)",
        table=items((1, "A"), (2, "B!"), (3, "C"), (4, "D!"), (109, "I"), (110, "J!")),
    ),
    Write(
        sql="DELETE FROM {s.items} WHERE id = 109",
        table=items((1, "A"), (2, "B!"), (3, "C"), (4, "D!"), (110, "J!")),
    ),
    Write(
        sql="DELETE FROM {s.items} WHERE length(v) = 2 AND id > 100",
        table=items((1, "A"), (2, "B!"), (3, "C"), (4, "D!")),
    ),
    Write(
        sql="DELETE FROM {s.items} WHERE id IN (SELECT id + 3 FROM {s.events} WHERE v = 'a')",
        table=items((1, "A"), (2, "B!"), (3, "C")),
    ),
    Write(
        sql="MERGE INTO {s.items} t USING (SELECT * FROM VALUES (1, 'm'), (2, NULL), (5, 'n'), (6, 'o') AS x (id, v)) s"
        " ON t.id = s.id"
        " WHEN MATCHED AND s.v IS NULL THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED AND s.v = 'n' THEN INSERT *"
        " WHEN NOT MATCHED AND s.id = 6 THEN INSERT (id) VALUES (s.id)"
        " WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN UPDATE SET v = 'alone'"
        " WHEN NOT MATCHED BY SOURCE THEN DELETE",
        table=items((1, "m"), (3, "alone"), (5, "n"), (6, None)),
    ),
    Write(
        sql="MERGE INTO {s.items} t USING (SELECT 6 AS id, 'six' AS v UNION ALL SELECT 7, 'seven') s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        table=items((1, "m"), (3, "alone"), (5, "n"), (6, "six"), (7, "seven")),
    ),
    Write(
        sql="MERGE INTO {s.items} t USING (SELECT 5 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 50",
        table=items((1, "m"), (3, "alone"), (6, "six"), (7, "seven"), (50, "n")),
    ),
    Write(
        sql="MERGE INTO {s.items} t USING (SELECT 50 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
        " WHEN NOT MATCHED BY SOURCE AND t.id > 5 THEN DELETE",
        table=items((1, "m"), (3, "alone")),
    ),
    Write(
        sql="MERGE INTO {s.lines} t USING (SELECT 1 AS a, 'y' AS b, 20L AS n UNION ALL SELECT 3, 'y', 30L) s"
        " ON t.a = s.a AND t.b = s.b WHEN MATCHED THEN UPDATE SET n = t.n + s.n WHEN NOT MATCHED THEN INSERT *"
        " WHEN NOT MATCHED BY SOURCE AND t.a = 2 THEN DELETE",
        table=lines((1, "x", 1), (1, "y", 22), (3, "y", 30)),
    ),
    Write(
        sql="UPDATE {s.lines} SET a = 4, b = 'z' WHERE a = 3 AND b = 'y'",
        table=lines((1, "x", 1), (1, "y", 22), (4, "z", 30)),
    ),
    Write(
        sql="MERGE INTO {s.events} t USING {s.items} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE",
        table=events((1, "m"), (2, "b"), (3, "alone")),
    ),
    Write(sql="UPDATE {s.events} SET v = 'u' WHERE id = 2", table=events((1, "m"), (2, "u"), (3, "alone"))),
    Write(sql="DELETE FROM {s.events} WHERE id = 1", table=events((2, "u"), (3, "alone"))),
    Write(sql="TRUNCATE TABLE {s.events}", table=events()),
)

_MADE = Table(key="s.made", rows=[(1, "m"), (3, "alone")])

TABLES: tuple[Write | FrameWrite, ...] = (
    Write(
        sql="CREATE TABLE {s.made} TBLPROPERTIES ('primaryKey' = 'id') AS SELECT * FROM {s.items}",
        table=_MADE,
    ),
    Write(
        sql="CREATE OR REPLACE TABLE {s.made} AS SELECT id * 2 AS twice FROM {s.made}",
        table=Table(key="s.made", rows=[(2,), (6,)], columns="twice", primary_key=""),
    ),
    Write(
        sql="REPLACE TABLE {s.made} TBLPROPERTIES ('primaryKey' = 'id') AS SELECT * FROM {s.items}",
        table=_MADE,
    ),
    Write(
        sql="CREATE TABLE {s.none} AS SELECT * FROM {s.items} WHERE id < 0",
        table=Table(key="s.none", rows=[], primary_key=""),
    ),
    Write(
        sql="CREATE OR REPLACE TABLE {s.made} (id BIGINT NOT NULL, n INT)",
        table=Table(key="s.made", rows=[], columns="id n", primary_key=""),
    ),
    FrameWrite(
        act=lambda spark, name: frame(spark, (1, "x")).writeTo(name).tableProperty("primaryKey", "id").replace(),
        table=Table(key="s.made", rows=[(1, "x")]),
        message="CREATE TABLE ",
    ),
    FrameWrite(
        act=lambda spark, name: frame(spark, (2, "y")).writeTo(name).createOrReplace(),
        table=Table(key="s.made", rows=[(2, "y")], primary_key=""),
        message="CREATE TABLE ",
    ),
    Write(sql="DROP TABLE {s.made}", gone="s.made"),
    FrameWrite(
        act=lambda spark, name: frame(spark, (1, "x")).writeTo(name).using("anabranch").create(),
        table=Table(key="s.made", rows=[(1, "x")], primary_key=""),
        message="CREATE TABLE ",
    ),
    FrameWrite(
        act=lambda spark, name: frame(spark, (3, "z")).write.mode("overwrite").saveAsTable(name),
        table=Table(key="s.made", rows=[(3, "z")], primary_key=""),
        message="CREATE TABLE ",
    ),
    Write(sql="DROP TABLE IF EXISTS {s.made}", gone="s.made"),
    Write(
        sql="CREATE TABLE {s.new} (a INT COMMENT 'one', b STRING NOT NULL DEFAULT 'x', c DOUBLE, PRIMARY KEY (a, b))"
        " USING anabranch COMMENT 'new' TBLPROPERTIES ('team' = 'sales')",
        table=Table(key="s.new", rows=[], columns="a b c", primary_key="a b"),
    ),
    Write(
        sql="CREATE TABLE IF NOT EXISTS {s.alike} LIKE {s.new}",
        table=Table(key="s.alike", rows=[], columns="a b c", primary_key="a b"),
    ),
    Write(
        sql="INSERT INTO {s.alike} (a) VALUES (1)",
        table=Table(key="s.alike", rows=[(1, "x", None)], columns="a b c", primary_key="a b"),
    ),
    Write(
        sql="ALTER TABLE {s.alike} RENAME TO other",
        gone="s.alike",
        table=Table(key="s.other", rows=[(1, "x", None)], columns="a b c", primary_key="a b"),
    ),
    Write(
        sql="ALTER TABLE {s.other} RENAME TO t.other",
        gone="s.other",
        table=Table(key="t.other", rows=[(1, "x", None)], columns="a b c", primary_key="a b"),
    ),
    Write(sql="DROP TABLE {t.other}", gone="t.other"),
)


def _items(columns: str, *rows: tuple[Any, ...], primary_key: str = "id") -> Table:
    return Table(key="s.items", rows=list(rows), columns=columns, primary_key=primary_key)


ALTERATIONS: tuple[Write, ...] = (
    Write(
        sql="ALTER TABLE {s.items} ADD COLUMN n INT COMMENT 'a number'",
        table=_items("id v n", (1, "m", None), (3, "alone", None)),
    ),
    Write(
        sql="ALTER TABLE {s.items} ADD COLUMNS (price DOUBLE DEFAULT 1.5, note STRING)",
        table=_items("id v n price note", (1, "m", None, 1.5, None), (3, "alone", None, 1.5, None)),
    ),
    Write(
        sql="ALTER TABLE {s.items} RENAME COLUMN n TO amount",
        table=_items("id v amount price note", (1, "m", None, 1.5, None), (3, "alone", None, 1.5, None)),
    ),
    Write(sql="ALTER TABLE {s.items} ALTER COLUMN amount TYPE BIGINT"),
    Write(sql="ALTER TABLE {s.items} ALTER COLUMN amount COMMENT 'how many'"),
    Write(sql="ALTER TABLE {s.items} ALTER COLUMN note SET DEFAULT 'it''s new'"),
    Write(
        sql="INSERT INTO {s.items} (id) VALUES (4)",
        table=_items(
            "id v amount price note",
            (1, "m", None, 1.5, None),
            (3, "alone", None, 1.5, None),
            (4, None, None, 1.5, "it's new"),
        ),
    ),
    Write(sql="ALTER TABLE {s.items} ALTER COLUMN note DROP DEFAULT"),
    Write(
        sql="ALTER TABLE {s.items} DROP COLUMNS (price, note)",
        table=_items("id v amount", (1, "m", None), (3, "alone", None), (4, None, None)),
    ),
    Write(
        sql="ALTER TABLE {s.items} DROP COLUMN amount",
        table=_items("id v", (1, "m"), (3, "alone"), (4, None)),
    ),
    Write(
        sql="ALTER TABLE {s.nested} RENAME COLUMN place.zip TO code",
        table=Table(
            key="s.nested", rows=[(1, {"city": "Brno", "code": "602"}, 7)], columns="id place few", primary_key=""
        ),
    ),
    Write(
        sql="ALTER TABLE {s.nested} DROP COLUMN place.code",
        table=Table(key="s.nested", rows=[(1, {"city": "Brno"}, 7)], columns="id place few", primary_key=""),
    ),
    Write(sql="ALTER TABLE {s.nested} ADD COLUMN sure INT NOT NULL DEFAULT 3"),
    Write(
        sql="ALTER TABLE {s.nested} ALTER COLUMN sure DROP NOT NULL",
        table=Table(key="s.nested", rows=[(1, {"city": "Brno"}, 7, 3)], columns="id place few sure", primary_key=""),
    ),
    Write(sql="ALTER TABLE {s.items} SET TBLPROPERTIES ('team' = 'sales', 'level' = '1')"),
    Write(sql="ALTER TABLE {s.items} UNSET TBLPROPERTIES ('level')"),
    Write(sql="COMMENT ON TABLE {s.items} IS 'what was sold'"),
    Write(
        sql="ALTER TABLE {s.items} DROP CONSTRAINT primary_key",
        table=_items("id v", (1, "m"), (3, "alone"), (4, None), primary_key=""),
    ),
    Write(
        sql="ALTER TABLE {s.items} SET TBLPROPERTIES ('primaryKey' = 'id')",
        table=_items("id v", (1, "m"), (3, "alone"), (4, None)),
    ),
    Write(
        sql="ALTER TABLE {s.items} UNSET TBLPROPERTIES ('primaryKey')",
        table=_items("id v", (1, "m"), (3, "alone"), (4, None), primary_key=""),
    ),
    Write(
        sql="ALTER TABLE {s.items} ADD CONSTRAINT primary_key PRIMARY KEY (id)",
        table=_items("id v", (1, "m"), (3, "alone"), (4, None)),
    ),
)

_LOADED = _items("id v", (1, "m"), (3, "alone"), (4, None), (20, "t"), (21, "u"))
_MERGED = _items("id v", (1, "m"), (3, "alone"), (4, None), (20, "t"), (21, "u"), (30, "w"))

CALLS: tuple[Call | Read, ...] = (
    Call(
        sql="CALL {system.load}('s.items', '{file}', delimiter => ';'{branch})",
        table=_LOADED,
        answer={"branch": "{ref}", "rows_loaded": 2},
    ),
    Call(
        sql="CALL {system.revert}('{ref}'{branch})",
        table=_items("id v", (1, "m"), (3, "alone"), (4, None)),
        answer={"tables": "s.items"},
    ),
    Call(
        sql="CALL {system.cherry_pick}('{ref}~1', message => 'again'{branch})",
        table=_LOADED,
        answer={"tables": "s.items", "message": "again"},
    ),
    Call(
        sql="CALL {system.compact}(tables => array('s.items'){branch})",
        table=_LOADED,
        answer={"table": "s.items", "fragments_after": 1},
    ),
    Call(sql="CALL {system.index}('s.items', 'v', 'BITMAP'{branch})", table=_LOADED, answer={"index": "v_idx"}),
    Read(
        sql="CALL {system.export}('s.items', '{file}.parquet', ref => '{ref}', where => 'id > 3')",
        words=("format='parquet'", "files=1", "rows=3"),
    ),
    Read(sql="CALL {system.create_branch}('work', source => '{ref}')", words=("work", "pinned")),
    Read(sql="INSERT INTO {lake}.s.items.branch_work VALUES (30, 'w')", rows=[]),
    Read(sql="CALL {system.diff}(before => '{ref}', after => 'work')", words=("s.items", "inserted=1")),
    Read(sql="CALL {system.diff_rows}('s.items', '{ref}', 'work')", words=('{"id": 30, "v": "w"}',)),
    Read(sql="CALL {system.conflicts}('work', into => '{ref}')", rows=[]),
    Read(sql="CALL {system.merge}('work', into => '{ref}', dry_run => true)", words=("s.items", "inserted=1")),
    Call(
        sql="CALL {system.merge}('work', into => '{ref}')",
        table=_MERGED,
        answer={"table": "s.items", "inserted": 1},
    ),
    Read(sql="CALL {system.rename_branch}('work', to => 'other')", words=("other",)),
    Read(sql="CALL {system.rename_branch}('other', to => 'work')", words=("work",)),
    Read(sql="CALL {system.delete_branch}('work')", words=("work",)),
    Read(sql="CALL {system.restore_branch}('work')", words=("work",)),
    Read(sql="CALL {system.delete_branch}('work', purge => true)", words=("work",)),
    Read(sql="CALL {system.tag}('v2', ref => '{ref}')", words=("v2",)),
    Read(sql="CALL {system.delete_tag}('v2')", words=("v2",)),
    Read(sql="CALL {system.protect_branch}('{ref}')", words=("protected=True",)),
    Read(sql="CALL {system.unprotect_branch}('{ref}')", words=("protected=False",)),
    Read(sql="CALL {system.gc}(keep_last => 100, dry_run => true)", words=("damaged=0",)),
    Read(sql="CALL {system.gc}()", words=("damaged=0",)),
)

READS: tuple[Read, ...] = (
    Read(
        sql="SELECT * FROM {s.items} WHERE id < 25 ORDER BY id",
        rows=[(1, "m"), (3, "alone"), (4, None), (20, "t"), (21, "u")],
    ),
    Read(sql="SELECT count(*), min(id), max(v) FROM {s.items} i JOIN {s.lines} l ON l.a = i.id", rows=[(3, 1, "m")]),
    Read(sql="SELECT count(*) FROM {s.items} VERSION AS OF 'v1'", rows=[(4,)]),
    Read(sql="SELECT count(*) FROM {s.items} VERSION AS OF '{ref}~1'", rows=[(5,)]),
    Read(sql="SELECT count(*) FROM {s.items} VERSION AS OF {version}", rows=[(4,)]),
    Read(sql="SELECT count(*) FROM {s.items} TIMESTAMP AS OF timestamp_micros({time})", rows=[(4,)]),
    Read(sql="SELECT count(*) FROM {lake}.s.items.tag_v1", rows=[(4,)]),
    Read(sql="SELECT count(*) FROM {lake}.s.items.commit_{first}", rows=[(4,)]),
    Read(sql="SELECT min(rows_after) FROM {s.items}.history", rows=[(2,)]),
    Read(sql="SELECT count(*) FROM {s.items}.changes WHERE _change = 'insert' AND id = 30", rows=[(1,)]),
    Read(sql="SELECT sum(rows - deletions) FROM {s.items}.files", rows=[(6,)]),
    Read(sql="SELECT name, type FROM {s.items}.refs", rows=[("dev", "branch"), ("main", "branch"), ("v1", "tag")]),
    Read(sql="SHOW NAMESPACES IN {lake}", rows=[("s",)]),
    Read(sql="SHOW TABLES IN {lake}.s", words=("items", "events")),
    Read(sql="SHOW COLUMNS IN {s.items}", rows=[("id",), ("v",)]),
    Read(sql="SHOW TBLPROPERTIES {s.items}", words=("'team', value='sales'", "'primaryKey', value='id'", "'{ref}'")),
    Read(sql="SHOW CREATE TABLE {s.items}", words=("PRIMARY KEY (id)",)),
    Read(sql="DESCRIBE {s.items}", words=("'id', data_type='bigint'",)),
    Read(sql="DESCRIBE EXTENDED {s.items}", words=("what was sold", "branch={ref}", "rows=6", "PRIMARY KEY (id)")),
    Read(sql="DESCRIBE NAMESPACE {lake}.s", words=("s",)),
    Read(sql="EXPLAIN SELECT v FROM {s.items} WHERE id = 1", words=("anabranch",)),
)

STATEMENTS = (*ROWS, *TABLES, *ALTERATIONS, *CALLS, *READS)

# One of each kind: on S3 all statements take too long for a quick run.
SOME_STATEMENTS: tuple[Write | Call | Read, ...] = (
    Write(
        sql="INSERT INTO {s.items} SELECT id + 4, v FROM {s.items} WHERE id > 3",
        table=items((1, "a"), (2, "b"), (3, "c"), (4, "d"), (8, "d")),
    ),
    Write(
        sql="MERGE INTO {s.items} t USING (SELECT * FROM VALUES (1, 'm'), (2, NULL), (9, 'n') AS x (id, v)) s"
        " ON t.id = s.id WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET *"
        " WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.id = 8 THEN DELETE",
        table=items((1, "m"), (3, "c"), (4, "d"), (9, "n")),
    ),
    Write(sql="UPDATE {s.items} SET id = 5 WHERE id = 9", table=items((1, "m"), (3, "c"), (4, "d"), (5, "n"))),
    Write(sql="DELETE FROM {s.items} WHERE id > 3", table=items((1, "m"), (3, "c"))),
    Write(
        sql="CREATE TABLE {s.made} TBLPROPERTIES ('primaryKey' = 'id') AS SELECT * FROM {s.items}",
        table=Table(key="s.made", rows=[(1, "m"), (3, "c")]),
    ),
    Write(sql="INSERT OVERWRITE {s.made} VALUES (7, 'x')", table=Table(key="s.made", rows=[(7, "x")])),
    Write(sql="ALTER TABLE {s.items} ADD COLUMN n INT DEFAULT 5", table=_items("id v n", (1, "m", 5), (3, "c", 5))),
    Write(sql="DROP TABLE {s.made}", gone="s.made"),
    Call(
        sql="CALL {system.load}('s.events', '{file}', delimiter => ';', mode => 'overwrite'{branch})",
        table=events((20, "t"), (21, "u")),
        answer={"branch": "{ref}", "rows_loaded": 2},
    ),
    Read(sql="SELECT * FROM {s.items} WHERE id > 1", rows=[(3, "c", 5)]),
    Read(sql="SELECT count(*) FROM {s.items} VERSION AS OF 'v1'", rows=[(4,)]),
    Read(sql="SELECT min(rows_after) FROM {s.items}.history", rows=[(2,)]),
)
