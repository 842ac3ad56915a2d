"""A desired schema is read strictly, and errors have their location in the document."""

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, InvalidSchemaError, ObjectNotFoundError
from anabranch.repo.schema.desired import read_desired
from anabranch.repo.schema.state import SchemaState
from anabranch.storage import open_store
from tests.conftest import Location

FULL = """\
tables:
  in_c_sales:
    orders:
      was: bookings
      description: What was sold
      primary_key: [id]
      columns:
        id: int64 not null
        item: string
        price:
          type: decimal(10, 2)
          nullable: false
          was: cost
          default: 0
          description: 'Without tax: net'
        at: {type: 'timestamp[us, tz=UTC]', default: now()}
        near: vector(16)
      indices:
        - id
        - {column: item, type: bitmap, name: things}
        - {column: near, type: ivf_pq, metric: Cosine, num_partitions: 2, num_sub_vectors: 4}
  in_c_empty:
"""


def read(desired: Any) -> SchemaState:
    return read_desired(desired, storage_options={})


def table(**parts: Any) -> dict[str, Any]:
    """A schema with one table, of one column unless others are given."""
    return {"tables": {"b": {"t": {"columns": {"id": "int64"}, **parts}}}}


def test_everything_in_a_schema_is_read() -> None:
    state = read(FULL)
    assert state.buckets == ("in_c_empty", "in_c_sales")
    orders = state["in_c_sales.orders"]
    assert str(orders.was) == "in_c_sales.bookings"
    assert (orders.description, orders.primary_key) == ("What was sold", ("id",))
    assert [(c.name, c.summary) for c in orders.columns] == [
        ("id", "int64 not null"),
        ("item", "string"),
        ("price", "decimal(10, 2) not null default 0"),
        ("at", "timestamp[us, tz=UTC] default now()"),
        ("near", "vector(16)"),
    ]
    price = orders.columns[2]
    assert (price.was, price.description) == ("cost", "Without tax: net")
    assert [index.chosen_name for index in orders.indices] == ["id_idx", "things", "near_idx"]
    assert [index.kind.value for index in orders.indices] == ["btree", "bitmap", "ivf_pq"]
    assert (orders.indices[2].metric, orders.indices[2].num_partitions) == ("cosine", 2)


def test_schema_is_read_back_from_yaml_and_dicts() -> None:
    state = read(FULL)
    again = read(state.to_yaml())
    assert again == state == read(state.to_dict()) == read(state)
    assert again["in_c_sales.orders"].columns[2].was == "cost"
    assert again["in_c_sales.orders"].was == state["in_c_sales.orders"].was


def test_a_schema_comes_from_a_file_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "schema.yaml"
    file.write_text(FULL)
    assert read(file) == read(str(file)) == read(FULL)
    monkeypatch.chdir(tmp_path)
    assert read("schema.yaml") == read(FULL)
    with pytest.raises(ObjectNotFoundError, match=r"nothing\.yaml"):
        read(tmp_path / "nothing.yaml")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSchemaError, match="not UTF-8"):
        read(file)


@pytest.mark.s3
def test_a_schema_comes_from_where_the_lake_is(repo: ab.Repository, location: Location) -> None:
    open_store(location.root, location.storage_options).put("wanted.yaml", b"tables: {b: {t: {columns: {id: int64}}}}")
    assert repo.schema_apply(location / "wanted.yaml").commit is not None
    assert repo.schema_plan(location / "wanted.yaml").is_empty


def test_words_that_yaml_takes_for_something_else_are_names_here() -> None:
    text = "tables: {b: {on: {columns: {no: string, yes: bool, null: int64, 1: int8}, primary_key: 'null'}}}"
    found = read(text)["b.on"]
    assert [column.name for column in found.columns] == ["no", "yes", "null", "1"]
    assert found.primary_key == ("null",)
    assert read(read(text).to_yaml()) == read(text)


@pytest.mark.parametrize(
    ("given", "default"),
    [("0", "0"), ("1.10", "1.10"), ("true", "true"), ("\"'new'\"", "'new'"), ("now()", "now()"), ("~", None)],
)
def test_a_default_is_what_was_written(given: str, default: str | None) -> None:
    state = read(f"tables: {{b: {{t: {{columns: {{c: {{type: string, default: {given}}}}}}}}}}}")
    assert state["b.t"].columns[0].default == default


