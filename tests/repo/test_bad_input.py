"""What is wrong is reported, with its value and what to do next, and nothing is changed by it."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.column_types import show_type
from anabranch.errors import (
    AnabranchError,
    BranchNotFoundError,
    CorruptError,
    InvalidExpressionError,
    InvalidInputError,
    InvalidNameError,
    InvalidPathError,
    KeyConflictError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    SchemaMismatchError,
    StaleBaseError,
    UnsupportedFormatError,
)
from tests.conftest import Location
from tests.repo.conftest import (
    CUSTOMERS,
    ORDERS,
    SCHEMA,
    another,
    append,
    ids,
    nothing_changes,
    objects,
    raw,
    rows,
    table,
)
from tests.sealing import reseal, with_fields

Change = Callable[[ab.Transaction], Any]


def refuse(repo: ab.Repository, change: Change, error: type[AnabranchError], *parts: str) -> None:
    """A transaction with this change is refused and leaves everything as it was."""
    with nothing_changes(repo), pytest.raises(error) as caught, repo.transaction() as tx:
        change(tx)
    assert caught.value.hint
    for text in parts:
        assert text in str(caught.value)


def write(how: str, data: object) -> Change:
    return lambda tx: getattr(tx, how)(ORDERS, data)


# Names and refs


@pytest.mark.parametrize(
    "name", ["", "a//b", "/a", "a/", "a..b", "a b", "é", "a\\b", "x.lock", "a/_versions", 200 * "a"]
)
def test_bad_branch_names_are_refused(lake: ab.Repository, name: str) -> None:
    with nothing_changes(lake), pytest.raises(InvalidNameError, match="branch name") as caught:
        lake.branch_create(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    "key", ["", "orders", "a.b.c", ".b", "a.", "a b.c", "é.x", "a/b.c", "..", "-a.b", "a." + "b" * 200]
)
def test_bad_table_keys_are_refused(lake: ab.Repository, key: str) -> None:
    refuse(lake, lambda tx: tx.create_table(key, SCHEMA), InvalidNameError, repr(key))
    refuse(lake, lambda tx: tx.append(key, table(1)), InvalidNameError, repr(key))
    refuse(lake, lambda tx: tx.rename_table(ORDERS, key), InvalidNameError, repr(key))
    for use in (lambda: lake.settle(key), lambda: lake.adopt(key), lambda: lake.list_commits(table=key)):
        if key:
            with pytest.raises(InvalidNameError, match=r"table (key|name)"):
                use()


@pytest.mark.parametrize("ref", ["", "main~x", "main@7", "main@v", "main@{yesterday}", "~2", "ma in", "main^3", "a..b"])
def test_bad_refs_are_refused(lake: ab.Repository, ref: str) -> None:
    with nothing_changes(lake):
        with pytest.raises(InvalidNameError, match="ref") as caught:
            lake.snapshot_of(ref)
        assert repr(ref) in str(caught.value)
        with pytest.raises(InvalidNameError, match="ref"):
            lake.branch_create_from(ref, "dev")


@pytest.mark.parametrize("wrong", [None, 7, b"main", ["main"]])
def test_what_is_not_text_is_refused_as_a_name(lake: ab.Repository, wrong: Any) -> None:
    refuse(lake, lambda tx: tx.append(wrong, table(9)), InvalidNameError, repr(wrong))
    refuse(lake, lambda tx: tx.rename_table(ORDERS, wrong), InvalidNameError, repr(wrong))
    unnamed = "no predicate" if wrong is None else repr(wrong)
    refuse(lake, lambda tx: tx.delete(ORDERS, wrong), InvalidExpressionError, unnamed)
    refuse(lake, lambda tx: tx.update(ORDERS, {"v": wrong}, where="true"), InvalidExpressionError, repr(wrong))
    for use in (
        lambda: lake.snapshot_of(wrong),
        lambda: lake.get_commit(wrong),
        lambda: lake.branch_delete(wrong),
        lambda: lake.branch_create_from("main", wrong),
        lambda: lake.branch_create_from(wrong, "dev"),
        lambda: lake.snapshot()[wrong],
    ):
        with nothing_changes(lake), pytest.raises(InvalidNameError) as caught:
            use()
        assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("wrong", ["3", 1.5, [], b"3", True])
def test_what_is_not_a_whole_number_is_refused_as_a_limit_or_version(lake: ab.Repository, wrong: Any) -> None:
    orders = lake.snapshot()[ORDERS]
    for use in (
        lambda: lake.snapshot_at_version(wrong),
        lambda: lake.entity_at(ORDERS, 1, version=wrong),
        lambda: lake.list_commits(limit=wrong),
        lambda: lake.reflog(limit=wrong),
        lambda: lake.entity_history(ORDERS, 1, limit=wrong),
        lambda: orders.to_arrow(limit=wrong),
        lambda: orders.to_arrow(offset=wrong),
        lambda: orders.to_pandas(limit=wrong),
        lambda: orders.to_polars(limit=wrong),
        lambda: orders.scan(limit=wrong),
    ):
        with pytest.raises(InvalidInputError, match="is not a whole number") as caught:
            use()
        assert repr(wrong) in caught.value.problem
        assert caught.value.hint.startswith(("give ", "pass "))


def test_limits_are_not_negative_and_as_large_as_one_likes(lake: ab.Repository) -> None:
    orders = lake.snapshot()[ORDERS]
    for use in (
        lambda limit: lake.list_commits(limit=limit),
        lambda limit: lake.reflog(limit=limit),
        lambda limit: lake.entity_history(ORDERS, 1, limit=limit),
        lambda limit: orders.to_arrow(limit=limit),
        lambda limit: list(orders.scan(limit=limit)),
    ):
        with pytest.raises(InvalidInputError, match="the limit -1 is negative"):
            use(-1)
        assert use(1 << 70) == use(None)
        assert len(use(0)) == 0
    with pytest.raises(InvalidInputError, match="the offset -1 is negative"):
        orders.to_arrow(offset=-1)


@pytest.mark.parametrize("wrong", ["id", 7, [7], b"id"])
def test_what_is_not_a_list_of_columns_is_not_read(lake: ab.Repository, wrong: Any) -> None:
    orders = lake.snapshot()[ORDERS]
    for read in (orders.to_arrow, orders.to_pandas, orders.to_polars, orders.scan):
        with pytest.raises(InvalidInputError, match="columns must be a list") as caught:
            read(columns=wrong)
        assert repr(wrong) in caught.value.problem


@pytest.mark.parametrize("wrong", [7, ["id"], b"id = 1", ""])
def test_what_is_not_a_filter_is_refused(lake: ab.Repository, wrong: Any) -> None:
    orders = lake.snapshot()[ORDERS]
    for read in (orders.to_arrow, orders.to_pandas, orders.to_polars, orders.count_rows):
        with pytest.raises(InvalidExpressionError):
            read(where=wrong)
    with pytest.raises(InvalidExpressionError):
        list(orders.scan(where=wrong))


@pytest.mark.parametrize("wrong", ["", 0, [], 7, b"main"])
def test_what_is_not_a_ref_is_not_taken_for_the_bound_branch(lake: ab.Repository, wrong: Any) -> None:
    for use in (
        lambda: lake.list_commits(wrong),
        lambda: lake.entity_at(ORDERS, 1, ref=wrong),
        lambda: lake.entity_history(ORDERS, 1, ref=wrong),
        lambda: lake.sql("SELECT 1", ref=wrong),
        lambda: lake.tag_create("t", ref=wrong),
    ):
        with nothing_changes(lake), pytest.raises(InvalidNameError, match="ref") as caught:
            use()
        assert repr(wrong) in caught.value.problem


def test_ref_that_names_nothing_is_distinguished_from_a_deleted_branch(lake: ab.Repository) -> None:
    for ref in ("nope", "nope~2", "01ABCDEF"):
        with pytest.raises(BranchNotFoundError, match=r"there is no branch, tag or commit '\w+'; see `branch_list"):
            lake.snapshot_of(ref)
    lake.branch_create("dev")
    lake.branch_delete("dev")
    with pytest.raises(BranchNotFoundError, match="branch 'dev' was deleted; restore it"):
        lake.snapshot_of("dev")


@pytest.mark.parametrize("wrong", [None, 7, b"lake", ["lake"]])
def test_what_is_not_a_path_is_refused(lake: ab.Repository, wrong: Any) -> None:
    with pytest.raises(InvalidPathError, match="path must be a string"):
        ab.open(wrong)
    if wrong is not None:
        with nothing_changes(lake), pytest.raises(InvalidPathError, match="path must be a string"):
            lake.adopt("a.b", wrong)


@pytest.mark.parametrize("wrong", ["other", [], {}, 7, None])
def test_what_is_not_a_mode_is_refused(lake: ab.Repository, wrong: Any) -> None:
    with nothing_changes(lake), pytest.raises(InvalidInputError, match=r"branch mode is .* not known"):
        lake.branch_create_from("main", "dev", mode=wrong)


def test_a_branch_is_not_called_like_a_commit(lake: ab.Repository) -> None:
    with nothing_changes(lake), pytest.raises(InvalidNameError, match="looks like a commit id; choose another"):
        lake.branch_create(lake.snapshot().id.lower())


def test_a_branch_that_is_not_there_is_refused_everywhere(lake: ab.Repository) -> None:
    with nothing_changes(lake):
        for use in (
            lambda: lake.transaction("nope"),
            lambda: lake.branch_create_from("nope", "dev"),
            lambda: lake.branch_delete("nope"),
            lambda: lake.sync_branch("nope"),
            lambda: lake.list_commits("nope"),
            lambda: lake.head_commit_id_for_branch("nope"),
            lambda: lake.settle(ORDERS, branch="nope"),
            lambda: lake.adopt(ORDERS, branch="nope"),
            lambda: ab.open(lake.uri, branch="nope", storage_options=lake.storage_options).snapshot(),
        ):
            with pytest.raises(BranchNotFoundError, match=r"'nope'; (see `branch_list|the branches are 'main')"):
                use()
    assert lake.branch == "main"


def test_bad_options_of_a_transaction_are_refused(lake: ab.Repository) -> None:
    with nothing_changes(lake):
        with pytest.raises(InvalidInputError, match=r"kind is 'party'.*; use one of 'init', 'clone', 'load', 'change'"):
            lake.transaction(kind="party")
        with pytest.raises(InvalidInputError, match="message has 10001 characters; use at most 10000"):
            lake.transaction(message="x" * 10_001)
        with pytest.raises(InvalidInputError, match="cannot be stored as UTF-8"):
            lake.transaction(message="\ud800")
        with pytest.raises(InvalidInputError, match="metadata 'run': 7 is not a string"):
            lake.transaction(metadata={"run": 7})  # type: ignore[dict-item]
        with pytest.raises(InvalidInputError, match="metadata is too large"):
            lake.transaction(metadata={"x": "y" * 10_001})
        with pytest.raises(InvalidInputError, match="mode is 'lively', which is not known; did you mean 'live'"):
            lake.branch_create_from("main", "dev", mode="lively")
        with pytest.raises(InvalidInputError, match=r"metadata must be a mapping, got \['run'\]"):
            lake.transaction(metadata=["run"])  # type: ignore[arg-type]


def test_bad_descriptions_actors_and_expiries_are_refused(lake: ab.Repository) -> None:
    options = lake.storage_options
    for wrong, parts in (
        (7, "7 is not a string"),
        ("\ud800", "cannot be stored"),
        ("x" * 10_001, "has 10001 characters"),
    ):
        text: Any = wrong
        with nothing_changes(lake):
            with pytest.raises(InvalidInputError, match=parts):
                lake.branch_create("dev", description=text)
            with pytest.raises(InvalidInputError, match=parts):
                lake.tag_create("v1", description=text)
            with pytest.raises(InvalidInputError, match=parts):
                ab.open(lake.uri, actor=text, storage_options=options)
            with pytest.raises(InvalidInputError, match=parts):
                ab.init(f"{lake.uri}/other", actor=text, storage_options=options)
    for expiry in (7, timedelta(0), timedelta(days=-1), timedelta.max):
        soon: Any = expiry
        with nothing_changes(lake), pytest.raises(InvalidInputError, match="cannot expire in"):
            lake.branch_create_from("main", "dev", expires_in=soon)


# Predicates and expressions


@pytest.mark.parametrize("wrong", ["nope = 1", "id >", "id + 1", "id = 1)", "id > 5 LIMIT 1", "", "v > 1 AND"])
def test_bad_predicates_are_refused(lake: ab.Repository, wrong: str) -> None:
    refuse(lake, lambda tx: tx.delete(ORDERS, wrong), InvalidExpressionError, repr(wrong))
    refuse(lake, lambda tx: tx.update(ORDERS, {"v": "'x'"}, where=wrong), InvalidExpressionError, repr(wrong))


def test_bad_expressions_are_refused(lake: ab.Repository) -> None:
    refuse(
        lake, lambda tx: tx.update(ORDERS, {"v": "nope || 'x'"}, where="true"), InvalidExpressionError, "nope || 'x'"
    )
    refuse(lake, lambda tx: tx.add_columns(ORDERS, {"w": "id +"}), InvalidExpressionError, "'id +'")
    refuse(
        lake, lambda tx: tx.update(ORDERS, {"v": "id > 1"}, where="true"), SchemaMismatchError, "'v'", "string", "bool"
    )
    refuse(lake, lambda tx: tx.update(ORDERS, {"nope": "1"}, where="true"), SchemaMismatchError, "'nope'", "id, v")
    refuse(lake, lambda tx: tx.update(ORDERS, {}, where="true"), InvalidInputError, "without a column")


# Schemas


def test_rows_that_do_not_fit_are_refused_with_column_expected_and_found(lake: ab.Repository) -> None:
    text = pa.table({"id": ["x"], "v": ["y"]})
    extra = pa.table({"id": [9], "v": ["y"], "more": [1.5]})
    for how in ("append", "upsert"):
        refuse(lake, write(how, text), SchemaMismatchError, "'id'", "int64", "string")
        refuse(lake, write(how, extra), SchemaMismatchError, "'more'", "float64", "'id', 'v'")
    no_key = pa.table({"v": ["y"]})
    refuse(lake, lambda tx: tx.append(ORDERS, no_key), SchemaMismatchError, "no key column 'id'")
    refuse(lake, lambda tx: tx.upsert(ORDERS, no_key), SchemaMismatchError, "no key column 'id'")
    refuse(lake, lambda tx: tx.overwrite(ORDERS, no_key), SchemaMismatchError, "'id'", "the columns are v")


def test_a_value_that_does_not_fit_is_refused(repo: ab.Repository) -> None:
    schema = pa.schema([pa.field("id", pa.int8(), nullable=False), ("v", pa.string())])
    with repo.transaction() as tx:
        tx.create_table("s.small", schema)
    refuse(repo, lambda tx: tx.append("s.small", pa.table({"id": [1000]})), SchemaMismatchError, "'id'", "int8", "1000")
    nothing = pa.table({"id": pa.array([None], pa.int8())})
    refuse(repo, lambda tx: tx.append("s.small", nothing), SchemaMismatchError, "'id' takes no nulls")
    refuse(repo, lambda tx: tx.append("s.small", pa.table({"v": ["x"]})), SchemaMismatchError, "'id'", "not null")


@pytest.mark.parametrize("data", ["rows.parquet", None, 7, b"x", {1, 2}])
def test_what_is_not_a_table_is_refused(lake: ab.Repository, data: object) -> None:
    for how in ("append", "upsert", "overwrite"):
        refuse(lake, write(how, data), InvalidInputError, repr(data), type(data).__name__, "pass a pyarrow")


def test_bad_schemas_of_new_tables_are_refused(lake: ab.Repository) -> None:
    def create(schema: Any, **options: Any) -> Change:
        return lambda tx: tx.create_table("s.new", schema, **options)

    refuse(lake, create({"id": "int64"}), InvalidInputError, "{'id': 'int64'} (dict)", "pyarrow.Schema")
    refuse(lake, create(pa.schema([("a", pa.int64()), ("a", pa.string())])), InvalidInputError, "'a'")
    refuse(lake, create(SCHEMA, primary_key=["nope"]), SchemaMismatchError, "'nope'", "the columns are id, v")
    refuse(lake, create(SCHEMA, primary_key="id"), InvalidInputError, "'id'", "['id']")
    refuse(lake, create(SCHEMA, primary_key=["id", "id"]), InvalidInputError, "twice")
    floats = pa.schema([("id", pa.float64())])
    refuse(lake, create(floats, primary_key=["id"]), InvalidInputError, "'id'", "float64", "cannot be a key")
    for kind in (pa.null(), pa.uuid(), pa.dictionary(pa.int8(), pa.string())):
        odd = pa.schema([("id", kind)])
        refuse(lake, create(odd, primary_key=["id"]), InvalidInputError, "'id'", show_type(kind), "cannot be a key")
    assert not [path for path in objects(lake, "tables") if "s/new" in path]


@pytest.mark.parametrize("wrong", ["v", 7, [7]])
def test_what_is_not_a_list_of_columns_is_refused(lake: ab.Repository, wrong: Any) -> None:
    refuse(lake, lambda tx: tx.drop_columns(ORDERS, wrong), InvalidInputError, "must be a list", f"got {wrong!r}")
    refuse(lake, lambda tx: tx.upsert(ORDERS, table(1), keys=wrong), InvalidInputError, f"got {wrong!r}")
    refuse(lake, lambda tx: tx.alter_columns(ORDERS, wrong), InvalidInputError, f"{wrong!r} is not a list")
    refuse(
        lake, lambda tx: tx.update(ORDERS, wrong, where="true"), InvalidInputError, f"{wrong!r} does not map columns"
    )
    refuse(lake, lambda tx: tx.add_columns(ORDERS, wrong), InvalidInputError, f"{wrong!r} does not map columns")
    refuse(lake, lambda tx: tx.create_table("a.b", SCHEMA, primary_key=wrong), InvalidInputError, f"got {wrong!r}")


def test_bad_column_changes_are_refused(lake: ab.Repository) -> None:
    def alter(**change: Any) -> Change:
        return lambda tx: tx.alter_columns(ORDERS, [ab.ColumnChange(**change)])

    refuse(lake, lambda tx: tx.add_columns(ORDERS, {"v": "1"}), InvalidInputError, "'v'")
    refuse(lake, lambda tx: tx.drop_columns(ORDERS, ["nope"]), SchemaMismatchError, "'nope'")
    refuse(lake, lambda tx: tx.drop_columns(CUSTOMERS, ["id", "v"]), InvalidInputError, "nothing would be left")
    refuse(lake, alter(path="nope", name="x"), SchemaMismatchError, "'nope'", "id, v")
    refuse(lake, alter(path="v", name="id"), SchemaMismatchError, "'id'")
    refuse(lake, alter(path="v", type=pa.int64()), SchemaMismatchError, "'v'", "int64", "string")
    with lake.transaction() as tx:
        tx.append(ORDERS, pa.table({"id": [9]}))
    refuse(lake, alter(path="v", nullable=False), SchemaMismatchError, "'v' holds 1 nulls")


def test_a_refused_operation_is_one_of_several_and_none_is_kept(lake: ab.Repository) -> None:
    def change(tx: ab.Transaction) -> None:
        tx.append(CUSTOMERS, table(30))
        tx.create_table("s.new", SCHEMA)
        tx.append(ORDERS, table(1))

    refuse(lake, change, KeyConflictError, "{'id': 1}")
    assert ids(lake, CUSTOMERS) == [10, 20]


# Repositories


def test_a_path_without_a_repository_is_refused(location: Location) -> None:
    with pytest.raises(RepositoryNotFoundError, match="nowhere'; check the path, or create one with "):
        ab.open(location / "nowhere", storage_options=location.storage_options)


def test_a_folder_or_file_that_is_not_a_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.txt").write_text("x")
    with pytest.raises(RepositoryNotFoundError, match="folder"):
        ab.open(tmp_path / "folder")
    with pytest.raises(RepositoryNotFoundError, match=r"x\.txt"):
        ab.open(tmp_path / "folder" / "x.txt")
    with pytest.raises(InvalidPathError, match=r"x\.txt"):
        ab.init(tmp_path / "folder" / "x.txt")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "x.txt"]


@pytest.mark.s3
def test_a_repository_is_made_once(lake: ab.Repository) -> None:
    with nothing_changes(lake), pytest.raises(RepositoryExistsError, match=r"already exists at .*; use it"):
        ab.init(lake.uri, storage_options=lake.storage_options)


def newest_entry(repo: ab.Repository) -> str:
    return min(path for path in objects(repo, "_versions/main") if path.endswith(".json"))


def test_a_repository_of_a_newer_format_is_refused(lake: ab.Repository) -> None:
    store = testing.store_of(lake)
    store.put("_repo.json", with_fields(store.get("_repo.json"), format=4))
    with pytest.raises(UnsupportedFormatError, match=r"'_repo\.json' has format 4.*; upgrade Anabranch"):
        ab.open(lake.uri, storage_options=lake.storage_options)


def test_a_log_entry_of_a_newer_format_is_refused_and_not_written_over(lake: ab.Repository) -> None:
    store, path = testing.store_of(lake), newest_entry(lake)
    store.put(path, with_fields(store.get(path), format=4))
    store.delete("_versions/main/hint")
    before, lake = objects(lake), another(lake)
    for use in (
        lambda: lake.snapshot_of("main"),
        lambda: lake.transaction(),
        lambda: lake.branch_list(),
        lambda: lake.branch_create("dev"),
        lambda: lake.snapshot_at_version(2),
    ):
        with pytest.raises(UnsupportedFormatError, match="has format 4"):
            use()
    assert objects(lake) == before
    assert list(lake.snapshot_at_version(1)) == []


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut short": lambda data: data[:-7],
    "noise": lambda data: b"\xff\x00" + data,
    "a list": lambda _: b"[1]",
    "no format": lambda _: b"{}",
    "no fields": lambda _: b'{"format":1}',
    "a wrong format": lambda data: with_fields(data, format="1"),
    "wrong fields": lambda data: with_fields(data, state=[], commit=[], head=7, changes=[]),
    "an unknown kind": lambda data: reseal("", data.replace(b'"kind":"change"', b'"kind":"party"')),
    "a bad key": lambda data: reseal("", data.replace(b'"in_c_sales.orders":', b'"orders":')),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_log_entry_is_named(lake: ab.Repository, damage: Callable[[bytes], bytes]) -> None:
    store, path = testing.store_of(lake), newest_entry(lake)
    store.put(path, damage(store.get(path)))
    store.delete("_versions/main/hint")
    with pytest.raises(CorruptError, match=path):
        another(lake).snapshot()
    with pytest.raises(CorruptError, match=path):
        another(lake).transaction()


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_commit_is_named(lake: ab.Repository, damage: Callable[[bytes], bytes]) -> None:
    store, commit = testing.store_of(lake), lake.head_commit_id_for_branch("main")
    path = f"_commits/{commit}.json"
    store.put(path, damage(store.get(path)))
    with pytest.raises(CorruptError, match=path):
        lake.get_commit(commit)
    with pytest.raises(CorruptError, match=path):
        lake.snapshot_of(commit)
    assert ids(lake) == [1, 2, 3]


# Moved repositories


@pytest.fixture
def local_lake(tmp_path: Path) -> ab.Repository:
    """Orders 1 to 3 on main, 4 too on a branch that has a fork of its own, and a branch without one."""
    repo = ab.init(tmp_path / "lake")
    with repo.transaction() as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, table(1, 2, 3))
    repo.branch_create("untouched")
    repo.branch_create("dev")
    append(repo, 4, branch="dev")
    return repo


def test_a_moved_repository_reads_main_and_refuses_homes_that_point_elsewhere(
    local_lake: ab.Repository, tmp_path: Path
) -> None:
    shutil.move(local_lake.uri, tmp_path / "moved")
    moved = ab.open(tmp_path / "moved")
    assert ids(moved) == [1, 2, 3]
    assert ids(moved.snapshot_of("untouched")) == [1, 2, 3]
    before = objects(moved)
    for use in (
        lambda: ids(moved.snapshot_of("dev")),
        lambda: append(moved, 5, branch="dev"),
        lambda: moved.snapshot_of("dev")[ORDERS].schema,
    ):
        with pytest.raises(StaleBaseError, match=r"was made at '.*lake', and '.*orders\.lance.*; run `relocate\("):
            use()
    assert objects(moved) == before


def test_a_moved_repository_is_written_on_main_and_branched_again(local_lake: ab.Repository, tmp_path: Path) -> None:
    shutil.move(local_lake.uri, tmp_path / "moved")
    moved = ab.open(tmp_path / "moved")
    append(moved, 6)
    append(moved, 7, branch="untouched")
    moved.branch_create("new")
    append(moved, 8, branch="new")
    assert ids(moved) == [1, 2, 3, 6]
    assert ids(moved.snapshot_of("untouched")) == [1, 2, 3, 7]
    assert ids(moved.snapshot_of("new")) == [1, 2, 3, 6, 8]
    assert rows(raw(moved)) == rows(moved.snapshot_of("main")[ORDERS])


def test_a_copied_repository_does_not_read_the_original(local_lake: ab.Repository, tmp_path: Path) -> None:
    shutil.copytree(local_lake.uri, tmp_path / "copy")
    copy = ab.open(tmp_path / "copy")
    assert ids(copy) == [1, 2, 3]
    with pytest.raises(StaleBaseError):
        ids(copy.snapshot_of("dev"))
    append(copy, 5)
    assert ids(local_lake) == [1, 2, 3]
    assert ids(local_lake.snapshot_of("dev")) == [1, 2, 3, 4]


def test_a_repository_moved_back_is_whole_again(local_lake: ab.Repository, tmp_path: Path) -> None:
    shutil.move(local_lake.uri, tmp_path / "moved")
    shutil.move(tmp_path / "moved", local_lake.uri)
    assert ids(ab.open(local_lake.uri).snapshot_of("dev")) == [1, 2, 3, 4]


def test_only_a_run_publishes_a_run(lake: ab.Repository) -> None:
    with nothing_changes(lake), pytest.raises(InvalidInputError, match="'publish_run' is made by a run; begin a run"):
        lake.transaction(kind="publish_run", metadata={"run_id": "x"})
