"""The lineage of a table, from the commits: tables, pipelines, loads and changes."""

import json
import re
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import InvalidNameError, TableNotFoundError
from anabranch.repo.history.lineage import Lineage
from anabranch.repo.log.commits import commit_path
from tests.conftest import Location
from tests.repo.conftest import another
from tests.repo.test_budgets import open_counted

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def write(repo: ab.Repository, *keys: str, branch: str | None = None, **about: Any) -> ab.GraphCommit:
    """One commit that adds a row to each table, which is made if it is not there."""
    with repo.transaction(branch, **about) as tx:
        for key in keys:
            if key not in tx:
                tx.create_table(key, ROWS.schema)
            tx.append(key, ROWS)
    assert tx.published is not None
    return tx.published


def load(repo: ab.Repository, *keys: str, branch: str | None = None) -> ab.GraphCommit:
    return write(repo, *keys, branch=branch, kind="load", message=f"Load {' '.join(keys)}\n\nFrom the till.")


def reported(pipeline: str, read_at: str, outputs: Mapping[str, Any]) -> dict[str, str]:
    """The metadata of a pipeline's commit."""
    return {
        "pipeline": pipeline,
        "pipeline.file": f"{pipeline}.py",
        "pipeline.source_hash": "ab" * 32,
        "pipeline.parameters": '{"since":"2026-01-01"}',
        "pipeline.input": read_at,
        "pipeline.outputs": json.dumps(outputs),
    }


def run(
    repo: ab.Repository,
    pipeline: str,
    outputs: Mapping[str, list[str]],
    *,
    how: str = "rebuild",
    at: str | None = None,
    branch: str | None = None,
) -> ab.GraphCommit:
    """Make a commit as a pipeline does, whose outputs were made from these inputs."""
    read_at = at or repo.head_commit_id_for_branch(branch or repo.branch)
    documents = {key: {"inputs": inputs, "write": how, "rows": 1} for key, inputs in outputs.items()}
    return write(
        repo, *outputs, branch=branch, message=f"Run {pipeline}", metadata=reported(pipeline, read_at, documents)
    )


def keyed(repo: ab.Repository, key: str, row: int, *, branch: str | None = None, **about: Any) -> ab.GraphCommit:
    """One commit that adds a row of this id to a table with a key."""
    with repo.transaction(branch, **about) as tx:
        if key not in tx:
            tx.create_table(key, ROWS.schema, primary_key=["id"])
        tx.append(key, pa.table({"id": [row]}, schema=ROWS.schema))
    assert tx.published is not None
    return tx.published


def tree(lineage: Lineage) -> list[str]:
    """The drawn tree without times."""
    return [re.sub(r"( ·| ) \d{4}-\d\d-\d\d \d\d:\d\d$", "", line) for line in lineage.to_text().splitlines()]


def names(lineage: Lineage, kind: str) -> set[str]:
    return {node.name for node in lineage.nodes if node.kind == kind}


@pytest.mark.s3
def test_lineage_of_a_table_is_the_inputs_of_its_pipelines(repo: ab.Repository) -> None:
    first = load(repo, "bronze.orders")
    again = load(repo, "bronze.orders")
    write(repo, "bronze.customers", message="By hand")
    steps = {"silver.orders": ["bronze.orders"], "gold.revenue": ["silver.orders", "bronze.customers"]}
    commit = run(repo, "shop", steps)
    lineage = repo.lineage("gold.revenue")
    assert (lineage.table, lineage.commit_id) == ("gold.revenue", commit.graph_commit_id)
    assert tree(lineage) == [
        "gold.revenue  1 row",
        "└─ shop  pipeline, rebuild",
        "   ├─ silver.orders  1 row",
        "   │  └─ shop  pipeline, rebuild",
        "   │     └─ bronze.orders  2 rows",
        "   │        └─ load  Load bronze.orders · 2 commits",
        "   └─ bronze.customers  1 row",
        "      └─ change  By hand",
    ]
    nodes = {node.id: node for node in lineage.nodes}
    assert lineage.nodes[0].name == "gold.revenue"
    assert {(nodes[e.source].name, nodes[e.target].name, e.kind.value) for e in lineage.edges} == {
        ("shop", "gold.revenue", "made"),
        ("silver.orders", "shop", "read"),
        ("bronze.customers", "shop", "read"),
        ("shop", "silver.orders", "made"),
        ("bronze.orders", "shop", "read"),
        ("load", "bronze.orders", "made"),
        ("change", "bronze.customers", "made"),
    }
    (loads,) = (node for node in lineage.nodes if node.kind == "load")
    assert (loads.commit_id, loads.created_at, loads.commits) == (again.graph_commit_id, again.created_at, 2)
    assert first.created_at < loads.created_at


