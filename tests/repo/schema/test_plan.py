"""Plans are made from two schemas alone: each kind of change, destructive steps, and the order of steps."""

from typing import Any

import pytest

from anabranch.errors import InvalidSchemaError
from anabranch.ids import TableKey
from anabranch.repo.schema.desired import read_desired
from anabranch.repo.schema.plan import Step, plan_schema
from anabranch.repo.schema.state import CurrentTable

COLUMNS = {"id": "int64", "item": "string", "n": "int32"}


def steps(before: dict[str, Any], after: dict[str, Any], *, rows: int = 3, unbuilt: tuple[str, ...] = ()) -> list[Step]:
    """The plan from one state of the tables of bucket b to another."""
    current = read_desired({"tables": {"b": before}}, storage_options={})
    found = {table.key: CurrentTable(schema=table, rows=rows, unbuilt=frozenset(unbuilt)) for table in current.tables}
    return list(plan_schema(read_desired({"tables": {"b": after}}, storage_options={}), found))


def lines(before: dict[str, Any], after: dict[str, Any], **options: Any) -> list[str]:
    """The plan as people see it; '!' marks what may lose data."""
    return [f"{step.symbol} {step}{' !' if step.is_destructive else ''}" for step in steps(before, after, **options)]


def changed(**columns: Any) -> list[str]:
    """The plan for other columns of one table."""
    return lines({"t": {"columns": COLUMNS}}, {"t": {"columns": {**COLUMNS, **columns}}})


def test_equal_schemas_in_another_column_order_need_no_step() -> None:
    assert lines({"t": {"columns": COLUMNS}}, {"t": {"columns": dict(reversed(COLUMNS.items()))}}) == []


def test_tables_are_made_and_dropped() -> None:
    before, after = {"old": {"columns": COLUMNS}}, {"new": {"columns": COLUMNS}}
    assert lines(before, after) == ["- b.old: table with 3 rows !", "+ b.new: table"]
    assert lines(before, after, rows=1)[0] == "- b.old: table with 1 row !"


def test_tables_of_buckets_that_are_not_named_are_left_alone() -> None:
    table = read_desired({"tables": {"other": {"t": {"columns": COLUMNS}}}}, storage_options={}).tables[0]
    desired = read_desired({"tables": {"b": None}}, storage_options={})
    assert plan_schema(desired, {table.key: CurrentTable(schema=table, rows=1)}) == ()


def test_a_bucket_named_without_tables_loses_them_all() -> None:
    assert lines({"t": {"columns": COLUMNS}}, {}) == ["- b.t: table with 3 rows !"]


def test_a_table_is_renamed_only_once() -> None:
    after = {"new": {"columns": COLUMNS, "was": "old"}}
    assert lines({"old": {"columns": COLUMNS}}, after) == ["~ b.new: renamed from b.old"]
    assert lines({"new": {"columns": COLUMNS}}, after) == []
    assert lines({}, after) == ["+ b.new: table"]
    # Another table of the old name was made concurrently: it is not wanted, and not the one that was renamed.
    both = {"old": {"columns": COLUMNS}, "new": {"columns": COLUMNS}}
    assert lines(both, after) == ["- b.old: table with 3 rows !"]


def test_a_table_can_come_from_another_bucket_by_its_full_name() -> None:
    table = read_desired({"tables": {"other": {"t": {"columns": COLUMNS}}}}, storage_options={}).tables[0]
    desired = {"tables": {"b": {"t": {"columns": COLUMNS, "was": "other.t"}}}}
    found = plan_schema(read_desired(desired, storage_options={}), {table.key: CurrentTable(schema=table, rows=1)})
    assert [str(step) for step in found] == ["b.t: renamed from other.t"]


def test_names_move_up_and_the_old_one_may_be_taken_by_a_new_table() -> None:
    after: dict[str, Any] = {
        "a": {"columns": {"x": "int8"}},
        "b": {"columns": COLUMNS, "was": "a"},
        "c": {"columns": COLUMNS, "was": "b"},
    }
    before = {"a": {"columns": COLUMNS}, "b": {"columns": COLUMNS}}
    assert lines(before, after) == ["~ b.c: renamed from b.b", "~ b.b: renamed from b.a", "+ b.a: table"]
    assert lines({name: {"columns": table["columns"]} for name, table in after.items()}, after) == []


def test_cycle_of_names_is_not_renamed() -> None:
    before = {"a": {"columns": COLUMNS}, "c": {"columns": COLUMNS}}
    after = {"a": {"columns": COLUMNS, "was": "c"}, "c": {"columns": COLUMNS, "was": "a"}}
    assert lines(before, after) == []


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"new": "date32"}, "+ b.t: column new: date32"),
        ({"new": {"type": "int8", "nullable": False, "default": 1}}, "+ b.t: column new: int8 not null default 1"),
        ({"n": "int64"}, "~ b.t: column n: int32 -> int64"),
        ({"n": "int16"}, "~ b.t: column n: int32 -> int16 !"),
        ({"n": "float32"}, "~ b.t: column n: int32 -> float32 !"),
        ({"item": "string not null"}, "~ b.t: column item: not null"),
        ({"n": {"type": "int32", "default": 7}}, "~ b.t: column n: default none -> 7"),
        ({"n": {"type": "int32", "description": "How many"}}, "~ b.t: column n: description none -> 'How many'"),
    ],
)
def test_a_column_changes(columns: dict[str, Any], expected: str) -> None:
    assert changed(**columns) == [expected]


def test_a_column_may_take_nulls_again() -> None:
    before = {"t": {"columns": {"id": "int64 not null"}}}
    assert lines(before, {"t": {"columns": {"id": "int64"}}}) == ["~ b.t: column id: takes nulls"]


