"""JSON, Parquet, ORC and Lance, there and back."""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import (
    DatasetExistsError,
    InvalidExpressionError,
    InvalidInputError,
    ObjectExistsError,
    SchemaMismatchError,
    TableNotFoundError,
)
from anabranch.storage import open_store
from tests.conftest import Location
from tests.repo.io.conftest import ORDERS, Put, rows, types

TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "text": ['a,"b"\n', "", None],
        "amount": pa.array([1.5, None, -2.0]),
        "price": pa.array([Decimal("1.10"), None, Decimal("2.00")], pa.decimal128(10, 2)),
        "day": pa.array([datetime.date(2026, 1, 5), None, datetime.date(1970, 1, 1)]),
        "at": pa.array([datetime.datetime(2026, 1, 5, 10, 0, 0, 123), None, None], pa.timestamp("us")),
        "ok": [True, None, False],
    }
)


@pytest.fixture
def lake(repo: ab.Repository) -> ab.Repository:
    repo.load(ORDERS, TABLE, primary_key=["id"])
    return repo


@pytest.mark.s3
@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.tsv", "a.json", "a.json.zst", "a.ndjson", "a.parquet", "a.orc", "a.lance"]
)
def test_what_was_exported_loads_as_it_was(lake: ab.Repository, location: Location, name: str) -> None:
    report = lake.export(ORDERS, location / f"out/{name}")
    assert (report.rows, report.files, report.commit_id) == (3, (location / f"out/{name}",), lake.snapshot().id)
    lake.load("s.again", location / f"out/{name}", schema=TABLE.schema)
    assert rows(lake, "s.again") == TABLE.to_pylist()
    assert lake.snapshot()["s.again"].schema == TABLE.schema


@pytest.mark.parametrize("name", ["a.parquet", "a.orc", "a.lance"])
def test_files_with_types_bring_them_along(lake: ab.Repository, location: Location, name: str, engine: str) -> None:
    lake.export(ORDERS, location / f"out/{name}")
    report = lake.load("s.again", location / f"out/{name}", engine=engine)
    assert (report.engine, rows(lake, "s.again")) == (engine, TABLE.to_pylist())
    assert types(lake, "s.again")["price"] == "decimal128(10, 2)"


def test_json_has_times_vectors_and_nested_dates(repo: ab.Repository, tmp_path: Path) -> None:
    data = pa.table(
        {
            "at": pa.array([datetime.time(23, 59, 59, 999999), None], pa.time64("us")),
            "hour": pa.array([datetime.time(7), None], pa.time32("s")),
            "vector": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
            "half": pa.array([1.5, None], pa.float16()),
            "days": pa.array([[datetime.date(2026, 1, 5)], None], pa.large_list(pa.date32())),
            "others": pa.array([[datetime.date(2026, 1, 5), None], []], pa.list_(pa.date32())),
            "who": pa.array([{"born": datetime.date(1970, 1, 1)}, None], pa.struct([("born", pa.date32())])),
        }
    )
    repo.load("s.t", data)
    repo.export("s.t", tmp_path / "a.json")
    repo.load("s.t", tmp_path / "a.json")
    assert rows(repo, "s.t") == data.to_pylist() * 2
    (tmp_path / "b.json").write_text('{"at": "10:00"}\n{"at": "25:00"}\n')
    with pytest.raises(ab.errors.BadRecordError, match=r"line 2: column 'at' takes time64\[us\]: .*'25:00'"):
        repo.load("s.t", tmp_path / "b.json")
    repo.load("s.map", pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}))
    repo.export("s.map", tmp_path / "m.json")
    with pytest.raises(SchemaMismatchError, match="a type that JSON has no form for"):
        repo.load("s.map", tmp_path / "m.json")


def test_an_empty_list_does_not_empty_a_table(lake: ab.Repository) -> None:
    with pytest.raises(InvalidInputError, match="the list to load is empty"):
        lake.load(ORDERS, [], mode="overwrite")
    assert rows(lake) == TABLE.to_pylist()


