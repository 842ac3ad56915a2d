"""Apply a schema: each kind of change is planned, tried in a dry run, made, or refused without any change."""

import re
from copy import deepcopy
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    BranchNotFoundError,
    BranchProtectedError,
    DestructiveChangeError,
    InvalidExpressionError,
    InvalidSchemaError,
    KeyConflictError,
    SchemaMismatchError,
)
from anabranch.format.staging import list_indices
from anabranch.repo.snapshot import Snapshot
from tests.repo.conftest import CUSTOMERS, ORDERS, another, ids, nothing_changes, raw, rows, table

COLUMNS = {"id": "int64", "v": "string"}


def desired(**changes: Any) -> dict[str, Any]:
    """The schema of the lake, with the orders changed."""
    orders = {"primary_key": ["id"], "columns": COLUMNS, **changes}
    return {"tables": {"in_c_sales": {"orders": orders, "customers": {"columns": COLUMNS}}}}


def with_columns(**columns: Any) -> dict[str, Any]:
    return desired(columns={**COLUMNS, **columns})


def without_null_orders(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        tx.append(ORDERS, pa.table({"id": [4]}))


def applied(repo: ab.Repository, schema: dict[str, Any], **options: Any) -> ab.GraphCommit:
    """Plan, try, and make a schema; afterwards it is what there is, and the commit before it is as it was."""
    planned = repo.schema_plan(schema)
    before = everything(repo.snapshot_of(planned.commit_id))
    with nothing_changes(repo):
        tried = repo.schema_apply(schema, dry_run=True, **options)
    assert tried.commit is None
    assert tried.plan == planned
    assert not planned.is_empty
    done = repo.schema_apply(schema, **options)
    assert done.plan == planned
    assert done.commit is not None
    assert done.commit.kind == "schema_apply"
    assert done.commit.parent_commit_id == planned.commit_id
    assert repo.schema_plan(schema).is_empty
    assert repo.schema_plan(repo.schema_show().to_yaml()).is_empty
    assert everything(another(repo).snapshot_of(planned.commit_id)) == before
    return done.commit


def everything(snapshot: Snapshot) -> dict[str, object]:
    return {key: (found.schema, found.primary_key, rows(found)) for key, found in snapshot.items()}


def test_the_schema_that_is_shown_is_the_one_that_is_there(lake: ab.Repository) -> None:
    assert lake.schema_show().to_dict() == desired()
    assert lake.schema_plan(desired()).is_empty


@pytest.mark.s3
def test_an_empty_plan_makes_no_commit(lake: ab.Repository) -> None:
    head = lake.head_commit_id_for_branch("main")
    result = lake.schema_apply(desired())
    assert (result.plan.steps, result.commit) == ((), None)
    assert lake.head_commit_id_for_branch("main") == head


@pytest.mark.s3
def test_many_changes_of_many_tables_are_one_commit(lake: ab.Repository) -> None:
    before = lake.snapshot()
    schema = {
        "tables": {
            "in_c_sales": {
                "sales": {
                    "was": "orders",
                    "description": "What was sold",
                    "primary_key": ["number"],
                    "columns": {
                        "number": {"type": "int64", "was": "id", "nullable": False},
                        "item": {"type": "large_string", "was": "v", "description": "What it was"},
                        "price": {"type": "decimal(10, 2)", "nullable": False, "default": "number * 2"},
                    },
                    "indices": ["number", {"column": "item", "type": "bitmap"}],
                },
            },
            "out_c_reports": {"days": {"columns": {"day": "date32"}, "indices": ["day"]}},
        }
    }
    commit = applied(lake, schema, allow_destructive=True)
    assert commit.tables == ("in_c_sales.customers", ORDERS, "in_c_sales.sales", "out_c_reports.days")
    after = lake.snapshot()
    assert list(after) == ["in_c_sales.sales", "out_c_reports.days"]
    assert rows(after["in_c_sales.sales"]) == [
        {"number": 1, "item": "a", "price": Decimal(2)},
        {"number": 2, "item": "b", "price": Decimal(4)},
        {"number": 3, "item": "c", "price": Decimal(6)},
    ]
    assert [index.covered_rows for index in list_indices(after["in_c_sales.sales"].version_ref)] == [3, 3]
    assert raw(lake, "in_c_sales.sales").schema.names == ["number", "item", "price"]
    # What was there before is still there, as it was.
    assert before[ORDERS].schema.names == ["id", "v"]
    assert ids(lake.snapshot_of(before.id)) == [1, 2, 3]
    assert ids(lake.snapshot_of(before.id), CUSTOMERS) == [10, 20]


def test_a_table_is_made_with_all_its_settings(repo: ab.Repository) -> None:
    schema = desired(description="Orders", indices=[{"column": "id", "type": "btree"}])
    schema["tables"]["in_c_sales"]["orders"]["columns"] = {
        "id": "int64 not null",
        "v": {"type": "string", "default": "'x'", "description": "A letter"},
    }
    applied(repo, schema)
    assert repo.schema_show().to_dict() == schema
    assert repo.snapshot()[ORDERS].primary_key == ("id",)


def test_a_table_made_again_with_an_old_name_has_its_own_notes(repo: ab.Repository) -> None:
    repo.schema_apply(desired(description="First"))
    repo.schema_apply({"tables": {"in_c_sales": None}}, allow_destructive=True)
    repo.schema_apply(desired(description="Second"))
    assert repo.schema_show()[ORDERS].description == "Second"


@pytest.mark.parametrize(
    ("columns", "filled"),
    [
        ({"new": "date32"}, None),
        ({"new": {"type": "int8", "default": 7}}, 7),
        ({"new": {"type": "int8", "default": 7, "nullable": False}}, 7),
        ({"new": {"type": "string", "default": "upper(v)"}}, "A"),
        ({"new": {"type": "decimal(10, 2)", "default": "1.25"}}, Decimal("1.25")),
        ({"new": {"type": "bool", "default": True}}, True),
        ({"new": "vector(4)"}, None),
    ],
)
def test_a_new_column_is_empty_or_filled_with_its_default(
    lake: ab.Repository, columns: dict[str, Any], filled: object
) -> None:
    applied(lake, with_columns(**columns))
    assert rows(lake.snapshot()[ORDERS])[0] == {"id": 1, "v": "a", "new": filled}


def test_a_default_fills_rows_that_come_without_a_value(lake: ab.Repository) -> None:
    applied(
        lake,
        with_columns(
            state={"type": "string", "default": "'new'", "nullable": False},
            at={"type": "timestamp[us, tz=UTC]", "default": "now()"},
            twice={"type": "int64", "default": "id * 2"},
        ),
    )
    with lake.transaction() as tx:
        tx.append(ORDERS, pa.table({"id": [4]}))
        tx.upsert(ORDERS, pa.table({"id": [1, 5], "v": ["z", "e"]}))
        tx.append(ORDERS, pa.table({"id": [6], "state": ["sold"], "at": pa.nulls(1), "twice": [0]}))
    found = {row["id"]: row for row in rows(lake.snapshot()[ORDERS])}
    assert {number: row["state"] for number, row in found.items()} == {
        **dict.fromkeys(range(1, 6), "new"),
        6: "sold",
    }
    assert all((row["at"] is None) == (number == 6) for number, row in found.items())
    # What needs other columns is computed once, when the column is added.
    assert [found[number]["twice"] for number in range(1, 7)] == [2, 4, 6, None, None, 0]


def test_another_default_is_for_rows_to_come(lake: ab.Repository) -> None:
    applied(lake, with_columns(n={"type": "int8", "default": 1}))
    applied(lake, with_columns(n={"type": "int8", "default": 2}))
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
    assert [row["n"] for row in rows(lake.snapshot()[ORDERS])] == [1, 1, 1, 2]


@pytest.mark.parametrize("default", ["nonsense", "'text'", "1 +", "id) + (1", "v", "gone * 2"])
def test_a_default_that_cannot_be_is_refused(lake: ab.Repository, default: str) -> None:
    applied(lake, with_columns(gone="int64"))
    for schema in (
        with_columns(n={"type": "int8", "default": default}),
        desired(columns={"id": {"type": "int64", "default": default}, "v": "string"}),
        {"tables": {"b": {"t": {"columns": {"n": {"type": "int8", "default": default}, "v": "string"}}}}},
    ):
        for dry_run in (True, False):
            with nothing_changes(lake), pytest.raises(InvalidSchemaError) as caught:
                lake.schema_apply(schema, dry_run=dry_run, allow_destructive=True)
            assert re.match(r"tables\.(in_c_sales\.orders|b\.t)\.columns\.(n|id)\.default: ", str(caught.value))


@pytest.mark.parametrize(
    "column",
    [
        {"type": "int8", "default": 300},
        {"type": "int8", "nullable": False, "default": "NULL"},
        {"type": "timestamp", "default": 5},
    ],
)
def test_default_that_no_new_row_can_have_is_refused(lake: ab.Repository, column: dict[str, Any]) -> None:
    for schema in (with_columns(n=column), {"tables": {"b": {"t": {"columns": {"n": column}}}}}):
        with nothing_changes(lake), pytest.raises(InvalidSchemaError, match=r"columns\.n\.default: column 'n' takes"):
            lake.schema_apply(schema)


def test_a_default_may_use_another_new_column(lake: ab.Repository) -> None:
    columns = {"half": {"type": "float64", "default": "n / 2"}, "n": {"type": "float64", "default": 5}}
    applied(lake, with_columns(four={"type": "int64", "default": "id * 0 + 4"}, **columns))
    assert [(row["n"], row["half"], row["four"]) for row in rows(lake.snapshot()[ORDERS])] == [(5.0, 2.5, 4)] * 3
    with nothing_changes(lake), pytest.raises(InvalidExpressionError):
        lake.schema_apply(
            with_columns(
                four="int64", **columns, a={"type": "int64", "default": "b"}, b={"type": "int64", "default": "a"}
            )
        )


def test_a_column_without_nulls_needs_a_default_where_there_are_rows(lake: ab.Repository) -> None:
    schema = with_columns(n="int8 not null")
    for dry_run in (True, False):
        with nothing_changes(lake), pytest.raises(SchemaMismatchError) as caught:
            lake.schema_apply(schema, dry_run=dry_run)
        assert caught.value.problem == (
            "tables.in_c_sales.orders.columns.n: cannot add a column that is not null to a table with 3 rows"
        )
    with lake.transaction() as tx:
        tx.delete(ORDERS, "true")
    applied(lake, schema)


def test_a_default_that_gives_nulls_is_not_a_default_for_a_column_without_them(lake: ab.Repository) -> None:
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match="holds 3 nulls"):
        lake.schema_apply(with_columns(n={"type": "int8", "nullable": False, "default": "nullif(id, id)"}))


