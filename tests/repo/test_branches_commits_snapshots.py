"""The specification of branches, commits and snapshots, statement by statement."""

import re
from dataclasses import fields

import lance
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import BranchExistsError, BranchInUseError, InvalidNameError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.refs.branches import create_branch
from anabranch.repo.refs.resolve import Resolved
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, data_files, entry, ids, objects, raw, table


def names(repo: ab.Repository, *, internal: bool = False) -> list[str]:
    return [branch.name for branch in repo.branch_list(internal=internal)]


def put_internal(repo: ab.Repository, name: str) -> None:
    """A branch that only the product itself may make."""
    source = Resolved.of_entry(testing.repo_store_of(repo).heads.get(BranchName("main")))
    create_branch(testing.repo_store_of(repo), BranchName(name), source=source)


# Lance per-dataset branches


@pytest.mark.s3
def test_a_fork_of_a_table_is_a_lance_branch_with_a_copy_on_write_lineage(lake: ab.Repository) -> None:
    before = entry(lake)
    files = data_files(lake)
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    forked = entry(lake, ref="dev")
    assert forked.home is not None
    assert forked.home.startswith("dev/")
    assert forked.forked_from == (before.home, before.version)
    assert forked.home in raw(lake).branches.list()
    assert len(data_files(lake) - files) == 1
    assert files <= data_files(lake)


# Graph-level branches


@pytest.mark.s3
def test_branch_create_branches_every_table_coherently(lake: ab.Repository) -> None:
    created = lake.branch_create("dev")
    append(lake, 4)
    append(lake, 30, key=CUSTOMERS)
    assert (created.name, created.parent, created.mode) == ("dev", "main", "pinned")
    assert (ids(lake.snapshot_of("dev")), ids(lake.snapshot_of("dev"), CUSTOMERS)) == ([1, 2, 3], [10, 20])


def test_branch_create_from_branches_from_any_target(lake: ab.Repository) -> None:
    first = append(lake, 4)
    append(lake, 5)
    lake.branch_create_from("main", "from-branch")
    lake.branch_create_from(first.graph_commit_id, "from-commit")
    lake.branch_create_from("main~2", "from-older")
    lake.branch_create_from("main@v2", "from-version")
    lake.branch_create_from("from-commit", "nested/branch")
    found = {branch.name: ids(lake.snapshot_of(branch.name)) for branch in lake.branch_list()}
    assert found == {
        "main": [1, 2, 3, 4, 5],
        "from-branch": [1, 2, 3, 4, 5],
        "from-commit": [1, 2, 3, 4],
        "from-older": [1, 2, 3],
        "from-version": [1, 2, 3],
        "nested/branch": [1, 2, 3, 4],
    }


def test_branch_create_refuses_the_name_main(lake: ab.Repository) -> None:
    with pytest.raises(InvalidNameError, match="'main' is reserved"):
        lake.branch_create("main")
    with pytest.raises(InvalidNameError, match="'main' is reserved"):
        lake.branch_create_from("main", "main")