@pytest.mark.parametrize("name", ["a.parquet", "a.lance"])
def test_exported_files_have_no_notes_of_the_repository(lake: ab.Repository, tmp_path: Path, name: str) -> None:
    with lake.transaction() as tx:
        tx.annotate(
            ORDERS,
            {"anabranch:description": "all orders"},
            columns={"text": {"anabranch:description": "free text", "anabranch:default": "'-'", "unit": "word"}},
        )
    lake.export(ORDERS, tmp_path / name)
    found = pq.read_schema(tmp_path / name) if name == "a.parquet" else lance.dataset(tmp_path / name).schema
    assert (found.metadata or {}, found.field("text").metadata) == ({}, {b"unit": b"word"})
    lake.load("s.again", tmp_path / name)
    lake.append("s.again", [{"id": 4}])
    assert rows(lake, "s.again")[-1]["text"] is None


def test_a_parquet_file_of_other_types_is_refused_by_name(
    lake: ab.Repository, location: Location, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.parquet"
    pq.write_table(TABLE.set_column(2, "amount", pa.array(["x", "y", "z"])), file)
    with pytest.raises(SchemaMismatchError, match=r"wrong\.parquet': column 'amount' was expected to be float64"):
        lake.load(ORDERS, file, mode="overwrite")
    pq.write_table(TABLE.select(["id"]), file)
    with pytest.raises(SchemaMismatchError, match="lacks 'text', 'amount'"):
        lake.load(ORDERS, file)


def test_two_columns_of_one_name_are_refused(lake: ab.Repository, tmp_path: Path) -> None:
    twice = pa.table([[1], [2]], schema=pa.schema([("a", pa.int64()), ("a", pa.int64())]))
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(SchemaMismatchError, match=r"twice\.parquet' has more than one column 'a'"):
        lake.load("s.t", tmp_path / "twice.parquet")
    with pytest.raises(SchemaMismatchError, match="column 'a' is given more than once"):
        lake.load(ORDERS, twice)


def test_json_objects_may_lack_fields_nest_and_come_as_an_array(repo: ab.Repository, put: Put) -> None:
    array = '\n[\n  {"id": 1, "tags": ["a"], "at": "2026-01-05T10:00:00"},\n  {"id": 2.5, "who": {"name": "x"}}\n]'
    repo.load(ORDERS, put("a.json", array))
    assert types(repo) == {
        "id": "double",
        "tags": "list<item: string>",
        "at": "timestamp[us]",
        "who": "struct<name: string>",
    }
    assert rows(repo)[1] == {"id": 2.5, "tags": None, "at": None, "who": {"name": "x"}}
    with pytest.raises(SchemaMismatchError, match="have 'new', and the columns are 'id'"):
        repo.load(ORDERS, put("b.json", '{"id": 3, "new": 1}\n'))
    with pytest.raises(SchemaMismatchError, match="column 'v' is int64 in some records and string in others"):
        repo.load("s.t", put("c.json", '{"v": 1}\n{"v": "x"}\n'))
    with pytest.raises(ab.errors.DamagedFileError, match=r"d\.json' is not a JSON array"):
        repo.load("s.t", put("d.json", '[{"v": 1} {"v": 2}]'))


def test_nothing_in_json_is_dropped_without_a_word(repo: ab.Repository, put: Put) -> None:
    for text in ('[{"v": 1}]\n[{"v": 2}]\n', '[{"v": 1}] {"v": 2}'):
        with pytest.raises(ab.errors.DamagedFileError, match="something follows its end"):
            repo.load("s.t", put("a.json", text))
    nested = pa.schema([("who", pa.list_(pa.struct([("name", pa.string())])))])
    with pytest.raises(SchemaMismatchError, match=r"have 'who\.age', and the columns are 'who'"):
        repo.load("s.t", put("b.json", '{"who": [{"name": "x", "age": 7}]}\n'), schema=nested)


@pytest.mark.parametrize("text", ['null\n{"v": 1}\n', '{"v": 1}\n  null\n', '[null, {"v": 1}]'])
def test_null_is_not_an_object_of_json(repo: ab.Repository, put: Put, text: str) -> None:
    with pytest.raises(ab.errors.BadRecordError, match="null is not an object"):
        repo.load("s.t", put("a.json", text))
    report = repo.load("s.t", put("a.json", text), on_bad="reject")
    assert (rows(repo, "s.t"), report.rows_rejected) == ([{"v": 1}], 1)


def test_a_type_that_is_given_settles_what_records_of_json_disagree_about(repo: ab.Repository, put: Put) -> None:
    repo.load("s.t", put("a.json", '{"v": 1.5}\n{"v": "2.25"}\n'), schema={"v": "decimal(10, 2)"})
    assert [str(row["v"]) for row in rows(repo, "s.t")] == ["1.50", "2.25"]


def test_types_of_json_hold_for_the_whole_input(repo: ab.Repository, put: Put) -> None:
    lines = [f'{{"id": {n}, "note": null}}' for n in range(200_000)]
    lines += ['{"id": 0.5, "note": "late"}']
    repo.load(ORDERS, put("a.json", "\n".join(lines)))
    assert types(repo) == {"id": "double", "note": "string"}


def test_an_export_takes_columns_rows_and_an_old_state(lake: ab.Repository, location: Location) -> None:
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id < 3")
    target = location / "out/some.csv"
    report = lake.export(ORDERS, target, ref="main~1", columns=["ok", "id"], where="id < 3")
    store = open_store(location / "out", location.storage_options)
    assert store.get("some.csv") == b'"ok","id"\ntrue,1\n,2\n'
    assert report.rows == 2
    lake.export(ORDERS, target, columns=["id"], csv=ab.CsvOptions(header=False), overwrite=True)
    assert store.get("some.csv") == b"3\n"
    first = lake.export(
        ORDERS, target, ref="main~1", columns=["id"], csv=ab.CsvOptions(header=False), limit=1, overwrite=True
    )
    assert (first.rows, store.get("some.csv")) == (1, b"1\n")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig", "cp037"])
def test_exported_csv_has_the_given_encoding(repo: ab.Repository, tmp_path: Path, encoding: str) -> None:
    csv = ab.CsvOptions(encoding=encoding)
    given = pa.table({"í": ["é", "", None], "n": pa.array([1, None, 2], pa.int64())})
    repo.load("s.t", given)
    for name in ("a.csv", "a.csv.gz"):
        repo.export("s.t", tmp_path / name, csv=csv)
        repo.load("s.again", str(tmp_path / name), mode="overwrite", csv=csv)
        assert rows(repo, "s.again") == given.to_pylist()
    assert (tmp_path / "a.csv").read_bytes() == '"í","n"\n"é",1\n"",\n,2\n'.encode(encoding)


def test_export_refuses_a_character_that_the_encoding_does_not_have(repo: ab.Repository, tmp_path: Path) -> None:
    repo.load("s.t", pa.table({"v": ["a", "Ā"]}))
    with pytest.raises(InvalidInputError, match="the encoding latin-1 does not have the character 'Ā'") as caught:
        repo.export("s.t", tmp_path / "a.csv", csv=ab.CsvOptions(encoding="latin-1"))
    assert caught.value.hint == "pass `csv=CsvOptions(encoding='utf-8')`"
    assert list(tmp_path.glob("*.csv")) == []


def test_exported_csv_without_quotes_has_a_header_without_quotes(repo: ab.Repository, tmp_path: Path) -> None:
    csv = ab.CsvOptions(quote=None)
    repo.load("s.t", pa.table({"a": ["x", None], "b": [1, 2]}))
    repo.export("s.t", tmp_path / "a.csv", csv=csv)
    assert (tmp_path / "a.csv").read_bytes() == b"a,b\nx,1\n,2\n"
    repo.load("s.again", str(tmp_path / "a.csv"), csv=csv)
    assert rows(repo, "s.again") == rows(repo, "s.t")


@pytest.mark.parametrize(
    ("option", "shown", "hint"),
    [
        ({"quote": "'"}, 'quote="\'"', "leave quote out, or give None if no value needs quotes"),
        ({"escape": "\\"}, r"escape='\\'", "leave escape out: a quote inside a value is written twice"),
        ({"columns": ["a"], "header": False}, "columns=('a',)", "leave columns out of the CSV options"),
        ({"null": "NA"}, "null=('NA',)", "leave null out: a null is written as an empty field"),
        ({"skip": 1}, "skip=1", "leave skip out: the header is the first line"),
    ],
)
def test_export_refuses_csv_options_of_loads(
    lake: ab.Repository, tmp_path: Path, option: dict[str, Any], shown: str, hint: str
) -> None:
    for target, overwrite in (("a.csv", False), ("folder", True)):
        with pytest.raises(InvalidInputError) as caught:
            lake.export(ORDERS, tmp_path / target, format="csv", overwrite=overwrite, csv=ab.CsvOptions(**option))
        assert caught.value.problem == f"CSV is not written with the option {shown}"
        assert str(caught.value.hint).startswith(hint)
    assert list(tmp_path.glob("*.csv")) == list(tmp_path.glob("folder/*")) == []


@pytest.mark.parametrize("name", ["some.csv", "folder"])
def test_an_export_to_an_existing_target_is_refused_before_rows_are_read(
    lake: ab.Repository, tmp_path: Path, name: str
) -> None:
    lake.export(ORDERS, tmp_path / name, format="csv", where="id = 1")
    done: list[int] = []
    with pytest.raises(ObjectExistsError, match="pass `overwrite=True`"):
        lake.export(ORDERS, tmp_path / name, format="csv", progress=lambda step: done.append(step.done))
    assert done == []
    again = lake.export(
        ORDERS, tmp_path / name, format="csv", overwrite=True, progress=lambda step: done.append(step.done)
    )
    assert done[-1] == again.rows == 3


def test_exported_json_is_strict_and_loads_again(repo: ab.Repository, tmp_path: Path) -> None:
    noon = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)
    values = pa.table(
        {
            "f": pa.array([1.5, float("nan"), float("-inf"), None]),
            "s": ["NaN", "x", None, "Infinity"],
            "d": pa.array([Decimal(0), None, Decimal("-0.5"), Decimal(1)], pa.decimal128(20, 10)),
            "t": pa.array([noon, None, noon, noon], pa.timestamp("us", "UTC")),
            "n": pa.array([1, None, 0, -1], pa.timestamp("ns", "Europe/Prague")),
            "u": pa.array([5, 2**64 - 1, None, 0], pa.uint64()),
            "p": pa.array([1, None, -1_500_000_000, 0], pa.duration("ns")),
        }
    )
    repo.load("s.t", values)
    repo.export("s.t", tmp_path / "a.json")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "a.json").read_text().splitlines()]
    assert lines[1] == {
        "f": "NaN",
        "s": "x",
        "d": None,
        "t": None,
        "n": None,
        "u": "18446744073709551615",
        "p": None,
    }
    assert lines[2] == {
        "f": "-Infinity",
        "s": None,
        "d": "-0.5000000000",
        "t": "2026-11-15T12:00:00Z",
        "n": "1970-01-01T00:00:00.000000000Z",
        "u": None,
        "p": "PT-1.5S",
    }
    repo.load("s.again", str(tmp_path / "a.json"), schema=values.schema)
    assert str(rows(repo, "s.again")) == str(rows(repo, "s.t"))


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(2), pa.large_binary(), pa.list_(pa.binary())])
def test_bytes_are_not_exported_as_json(repo: ab.Repository, tmp_path: Path, kind: pa.DataType) -> None:
    value = [b"ab"] if pa.types.is_list(kind) else b"ab"
    repo.load("s.t", pa.table({"b": pa.array([value], kind)}))
    with pytest.raises(InvalidInputError, match="column 'b' has bytes, which JSON does not have"):
        repo.export("s.t", tmp_path / "a.json")


