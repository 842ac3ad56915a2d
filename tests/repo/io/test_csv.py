"""CSV as people write it: columns, types, characters, encodings."""

import datetime
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import DamagedFileError, InvalidInputError, SchemaMismatchError
from tests.repo.io.conftest import ORDERS, Put, rows, types


@pytest.mark.s3
def test_a_missing_table_is_made_with_the_types_found(repo: ab.Repository, put: Put, engine: str) -> None:
    text = (
        "id,amount,paid,day,at,note\n"
        "1,2,true,2026-01-05,2026-01-05T10:00:00,tea\n"
        "2,2.5,false,2026-02-01,2026-01-06 11:30:00.5,\n"
    )
    report = repo.load(ORDERS, put("a.csv", text), primary_key=["id"], engine=engine)
    assert (report.rows_read, report.rows_loaded, report.rows_rejected, report.engine) == (2, 2, 0, engine)
    assert report.commit_id == repo.head_commit_id_for_branch("main")
    assert types(repo) == {
        "id": "int64",
        "amount": "double",
        "paid": "bool",
        "day": "date32[day]",
        "at": "timestamp[us]",
        "note": "string",
    }
    assert repo.snapshot()[ORDERS].primary_key == ("id",)
    assert rows(repo)[1] == {
        "id": 2,
        "amount": 2.5,
        "paid": False,
        "day": datetime.date(2026, 2, 1),
        "at": datetime.datetime(2026, 1, 6, 11, 30, 0, 500_000),
        "note": None,
    }
    assert repo.get_commit(str(report.commit_id)).kind == "load"


def test_the_order_of_the_header_does_not_matter(repo: ab.Repository, put: Put, engine: str) -> None:
    put("a.csv", "id,v\n1,a\n")
    put("b.csv", "v,id\nb,2\n")
    report = repo.load(ORDERS, put("c.csv", "id,v\n3,c\n").replace("c.csv", "*.csv"), engine=engine)
    assert len(report.files) == 3
    assert rows(repo) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}]


def test_columns_that_do_not_fit_are_named(repo: ab.Repository, put: Put) -> None:
    repo.load(ORDERS, put("a.csv", "id,v\n1,a\n"))
    with pytest.raises(SchemaMismatchError, match=r"b\.csv' also has 'w' and lacks 'v': the columns are 'id', 'v'"):
        repo.load(ORDERS, put("b.csv", "id,w\n1,a\n"))
    with pytest.raises(SchemaMismatchError, match="names 'id' twice"):
        repo.load("s.t", put("c.csv", "id,id\n1,2\n"))
    with pytest.raises(SchemaMismatchError, match=r"column 2 in the header of .*, line 1, has no name"):
        repo.load("s.t", put("d.csv", "id,,v\n1,2,3\n"))
    assert list(repo.snapshot_of("main")) == [ORDERS]


@pytest.mark.parametrize(
    ("name", "text", "delimiter", "shown", "right"),
    [
        ("a.csv", "id;v\n1;2\n", None, "','", "';'"),
        ("a.csv", "id,v\n1,2\n", ";", "';'", "','"),
        ("a.csv", "id\tv\n1\t2\n", "|", "'|'", "'tab'"),
        ("a.csv", "id|v\n1|2\n", "tab", "'tab'", "'|'"),
        ("a.tsv", "id,v\n1,2\n", None, "'tab'", "','"),
        ("a.csv", "id,v\n1,2\n", ":", "':'", "','"),
        ("a.csv", "id;v, w;x\n1;2;3\n", "tab", "'tab'", "';'"),
    ],
)
def test_a_wrong_delimiter_is_refused(
    repo: ab.Repository, put: Put, name: str, text: str, delimiter: str | None, shown: str, right: str
) -> None:
    header = text.partition("\n")[0]
    with pytest.raises(SchemaMismatchError) as caught:
        repo.load("s.t", put(name, text), csv=ab.CsvOptions(delimiter=delimiter))
    assert caught.value.problem.endswith(f", line 1, is one column {header!r} with the delimiter {shown}")
    assert caught.value.hint == (
        f"pass `csv=CsvOptions(delimiter={right})`, or quote the name in the file if it is one column"
    )
    assert "s.t" not in repo.snapshot_of("main")