def test_a_column_takes_no_nulls_any_more_if_it_has_none(lake: ab.Repository) -> None:
    applied(lake, desired(columns={"id": "int64", "v": "string not null"}))
    with pytest.raises(SchemaMismatchError):
        without_null_orders(lake)
    applied(lake, desired())
    without_null_orders(lake)
    schema = desired(columns={"id": "int64", "w": {"type": "string", "was": "v", "nullable": False}})
    with nothing_changes(lake), pytest.raises(SchemaMismatchError) as caught:
        lake.schema_apply(schema)
    assert caught.value.problem == (
        "tables.in_c_sales.orders.columns.w: cannot set not null, because the column holds 1 nulls"
    )


@pytest.mark.parametrize("kind", ["float64", "int32", "decimal(20, 1)", "uint64"])
def test_a_column_gets_another_type_with_its_notes_kept(lake: ab.Repository, kind: str) -> None:
    noted = {"description": "Number", "default": "9"}
    lake.schema_apply(desired(primary_key=[], columns={"id": {"type": "int64", **noted}, "v": "string"}))
    schema = desired(primary_key=[], columns={"id": {"type": kind, **noted}, "v": "string"})
    is_wider = kind == "decimal(20, 1)"
    if not is_wider:
        with nothing_changes(lake), pytest.raises(DestructiveChangeError):
            lake.schema_apply(schema)
    applied(lake, schema, allow_destructive=not is_wider)
    assert ids(lake) == [1, 2, 3]


