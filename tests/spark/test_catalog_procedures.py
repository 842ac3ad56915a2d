"""CALL lake.system.NAME(...): the procedures of the catalog, with named arguments and rows as answers."""

import json
from collections.abc import Callable

import pytest
from pyspark.sql import Row, SparkSession

import anabranch as ab
from anabranch.errors import (
    AnabranchError,
    BranchExistsError,
    BranchNotFoundError,
    CheckFailedError,
    InvalidInputError,
    InvalidNameError,
    MergeConflictError,
    TableNotFoundError,
    WriteConflictError,
)
from anabranch.spark.tasks import spark_errors
from tests.spark.conftest import ORDERS

pytestmark = pytest.mark.spark

Call = Callable[[str], list[Row]]


@pytest.fixture
def call(spark: SparkSession, lake: ab.Repository, catalog: str) -> Call:
    """Run a procedure and return its rows."""

    def run(text: str) -> list[Row]:
        with spark_errors():
            return spark.sql(f"CALL {catalog}.system.{text}").collect()

    return run


def change(repo: ab.Repository, branch: str, value: str, *, where: str = "id = 1") -> str:
    """Change an order on a branch, and return the commit."""
    with repo.transaction(branch, message=f"to {value}") as tx:
        tx.update(ORDERS, {"v": f"'{value}'"}, where=where)
    return repo.head_commit_id_for_branch(branch)


def test_a_branch_is_created_compared_and_merged(call: Call, lake: ab.Repository) -> None:
    main = lake.head_commit_id_for_branch("main")
    made = call("create_branch('dev', description => 'try it')")
    assert [(row.branch, row.commit, row.mode, row.parent) for row in made] == [("dev", main, "pinned", "main")]
    change(lake, "dev", "new", where="id < 10")
    rows = call("diff(before => 'main', after => 'dev')")
    assert [(row.table, row.change, row.updated, row.inserted) for row in rows] == [(ORDERS, "changed", 10, 0)]
    rows = call(f"diff_rows(table => '{ORDERS}', before => 'main', after => 'dev', limit => 3)")
    assert [(row.change, row.columns) for row in rows] == [("updated", "v")] * 3
    assert '"v": "new"' in rows[0].after
    tried = call("merge(source => 'dev', dry_run => true)")
    assert (tried[0].commit, tried[0].updated, lake.head_commit_id_for_branch("main")) == (None, 10, main)
    merged = call("merge(source => 'dev', into => 'main', message => 'bring it in', squash => true)")
    head = lake.snapshot_of("main").commit
    assert [(row.commit, row.table, row.updated) for row in merged] == [(head.graph_commit_id, ORDERS, 10)]
    assert (head.message, head.parent_commit_id) == ("bring it in", main)
    assert [row.branch for row in call("delete_branch('dev')")] == ["dev"]
    assert [row.branch for row in call("restore_branch('dev')")] == ["dev"]


def test_conflicts_are_listed_and_a_strategy_decides(call: Call, lake: ab.Repository) -> None:
    call("create_branch(name => 'dev', source => 'main')")
    change(lake, "dev", "theirs")
    head = change(lake, "main", "ours")
    rows = call("conflicts('dev')")
    assert [(row.key, row.column, row.base, row.source, row.target) for row in rows] == [
        ('{"id": 1}', "v", '"old"', '"theirs"', '"ours"')
    ]
    with pytest.raises(MergeConflictError, match="1 conflict"):
        call("merge('dev')")
    assert lake.head_commit_id_for_branch("main") == head
    call("merge('dev', strategy => 'source')")
    assert lake.snapshot_of("main")[ORDERS].to_arrow(where="id = 1").to_pylist() == [{"id": 1, "v": "theirs"}]


def test_merges_take_the_options_of_the_library(call: Call, lake: ab.Repository) -> None:
    call("create_branch('dev')")
    change(lake, "dev", "theirs", where="id < 3")
    head = change(lake, "main", "ours", where="id < 3")
    rows = call("conflicts('dev', resolvers => map('v', 'max'))")
    assert rows == []
    tried = call("merge('dev', resolvers => map('v', 'max'), dry_run => true)")
    assert [(row.conflicts, row.updated, row.commit) for row in tried] == [(0, 3, None)]
    decided = [{"table": ORDERS, "key": {"id": number}, "column": "v", "take": "source"} for number in (0, 1)]
    text = json.dumps([*decided, {"table": ORDERS, "key": {"id": 2}, "column": "v", "value": "both"}])
    (row, *_) = call(f"conflicts('dev', resolutions => '{text}', include_decided => true)")
    assert json.loads(row.decision) == {"take": "source"}
    with pytest.raises(WriteConflictError, match="not on the expected"):
        call(f"merge('dev', resolutions => '{text}', expected_head => '{lake.head_commit_id_for_branch('dev')}')")
    with pytest.raises(WriteConflictError, match="not a fast-forward"):
        call(f"merge('dev', resolutions => '{text}', ff_only => true)")
    with pytest.raises(CheckFailedError):
        call(f"merge('dev', resolutions => '{text}', checks => map('none', 'FROM {ORDERS} WHERE id < 9'))")
    with pytest.raises(InvalidInputError, match="not JSON"):
        call("merge('dev', resolutions => '[')")
    assert lake.head_commit_id_for_branch("main") == head
    call(f"merge('dev', resolutions => '{text}', expected_head => '{head}', metadata => map('ticket', '7'))")
    assert lake.snapshot_of("main").commit.metadata["ticket"] == "7"
    found = lake.snapshot_of("main")[ORDERS].to_arrow(where="id < 3").to_pylist()
    assert sorted(row["v"] for row in found) == ["both", "theirs", "theirs"]