def test_a_column_whose_name_has_a_delimiter_is_loaded_if_it_is_quoted(repo: ab.Repository, put: Put) -> None:
    repo.load("s.t", put("a.csv", '"id;v"\n1;2\n'))
    assert rows(repo, "s.t") == [{"id;v": "1;2"}]
    repo.load("s.u", put("b.csv", '"a, b"\n"x, y"\n'), csv=ab.CsvOptions(delimiter=";"))
    assert rows(repo, "s.u") == [{"a, b": "x, y"}]
    no_header = ab.CsvOptions(delimiter=";", header=False, skip=1, columns=["a, b"])
    repo.load("s.v", put("c.csv", "a, b\nx, y\n"), csv=no_header)
    assert rows(repo, "s.v") == [{"a, b": "x, y"}]


def test_quoted_names_with_another_delimiter_are_refused(repo: ab.Repository, put: Put) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        repo.load("s.t", put("a.csv", '"id";"v"\n1;2\n'))
    assert caught.value.problem.endswith(", line 1, cannot be read with the delimiter ','")
    assert caught.value.hint == "pass `csv=CsvOptions(delimiter=';')`"
    with pytest.raises(DamagedFileError, match=r"has a quote that is not closed; close the quote in the file, or pass"):
        repo.load("s.t", put("b.csv", '"id,v\n1,2\n'))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('[{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]', '[{"id": 1, "v": "a"}, {"id": 2...'),
        ('{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n', '{"id": 1, "v": "a"} {"id": 2, ...'),
        ('{"id":1,"v":"a"}\n', '{"id":1,"v":"a"}'),
        ('\n[\n  {\n    "id": 1\n  }\n]\n', '[ { "id": 1 } ]'),
        ("[]", "[]"),
    ],
)
def test_json_in_a_csv_file_is_refused(repo: ab.Repository, put: Put, text: str, shown: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        repo.load("s.t", put("a.csv", text))
    assert caught.value.problem.endswith(f"a.csv' looks like JSON, not CSV: it begins with {shown}")
    assert caught.value.hint == "pass `format='json'`"
    if text != "[]":
        repo.load("s.t", put("a.csv", text), format="json")
        assert rows(repo, "s.t")[0]["id"] == 1


def test_text_that_only_resembles_json_is_csv(repo: ab.Repository, put: Put) -> None:
    repo.load("s.t", put("a.csv", "[id],{v}\n1,2\n"))
    assert rows(repo, "s.t") == [{"[id]": 1, "{v}": 2}]
    lines = ab.CsvOptions(delimiter="tab", quote=None, header=False, columns=["line"])
    repo.load("s.u", put("b.csv", '{"id": 1}\n{"id": 2}\n'), csv=lines)
    assert rows(repo, "s.u") == [{"line": '{"id": 1}'}, {"line": '{"id": 2}'}]


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (gzip.compress(b"id,v\n1,2\n", mtime=0), "packed with gzip", "add .gz to the name of the file"),
        (b"PAR1\x15\x04", "a Parquet file", "pass `format='parquet'`"),
        (b"PK\x03\x04\x14\x00", "a zip archive or an Excel file", "unpack it, or save the sheet as CSV"),
    ],
)
def test_a_binary_file_with_the_name_of_a_csv_file_is_refused(
    repo: ab.Repository, put: Put, content: bytes, what: str, hint: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        repo.load("s.t", put("a.csv", content))
    assert caught.value.problem.endswith(f"a.csv' is not CSV: it is {what}")
    assert caught.value.hint == hint


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_the_hint_for_another_encoding_works(repo: ab.Repository, put: Put, encoding: str) -> None:
    path = put("a.csv", "id,größe\n1,ä\n".encode(encoding))
    with pytest.raises(DamagedFileError) as caught:
        repo.load("s.t", path)
    assert caught.value.hint == f"pass its encoding, such as `csv=CsvOptions(encoding='{encoding}')`"
    repo.load("s.t", path, csv=ab.CsvOptions(encoding=encoding))
    assert rows(repo, "s.t") == [{"id": 1, "größe": "ä"}]


def test_types_hold_for_the_whole_input_not_for_its_beginning(repo: ab.Repository, put: Put) -> None:
    """Numbers that need a fraction late, dates that need a time late, and words that come late."""
    lines = [f"{n},{n},2026-01-05,{n}" for n in range(300_000)]
    late = [f"{n},{n}.5,2026-01-05 10:00:00,word" for n in range(300_000, 310_000)]
    repo.load("s.t", put("long.csv", "\n".join(["a,b,c,d", *lines, *late])))
    assert types(repo, "s.t") == {"a": "int64", "b": "double", "c": "timestamp[us]", "d": "string"}
    found = repo.snapshot()["s.t"].to_arrow(where="a in (7, 305000)").to_pylist()
    assert [(row["b"], row["d"]) for row in found] == [(7.0, "7"), (305_000.5, "word")]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["007", "123"], "string"),
        (["-007", "5"], "string"),
        (["0x10", "5"], "string"),
        (["0", "-0", "10"], "int64"),
        (["0.5", "00"], "string"),
        (["12345678901234567890", "1"], "string"),
        (["9223372036854775807", "1"], "int64"),
        (["1e3", "2"], "double"),
        (["2026-01-05", "12"], "string"),
        (["2026-01-05T10:00:00Z", "2026-01-05T10:00:00+02:00"], "timestamp[us, tz=UTC]"),
        (["2026-01-05T10:00:00.123456789"], "timestamp[ns]"),
        (["12:30:00"], "time32[s]"),
        (["", ""], "string"),
        (['"1"', "2"], "int64"),
        (["true", "FALSE"], "bool"),
    ],
)
def test_text_that_a_number_would_change_stays_text(
    repo: ab.Repository, put: Put, texts: list[str], expected: str
) -> None:
    body = "".join(f"x,{text}\n" for text in texts)
    repo.load("s.t", put("a.csv", f"k,v\n{body}"))
    assert types(repo, "s.t")["v"] == expected
    if expected == "string":
        assert [row["v"] for row in rows(repo, "s.t")] == [text or None for text in texts]


