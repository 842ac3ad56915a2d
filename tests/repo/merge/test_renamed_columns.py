"""A renamed column is followed although no data file of it is left: in merges, diffs and the history of rows."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.repo.transaction import Transaction

KEY = "s.t"
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())])


@pytest.fixture
def table(repo: ab.Repository) -> ab.Repository:
    """A table with rows 1, 2, 3 in a data file each, and the branch dev."""
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
    for number in (1, 2, 3):
        repo.append(KEY, pa.table([[number], [number], [f"b{number}"]], schema=SCHEMA))
    repo.branch_create("dev")
    return repo


def change(repo: ab.Repository, branch: str, *steps: Callable[[Transaction], object]) -> None:
    """Make each change in a commit of its own."""
    for step in steps:
        with repo.transaction(branch) as tx:
            step(tx)


def rename(old: str, new: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.alter_columns(KEY, [ab.ColumnChange(path=old, name=new)])


def put(column: str, value: str, where: str = "id = 1") -> Callable[[Transaction], object]:
    return lambda tx: tx.update(KEY, {column: value}, where=where)


def drop(column: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.drop_columns(KEY, [column])


def add(column: str, expression: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.add_columns(KEY, {column: expression})


def update_all(tx: Transaction) -> None:
    tx.update(KEY, {"b": "concat(b, '!')"}, where="true")


def compact(tx: Transaction) -> None:
    tx.delete(KEY, "id = 3")
    tx.compact(KEY)


def overwrite(tx: Transaction) -> None:
    found = tx[KEY].to_arrow().to_pydict()  # without the metadata of the columns
    tx.overwrite(KEY, pa.table({name: found[name] for name in sorted(found)}))


def overwrite_with_own(tx: Transaction) -> None:
    tx.overwrite(KEY, tx[KEY].to_arrow())


def compact_again(tx: Transaction) -> None:
    tx.delete(KEY, "id = 2")
    tx.compact(KEY)


def update_rest(tx: Transaction) -> None:
    """Rewrite all rows, with the same values."""
    tx.update(KEY, {"b": "b"}, where="true")


def retype(tx: Transaction) -> None:
    tx.alter_columns(KEY, [ab.ColumnChange(path="c", type=pa.float64())])
    update_all(tx)


REWRITES: dict[str, Callable[[Transaction], object]] = {
    "update_all": update_all,
    "compact": compact,
    "overwrite": overwrite,
    "overwrite_with_own": overwrite_with_own,
    "retype": retype,
}


def rows(repo: ab.Repository, ref: str = "main") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = repo.snapshot_of(ref)[KEY].to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def files_of(repo: ab.Repository, ref: str) -> set[str]:
    fragments = repo.snapshot_of(ref)[KEY].version_ref.open().get_fragments()
    return {file.path for fragment in fragments for file in fragment.metadata.files}


def field_ids(repo: ab.Repository, ref: str) -> dict[str, int]:
    schema = repo.snapshot_of(ref)[KEY].version_ref.open().lance_schema
    return {field.name(): field.id() for field in schema.fields()}


@pytest.mark.parametrize("strategy", ["fail", "source", "target"])
@pytest.mark.parametrize("direction", ["to_main", "to_dev"])
@pytest.mark.parametrize("rewrite", REWRITES)
def test_merge_follows_a_renamed_column_whose_rows_were_rewritten(
    table: ab.Repository, rewrite: str, direction: str, strategy: str
) -> None:
    change(table, "dev", rename("a", "c"), REWRITES[rewrite])
    change(table, "main", put("a", "100"))
    assert not files_of(table, "dev") & files_of(table, "main")
    expected = [{**row, "c": 100} if row["id"] == 1 else row for row in rows(table, "dev")]
    source, target = ("dev", "main") if direction == "to_main" else ("main", "dev")
    table.merge(source, target, strategy=strategy)
    assert rows(table, target) == expected


@pytest.mark.parametrize("rewrite", REWRITES)
def test_diff_reports_a_rename_of_a_column_whose_rows_were_rewritten(table: ab.Repository, rewrite: str) -> None:
    change(table, "dev", rename("a", "c"), REWRITES[rewrite])
    for refs, names in ((("main", "dev"), ("a", "c")), (("dev", "main"), ("c", "a"))):
        (found,) = table.diff(*refs).tables
        changes = found.columns
        assert ("renamed", *names) in [(one.change, one.before, one.after) for one in changes]
        assert not {"added", "removed"} & {one.change for one in changes}


def test_a_column_that_reuses_the_field_id_of_a_dropped_one_is_another_column(table: ab.Repository) -> None:
    change(table, "dev", rename("b", "c"), compact, drop("c"), compact_again, add("d", "'new'"))
    assert field_ids(table, "dev")["d"] == field_ids(table, "main")["b"]
    (found,) = table.diff("main", "dev").tables
    assert [(one.change, one.column) for one in found.columns] == [("added", "d"), ("removed", "b")]
    change(table, "main", put("b", "'changed'"))
    with pytest.raises(MergeConflictError) as caught:
        table.merge("dev", "main")
    assert [(one.column, one.problem) for one in caught.value.conflicts] == [("b", "the source dropped it")]


def test_a_new_column_with_the_old_name_is_another_column(table: ab.Repository) -> None:
    change(table, "dev", rename("a", "c"), add("a", "id * 1000"), update_all)
    change(table, "main", put("a", "100"))
    table.merge("dev", "main")
    assert [(row["id"], row["c"], row["a"]) for row in rows(table)] == [(1, 100, 1000), (2, 2, 2000), (3, 3, 3000)]


def test_a_column_that_is_restored_beside_one_that_took_its_name_has_all_its_values(table: ab.Repository) -> None:
    change(table, "dev", put("a", "100"))
    change(table, "main", drop("a"), rename("b", "a"))
    table.merge("dev", "main", strategy="source")
    assert [(row["id"], row["a"], row["b"]) for row in rows(table)] == [(1, 100, "b1"), (2, 2, "b2"), (3, 3, "b3")]


def test_columns_that_exchanged_their_names_are_followed(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        tx.create_table(KEY, pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())]), primary_key=["id"])
        tx.append(KEY, pa.table({"id": [1], "a": [10], "b": [20]}))
    repo.branch_create("dev")
    change(repo, "dev", rename("a", "c"), rename("b", "a"), rename("c", "b"), put("a", "a", "true"))
    change(repo, "main", put("a", "11"))
    repo.merge("dev", "main")
    assert rows(repo) == [{"id": 1, "b": 11, "a": 20}]


def test_columns_of_the_same_name_that_both_sides_added_are_one_column_unless_one_was_renamed(
    table: ab.Repository,
) -> None:
    """Both columns have the same field id."""
    change(table, "dev", add("y", "10"))
    change(table, "main", add("y", "20"), rename("y", "z"))
    assert field_ids(table, "dev")["y"] == field_ids(table, "main")["z"]
    table.merge("dev", "main")
    change(table, "dev", put("y", "11"), update_all)
    change(table, "main", update_rest, put("z", "21", "id = 2"))
    table.merge("dev", "main")
    assert [(row["id"], row["y"], row["z"]) for row in rows(table)] == [(1, 11, 20), (2, 10, 21), (3, 10, 20)]


def test_a_column_that_came_by_a_merge_is_followed_on_both_sides(table: ab.Repository) -> None:
    change(table, "main", add("other", "1"))
    change(table, "dev", add("y", "10"))
    table.merge("dev", "main")
    assert field_ids(table, "dev")["y"] != field_ids(table, "main")["y"]
    change(table, "main", rename("y", "z"), update_all)
    change(table, "dev", put("y", "11"))
    table.merge("dev", "main")
    assert [(row["id"], row["z"]) for row in rows(table)] == [(1, 11), (2, 10), (3, 10)]
    assert "y" not in rows(table)[0]


def test_a_table_that_a_merge_copied_keeps_its_columns(table: ab.Repository) -> None:
    change(table, "dev", rename("a", "c"), update_all)
    table.merge("dev", "main")
    change(table, "main", rename("c", "e"), update_all)
    change(table, "dev", put("c", "100"))
    table.merge("dev", "main")
    assert [(row["id"], row["e"]) for row in rows(table)] == [(1, 100), (2, 2), (3, 3)]


def test_columns_of_a_table_that_came_by_a_merge_are_followed(repo: ab.Repository) -> None:
    repo.branch_create("dev")
    change(repo, "dev", lambda tx: tx.create_table(KEY, SCHEMA, primary_key=["id"]))
    repo.append(KEY, pa.table([[1], [1], ["b"]], schema=SCHEMA), branch="dev")
    repo.merge("dev", "main")
    change(repo, "main", rename("a", "c"), update_all)
    change(repo, "dev", put("a", "100"))
    repo.merge("dev", "main")
    assert rows(repo) == [{"id": 1, "c": 100, "b": "b!"}]


def test_columns_of_a_table_that_was_created_again_are_other_columns(table: ab.Repository) -> None:
    change(table, "main", rename("a", "c"), update_all)
    table.branch_create("again", "main")

    def create(tx: Transaction) -> None:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        tx.append(KEY, pa.table([[1], [1], ["b"]], schema=SCHEMA))

    change(table, "again", lambda tx: tx.drop_table(KEY), create)
    (found,) = table.diff("main", "again").tables
    assert {(one.change, one.column) for one in found.columns} >= {("added", "a"), ("removed", "c")}


def test_a_table_created_with_the_schema_of_another_has_columns_of_its_own(table: ab.Repository) -> None:
    change(table, "main", rename("a", "c"))
    schema = table.snapshot_of("main")[KEY].version_ref.schema
    assert schema.field("c").metadata
    change(table, "main", lambda tx: tx.create_table("s.u", schema, primary_key=["id"]))
    assert not table.snapshot_of("main")["s.u"].version_ref.schema.field("c").metadata


def test_the_identity_of_a_column_is_not_shown(table: ab.Repository) -> None:
    change(table, "main", rename("a", "c"), add("d", "1"))
    change(table, "main", lambda tx: tx.annotate(KEY, {"owner": "ada"}, columns={"d": {"unit": "m"}}))
    found = table.snapshot_of("main")[KEY]
    for schema in (found.schema, found.to_arrow().schema, found.head(1).schema):
        assert "column-id" not in str(schema)
        assert (schema.metadata, schema.field("d").metadata) == ({b"owner": b"ada"}, {b"unit": b"m"})


def test_a_column_renamed_back_is_as_before(table: ab.Repository) -> None:
    before = table.snapshot_of("main")[KEY].version_ref.schema
    change(table, "main", rename("a", "c"), rename("c", "a"))
    assert table.snapshot_of("main")[KEY].version_ref.schema.equals(before, check_metadata=True)


def test_an_overwrite_keeps_the_identity_of_columns_in_another_order_and_type(table: ab.Repository) -> None:
    data = {"b": ["b1", "b2", "b3"], "a": [1.0, 2.0, 3.0], "id": [1, 2, 3]}
    change(table, "dev", lambda tx: tx.overwrite(KEY, pa.table(data)), rename("a", "c"), update_all)
    change(table, "main", put("a", "100"))
    table.merge("dev", "main")
    assert [(row["id"], row["c"]) for row in rows(table)] == [(1, 100.0), (2, 2.0), (3, 3.0)]


def test_a_cherry_picked_change_goes_to_the_renamed_column(table: ab.Repository) -> None:
    change(table, "dev", rename("a", "c"), update_all)
    change(table, "main", put("a", "100"))
    table.cherry_pick("main", branch="dev")
    assert [(row["id"], row["c"]) for row in rows(table, "dev")] == [(1, 100), (2, 2), (3, 3)]


def test_a_reverted_change_is_undone_in_the_renamed_column(table: ab.Repository) -> None:
    change(table, "main", put("a", "100"), rename("a", "c"), update_all)
    table.revert("main~2")
    assert [(row["id"], row["c"]) for row in rows(table)] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("rewrite", ["update_rest", "compact", "overwrite"])
def test_history_of_a_row_has_no_change_where_a_column_was_only_renamed(table: ab.Repository, rewrite: str) -> None:
    steps = {**REWRITES, "update_rest": update_rest}
    change(table, "main", put("a", "100"), rename("a", "c"), steps[rewrite], rename("c", "d"), put("d", "5"))
    assert [(one.before, one.after) for one in table.entity_history(KEY, 1)] == [
        ({"id": 1, "d": 100, "b": "b1"}, {"id": 1, "d": 5, "b": "b1"}),
        ({"id": 1, "a": 1, "b": "b1"}, {"id": 1, "a": 100, "b": "b1"}),
        (None, {"id": 1, "a": 1, "b": "b1"}),
    ]


def test_history_of_a_row_has_a_change_where_a_column_took_the_name_of_a_dropped_one(table: ab.Repository) -> None:
    change(table, "main", add("c", "a"), update_rest)

    def take_name(tx: Transaction) -> None:
        tx.drop_columns(KEY, ["c"])
        tx.alter_columns(KEY, [ab.ColumnChange(path="a", name="c")])

    change(table, "main", take_name)
    assert [(one.before, one.after) for one in table.entity_history(KEY, 1, limit=1)] == [
        ({"id": 1, "a": 1, "b": "b1", "c": 1}, {"id": 1, "c": 1, "b": "b1"})
    ]
