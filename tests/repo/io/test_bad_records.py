"""Records that are not rows are named by file and line or put aside, and never loaded in part."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BadRecordError, DamagedFileError, KeyConflictError, SchemaMismatchError
from tests.conftest import Location
from tests.repo.conftest import nothing_changes
from tests.repo.io.conftest import ORDERS, REJECTS, Put, rows


def test_a_bad_line_in_the_middle_of_many_is_named_and_nothing_is_loaded(
    repo: ab.Repository, put: Put, engine: str, request: pytest.FixtureRequest
) -> None:
    count = 1_000_000 if request.config.getoption("--proof") else 100_000
    middle = count // 2
    lines = [f"{n},customer {n % 977},{n * 0.5}" for n in range(count)]
    lines[middle] = f"{middle},too,few,or,many"
    file = put("orders.csv", "\n".join(["id,name,amount", *lines, ""]))
    line = middle + 2  # lines count from one, and the header is one
    with nothing_changes(repo), pytest.raises(BadRecordError) as caught:
        repo.load(ORDERS, file, engine=engine)
    assert f"{file}, line {line}: it has 5 values for 3 columns: '{middle},too,few,or,many'" in str(caught.value)
    assert caught.value.details == {"file": file, "line": line, "reason": "it has 5 values for 3 columns"}
    report = repo.load(ORDERS, file, on_bad="reject", engine=engine)
    assert (report.rows_read, report.rows_loaded, report.rows_rejected) == (count, count - 1, 1)
    assert (report.reject_table, repo.snapshot()[ORDERS].count_rows()) == (REJECTS, count - 1)
    assert rows(repo, REJECTS) == [
        {"file": file, "line": line, "reason": "it has 5 values for 3 columns", "text": f"{middle},too,few,or,many"}
    ]
    assert repo.get_commit(str(report.commit_id)).tables == (ORDERS, REJECTS)


def test_lines_are_exact_after_skipped_lines_blank_lines_and_line_breaks_in_values(
    repo: ab.Repository, put: Put, engine: str
) -> None:
    text = (
        'a note\n"not closed\nid,"na\nme",v\n1,a,2.5\n\n2,"b\n\nc",3.5\n3,x\n4,"stray,1\n'
        'five,q,1\n6,"last\n",7\n7,z,oops\n8,"q"x,1\n,y,1\n9,ok,1'
    )
    report = repo.load(
        ORDERS,
        put("a.csv", text),
        csv=ab.CsvOptions(skip=2),
        on_bad="reject",
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("na\nme", pa.string()), ("v", pa.float64())]),
        engine=engine,
    )
    assert [row["id"] for row in rows(repo)] == [1, 2, 6, 9]
    found = [(row["line"], row["reason"], row["text"]) for row in rows(repo, REJECTS)]
    unclosed = "a quote is not closed, or text follows a closing one"
    assert found == [
        (10, "it has 2 values for 3 columns", "3,x"),
        (11, unclosed, '4,"stray,1'),
        (12, "cannot convert 'five' to int64 (column 'id')", "five,q,1"),
        (15, "cannot convert 'oops' to float64 (column 'v')", "7,z,oops"),
        (16, unclosed, '8,"q"x,1'),
        (17, "column 'id' needs a value and has none", ",y,1"),
    ]
    assert (report.rows_read, report.rows_rejected) == (10, 6)


def test_stray_quote_makes_one_line_bad(repo: ab.Repository, put: Put) -> None:
    """Blocks are cut by counting quotes, which one stray quote throws out of step."""
    lines = [f'{n},"value {n}",{n}' for n in range(200_000)]
    for n in (5, 60_000, 199_999):
        lines[n] = f'{n},"value {n},{n}'
    repo.load(ORDERS, put("a.csv", "\n".join(["a,b,c", *lines])), on_bad="reject")
    assert [row["line"] for row in rows(repo, REJECTS)] == [7, 60_002, 200_001]
    assert repo.snapshot()[ORDERS].count_rows() == 199_997


def test_one_word_among_many_numbers_is_a_bad_record_not_a_reason_for_text(repo: ab.Repository, put: Put) -> None:
    lines = [str(n) for n in range(1000)]
    lines[700] = "oops"
    file = put("a.csv", "\n".join(["k,n", *(f"x,{line}" for line in lines)]))
    with pytest.raises(BadRecordError, match=r"line 702: cannot convert 'oops' to int64 \(column 'n'\)"):
        repo.load(ORDERS, file)
    repo.load(ORDERS, file, schema={"n": "string"})
    assert rows(repo)[700] == {"k": "x", "n": "oops"}


def test_bytes_that_are_not_text_are_a_bad_record(repo: ab.Repository, put: Put) -> None:
    file = put("a.csv", b"id,v\n1,a\n2,\xff\xfe\n3,c\n")
    repo.load(ORDERS, file, on_bad="reject", schema={"v": "string"})
    assert [row["id"] for row in rows(repo)] == [1, 3]
    assert [(row["line"], row["text"]) for row in rows(repo, REJECTS)] == [(3, "2,\\xff\\xfe")]


def test_rejects_of_later_loads_come_after_those_before(repo: ab.Repository, put: Put) -> None:
    for name in ("a.csv", "b.csv"):
        repo.load(ORDERS, put(name, "id,v\n1,a\n2\n"), on_bad="reject")
    assert [(row["file"].rpartition("/")[2], row["line"]) for row in rows(repo, REJECTS)] == [
        ("a.csv", 3),
        ("b.csv", 3),
    ]


def test_a_bad_record_of_json_is_named_by_its_line(repo: ab.Repository, put: Put, engine: str) -> None:
    file = put("a.json", '{"id": 1, "v": "a"}\n\n{"id": 2, "v"\n{"id": "x", "v": "c"}\n{"id": 4, "v": "d"}\n')
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    with nothing_changes(repo), pytest.raises(BadRecordError, match=r"a\.json, line 3: "):
        repo.load(ORDERS, file, schema=schema, engine=engine)
    repo.load(ORDERS, file, schema=schema, on_bad="reject", engine=engine)
    assert [row["id"] for row in rows(repo)] == [1, 4]
    assert [row["line"] for row in rows(repo, REJECTS)] == [3, 4]


def test_many_bad_records_are_all_reported(repo: ab.Repository, put: Put) -> None:
    chance = random.Random(7)
    lines, bad = ["id,v"], []
    for n in range(20_000):
        is_bad = chance.random() < 0.1
        lines.append(f"{n},{'x' if is_bad else n}")
        if is_bad:
            bad.append(n + 2)
    repo.load(ORDERS, put("a.csv", "\n".join(lines)), schema={"v": "int64"}, on_bad="reject")
    assert [row["line"] for row in rows(repo, REJECTS)] == bad
    assert repo.snapshot()[ORDERS].count_rows() == 20_000 - len(bad)


def test_failed_load_changes_nothing(repo: ab.Repository, put: Put, location: Location, engine: str) -> None:
    repo.load(ORDERS, put("a.csv", "id,v\n1,a\n"), primary_key=["id"])
    failures: Iterator[tuple[str, str, type[Exception]]] = iter(
        [
            ("b.csv", "id,v\n2,b\n1,c\n", KeyConflictError),
            ("c.csv", "id,v\n2,b\n2,c\n", KeyConflictError),
            ("d.csv", "id,v\n2,b\n,c\n", BadRecordError),
            ("e.csv", "id\n2\n", SchemaMismatchError),
            ("f.parquet", "no parquet", DamagedFileError),
        ]
    )
    with nothing_changes(repo):
        for name, text, expected in failures:
            with pytest.raises(expected):
                repo.load(ORDERS, put(name, text), engine=engine)
    assert rows(repo) == [{"id": 1, "v": "a"}]