def test_types_can_be_given_for_some_columns_or_for_all(repo: ab.Repository, put: Put) -> None:
    file = put("a.csv", "id,price,code\n1,2.50,7\n")
    repo.load("s.some", file, schema={"price": "decimal(10, 2)", "code": pa.string()})
    assert rows(repo, "s.some") == [{"id": 1, "price": Decimal("2.50"), "code": "7"}]
    whole = pa.schema([("code", pa.int8()), ("id", pa.string()), ("price", pa.float32())])
    repo.load("s.all", file, schema=whole)
    assert repo.snapshot()["s.all"].schema == whole
    with pytest.raises(SchemaMismatchError, match="schema has the column 'nope', which is not in the files"):
        repo.load("s.none", file, schema={"nope": "int64"})
    with pytest.raises(SchemaMismatchError, match=r"column 'id' of 's\.all' has type string, not int64"):
        repo.load("s.all", file, schema={"id": "int64"})


def test_the_characters_of_a_file_can_be_given(repo: ab.Repository, put: Put, engine: str) -> None:
    text = "exported today\n\nid;v\n1;'a;b'\n2;'it\\'s'\n3;NULL\n4;'NULL'\n5;\n"
    options = {"delimiter": ";", "quote": "'", "escape": "\\", "null": ["NULL", "n/a"], "skip": 1}
    repo.load(ORDERS, put("a.txt", text), format="csv", engine=engine, csv=ab.CsvOptions(**options))  # type: ignore[arg-type]
    assert [row["v"] for row in rows(repo)] == ["a;b", "it's", None, "NULL", ""]