def test_ranges_are_picked_reverted_and_rebased_with_the_options(call: Call, lake: ab.Repository) -> None:
    call("create_branch('dev')")
    for number in (1, 2):
        change(lake, "dev", f"v{number}", where=f"id = {number}")
    head = change(lake, "main", "ours")
    tried = call("cherry_pick('main..dev', dry_run => true)")
    assert [(row.message, row.conflicts) for row in tried] == [("to v1", 1)]
    assert [row.key for row in call("conflicts('main..dev', by => 'cherry_pick')")] == ['{"id": 1}']
    picked = call(
        f"cherry_pick('main..dev', strategy => 'source', expected_head => '{head}', metadata => map('a', 'b'))"
    )
    assert [(row.message, row.conflicts) for row in picked] == [("to v1", 0), ("to v2", 0)]
    assert [lake.get_commit(row.commit).metadata["a"] for row in picked] == ["b", "b"]
    reverted = call("revert('main~2..main', dry_run => true)")
    assert [row.message for row in reverted] == ["to v2", "to v1"]
    assert len(call("revert('main~2..main')")) == 2
    assert lake.snapshot_of("main")[ORDERS].to_arrow(where="id = 1").to_pylist() == [{"id": 1, "v": "ours"}]
    tried = call("rebase('dev', resolvers => map('v', 'target'), dry_run => true)")
    assert [row.conflicts for row in tried] == [0, 0]
    assert len(call("rebase('dev', strategy => 'source', metadata => map('c', 'd'))")) == 2
    assert lake.snapshot_of("dev").commit.metadata["c"] == "d"


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_history_is_moved_on_one_branch_alone(call: Call, lake: ab.Repository, branch: str) -> None:
    call("create_branch('dev')")
    other = "dev" if branch == "main" else "main"
    untouched, first = lake.head_commit_id_for_branch(other), lake.head_commit_id_for_branch(branch)
    changed = change(lake, branch, "new")
    row = call(f"revert('{changed}', branch => '{branch}')")[0]
    assert (row.commit, row.tables) == (lake.head_commit_id_for_branch(branch), ORDERS)
    assert lake.get_commit(row.commit).parent_commit_id == changed
    row = call(f"cherry_pick(commit => '{changed}', branch => '{branch}', message => 'again')")[0]
    assert row.message == "again"
    assert call(f"undo('{branch}')")[0].commit != row.commit
    assert call(f"reset(branch => '{branch}', to => '{first}')")[0].commit == first
    row = call(f"tag('v1', ref => '{branch}', description => 'one')")[0]
    assert (row.tag, row.commit, lake.tag_get("v1").description) == ("v1", first, "one")
    assert call("delete_tag('v1')")[0].tag == "v1"
    assert lake.tag_list() == []
    row = call(f"protect_branch(name => '{branch}', checks => map('rows', 'FROM s.orders WHERE id < 0'))")[0]
    assert (row.branch, row.protected) == (branch, True)
    assert not call(f"unprotect_branch('{branch}')")[0].protected
    assert lake.head_commit_id_for_branch(other) == untouched


def test_procedures_are_listed_with_their_arguments(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    names = {row.procedure_name for row in spark.sql(f"SHOW PROCEDURES IN {catalog}.system").collect()}
    assert {"create_branch", "merge", "diff", "tag", "revert", "undo", "compact", "index", "gc", "load"} < names
    described = str(spark.sql(f"DESCRIBE PROCEDURE {catalog}.system.merge").collect())
    assert "Arguments: source STRING. Optional: into STRING, " in described


def test_wrong_calls_are_our_errors(call: Call, lake: ab.Repository) -> None:
    head = lake.head_commit_id_for_branch("main")
    lake.branch_create("dev")
    refused: list[tuple[str, type[AnabranchError]]] = [
        ("create_branch('main')", InvalidNameError),
        ("create_branch('dev')", BranchExistsError),
        ("create_branch(name => null)", InvalidInputError),
        ("merge('nope')", AnabranchError),
        ("delete_branch('nope')", BranchNotFoundError),
        ("index('s.nope', 'id')", TableNotFoundError),
        ("index('s.orders', 'id', type => 'x')", InvalidInputError),
        ("nope()", InvalidInputError),
    ]
    for text, kind in refused:
        with pytest.raises(kind):
            call(text)
    assert lake.head_commit_id_for_branch("main") == head