def test_lineage_is_an_immutable_value_that_json_can_hold(repo: ab.Repository) -> None:
    load(repo, "b.one")
    run(repo, "p", {"s.two": ["b.one"]})
    lineage = repo.lineage("s.two")
    assert lineage == repo.lineage("s.two")
    assert hash(lineage) == hash(another(repo).lineage("s.two"))
    with pytest.raises(FrozenInstanceError):
        lineage.table = "x.y"  # type: ignore[misc]
    document = json.loads(json.dumps(lineage.to_dict()))
    assert document == lineage.to_dict()
    assert list(document) == ["table", "commit_id", "nodes", "edges"]
    table, step, *_ = document["nodes"]
    assert list(table) == ["id", "kind", "name", "table", "commit_id", "created_at", "rows"]
    assert (table["kind"], table["name"], table["rows"]) == ("table", "s.two", 1)
    assert (step["kind"], step["name"], step["table"], step["write"]) == ("pipeline", "p", "s.two", "rebuild")
    assert {end for edge in document["edges"] for end in (edge["source"], edge["target"])} <= {
        node["id"] for node in document["nodes"]
    }


def test_inputs_are_followed_as_they_were_when_they_were_read(repo: ab.Repository) -> None:
    load(repo, "b.raw")
    before = repo.snapshot().id
    run(repo, "newer", {"b.raw": []}, how="append")
    run(repo, "late", {"s.out": ["b.raw"]}, at=before)
    lineage = repo.lineage("s.out")
    assert names(lineage, "pipeline") == {"late"}
    (raw,) = (node for node in lineage.nodes if node.name == "b.raw")
    assert (raw.rows, raw.commit_id) == (1, before)
    assert names(repo.lineage("b.raw"), "pipeline") == {"newer"}


def test_a_ref_chooses_the_time(repo: ab.Repository) -> None:
    load(repo, "s.out")
    repo.tag_create("v1")
    run(repo, "p", {"s.out": []})
    assert names(repo.lineage("s.out", "v1"), "pipeline") == set()
    assert names(repo.lineage("s.out", ref="main~1"), "load") == {"load"}
    assert names(repo.lineage("s.out"), "pipeline") == {"p"}
    assert names(repo.lineage("s.out"), "load") == set()


def test_lineage_of_a_rebuilt_table_ends_at_the_rebuild(repo: ab.Repository) -> None:
    run(repo, "old", {"s.out": []})
    write(repo, "s.out")
    run(repo, "new", {"s.out": []}, how="rebuild")
    write(repo, "s.out")
    lineage = repo.lineage("s.out")
    assert (names(lineage, "pipeline"), names(lineage, "change")) == ({"new"}, {"change"})
    assert [node.commits for node in lineage.nodes if node.kind == "change"] == [1]


@pytest.mark.parametrize("how", ["append", "upsert", "something else"])
def test_lineage_of_an_appended_table_has_all_sources(repo: ab.Repository, how: str) -> None:
    load(repo, "s.out")
    run(repo, "old", {"s.out": []}, how=how)
    run(repo, "new", {"s.out": []}, how=how)
    lineage = repo.lineage("s.out")
    assert (names(lineage, "pipeline"), names(lineage, "load")) == ({"old", "new"}, {"load"})


def test_a_pipeline_may_read_what_it_wrote_before(repo: ab.Repository) -> None:
    load(repo, "b.raw")
    for _ in range(3):
        run(repo, "p", {"s.out": ["b.raw", "s.out"]}, how="append")
        load(repo, "b.raw")
    lineage = repo.lineage("s.out")
    assert tree(lineage) == [
        "s.out  3 rows",
        "└─ p  pipeline, append · 3 runs",
        "   ├─ b.raw  3 rows",
        "   │  └─ load  Load b.raw · 3 commits",
        "   └─ s.out  (as it was before)",
    ]
    assert {(edge.source, edge.target) for edge in lineage.edges} > {
        ("table:s.out", "pipeline:s.out:p"),
        ("pipeline:s.out:p", "table:s.out"),
    }