@pytest.mark.parametrize(
    ("line", "problem", "hint"),
    [
        (
            "        price: decmal",
            "tables.in_c_sales.orders.columns.price (line 5): unknown type 'decmal'",
            "did you mean decimal(10, 2)?",
        ),
        (
            "        price: {type: int64, nulable: true}",
            "tables.in_c_sales.orders.columns.price.nulable (line 5): 'nulable' is not known here",
            "did you mean 'nullable'? use type, nullable, default, description, was",
        ),
        (
            "        price: {nullable: true}",
            "tables.in_c_sales.orders.columns.price (line 5): the column has no type",
            "add one, such as 'type: int64'",
        ),
        (
            "        price: [int64]",
            "tables.in_c_sales.orders.columns.price (line 5): expected a mapping, got a list",
            "write one or more of type, nullable, default, description, was, each in a line 'name: value'",
        ),
        (
            "        price: {type: int64, nullable: maybe}",
            "tables.in_c_sales.orders.columns.price.nullable (line 5): expected true or false, got 'maybe'",
            "write true or false",
        ),
        (
            "        price: {type: int64, nullable: !!bool maybe}",
            "tables.in_c_sales.orders.columns.price.nullable (line 5): expected true or false, got 'maybe'",
            "write true or false",
        ),
        (
            "        at: {type: timestamp, default: 2026-01-31}",
            "tables.in_c_sales.orders.columns.at.default (line 5): '2026-01-31' is a subtraction in SQL, not a date",
            "write \"date '2026-01-31'\", or \"timestamp '2026-01-31 12:00:00'\"",
        ),
        (
            "        id: int8\n        id: int16",
            "tables.in_c_sales.orders.columns (line 6): 'id' is given twice",
            "keep one of them",
        ),
        (
            "        ? [a, b]\n        : int8",
            "tables.in_c_sales.orders.columns (line 5): a name must be a text",
            "use text for names",
        ),
        (
            "        <<: {a: int8}",
            "tables.in_c_sales.orders.columns (line 5): the merge key '<<' is not supported",
            "write the entries out",
        ),
    ],
)
def test_errors_have_the_location_in_the_schema(line: str, problem: str, hint: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        read(f"tables:\n  in_c_sales:\n    orders:\n      columns:\n{line}\n")
    assert (caught.value.problem, caught.value.hint) == (problem, hint)


@pytest.mark.parametrize(
    ("desired", "problem"),
    [
        ({}, "the schema: there are no tables"),
        ({"table": {}}, "table: 'table' is not known here"),
        ({"tables": []}, "tables: expected a mapping, got a list"),
        ({"tables": {"a.b": {}}}, "tables.a.b: table name 'a.b.table' does not have the form 'bucket.table'"),
        ({"tables": {"-b": None}}, "tables.-b: table name '-b.table' has the invalid part '-b'"),
        (
            {"tables": {"b": {"a b": {"columns": {"id": "int64"}}}}},
            "tables.b.a b: table name 'b.a b' has the invalid part",
        ),
        ({"tables": {"b": {"t": None}}}, "tables.b.t: the table has no columns"),
        ({"tables": {"b": {"t": "int64"}}}, "tables.b.t: expected a mapping, got 'int64'"),
        (table(columns={}), "tables.b.t.columns: there are no columns"),
        (table(columns={"a.b": "int64"}), "tables.b.t.columns: column name 'a.b' is empty or holds '.'"),
        (table(columns={"_rowid": "int64"}), "tables.b.t.columns: column name '_rowid' is Lance's own"),
        (table(columns={"a\0b": "int64"}), "tables.b.t.columns: column name 'a\\x00b' holds a null character"),
        (table(columns={1: "int64"}), "tables.b.t.columns: a name must be a text, got 1"),
        (
            table(columns={"id": {"type": "int64", "was": "id"}}),
            "tables.b.t.columns.id.was: 'was' is the current name 'id' of the column",
        ),
        (table(columns={"id": object()}), "tables.b.t.columns.id: unsupported value of type object"),
        (table(columns={"id": b"int64"}), "tables.b.t.columns.id: unsupported value of type bytes"),
        (table(was="b.t"), "tables.b.t.was: 'was' is the current name 't' of the table"),
        (table(was="a.b.c"), "tables.b.t.was: table name 'a.b.c' does not have the form"),
        (table(description=["x"]), "tables.b.t.description: expected a text, got a list"),
        (table(description="x" * 10_001), "tables.b.t.description: the description has 10001 characters"),
        (table(primary_key="nope"), "tables.b.t.primary_key: the primary key of 'b.t' names the column 'nope'"),
        (table(primary_key=["id", "id"]), "tables.b.t.primary_key: the primary key of 'b.t' names a column twice"),
        (
            table(columns={"id": "float64"}, primary_key=["id"]),
            "tables.b.t.primary_key: column 'id' of 'b.t' is float64",
        ),
        (table(indices={"id": "btree"}), "tables.b.t.indices: expected a list, got a mapping"),
        (table(indices=["nope"]), "tables.b.t.indices[0]: there is no column 'nope'"),
        (table(indices=[{"column": "id", "type": "tree"}]), "tables.b.t.indices[0].type: unknown index type 'tree'"),
        (table(indices=[{"type": "btree"}]), "tables.b.t.indices[0]: the index has no column"),
        (table(indices=["id", "id"]), "tables.b.t.indices: two indices have the name 'id_idx'"),
        (table(indices=[{"column": "id", "type": "ivf_flat"}]), "tables.b.t.indices[0]: an index of type"),
        (
            table(indices=[{"column": "id", "type": "inverted"}]),
            "tables.b.t.indices[0]: an index of type inverted needs text, or lists of text, but column 'id' is int64",
        ),
        (table(indices=[{"column": "id", "metric": "l2"}]), "tables.b.t.indices[0].metric: an index of type btree has"),
        (table(indices=[{"column": "id", "metric": "l2", "name": {}}]), "tables.b.t.indices[0].metric: an index of"),
        (
            table(indices=[{"column": "id", "num_partitions": 2}]),
            "tables.b.t.indices[0]: an index of type btree has no",
        ),
        (
            table(columns={"v": "vector(4)"}, indices=[{"column": "v", "type": "ivf_pq"}]),
            "tables.b.t.indices[0]: an index of type ivf_pq needs num_partitions and num_sub_vectors",
        ),
        (
            table(columns={"v": "vector(4)"}, indices=[{"column": "v", "type": "ivf_flat", "num_partitions": "x"}]),
            "tables.b.t.indices[0].num_partitions: expected an integer from 1 to 999999999, got 'x'",
        ),
        *(
            (
                table(
                    columns={"v": "vector(4)"},
                    indices=[{"column": "v", "type": "ivf_pq", "num_partitions": n, "num_sub_vectors": m}],
                ),
                f"tables.b.t.indices[0]{problem}",
            )
            for n, m, problem in [
                (0, 2, ".num_partitions: expected an integer from 1 to 999999999, got '0'"),
                (10**30, 2, f".num_partitions: expected an integer from 1 to 999999999, got '{10**30}'"),
                (1, 3, ": vectors of 4 dimensions cannot be split into 3 sub-vectors"),
            ]
        ),
        (
            table(columns={"a": {"type": "int8", "was": "x"}, "b": {"type": "int8", "was": "x"}}),
            "tables.b.t.columns: both 'a' and 'b' have the earlier name 'x'",
        ),
    ],
)
def test_invalid_schemas_are_refused(desired: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        read(desired)
    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    "text", ["", "# nothing", "tables: [", "tables: {b: \t{}}", "a: b: c", "--- 1\n--- 2", "[" * 500]
)
def test_invalid_yaml_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        read(text)


def test_a_schema_that_holds_itself_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="nested too deeply"):
        read("tables: &a {b: *a}")
    bomb = "a0: &a0 [x, x]\n" + "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    with pytest.raises(InvalidSchemaError, match="more than 100000 parts"):
        read(bomb)


@pytest.mark.parametrize("desired", [None, 7, ["tables"], b"tables: {}"])
def test_only_text_paths_and_dicts_are_schemas(repo: ab.Repository, desired: Any) -> None:
    with pytest.raises(InvalidInputError, match="cannot read a schema from"):
        repo.schema_plan(desired)
