"""Append, overwrite and upsert; repeated keys; branches; rows that are not from files."""

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, KeyConflictError, ObjectNotFoundError, SchemaMismatchError
from tests.conftest import Location
from tests.repo.io.conftest import ORDERS, Put, rows, types


@pytest.fixture
def lake(repo: ab.Repository, put: Put) -> ab.Repository:
    """Orders 1 and 2, keyed by id."""
    repo.load(ORDERS, put("first.csv", "id,v,n\n1,a,10\n2,b,20\n"), primary_key=["id"])
    return repo


def test_each_mode_does_what_its_name_promises(lake: ab.Repository, put: Put, engine: str) -> None:
    lake.load(ORDERS, put("a.csv", "id,v,n\n3,c,30\n"), engine=engine)
    assert [row["id"] for row in rows(lake)] == [1, 2, 3]
    report = lake.load(ORDERS, put("b.csv", "id,v,n\n2,B,21\n4,d,40\n"), mode="upsert", engine=engine)
    assert report.rows_loaded == 2
    assert {row["id"]: row["v"] for row in rows(lake)} == {1: "a", 2: "B", 3: "c", 4: "d"}
    lake.load(ORDERS, put("c.csv", "v,n,id\nz,1,9\n"), mode="overwrite", engine=engine)
    assert rows(lake) == [{"id": 9, "v": "z", "n": 1}]
    assert lake.snapshot()[ORDERS].primary_key == ("id",)


def test_an_upsert_may_bring_some_columns(lake: ab.Repository, put: Put, engine: str) -> None:
    lake.load(ORDERS, put("a.csv", "n,id\n11,1\n50,5\n"), mode="upsert", engine=engine)
    found = sorted(rows(lake), key=lambda row: row["id"])
    assert found == [{"id": 1, "v": "a", "n": 11}, {"id": 2, "v": "b", "n": 20}, {"id": 5, "v": None, "n": 50}]
    with pytest.raises(SchemaMismatchError, match="no key column 'id'"):
        lake.load(ORDERS, put("b.csv", "v,n\nx,1\n"), mode="upsert")


@pytest.mark.parametrize("wrong", ["id", 5, ["id", 5]])
def test_a_primary_key_that_is_not_a_list_of_names_is_refused(lake: ab.Repository, put: Put, wrong: Any) -> None:
    for source in (put("a.csv", "id,v,n\n3,c,30\n"), pa.table({"id": [3]})):
        with pytest.raises(InvalidInputError, match="primary_key must be a list"):
            lake.load(ORDERS, source, primary_key=wrong)


def test_a_type_of_a_column_that_the_table_does_not_have_is_refused(lake: ab.Repository, put: Put) -> None:
    for source in (put("a.csv", "id,v,n\n3,c,30\n"), pa.table({"id": [3], "w": [1]})):
        with pytest.raises(SchemaMismatchError, match="has no column 'w', but a type is given for it"):
            lake.load(ORDERS, source, schema={"w": "int64"})


def test_the_last_of_repeated_rows_is_searched_among_no_rows_and_distinct_rows(lake: ab.Repository, put: Put) -> None:
    empty = lake.load(ORDERS, put("a.csv", "id,v,n\n"), on_duplicate="last")
    assert (empty.rows_loaded, empty.rows_repeated) == (0, 0)
    distinct = lake.load(ORDERS, put("b.csv", "id,v,n\n3,c,30\n4,d,40\n"), on_duplicate="last")
    assert (distinct.rows_loaded, distinct.rows_repeated) == (2, 0)
    assert [row["id"] for row in rows(lake)] == [1, 2, 3, 4]


def test_an_overwrite_replaces_the_columns_only_if_a_schema_is_given(lake: ab.Repository, put: Put) -> None:
    file = put("a.csv", "id,w\n1,x\n")
    with pytest.raises(SchemaMismatchError, match="also has 'w' and lacks 'v', 'n'"):
        lake.load(ORDERS, file, mode="overwrite")
    lake.load(ORDERS, file, mode="overwrite", schema=pa.schema([("id", pa.int64()), ("w", pa.string())]))
    assert rows(lake) == [{"id": 1, "w": "x"}]


def test_repeated_keys_are_refused_with_their_lines(lake: ab.Repository, put: Put, engine: str) -> None:
    a, b = put("a.csv", "id,v,n\n7,x,1\n8,y,1\n"), put("b.csv", "id,v,n\n9,x,1\n7,z,2\n")
    with pytest.raises(KeyConflictError) as caught:
        lake.load(ORDERS, [a, b], engine=engine)
    assert f"{{'id': 7}}: {a}, line 2 and {b}, line 3; " in str(caught.value)
    assert caught.value.details == {"file": b, "line": 3, "reason": "the key {'id': 7} occurs more than once"}
    assert [row["id"] for row in rows(lake)] == [1, 2]


@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
def test_the_last_of_repeated_rows_can_win(lake: ab.Repository, put: Put, engine: str, mode: str) -> None:
    files = [put("a.csv", "id,v,n\n7,x,1\n8,y,1\n7,z,2\n"), put("b.csv", "id,v,n\n8,w,3\n9,q,4\n")]
    report = lake.load(ORDERS, files, mode=mode, on_duplicate="last", engine=engine)
    assert (report.rows_read, report.rows_loaded, report.rows_repeated) == (5, 3, 2)
    found = {row["id"]: (row["v"], row["n"]) for row in rows(lake) if row["id"] > 2}
    assert found == {7: ("z", 2), 8: ("w", 3), 9: ("q", 4)}