def test_two_pipelines_may_read_from_each_other_through_time(repo: ab.Repository) -> None:
    for _ in range(2):
        run(repo, "ping", {"s.ping": ["s.pong"]}, how="append")
        run(repo, "pong", {"s.pong": ["s.ping"]}, how="append")
    lineage = repo.lineage("s.pong")
    assert names(lineage, "table") == {"s.ping", "s.pong"}
    assert tree(lineage)[-1].strip() == "└─ s.pong  (as it was before)"


def test_a_table_read_twice_is_drawn_once(repo: ab.Repository) -> None:
    load(repo, "b.raw")
    run(repo, "p", {"s.one": ["b.raw"], "s.two": ["b.raw"], "g.all": ["s.one", "s.two", "b.raw"]})
    lines = tree(repo.lineage("g.all"))
    assert [line.strip("│├└─ ") for line in lines if "b.raw" in line] == [
        "b.raw  1 row",
        "load  Load b.raw",
        "b.raw  (see above)",
        "b.raw  (see above)",
    ]


def test_lineage_ends_at_a_commit_whose_parent_is_lost(repo: ab.Repository) -> None:
    lost = load(repo, "s.before")
    load(repo, "s.a", "s.b")
    testing.store_of(repo).delete(commit_path(lost.id))
    lineage = ab.open(repo.uri, storage_options=repo.storage_options).lineage("s.a")
    assert [node.name for node in lineage.nodes] == ["s.a", "load"]


def test_lineage_follows_a_renamed_table(repo: ab.Repository) -> None:
    load(repo, "b.raw")
    run(repo, "p", {"s.old": ["b.raw"]})
    with repo.transaction() as tx:
        tx.rename_table("s.old", "s.new")
    load(repo, "s.old")
    write(repo, "s.new", message="More")
    assert tree(repo.lineage("s.new")) == [
        "s.new  2 rows",
        "├─ change  More",
        "└─ s.old  1 row  (the name before)",
        "   └─ p  pipeline, rebuild",
        "      └─ b.raw  1 row",
        "         └─ load  Load b.raw",
    ]
    assert tree(repo.lineage("s.old")) == ["s.old  1 row", "└─ load  Load s.old"]


def test_a_name_changed_on_a_branch_is_followed_too(repo: ab.Repository) -> None:
    load(repo, "b.raw")
    repo.branch_create("dev")
    with repo.transaction("dev") as tx:
        tx.rename_table("b.raw", "b.other")
        tx.append("b.other", ROWS)
    assert tree(repo.lineage("b.other", "dev")) == [
        "b.other  2 rows",
        "└─ b.raw  1 row  (the name before)",
        "   └─ load  Load b.raw",
    ]


def test_tables_that_swapped_names_are_distinguished(repo: ab.Repository) -> None:
    load(repo, "s.a")
    run(repo, "p", {"s.b": []})
    with repo.transaction() as tx:
        tx.rename_table("s.a", "s.c")
        tx.rename_table("s.b", "s.a")
        tx.rename_table("s.c", "s.b")
    assert tree(repo.lineage("s.a"))[1:] == ["└─ s.b  1 row  (the name before)", "   └─ p  pipeline, rebuild"]
    assert tree(repo.lineage("s.b"))[1:] == ["└─ s.a  1 row  (the name before)", "   └─ load  Load s.a"]


def test_lineage_of_a_new_table_omits_a_dropped_one_of_the_same_name(repo: ab.Repository) -> None:
    load(repo, "s.out")
    with repo.transaction() as tx:
        tx.drop_table("s.out")
    run(repo, "p", {"s.out": []}, how="append")
    assert tree(repo.lineage("s.out")) == ["s.out  1 row", "└─ p  pipeline, append"]


def test_upkeep_leaves_the_lineage_as_it_is(repo: ab.Repository) -> None:
    load(repo, "s.out")
    load(repo, "s.out")
    before = tree(repo.lineage("s.out"))
    repo.compact(["s.out"])
    repo.index("s.out", "id")
    assert [commit.kind.value for commit in repo.list_commits()[:2]] == ["index", "compact"]
    assert tree(repo.lineage("s.out")) == before