def test_a_column_is_dropped() -> None:
    after = {"t": {"columns": {"id": "int64"}}}
    assert lines({"t": {"columns": COLUMNS}}, after) == ["- b.t: column item: string !", "- b.t: column n: int32 !"]


def test_a_renamed_column_takes_its_key_and_its_indices_along() -> None:
    before = {"t": {"columns": COLUMNS, "primary_key": ["id"], "indices": ["id"]}}
    columns = {"key": {"type": "int64", "was": "id"}, "item": "string", "n": "int32"}
    after = {"t": {"columns": columns, "primary_key": ["key"], "indices": ["key"]}}
    assert lines(before, after) == ["~ b.t: column key: renamed from id"]
    done = {"t": {**after["t"], "indices": [{"column": "key", "name": "id_idx"}]}}
    assert lines(done, after) == []


def test_columns_move_up_and_the_old_name_may_be_a_new_column() -> None:
    before = {"t": {"columns": {"a": "int8", "b": "int8"}}}
    after = {"t": {"columns": {"a": "string", "b": {"type": "int8", "was": "a"}, "c": {"type": "int8", "was": "b"}}}}
    assert lines(before, after) == [
        "~ b.t: column c: renamed from b",
        "~ b.t: column b: renamed from a",
        "+ b.t: column a: string",
    ]


def test_a_type_that_no_value_can_become_is_refused() -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        changed(item="int64")
    assert caught.value.problem == "tables.b.t.columns.item: string cannot become int64"


def test_the_primary_key_changes() -> None:
    def key(before: list[str], after: list[str]) -> list[str]:
        return lines(
            {"t": {"columns": COLUMNS, "primary_key": before}}, {"t": {"columns": COLUMNS, "primary_key": after}}
        )

    assert key([], ["id"]) == ["~ b.t: primary key: none -> id"]
    assert key(["id"], ["id", "n"]) == ["~ b.t: primary key: id -> id, n"]
    assert key(["id"], []) == ["~ b.t: primary key: id -> none"]


def test_indices_come_and_go() -> None:
    def plan(before: list[Any], after: list[Any], **options: Any) -> list[str]:
        columns = {**COLUMNS, "near": "vector(4)"}
        tables = [{"t": {"columns": columns, "indices": indices}} for indices in (before, after)]
        return lines(*tables, **options)

    vector = {"column": "near", "type": "ivf_flat"}
    assert plan([], ["id"]) == ["+ b.t: index on id (btree)"]
    assert plan(["id"], []) == ["- b.t: index on id (btree)"]
    assert plan(["id"], [{"column": "id", "type": "bitmap"}]) == [
        "- b.t: index on id (btree)",
        "+ b.t: index on id (bitmap)",
    ]
    assert plan(["id"], [{"column": "id", "name": "by_id"}]) == [
        "- b.t: index on id (btree)",
        "+ b.t: index on id (btree, named by_id)",
    ]
    assert (
        plan([{**vector, "metric": "cosine", "num_partitions": 2}], [vector]) == []
    )  # what is not given may be anything
    assert len(plan([{**vector, "num_partitions": 2}], [{**vector, "num_partitions": 3}])) == 2
    assert plan(["id"], ["id"], unbuilt=("id_idx",)) == ["~ b.t: index on id (btree): built"]


def test_index_is_dropped_with_its_column_and_rebuilt_for_a_new_type() -> None:
    before = {"t": {"columns": COLUMNS, "indices": ["n"]}}
    assert lines(before, {"t": {"columns": {"id": "int64", "item": "string"}}}) == ["- b.t: column n: int32 !"]
    after = {"t": {"columns": {**COLUMNS, "n": "int64"}, "indices": ["n"]}}
    assert lines(before, after) == ["~ b.t: column n: int32 -> int64", "~ b.t: index on n (btree): built"]
    assert lines(before, after, rows=0) == ["~ b.t: column n: int32 -> int64"]


def test_the_name_of_an_index_that_moved_with_its_column_is_left_to_it() -> None:
    before = {"t": {"columns": COLUMNS, "indices": ["n"]}}
    columns = {**COLUMNS, "m": {"type": "int32", "was": "n"}}
    renamed = ["~ b.t: column m: renamed from n", "+ b.t: column n: int32"]

    def plan(*indices: Any) -> list[str]:
        found = lines(before, {"t": {"columns": columns, "indices": list(indices)}})
        assert found[:2] == renamed
        return found[2:]

    assert plan("m", "n") == plan("n", "m") == ["+ b.t: index on n (btree, named n_idx_2)"]
    assert plan("m", "n", {"column": "id", "name": "n_idx_2"}) == [
        "+ b.t: index on n (btree, named n_idx_3)",
        "+ b.t: index on id (btree, named n_idx_2)",
    ]
    # Who asks for the name gets it.
    assert plan("m", {"column": "n", "name": "n_idx"}) == [
        "- b.t: index on m (btree, named n_idx)",
        "+ b.t: index on m (btree)",
        "+ b.t: index on n (btree)",
    ]


def test_a_description_changes() -> None:
    before = {"t": {"columns": COLUMNS, "description": "Old"}}
    assert lines(before, {"t": {"columns": COLUMNS}}) == ["~ b.t: description 'Old' -> none"]


def test_step_is_converted_to_a_dict() -> None:
    (step,) = steps({"t": {"columns": COLUMNS}}, {"t": {"columns": {**COLUMNS, "n": "int16"}}})
    assert step.to_dict() == {
        "table": "b.t",
        "step": "change_type",
        "destructive": True,
        "text": "column n: int32 -> int16",
        "column": "n",
        "before": "int32",
        "after": "int16",
    }
    assert step.table == TableKey("b", "t")