@pytest.mark.s3
def test_nothing_is_written_over_unasked(lake: ab.Repository, location: Location) -> None:
    for name in ("a.csv", "a.lance", "folder"):
        lake.export(ORDERS, location / f"out/{name}", format="csv" if name == "folder" else None)
        with pytest.raises((ObjectExistsError, DatasetExistsError)):
            lake.export(ORDERS, location / f"out/{name}", format="csv" if name == "folder" else None, columns=["id"])
        lake.export(
            ORDERS, location / f"out/{name}", format="csv" if name == "folder" else None, columns=["id"], overwrite=True
        )
        lake.load("s.t", location / f"out/{name}", mode="overwrite", schema=pa.schema([("id", pa.int64())]))
        assert rows(lake, "s.t") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_in_a_folder_only_files_of_older_exports_make_way(lake: ab.Repository, location: Location) -> None:
    store = open_store(location / "out", location.storage_options)
    for name in ("part-00000.csv", "part-00007.csv.gz", "notes.txt", "deep/part-00001.csv"):
        store.put(name, b"old")
    lake.export(ORDERS, location / "out", format="csv", columns=["id"], overwrite=True)
    assert sorted(info.path for info in store.list()) == ["deep/part-00001.csv", "notes.txt", "part-00000.csv"]
    assert (store.get("part-00000.csv"), store.get("notes.txt")) == (b'"id"\n1\n2\n3\n', b"old")


