"""Indices and notes are part of a table: they come with merges, cherry-picks, rebases, reverts and runs."""

from collections.abc import Callable

import lance
import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import CorruptError, InvalidInputError, MergeConflictError
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, ids, raw, table

Change = Callable[[ab.Repository, str], object]


def index(repo: ab.Repository, branch: str, *, column: str = "v", kind: str = "btree", name: str | None = None) -> None:
    with repo.transaction(branch) as tx:
        tx.index(ORDERS, column, type=kind, name=name)


def annotate(repo: ab.Repository, branch: str) -> None:
    with repo.transaction(branch) as tx:
        tx.annotate(ORDERS, {"owner": "ada"}, columns={"v": {"unit": "words"}})


def indices(repo: ab.Repository, ref: str = "main", table: str = ORDERS) -> list[tuple[str, str, int]]:
    return [(found.name, str(found.kind), found.covered_rows) for found in repo.table(table, ref).indices]


def notes(repo: ab.Repository, ref: str = "main") -> tuple[dict[bytes, bytes] | None, dict[bytes, bytes] | None]:
    schema = repo.table(ORDERS, ref).schema
    return schema.metadata, schema.field("v").metadata


NOTED = ({b"owner": b"ada"}, {b"unit": b"words"})


@pytest.fixture(params=["main stays", "main moves"])
def moves(request: pytest.FixtureRequest) -> Change:
    """What main does after the branch was created: nothing, or a commit of its own."""
    return (lambda repo, branch: append(repo, 40, branch=branch)) if request.param == "main moves" else lambda *_: None


def test_index_and_notes_come_with_a_merge(lake: ab.Repository, moves: Change) -> None:
    lake.branch_create("dev")
    index(lake, "dev")
    annotate(lake, "dev")
    append(lake, 50, branch="dev")
    moves(lake, "main")
    planned = lake.merge("dev", dry_run=True).plan.tables
    assert [(one.table, one.built_indices) for one in planned] == [(ORDERS, ("v_idx",))]
    lake.merge("dev")
    rows = len(lake.table(ORDERS))
    assert (indices(lake), notes(lake)) == ([("v_idx", "btree", rows)], NOTED)
    assert lake.merge("dev").outcome == "already_up_to_date"


def test_index_and_notes_come_with_a_cherry_pick(lake: ab.Repository, moves: Change) -> None:
    lake.branch_create("dev")
    index(lake, "dev")
    annotate(lake, "dev")
    moves(lake, "main")
    lake.cherry_pick("dev~1", branch="main")
    lake.cherry_pick("dev", branch="main")
    assert (indices(lake)[0][:2], notes(lake)) == (("v_idx", "btree"), NOTED)