def test_empty_text_is_not_null(repo: ab.Repository, put: Put) -> None:
    repo.load(ORDERS, put("a.csv", 'id,v\n1,""\n2,\n'))
    assert [row["v"] for row in rows(repo)] == ["", None]


def test_quoted_values_span_lines_and_hold_quotes(repo: ab.Repository, put: Put) -> None:
    repo.load(ORDERS, put("a.csv", 'id,v\r\n1,"a\r\nb"\r\n2,"say ""hi"""\r\n3,5" pipe\r\n'))
    assert [row["v"] for row in rows(repo)] == ["a\r\nb", 'say "hi"', '5" pipe']


def test_without_a_header_columns_get_names(repo: ab.Repository, put: Put) -> None:
    file = put("a.csv", "1,a\n2,b\n")
    repo.load("s.numbered", file, csv=ab.CsvOptions(header=False))
    assert rows(repo, "s.numbered")[0] == {"column_1": 1, "column_2": "a"}
    repo.load(
        "s.named", file, csv=ab.CsvOptions(header=False), schema=pa.schema([("id", pa.int64()), ("v", pa.string())])
    )
    assert rows(repo, "s.named")[1] == {"id": 2, "v": "b"}
    repo.load("s.named", put("b.csv", "3,c\n"), csv=ab.CsvOptions(header=False))
    assert rows(repo, "s.named")[2] == {"id": 3, "v": "c"}
    for mode, count in (("append", 4), ("overwrite", 1)):
        repo.load(
            "s.named", put(f"{mode}.csv", "d,4\n"), mode=mode, csv=ab.CsvOptions(header=False, columns=["v", "id"])
        )
        assert rows(repo, "s.named")[-1] == {"id": 4, "v": "d"}
        assert len(rows(repo, "s.named")) == count
        assert repo.snapshot()["s.named"].schema.names == ["id", "v"]


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("utf-8", "id,v\n1,é\n".encode("utf-8-sig")),
        ("latin-1", "id,v\n1,é\n".encode("latin-1")),
        ("utf-16", "id,v\n1,é\n".encode("utf-16")),
        ("cp1252", "id,v\n1,€\n".encode("cp1252")),
        ("utf-8", b"id,v\r1,\xc3\xa9\r"),
    ],
)
def test_encodings_and_line_ends(repo: ab.Repository, put: Put, encoding: str, data: bytes) -> None:
    repo.load(ORDERS, put("a.csv", data), csv=ab.CsvOptions(encoding=encoding))
    assert rows(repo) == [{"id": 1, "v": "€" if encoding == "cp1252" else "é"}]


def test_a_header_of_another_encoding_is_not_a_column_name(repo: ab.Repository, put: Put) -> None:
    with pytest.raises(ab.errors.DamagedFileError, match=r"the header of '.*a\.csv', line 1, is not UTF-8"):
        repo.load(ORDERS, put("a.csv", "id,é\n1,2\n".encode("latin-1")))


@pytest.mark.s3
def test_compressed_files_load_like_others(repo: ab.Repository, put: Put, engine: str) -> None:
    put("a.csv.gz", gzip.compress(b"id,v\n1,a\n") + gzip.compress(b"2,b\n"))
    put("b.csv.zst", pa.compress(b"id,v\n3,c\n", codec="zstd", asbytes=True))
    folder = put("c.tsv", "id\tv\n4,d\n").rpartition("/")[0]
    repo.load(ORDERS, [f"{folder}/a.csv.gz", f"{folder}/b.csv.zst"], engine=engine)
    assert [row["id"] for row in rows(repo)] == [1, 2, 3]