def test_a_value_that_does_not_fit_stops_everything(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(300))
    for dry_run in (True, False):
        with nothing_changes(lake), pytest.raises(SchemaMismatchError, match="does not fit") as caught:
            lake.schema_apply(desired(columns={"id": "int8", "v": "string"}), allow_destructive=True, dry_run=dry_run)
        assert caught.value.problem.startswith("tables.in_c_sales.orders.columns.id: ")


def test_destructive_steps_are_refused_and_listed(lake: ab.Repository) -> None:
    schema = {"tables": {"in_c_sales": {"orders": {"primary_key": ["id"], "columns": {"id": "int32", "n": "int8"}}}}}
    for dry_run in (True, False):
        with nothing_changes(lake), pytest.raises(DestructiveChangeError) as caught:
            lake.schema_apply(schema, dry_run=dry_run)
        assert caught.value.problem == (
            "3 of 4 changes may lose data: - in_c_sales.customers: table with 2 rows; "
            "~ in_c_sales.orders: column id: int64 -> int32; - in_c_sales.orders: column v: string"
        )
    assert not lake.schema_plan(schema).is_empty
    applied(lake, schema, allow_destructive=True)


def test_a_column_is_renamed_once_however_often_its_schema_is_applied(lake: ab.Repository) -> None:
    schema = desired(columns={"id": "int64", "w": {"type": "string", "was": "v"}})
    applied(lake, schema)
    assert lake.schema_apply(schema).commit is None
    assert rows(lake.snapshot()[ORDERS])[0] == {"id": 1, "w": "a"}