@pytest.mark.s3
def test_an_export_that_fails_leaves_no_file(lake: ab.Repository, location: Location) -> None:
    lake.load("s.lists", pa.table({"id": range(200_000), "tags": [["a"]] * 200_000}))
    with pytest.raises(InvalidInputError, match="these rows have no form in csv"):
        lake.export("s.lists", location / "out/a.csv")
    with pytest.raises(InvalidExpressionError):
        lake.export("s.lists", location / "out/b.parquet", where="no_such > 1")
    assert list(open_store(location / "out", location.storage_options).list()) == []


def test_a_folder_gets_files_of_about_a_million_rows(lake: ab.Repository, location: Location) -> None:
    lake.load("s.many", pa.table({"id": range(2_500_000)}))
    report = lake.export("s.many", location / "out/many", format="parquet")
    names = [file.rpartition("/")[2] for file in report.files]
    assert names == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert lake.load("s.again", location / "out/many").rows_loaded == 2_500_000
    one = lake.export("s.many", location / "out/one", format="parquet", single_file=True)
    assert one.files == (location / "out/one",)


def test_a_target_that_makes_no_sense_is_refused(lake: ab.Repository, location: Location) -> None:
    for target, options, message in (
        ("out/a", {}, "does not have the suffix of a format"),
        ("out/a.parquet.gz", {}, "parquet files compress by themselves"),
        ("out/a.csv", {"format": "xml"}, "the format 'xml' is not known"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            lake.export(ORDERS, location / target, **options)  # type: ignore[arg-type]
    with pytest.raises(TableNotFoundError):
        lake.export("s.none", location / "out/a.csv")


def test_an_exported_dataset_is_plain_lance(lake: ab.Repository, location: Location) -> None:
    lake.export(ORDERS, location / "out/plain.lance", columns=["id"])
    assert lance.dataset(location / "out/plain.lance").to_table() == TABLE.select(["id"])