def test_only_the_suffix_of_a_file_chooses_tabs(repo: ab.Repository, put: Put, tmp_path: Path) -> None:
    repo.load(ORDERS, put("a.tsv.d/x.csv", "id,v\n1,a\n"))
    assert rows(repo) == [{"id": 1, "v": "a"}]
    (tmp_path / "b.tsv.d").mkdir()
    repo.export(ORDERS, tmp_path / "b.tsv.d/not.tsv.csv")
    assert (tmp_path / "b.tsv.d/not.tsv.csv").read_text() == '"id","v"\n1,"a"\n'


def test_a_damaged_archive_is_not_a_short_file(repo: ab.Repository, put: Put) -> None:
    whole = gzip.compress(b"id,v\n" + b"1,a\n" * 100_000)
    with pytest.raises(ab.errors.DamagedFileError, match=r"a\.csv\.gz' is not a complete gzip file"):
        repo.load(ORDERS, put("a.csv.gz", whole[: len(whole) // 2]))
    assert not list(repo.snapshot_of("main"))


def test_files_without_rows_make_an_empty_table(repo: ab.Repository, put: Put) -> None:
    report = repo.load(ORDERS, put("a.csv", "id,v\n"))
    assert (report.rows_loaded, rows(repo), types(repo)) == (0, [], {"id": "string", "v": "string"})
    with pytest.raises(SchemaMismatchError, match="no columns"):
        repo.load("s.t", put("b.csv", ""))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": "ab"}, "the delimiter is 'ab'"),
        ({"delimiter": 7}, "the delimiter is 7"),
        ({"quote": ","}, "one character has two meanings"),
        ({"skip": -1}, "lines to skip"),
        ({"null": [7]}, "null is given as 7"),
        ({"encoding": "klingon"}, "the encoding 'klingon' is not known"),
        ({"encoding": "hex"}, "the encoding 'hex' is not known"),
        ({"encoding": "utf\0"}, "is not known"),
        ({"columns": ["id", "v"]}, r"column names are given for files that have a header: \['id', 'v'\]"),
        ({"columns": ["id", "id"], "header": False}, r"columns must be a list of different names, got \('id', 'id'\)"),
        ({"columns": "id", "header": False}, "columns must be a list of different names, got 'id'"),
    ],
)
def test_csv_options_are_checked_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ab.CsvOptions(**options)


def test_csv_options_of_one_meaning_are_equal() -> None:
    assert ab.CsvOptions(delimiter="tab") == ab.CsvOptions().for_file("a.tsv.gz") == ab.CsvOptions(delimiter="\t")
    assert ab.CsvOptions().for_file("a.TSV") == ab.CsvOptions(delimiter="tab")
    assert ab.CsvOptions(quote="") == ab.CsvOptions(quote=None)
    assert ab.CsvOptions(escape='"', null=["", "NA"]) == ab.CsvOptions(null=("", "NA"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"csv": {"delimiter": ";"}}, "csv must be a CsvOptions, got"),
        ({"mode": "replace"}, "the mode is 'replace'"),
        ({"on_bad": "ignore"}, "on_bad is 'ignore'"),
        ({"on_duplicate": "first"}, "on_duplicate is 'first'"),
        ({"engine": "duck"}, "the engine is 'duck'"),
        ({"format": "xml"}, "the format 'xml' is not known"),
        ({"primary_key": "id"}, "primary_key must be a list, got 'id'"),
        ({"schema": 7}, "schema must be a pyarrow.Schema or a dict of column types, got 7"),
    ],
)
def test_what_makes_no_sense_is_refused(
    repo: ab.Repository, put: Put, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        repo.load(ORDERS, put("a.csv", "id,v\n1,a\n"), **options)  # type: ignore[arg-type]
    assert not list(repo.snapshot_of("main"))