def test_a_chain_of_names_and_a_new_column_with_the_old_name(lake: ab.Repository) -> None:
    columns = {"id": "int64", "v": {"type": "int8", "default": 5}, "w": {"type": "string", "was": "v"}}
    applied(lake, desired(columns=columns))
    assert rows(lake.snapshot()[ORDERS])[0] == {"id": 1, "w": "a", "v": 5}
    columns = {**columns, "v": "int8", "w": {"type": "int8", "was": "v"}, "x": {"type": "string", "was": "w"}}
    applied(lake, desired(columns=columns))
    assert rows(lake.snapshot()[ORDERS])[0] == {"id": 1, "x": "a", "w": 5, "v": None}


def test_tables_move_up_and_a_new_one_takes_the_old_name(lake: ab.Repository) -> None:
    schema = {
        "tables": {
            "in_c_sales": {
                "orders": {"columns": {"x": "int8"}},
                "customers": {"columns": COLUMNS, "primary_key": ["id"], "was": "orders"},
                "people": {"columns": COLUMNS, "was": "customers"},
            }
        }
    }
    applied(lake, schema)
    assert ids(lake, CUSTOMERS) == [1, 2, 3]
    assert ids(lake, "in_c_sales.people") == [10, 20]
    assert lake.snapshot()[ORDERS].schema.names == ["x"]


def test_the_primary_key_is_set_changed_and_removed(lake: ab.Repository) -> None:
    for key in (["v"], ["id", "v"], [], ["id"]):
        applied(lake, desired(primary_key=key))
        assert lake.snapshot()[ORDERS].primary_key == tuple(key)
    with pytest.raises(KeyConflictError), lake.transaction() as tx:
        tx.append(ORDERS, table(1))


def test_a_key_that_the_rows_do_not_keep_is_refused(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, pa.table({"id": [4, 5], "v": ["a", None]}))
    with nothing_changes(lake), pytest.raises(KeyConflictError, match="nulls"):
        lake.schema_apply(desired(primary_key=["v"]))
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 5")
    for dry_run in (True, False):
        with nothing_changes(lake), pytest.raises(KeyConflictError, match="1 key occurs more than once"):
            lake.schema_apply(desired(primary_key=["v"]), dry_run=dry_run)


def test_the_key_moves_to_a_new_column_and_the_old_one_goes(lake: ab.Repository) -> None:
    number = {"number": {"type": "int32", "default": "id", "nullable": False}}
    with nothing_changes(lake), pytest.raises(InvalidSchemaError, match="there is no column 'id'"):
        lake.schema_apply(desired(columns=number, primary_key=["number"]), allow_destructive=True)
    applied(lake, with_columns(**number))
    applied(lake, desired(columns={"number": "int32 not null"}, primary_key=["number"]), allow_destructive=True)
    assert rows(lake.snapshot()[ORDERS]) == [{"number": 1}, {"number": 2}, {"number": 3}]


def test_an_index_waits_for_rows_and_is_built_then(repo: ab.Repository) -> None:
    schema = desired(indices=[{"column": "v", "type": "bitmap"}])
    applied(repo, schema)
    assert list_indices(repo.snapshot()[ORDERS].version_ref) == []
    # The stored spelling is that of tables whose schema was applied before.
    noted = repo[ORDERS].schema.field("v").metadata[b"anabranch:indices"]
    assert noted == b'[{"type": "BITMAP"}]'
    with repo.transaction() as tx:
        tx.append(ORDERS, table(1, 2))
    assert repo.schema_show().to_dict() == schema
    assert [step.text for step in repo.schema_plan(schema).steps] == ["index on v (bitmap): built"]
    applied(repo, schema)
    assert [index.covered_rows for index in list_indices(repo.snapshot()[ORDERS].version_ref)] == [2]
    applied(repo, desired())
    assert list_indices(repo.snapshot()[ORDERS].version_ref) == []