def test_rebase_keeps_the_index_and_notes_of_the_branch(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    index(lake, "dev")
    annotate(lake, "dev")
    append(lake, 40)
    lake.rebase("dev", "main")
    assert (indices(lake, "dev"), notes(lake, "dev")) == ([("v_idx", "btree", 4)], NOTED)


def test_revert_removes_the_index_and_notes_of_the_commit(lake: ab.Repository, moves: Change) -> None:
    index(lake, "main")
    annotate(lake, "main")
    moves(lake, "main")
    commits = [commit.graph_commit_id for commit in lake.list_commits("main") if commit.tables == (ORDERS,)]
    for commit in commits[-2:]:
        lake.revert(commit)
    assert (indices(lake), notes(lake)) == ([], (None, None))


def test_revert_of_a_dropped_index_builds_it_again(lake: ab.Repository) -> None:
    index(lake, "main")
    with lake.transaction() as tx:
        tx.drop_index(ORDERS, "v_idx")
    append(lake, 40)
    lake.revert("main~1")
    assert indices(lake) == [("v_idx", "btree", 4)]


def test_run_that_built_an_index_publishes_it_on_a_target_that_moved(lake: ab.Repository) -> None:
    run = lake.begin_run("main")
    with run.transaction() as tx:
        tx.index(ORDERS, "v", type="btree")
        tx.annotate(ORDERS, {"owner": "ada"}, columns={"v": {"unit": "words"}})
    append(lake, 40)
    assert run.publish() is not None
    assert (indices(lake), notes(lake), ids(lake.snapshot())) == ([("v_idx", "btree", 4)], NOTED, [1, 2, 3, 40])


def test_dropped_index_is_dropped_by_the_merge(lake: ab.Repository, moves: Change) -> None:
    index(lake, "main")
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.drop_index(ORDERS, "v_idx")
    moves(lake, "main")
    assert lake.merge("dev").plan.tables[0].dropped_indices == ("v_idx",)
    assert indices(lake) == []


def test_index_of_the_target_stays(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    index(lake, "main")
    append(lake, 40, branch="dev")
    lake.merge("dev")
    assert [found[:2] for found in indices(lake)] == [("v_idx", "btree")]
    assert ids(lake.snapshot()) == [1, 2, 3, 40]


def test_equal_index_of_both_sides_merges(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    index(lake, "main")
    index(lake, "dev")
    lake.merge("dev")
    assert indices(lake) == [("v_idx", "btree", 3)]


@pytest.mark.parametrize(("strategy", "kind"), [("source", "bitmap"), ("target", "btree")])
def test_index_that_both_sides_built_differently_is_a_conflict(lake: ab.Repository, strategy: str, kind: str) -> None:
    lake.branch_create("dev")
    index(lake, "main", kind="btree")
    index(lake, "dev", kind="bitmap")
    with pytest.raises(MergeConflictError) as caught:
        lake.merge("dev")
    (conflict,) = caught.value.conflicts
    assert (conflict.kind, conflict.source, conflict.target) == ("schema", "bitmap of v", "btree of v")
    assert "v_idx" in conflict.problem
    lake.merge("dev", strategy=strategy)
    assert [found[1] for found in indices(lake)] == [kind]


def test_index_follows_a_column_that_the_target_renamed(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    index(lake, "dev")
    with lake.transaction() as tx:
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="v", name="word")])
    lake.merge("dev")
    assert [found.columns for found in lake.table(ORDERS).indices] == [("word",)]


def test_index_of_a_column_dropped_by_the_source_is_dropped(lake: ab.Repository) -> None:
    index(lake, "main")
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.drop_columns(ORDERS, ["v"])
    append(lake, 30, key=CUSTOMERS)
    lake.merge("dev")
    assert (indices(lake), lake.table(ORDERS).schema.names) == ([], ["id"])


def test_new_table_comes_with_its_indices(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    vectors = np.arange(600 * 4, dtype=np.float32).reshape(600, 4)
    rows = pa.table(
        {
            "id": range(600),
            "text": [f"red stone {number}" for number in range(600)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4),
        }
    )
    with lake.transaction("dev") as tx:
        tx.create_table("ml.stones", rows.schema, primary_key=["id"])
        tx.append("ml.stones", rows)
        tx.index("ml.stones", "text", type="inverted")
        tx.index("ml.stones", "vector", type="ivf_pq", vector=ab.VectorOptions(metric="cosine", num_partitions=2))
    lake.merge("dev")
    found = lake.table("ml.stones").indices
    assert {(each.name, str(each.kind), each.covered_rows, each.metric) for each in found} == {
        ("text_idx", "inverted", 600, None),
        ("vector_idx", "ivf_pq", 600, "cosine"),
    }
    with lake.transaction("dev") as tx:  # all rows are written again, so the table is replaced
        tx.overwrite("ml.stones", rows.slice(0, 300))
    lake.merge("dev")
    assert [(each.name, each.covered_rows) for each in lake.table("ml.stones").indices] == [
        ("text_idx", 300),
        ("vector_idx", 300),
    ]


def test_index_of_a_table_without_a_key_comes_with_a_merge(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.index(CUSTOMERS, "v", type="bitmap")
    append(lake, 30, key=CUSTOMERS)
    lake.merge("dev")
    assert indices(lake, table=CUSTOMERS) == [("v_idx", "bitmap", 3)]


@pytest.mark.parametrize("by", ["merge", "cherry_pick", "rebase", "run"])
def test_index_is_wanted_if_no_rows_are_left_and_built_by_the_next_commit(lake: ab.Repository, by: str) -> None:
    into = "dev" if by == "rebase" else "main"
    if by == "run":
        run = lake.begin_run("main")
        with run.transaction() as tx:
            tx.index(ORDERS, "v", type="bitmap")
        lake.delete(ORDERS, "true")
        run.publish()
    else:
        lake.branch_create("dev")
        index(lake, "dev", kind="bitmap")
        lake.delete(ORDERS, "true")
        if by == "merge":
            lake.merge("dev")
        elif by == "cherry_pick":
            lake.cherry_pick("dev")
        else:
            lake.rebase("dev", "main")
    assert (indices(lake, into), len(lake.table(ORDERS, into))) == ([("v_idx", "bitmap", 0)], 0)
    assert not lake.table(ORDERS, into).schema.field("v").metadata
    append(lake, 50, 51, branch=into)
    assert indices(lake, into) == [("v_idx", "bitmap", 2)]
    plain = raw(lake, ORDERS, into)
    assert sorted(plain.to_table().column("id").to_pylist()) == [50, 51]
    assert [found.name for found in plain.describe_indices()] == ["v_idx"]
    assert "wanted" not in str(lake.table(ORDERS, into).version_ref.schema.field("v").metadata)


@pytest.mark.parametrize("moved", [False, True])
def test_merge_that_deletes_all_rows_keeps_the_index(lake: ab.Repository, *, moved: bool) -> None:
    index(lake, "main")
    lake.branch_create("dev")
    lake.delete(ORDERS, "true", branch="dev")
    if moved:
        with lake.transaction() as tx:
            tx.annotate(ORDERS, {"owner": "ada"}, columns={})
    planned = lake.merge("dev", dry_run=True).plan.tables
    assert lake.merge("dev").plan.tables == planned
    assert [one.wanted_indices for one in planned] == [() if moved else ("v_idx",)]
    assert indices(lake) == [("v_idx", "btree", 0)]
    lake.branch_create("next")
    append(lake, 50, branch="next")
    lake.merge("next")
    assert [found[:2] for found in indices(lake)] == [("v_idx", "btree")]


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("side", ["main", "dev"])
def test_index_of_a_nested_column_is_wanted_if_no_rows_are_left(lake: ab.Repository, side: str, *, moved: bool) -> None:
    rows = pa.table({"id": [1, 2], "s": [{"a": 1}, {"a": 2}]})
    with lake.transaction() as tx:
        tx.create_table("a.b", rows.schema, primary_key=["id"])
        tx.append("a.b", rows)
        if side == "main":
            tx.index("a.b", "s.a")
    lake.branch_create("dev")
    if side == "dev":
        with lake.transaction("dev") as tx:
            tx.index("a.b", "s.a")
    lake.delete("a.b", "true", branch="dev" if side == "main" else "main")
    if moved:
        with lake.transaction() as tx:
            tx.annotate("a.b", {"owner": "ada"}, columns={})
    lake.merge("dev")
    (found,) = lake.table("a.b").indices
    assert (found.name, found.columns, len(lake.table("a.b"))) == ("s.a_idx", ("s.a",), 0)
    lake.append("a.b", rows)
    (found,) = lake.table("a.b").indices
    assert (found.name, found.columns) == ("s.a_idx", ("s.a",))


def test_new_table_without_rows_comes_with_its_indices(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.create_table("a.b", table(1).schema, primary_key=["id"])
        tx.append("a.b", table(1))
        tx.index("a.b", "v", name="words")
    lake.delete("a.b", "true", branch="dev")
    (planned,) = lake.merge("dev").plan.tables
    assert (planned.wanted_indices, indices(lake, table="a.b")) == (("words",), [("words", "btree", 0)])
    append(lake, 4, key="a.b")
    assert indices(lake, table="a.b") == [("words", "btree", 1)]


@pytest.fixture
def wanting(lake: ab.Repository) -> ab.Repository:
    """Main has orders without rows, and an index of 'v' is wanted. Branch 'dev' has three rows and the index."""
    lake.branch_create("dev")
    index(lake, "dev")
    lake.delete(ORDERS, "true")
    lake.merge("dev")
    return lake


def test_merge_into_the_other_side_keeps_an_index_that_is_wanted(wanting: ab.Repository) -> None:
    wanting.merge("main", into="dev")
    assert [found[:2] for found in indices(wanting, "dev")] == [("v_idx", "btree")]
    append(wanting, 60, branch="dev")
    wanting.merge("dev")
    assert [found[:2] for found in indices(wanting)] == [("v_idx", "btree")]


def test_wanted_index_is_built_by_a_merge_that_brings_rows(wanting: ab.Repository) -> None:
    append(wanting, 60, branch="dev")
    append(wanting, 10, key=CUSTOMERS)
    wanting.merge("dev")
    assert (indices(wanting), ids(wanting.snapshot())) == ([("v_idx", "btree", 1)], [60])


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.filterwarnings("ignore::anabranch.warnings.ExternalWriteWarning")
def test_wanted_index_is_built_over_rows_of_an_external_write(wanting: ab.Repository, *, moved: bool) -> None:
    lance.write_dataset(table(4, 5), raw(wanting, ORDERS), mode="append")
    if moved:
        append(wanting, 6)
    wanting.adopt(ORDERS)
    (found,) = wanting.table(ORDERS).indices
    assert (found.name, found.covered_rows >= 2, len(wanting.table(ORDERS))) == ("v_idx", True, 3 if moved else 2)
    plain = raw(wanting, ORDERS)
    assert [index.name for index in plain.describe_indices()] == ["v_idx"]
    assert plain.count_rows() == len(wanting.table(ORDERS))
    assert wanting.doctor().findings == ()


def test_wanted_index_follows_its_column_and_can_be_dropped(wanting: ab.Repository) -> None:
    with wanting.transaction() as tx:
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="v", name="word")])
    assert [(found.name, found.columns) for found in wanting.table(ORDERS).indices] == [("v_idx", ("word",))]
    with wanting.transaction() as tx:
        tx.drop_index(ORDERS, "v_idx")
    assert indices(wanting) == []
    with wanting.transaction() as tx:
        tx.append(ORDERS, table(4).rename_columns(["id", "word"]))
    assert indices(wanting) == []


def test_index_that_is_built_explicitly_replaces_the_wanted_one(wanting: ab.Repository) -> None:
    with wanting.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.index(ORDERS, "v", type="bitmap")
    assert indices(wanting) == [("v_idx", "bitmap", 1)]


@pytest.mark.parametrize(
    "text", ["x", "5", "[1]", *(f'[{{"name": {n}, "type": 7, "arguments": {{}}}}]' for n in ("null", '"x"'))]
)
def test_damaged_note_of_wanted_indices_is_reported_and_can_be_removed(lake: ab.Repository, text: str) -> None:
    note = "anabranch:wanted-indices"
    with lake.transaction() as tx:
        tx.annotate(ORDERS, {}, columns={"v": {note: text}})
    with pytest.raises(CorruptError, match=r"wanted indices of column 'v' .* remove it with `annotate\(\)`"):
        indices(lake)
    with lake.transaction() as tx:
        tx.annotate(ORDERS, {}, columns={"v": {note: None}})
        tx.append(ORDERS, table(4))
    assert (indices(lake), ids(lake)) == ([], [1, 2, 3, 4])


def test_name_of_a_wanted_index_is_refused_for_another_column(wanting: ab.Repository) -> None:
    with wanting.transaction() as tx:
        tx.append(ORDERS, table(4))
        with pytest.raises(InvalidInputError, match="the name 'v_idx' belongs to an index on v"):
            tx.index(ORDERS, "id", name="v_idx")
    assert [(found.name, found.columns) for found in wanting.table(ORDERS).indices] == [("v_idx", ("v",))]


def test_two_writers_bring_the_first_rows_of_a_table_with_a_wanted_index(wanting: ab.Repository) -> None:
    with wanting.transaction() as tx:
        tx.append(ORDERS, table(4))
        append(another(wanting), 5)
    assert (indices(wanting)[0][:2], ids(wanting.snapshot_of("main"))) == (("v_idx", "btree"), [4, 5])


@pytest.mark.parametrize("by", ["overwrite", "add_columns", "create"])
def test_wanted_index_does_not_come_with_columns_that_a_lance_tool_read(wanting: ab.Repository, by: str) -> None:
    plain = raw(wanting, ORDERS).to_table()
    with wanting.transaction() as tx:
        if by == "overwrite":
            tx.overwrite(CUSTOMERS, plain)
        elif by == "add_columns":
            tx.add_columns(CUSTOMERS, pa.schema([plain.schema.field("v").with_name("word")]))
        else:
            tx.drop_table(CUSTOMERS)
            tx.create_table("a.b", plain.schema)
    assert indices(wanting, table="a.b" if by == "create" else CUSTOMERS) == []
    with wanting.transaction() as tx:
        tx.overwrite(ORDERS, plain)  # these are its own columns
    assert indices(wanting) == [("v_idx", "btree", 0)]


@pytest.mark.parametrize("in_one", [True, False])
def test_overwrite_without_rows_keeps_the_index(lake: ab.Repository, *, in_one: bool) -> None:
    index(lake, "main")
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, table(1).slice(0, 0))
        if in_one:
            tx.append(ORDERS, table(7, 8))
    if not in_one:
        assert indices(lake) == [("v_idx", "btree", 0)]
        append(lake, 7, 8)
    assert indices(lake) == [("v_idx", "btree", 2)]