def test_a_commit_undone_leaves_what_was_before_it(repo: ab.Repository) -> None:
    load(repo, "s.out")
    repo.revert(write(repo, "s.out", message="Wrong").graph_commit_id)
    assert tree(repo.lineage("s.out")) == ["s.out  1 row", "└─ load  Load s.out"]
    write(repo, "s.out", message="Wrong again")
    repo.undo()
    assert tree(repo.lineage("s.out")) == ["s.out  1 row", "└─ load  Load s.out"]


def test_a_picked_commit_brings_its_own_lineage(repo: ab.Repository) -> None:
    load(repo, "b.raw")
    repo.branch_create("dev")
    repo.cherry_pick(run(repo, "p", {"s.out": ["b.raw"]}, branch="dev").graph_commit_id)
    assert tree(repo.lineage("s.out")) == tree(repo.lineage("s.out", "dev"))
    assert names(repo.lineage("s.out"), "pipeline") == {"p"}


def test_lineage_of_a_merged_table_is_that_on_the_branch(repo: ab.Repository) -> None:
    load(repo, "b.raw")
    repo.branch_create("dev")
    run(repo, "p", {"s.out": ["b.raw"]}, branch="dev")
    write(repo, "b.raw", message="Meanwhile")
    repo.merge("dev", into="main")
    repo.branch_delete("dev")
    assert tree(repo.lineage("s.out")) == [
        "s.out  1 row",
        "└─ p  pipeline, rebuild",
        "   └─ b.raw  1 row",
        "      └─ load  Load b.raw",
    ]


def test_a_merge_leaves_behind_what_the_branch_rebuilt(repo: ab.Repository) -> None:
    keyed(repo, "s.out", 1, message="Old")
    repo.branch_create("dev")
    keyed(repo, "s.out", 2, branch="dev", metadata=reported("p", repo.snapshot().id, {"s.out": {"write": "rebuild"}}))
    repo.merge("dev", into="main")
    assert repo.snapshot()["s.out"].count_rows() == 2
    assert tree(repo.lineage("s.out")) == ["s.out  2 rows", "└─ p  pipeline, rebuild"]


def test_lineage_of_a_merge_has_both_sides(repo: ab.Repository) -> None:
    keyed(repo, "s.out", 1, message="First")
    repo.branch_create("dev")
    keyed(repo, "s.out", 2, branch="dev", kind="load", message="Theirs")
    keyed(repo, "s.out", 3, message="Ours")
    repo.merge("dev", into="main")
    assert {line[3:] for line in tree(repo.lineage("s.out"))[1:]} == {"load  Theirs", "change  Ours · 2 commits"}


def test_a_squashed_merge_is_where_the_lineage_ends(repo: ab.Repository) -> None:
    load(repo, "b.raw")
    repo.branch_create("dev")
    run(repo, "p", {"s.out": ["b.raw"]}, branch="dev")
    repo.merge("dev", into="main", squash=True)
    assert tree(repo.lineage("s.out")) == ["s.out  1 row", "└─ merge  Merge dev into main"]


def test_a_commit_undone_below_others_is_a_change_of_its_own(repo: ab.Repository) -> None:
    keyed(repo, "s.out", 1, kind="load", message="First")
    wrong = keyed(repo, "s.out", 2, message="Wrong")
    keyed(repo, "s.out", 3, message="Right")
    repo.revert(wrong.graph_commit_id)
    lineage = repo.lineage("s.out")
    assert (names(lineage, "load"), names(lineage, "change")) == ({"load"}, {"change", "revert"})


def test_a_branch_has_the_lineage_of_what_it_was_made_from(repo: ab.Repository) -> None:
    load(repo, "b.raw")
    repo.branch_create("dev")
    run(repo, "p", {"b.raw": []}, how="append")
    assert names(repo.lineage("b.raw", "dev"), "pipeline") == set()
    repo.branch_pull("dev", "b.raw")
    assert tree(repo.lineage("b.raw", "dev")) == tree(repo.lineage("b.raw"))
    assert names(repo.lineage("b.raw", "dev"), "pipeline") == {"p"}