def test_a_new_column_with_an_old_name_has_an_index_beside_the_one_that_moved(lake: ab.Repository) -> None:
    applied(lake, desired(indices=["v"]))
    columns = {"id": "int64", "w": {"type": "string", "was": "v"}, "v": {"type": "string", "default": "'x'"}}
    applied(lake, desired(columns=columns, indices=["w", "v"]))
    built = {index.name: index.columns for index in list_indices(lake.snapshot()[ORDERS].version_ref)}
    assert built == {"v_idx": ("w",), "v_idx_2": ("v",)}


def test_an_index_stays_when_all_rows_are_replaced(lake: ab.Repository) -> None:
    schema = desired(indices=["id"], description="Orders")
    applied(lake, schema)
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, table(7, 8))
    assert lake.schema_show()[ORDERS].description == "Orders"
    assert lake.schema_plan(schema).is_empty


def test_indices_that_others_made_are_seen(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.index(ORDERS, "v", type="bitmap", name="letters")
    found = lake.schema_show()
    assert found.to_dict()["tables"]["in_c_sales"]["orders"]["indices"] == [
        {"column": "v", "type": "bitmap", "name": "letters"}
    ]
    assert lake.schema_plan(found).is_empty
    applied(lake, desired())


def test_a_vector_index_is_built_as_it_is_described(repo: ab.Repository) -> None:
    index = {"column": "near", "type": "ivf_flat", "metric": "cosine", "num_partitions": 2}
    schema = desired(columns={**COLUMNS, "near": "vector(4)"}, indices=[index])
    repo.schema_apply(schema)
    vectors = pa.array([[float(i % 7), 1.0, 2.0, float(i)] for i in range(20)], pa.list_(pa.float32(), 4))
    with repo.transaction() as tx:
        tx.append(ORDERS, pa.table({"id": range(20), "near": vectors}))
    applied(repo, schema)
    assert [(info.kind, info.metric) for info in list_indices(repo.snapshot()[ORDERS].version_ref)] == [
        ("ivf_flat", "cosine")
    ]
    assert repo.schema_show().to_dict() == schema
    other = deepcopy(schema)
    other["tables"]["in_c_sales"]["orders"]["indices"][0]["num_partitions"] = 1
    applied(repo, other)


def test_descriptions_are_kept_through_every_kind_of_write(lake: ab.Repository) -> None:
    schema = desired(description="Wörter", columns={"id": "int64", "v": {"type": "string", "description": "A letter"}})
    applied(lake, schema)
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.upsert(ORDERS, table(4, v="z"))
        tx.update(ORDERS, {"v": "upper(v)"}, where="true")
        tx.delete(ORDERS, "id = 1")
        tx.add_columns(ORDERS, {"w": "id * 2"})
        tx.drop_columns(ORDERS, ["w"])
        tx.overwrite(ORDERS, table(7))
    assert lake.schema_show().to_dict() == schema
    assert lake.snapshot()[ORDERS].schema == pa.schema(
        [("id", pa.int64()), ("v", pa.string())]
    )  # notes are not columns


def test_other_branches_keep_their_schema(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.branch_create_from("main", "live", mode="live")
    lake.schema_apply(
        with_columns(n={"type": "int8", "default": 1}), branch="dev", message="Add n", metadata={"k": "v"}
    )
    commit = lake.get_commit("dev")
    assert (commit.message, commit.metadata, commit.branch) == ("Add n", {"k": "v"}, "dev")
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
    assert lake.snapshot()[ORDERS].schema.names == ["id", "v"]
    assert lake.schema_show("dev")[ORDERS].find_column("n") is not None
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3]
    lake.schema_apply(with_columns(m="int8"), branch="live")
    assert lake.schema_plan(with_columns(m="int8"), branch="live").is_empty
    assert lake.schema_plan(desired()).is_empty
    assert ids(lake.snapshot_of("live")) == [1, 2, 3, 4]


def test_a_branch_that_is_not_there_or_protected_is_refused(lake: ab.Repository) -> None:
    for call in (lake.schema_plan, lake.schema_apply):
        with pytest.raises(BranchNotFoundError):
            call(desired(), branch="nope")
    lake.branch_protect("main")
    with nothing_changes(lake), pytest.raises(BranchProtectedError):
        lake.schema_apply(with_columns(n="int8"))