def test_branch_create_fails_if_the_branch_exists(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with pytest.raises(BranchExistsError, match="'dev'"):
        lake.branch_create("dev")
    with pytest.raises(BranchExistsError, match="'dev'"):
        another(lake).branch_create_from("dev", "dev")


def test_branch_list_filters_internal_branches(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    put_internal(lake, "__run__01KA4T3JB6W9TTVN2MVF2FZ9AA")
    put_internal(lake, "__schema_apply_lock__")
    assert names(lake) == ["dev", "main"]
    assert names(lake, internal=True) == [
        "__run__01KA4T3JB6W9TTVN2MVF2FZ9AA",
        "__schema_apply_lock__",
        "dev",
        "main",
    ]


def test_internal_branches_are_visible_to_internals(lake: ab.Repository) -> None:
    run = lake.begin_run()
    with run.transaction() as tx:
        tx.append(ORDERS, table(4))
    assert ids(run.snapshot()) == [1, 2, 3, 4]
    assert names(lake, internal=True) == [run.branch, "main"]
    assert ids(lake) == [1, 2, 3]


def test_users_cannot_make_internal_branches(lake: ab.Repository) -> None:
    with pytest.raises(InvalidNameError, match="'__run__1' starts with '__', which is reserved"):
        lake.branch_create("__run__1")


def test_branch_delete_refuses_if_there_are_descendants(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.branch_create_from("dev", "child")
    with pytest.raises(BranchInUseError, match="'child' was made from 'dev'; delete 'child' first"):
        lake.branch_delete("dev")
    assert names(lake) == ["child", "dev", "main"]
    lake.branch_delete("child")
    lake.branch_delete("dev")
    assert names(lake) == ["main"]


def test_branch_delete_refuses_if_a_run_is_active_on_it(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    run = lake.begin_run("dev")
    with pytest.raises(BranchInUseError, match=f"run {run.id} is active on branch 'dev'; wait for it, or abort it"):
        lake.branch_delete("dev")
    assert names(lake) == ["dev", "main"]
    run.abort()
    lake.branch_delete("dev")
    assert names(lake) == ["main"]


def test_branch_delete_leaves_the_files_that_others_read(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    before = objects(lake, "tables")
    lake.branch_delete("dev")
    assert names(lake) == ["main"]
    assert objects(lake, "tables") == before
    assert ids(lake) == [1, 2, 3]


@pytest.mark.s3
def test_a_pure_read_branch_makes_no_object_in_any_table(lake: ab.Repository) -> None:
    before = objects(lake, "tables")
    lake.branch_create("dev")
    lake.branch_create_from("dev", "dev/nested")
    for branch in ("dev", "dev/nested"):
        snapshot = lake.snapshot_of(branch)
        assert [ids(snapshot, key) for key in snapshot] == [[10, 20], [1, 2, 3]]
        assert snapshot.entries == lake.snapshot_of("main").entries
    assert objects(lake, "tables") == before


def test_only_the_table_that_is_mutated_is_forked(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    customers = {path for path in objects(lake, "tables") if "customers" in path}
    append(lake, 4, branch="dev")
    dev, main = lake.snapshot_of("dev").entries, lake.snapshot_of("main").entries
    assert dev[TableKey.parse(CUSTOMERS)] == main[TableKey.parse(CUSTOMERS)]
    assert dev[TableKey.parse(ORDERS)].home != main[TableKey.parse(ORDERS)].home
    assert {path for path in objects(lake, "tables") if "customers" in path} == customers


def test_a_fork_shares_the_fragments_of_its_source(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    main = {file.path for fragment in raw(lake).get_fragments() for file in fragment.data_files()}
    dev = {file.path for fragment in raw(lake, ref="dev").get_fragments() for file in fragment.data_files()}
    assert main < dev


def test_a_table_is_forked_once_for_a_branch(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    home = entry(lake, ref="dev").home
    append(lake, 5, branch="dev")
    assert entry(lake, ref="dev").home == home
    lake.branch_create_from("dev", "child")
    append(lake, 6, branch="child")
    assert entry(lake, ref="child").home not in (home, None)
    assert ids(lake.snapshot_of("child")) == [1, 2, 3, 4, 5, 6]
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4, 5]


def test_sync_branch_binds_the_handle_to_the_latest_head(lake: ab.Repository) -> None:
    reader = another(lake)
    assert ids(reader.snapshot()) == [1, 2, 3]
    append(lake, 4)
    assert ids(reader.snapshot()) == [1, 2, 3]
    assert ids(reader.sync_branch("main")) == [1, 2, 3, 4]
    assert ids(reader.snapshot()) == [1, 2, 3, 4]
    lake.branch_create("dev")
    append(lake, 5, branch="dev")
    assert ids(reader.sync_branch("dev")) == [1, 2, 3, 4, 5]
    assert reader.branch == "dev"


# Commit graph


def test_a_graph_commit_has_the_fields_of_the_specification(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    on_dev = append(lake, 4, branch="dev")
    on_main = append(lake, 5)
    named = {field.name for field in fields(on_main)}
    assert named >= {
        "graph_commit_id",
        "manifest_branch",
        "manifest_version",
        "parent_commit_id",
        "merged_parent_commit_id",
        "actor_id",
        "created_at",
    }
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", on_main.graph_commit_id)
    assert (on_main.manifest_branch, on_main.manifest_version) == (None, 3)
    assert (on_dev.manifest_branch, on_dev.manifest_version) == ("dev", 2)
    assert on_main.actor_id == "ada"
    assert on_main.merged_parent_commit_id is None
    assert on_main.created_at > 1_700_000_000_000_000


def test_the_actor_of_a_commit_is_optional(lake: ab.Repository) -> None:
    anonymous = ab.open(lake.uri, storage_options=lake.storage_options)
    assert append(anonymous, 4).actor_id is None
    assert lake.list_commits(limit=1)[0].actor_id is None


def test_every_publish_appends_one_commit(lake: ab.Repository) -> None:
    before = lake.list_commits()
    made: list[ab.GraphCommit | None] = []
    for kind in ("load", "change", "schema_apply"):
        with lake.transaction(kind=kind) as tx:
            tx.append(ORDERS, table(len(made) + 4))
            tx.append(CUSTOMERS, table(len(made) + 30))
        made.insert(0, tx.published)
    assert lake.list_commits() == [*made, *before]


def test_linear_commits_have_one_parent(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    append(lake, 5, branch="dev")
    history = lake.list_commits("dev")
    parents = [commit.parent_commit_id for commit in history]
    assert parents == [*(commit.graph_commit_id for commit in history[1:]), None]
    assert all(commit.merged_parent_commit_id is None for commit in history)
    times = [commit.created_at for commit in history]
    assert times == sorted(times, reverse=True)


def test_list_commits_get_commit_and_the_head_agree(lake: ab.Repository) -> None:
    made = append(lake, 4)
    assert lake.list_commits("main")[0] == made
    assert lake.get_commit(made.graph_commit_id) == made
    assert lake.head_commit_id_for_branch("main") == made.graph_commit_id


def test_commits_outlive_their_branch(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    made = append(lake, 4, branch="dev")
    lake.branch_delete("dev")
    reader = another(lake)
    assert reader.get_commit(made.graph_commit_id) == made
    assert ids(reader.snapshot_of(made.graph_commit_id)) == [1, 2, 3, 4]
    assert reader.list_commits(made.graph_commit_id)[0] == made


# Snapshots and time travel


def test_snapshot_is_cached_and_moved_by_own_commits_only(lake: ab.Repository) -> None:
    other = another(lake)
    mine = lake.snapshot()
    append(other, 4)
    assert lake.snapshot() is mine
    lake.branch_create("dev")
    append(lake, 5, branch="dev")
    assert lake.snapshot() is mine
    append(lake, 6)
    assert ids(lake.snapshot()) == [1, 2, 3, 4, 6]


def test_snapshot_of_a_branch_or_a_snapshot_id_is_read_again(lake: ab.Repository) -> None:
    before = lake.snapshot()
    append(another(lake), 4)
    assert ids(lake.snapshot_of("main")) == [1, 2, 3, 4]
    assert ids(lake.snapshot_of(before.id)) == [1, 2, 3]
    assert lake.snapshot_of(before.id).entries == before.entries


def test_snapshot_at_version_shows_every_version_there_was(lake: ab.Repository) -> None:
    append(lake, 4)
    with lake.transaction() as tx:
        tx.drop_table(ORDERS)
    versions = [lake.snapshot_at_version(number) for number in (1, 2, 3, 4)]
    assert [snapshot.version for snapshot in versions] == [1, 2, 3, 4]
    assert [ids(snapshot) if ORDERS in snapshot else None for snapshot in versions] == [
        None,
        [1, 2, 3],
        [1, 2, 3, 4],
        None,
    ]


def test_a_snapshot_is_a_version_and_a_map(lake: ab.Repository) -> None:
    snapshot = lake.snapshot()
    assert snapshot.version == 2
    assert dict(snapshot).keys() == {ORDERS, CUSTOMERS}
    assert len(snapshot) == 2
    assert list(snapshot) == [CUSTOMERS, ORDERS]
    assert snapshot.id == lake.head_commit_id_for_branch("main")


def test_reads_across_tables_are_isolated_from_later_commits(lake: ab.Repository) -> None:
    snapshot = lake.snapshot()
    with another(lake).transaction() as tx:
        tx.delete(ORDERS, "true")
        tx.overwrite(CUSTOMERS, table(99))
        tx.create_table("s.new", SCHEMA)
    with another(lake).transaction() as tx:
        tx.drop_table(CUSTOMERS)
    assert (ids(snapshot), ids(snapshot, CUSTOMERS)) == ([1, 2, 3], [10, 20])
    assert "s.new" not in snapshot


def test_any_lance_tool_opens_a_branch_of_a_table(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    branch = entry(lake, ref="dev").home
    found = raw(lake).checkout_version((branch, None))
    assert isinstance(found, lance.LanceDataset)
    assert sorted(found.to_table().column("id").to_pylist()) == [1, 2, 3, 4]