def test_keys_that_are_there_already_are_refused_by_append(lake: ab.Repository, put: Put) -> None:
    with pytest.raises(KeyConflictError, match=r"already exists in the table, for example \{'id': 2\}"):
        lake.load(ORDERS, put("a.csv", "id,v,n\n2,x,1\n"))


def test_modes_that_need_a_key_report_it(repo: ab.Repository, put: Put, lake: ab.Repository) -> None:
    file = put("a.csv", "id,v,n\n3,x,1\n")
    for options in ({"mode": "upsert"}, {"on_duplicate": "last"}):
        with pytest.raises(InvalidInputError, match=r"'s\.keyless' has no primary key"):
            repo.load("s.keyless", file, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"the primary key of 'in_c_sales\.orders' is id, not v"):
        repo.load(ORDERS, file, primary_key=["v"])


def test_a_load_is_a_commit_of_a_branch(lake: ab.Repository, put: Put) -> None:
    lake.branch_create("dev")
    report = lake.load(ORDERS, put("a.csv", "id,v,n\n3,c,1\n"), branch="dev", message="May", metadata={"ticket": "7"})
    commit = lake.get_commit(str(report.commit_id))
    assert (report.branch, commit.message, dict(commit.metadata), commit.kind) == (
        "dev",
        "May",
        {"ticket": "7"},
        "load",
    )
    assert (len(rows(lake)), len(rows(lake, ref="dev"))) == (2, 3)


def test_files_folders_patterns_and_lists(repo: ab.Repository, put: Put, location: Location) -> None:
    for name in ("x/1.csv", "x/y/2.csv", "x/_tmp/3.csv", "x/.hidden.csv", "x/readme.md"):
        put(name, "id\n1\n")
    put("x/10.csv", "id\n1\n")
    root = location / "in/x"

    def loaded(source: object, **options: str) -> list[str]:
        report = repo.load("s.t", source, mode="overwrite", **options)  # type: ignore[arg-type]
        return [file.removeprefix(f"{root}/") for file in report.files]

    assert loaded(f"{root}/*.csv") == ["1.csv", "10.csv"]
    assert loaded(f"{root}/?.csv") == ["1.csv"]
    assert loaded(f"{root}/**/*.csv") == ["1.csv", "10.csv", "y/2.csv"]
    assert loaded(f"{root}/[1-3].csv") == ["1.csv"]
    assert loaded(root, format="csv") == ["1.csv", "10.csv", "y/2.csv"]
    assert loaded([f"{root}/y", f"{root}/1.csv", f"{root}/*.csv"]) == ["y/2.csv", "1.csv", "10.csv"]
    for nowhere in (f"{root}/none.csv", f"{root}/none", f"{root}/*.parquet"):
        with pytest.raises(ObjectNotFoundError, match="there is nothing to load at"):
            loaded(nowhere)
    with pytest.raises(InvalidInputError, match=r"readme\.md' does not have the suffix of a format"):
        loaded(f"{root}/readme.md")


def test_frames_and_tables_load_as_they_are(repo: ab.Repository) -> None:
    table = pa.table({"id": [1, 2], "v": ["a", "b"]})
    report = repo.load(ORDERS, table, primary_key=["id"])
    assert (report.rows_loaded, report.format, report.files) == (2, "frame", ())
    repo.load(ORDERS, pd.DataFrame({"id": [2, 3], "v": ["B", "c"]}), mode="upsert")
    assert {row["id"]: row["v"] for row in rows(repo)} == {1: "a", 2: "B", 3: "c"}
    twice = pa.table({"id": [3, 4, 3], "v": ["x", "d", "C"]})
    with pytest.raises(KeyConflictError):
        repo.load(ORDERS, twice, mode="upsert")
    assert repo.load(ORDERS, twice, mode="upsert", on_duplicate="last").rows_repeated == 1
    assert {row["id"]: row["v"] for row in rows(repo)} == {1: "a", 2: "B", 3: "C", 4: "d"}
    repo.load(ORDERS, twice.slice(0, 1).append_column("w", pa.array([1])), mode="overwrite")
    assert rows(repo) == [{"id": 3, "v": "x", "w": 1}]
    with pytest.raises(InvalidInputError, match=r"cannot read rows from 7 \(int\)"):
        repo.load(ORDERS, 7)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("schema", [{"id": "int32"}, pa.schema([("id", pa.int32()), ("v", pa.string())])])
def test_the_given_schema_of_a_frame_counts(repo: ab.Repository, mode: str, schema: Any) -> None:
    frame = pa.table({"id": [1, 2], "v": ["a", "b"]})
    repo.load(ORDERS, frame, schema=schema, primary_key=["id"], mode=mode)
    assert types(repo) == {"id": "int32", "v": "string"}
    with pytest.raises(SchemaMismatchError, match="has type int32, not int8"):
        repo.load(ORDERS, frame, schema={"id": "int8"})
    with pytest.raises(InvalidInputError, match="is id, not v"):
        repo.load(ORDERS, frame, mode=mode, primary_key=["v"])
    with pytest.raises(SchemaMismatchError, match="there is no column 'w'"):
        repo.load("s.t", frame, schema={"w": "int8"}, mode=mode)


def test_progress_is_reported_in_rows_and_bytes(repo: ab.Repository, put: Put) -> None:
    text = "\n".join(["id,v", *(f"{n},value {n}" for n in range(400_000))])
    seen: list[ab.Progress] = []
    repo.load(ORDERS, put("a.csv", text), progress=seen.append)
    assert len(seen) > 1
    assert seen == sorted(seen, key=lambda progress: progress.rows)
    assert seen[-1] == ab.Progress(stage="bytes", done=len(text), total=len(text), rows=400_000)