def test_a_live_branch_has_the_lineage_of_what_it_shows(repo: ab.Repository) -> None:
    repo.branch_create_from("main", "live", mode="live")
    load(repo, "b.raw")
    run(repo, "p", {"s.out": ["b.raw"]}, branch="live")
    assert tree(repo.lineage("s.out", "live")) == [
        "s.out  1 row",
        "└─ p  pipeline, rebuild",
        "   └─ b.raw  1 row",
        "      └─ load  Load b.raw",
    ]
    assert tree(repo.lineage("b.raw", "live")) == tree(repo.lineage("b.raw"))


BAD = [
    {"pipeline.outputs": "{"},
    {"pipeline.outputs": "[" * 9_000},
    {"pipeline.outputs": "[]"},
    {"pipeline.outputs": "null"},
    {"pipeline.outputs": '{"s.out": 7}'},
    {"pipeline.outputs": '{"s.out": {"inputs": "b.raw"}}'},
    {"pipeline.outputs": '{"s.out": {"inputs": [7, null, "no key", "a.b.c", ["b.raw"]], "write": 7}}'},
    {"pipeline.outputs": '{"s.out": {"rows": NaN}}'},
    {"pipeline.outputs": '{"s.out": {"inputs": [], "kind": "\\ud800"}}'},
    {"pipeline.input": "../../etc/passwd", "pipeline.outputs": "{}"},
    {"pipeline.outputs": '{"s.out": {"rows": 1e999, "seconds": -1}}'},
    {},
]


@pytest.mark.parametrize("metadata", BAD)
def test_invalid_pipeline_metadata_are_ignored(repo: ab.Repository, metadata: dict[str, str]) -> None:
    write(repo, "s.out", metadata={"pipeline": "p", **metadata})
    lineage = repo.lineage("s.out")
    assert [line.split(" · ")[0] for line in tree(lineage)] == ["s.out  1 row", "└─ p  pipeline"]
    lineage.to_svg().encode()


def test_a_pipeline_without_a_name_is_ignored(repo: ab.Repository) -> None:
    write(repo, "s.out", metadata={"pipeline": " ", "pipeline.outputs": '{"s.out": {"inputs": ["b.raw"]}}'})
    assert tree(repo.lineage("s.out")) == ["s.out  1 row", "└─ change"]


@pytest.mark.parametrize("kind", ["revert", "cherry_pick", "pull"])
def test_a_commit_that_claims_to_be_from_elsewhere_is_a_change(repo: ab.Repository, kind: str) -> None:
    write(repo, "s.out", kind=kind, message="Odd", metadata={"commit": "../_repo"})
    write(repo, "s.out", kind=kind, message="Odd", metadata={"commit": "01ARZ3NDEKTSV4RRFFQ69G5FAV"})
    assert names(repo.lineage("s.out"), "change") == {kind.replace("_", " ")}


def test_missing_inputs_are_shown_as_not_found(repo: ab.Repository) -> None:
    run(repo, "p", {"s.out": ["b.gone"]}, at="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    lineage = repo.lineage("s.out")
    assert tree(lineage)[-1] == "   └─ b.gone  not found"
    assert lineage.to_dict()["nodes"][-1]["rows"] is None


def test_a_table_that_is_not_there_is_an_error(repo: ab.Repository) -> None:
    load(repo, "s.out")
    with pytest.raises(TableNotFoundError, match=r"no table 's\.other'"):
        repo.lineage("s.other")
    with pytest.raises(TableNotFoundError):
        repo.lineage("s.out", "main~1")
    with pytest.raises(InvalidNameError):
        repo.lineage("orders")


def requests(location: Location, key: str) -> int:
    repo, store = open_counted(location)
    store.reset()
    repo.lineage(key)
    return sum(store.counts.values())


def test_it_costs_no_more_for_commits_of_other_tables(location: Location, repo: ab.Repository) -> None:
    load(repo, "b.raw")
    for _ in range(5):
        run(repo, "p", {"s.out": ["b.raw"]}, how="append")
    before = requests(location, "s.out")
    for _ in range(30):
        write(repo, "o.other")
    assert requests(location, "s.out") <= before + 2


def test_it_costs_a_few_requests_for_each_run(location: Location, repo: ab.Repository) -> None:
    def make(runs: int) -> int:
        for _ in range(runs):
            load(repo, "b.raw")
            run(repo, "p", {"s.out": ["b.raw", "s.out"], "g.out": ["s.out"]}, how="append")
        return requests(location, "g.out")

    make(5)
    few = make(10)
    assert make(10) - few <= few