def test_few_vectors_do_not_stop_the_commit_that_brings_them(lake: ab.Repository) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(600 * 4, dtype=np.float32)), 4)
    rows = pa.table({"id": range(600), "vector": vectors})
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.create_table("ml.stones", rows.schema, primary_key=["id"])
        tx.append("ml.stones", rows)
        tx.index("ml.stones", "vector", type="ivf_pq", vector=ab.VectorOptions(metric="cosine", num_partitions=2))
    lake.delete("ml.stones", "true", branch="dev")
    lake.merge("dev")
    lake.append("ml.stones", rows.slice(0, 1))
    (found,) = lake.table("ml.stones").indices
    assert (found.name, found.kind, found.covered_rows, found.metric) == ("vector_idx", "ivf_pq", 0, "cosine")
    lake.append("ml.stones", rows.slice(1))
    lake.compact(["ml.stones"])
    (found,) = lake.table("ml.stones").indices
    assert (found.name, found.kind, found.covered_rows, found.metric) == ("vector_idx", "ivf_pq", 600, "cosine")


@pytest.mark.parametrize(("strategy", "column"), [("source", "v"), ("target", "id")])
def test_index_of_the_same_name_on_another_column_is_decided(lake: ab.Repository, strategy: str, column: str) -> None:
    lake.branch_create("dev")
    index(lake, "dev", column="v", name="i")
    index(lake, "main", column="id", name="i")
    with pytest.raises(MergeConflictError):
        lake.merge("dev")
    lake.merge("dev", strategy=strategy)
    assert [(found.name, found.columns) for found in lake.table(ORDERS).indices] == [("i", (column,))]


@pytest.mark.parametrize("how", ["merge", "squash"])
def test_plan_names_an_index_as_wanted_if_no_rows_are_left(lake: ab.Repository, how: str) -> None:
    lake.branch_create("dev")
    index(lake, "dev")
    lake.delete(ORDERS, "true")
    squash = how == "squash"
    planned = lake.merge("dev", squash=squash, dry_run=True).plan.tables
    assert [(one.built_indices, one.wanted_indices) for one in planned] == [((), ("v_idx",))]
    done = lake.merge("dev", squash=squash)
    assert (done.plan.tables, indices(lake)) == (planned, [("v_idx", "btree", 0)])
    assert done.commit is not None
