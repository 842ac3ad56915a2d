"""`anabranch log`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short
from tests.repo.graphs import Graph

KEYS = [
    *("id", "branch", "version", "parent_id", "merged_parent_id", "actor"),
    *("created_at", "kind", "message", "metadata", "tables"),
]


@pytest.mark.s3
def test_commits_come_newest_first_and_whole(cli: Run, lake: ab.Repository) -> None:
    found = cli("log", "--json").document
    assert (found["ref"], found["has_more"]) == ("main", False)
    customers, load, begin = found["commits"]
    assert [list(commit) for commit in found["commits"]] == [KEYS] * 3
    assert [customers["parent_id"], load["parent_id"], begin["parent_id"]] == [load["id"], begin["id"], None]
    assert len(load["id"]) == 26
    assert (load["actor"], load["kind"], load["metadata"]) == ("ada", "load", {"run": "r7"})
    assert (load["message"], load["tables"]) == ("Load orders\n\nFrom the till.", [ORDERS])
    assert (load["branch"], load["version"], load["merged_parent_id"]) == ("main", 2, None)
    age = datetime.now(UTC) - datetime.fromisoformat(load["created_at"])
    assert timedelta(0) < age < timedelta(days=1)


def test_people_read_short_ids_and_first_lines(cli: Run, lake: ab.Repository) -> None:
    text = cli("log").out
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[2:]] == [short(lake, ref) for ref in ("main", "main~1", "main~2")]
    assert lines[0].split() == ["commit", "time", "(UTC)", "by", "kind", "message", "tables"]
    assert "From the till" not in text
    assert lake.snapshot_of("main").id not in text


def test_a_short_id_is_a_ref(cli: Run, lake: ab.Repository) -> None:
    shown = cli("log").out.splitlines()[3].split()[0]
    assert [commit["message"] for commit in cli("log", shown, "--json").document["commits"]] == [
        "Load orders\n\nFrom the till.",
        "Begin the repository",
    ]


@pytest.mark.parametrize(
    ("args", "messages"),
    [
        (["dev"], ["Fix a price", "Load orders", "Begin the repository"]),
        (["main~1"], ["Load orders", "Begin the repository"]),
        (["main@v2"], ["Load orders", "Begin the repository"]),
        (["--table", ORDERS], ["Load orders"]),
        (["dev", "--table", ORDERS], ["Fix a price", "Load orders"]),
        (["--table", ORDERS, "--author", "nobody"], []),
        (["--limit", "3"], ["Add customers", "Load orders", "Begin the repository"]),
    ],
)
def test_the_commits_are_those_asked_for(cli: Run, lake: ab.Repository, args: list[str], messages: list[str]) -> None:
    found = cli("log", *args, "--json").document
    assert [commit["message"].partition("\n")[0] for commit in found["commits"]] == messages
    assert found["has_more"] is False


def test_a_limit_reports_that_there_is_more(cli: Run, lake: ab.Repository) -> None:
    found = cli("log", "--limit", "1", "--json").document
    assert (len(found["commits"]), found["has_more"]) == (1, True)
    assert cli("log", "-n", "1").out.startswith("the newest 1 commit; --limit shows more\n")
    assert cli("log", "-n", "0").code == 2
    assert "no commits" in cli("log", "--author", "nobody").out


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["nope"], "branch_not_found", 3),
        (["main~99"], "commit_not_found", 3),
        (["main@{2001-01-01}"], "commit_not_found", 3),
        (["--table", "orders"], "invalid_name", 2),
        (["a b"], "invalid_name", 2),
    ],
)
def test_a_wrong_ref_is_an_error(cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int) -> None:
    assert cli("log", *args, "--json").error["code"] == code
    assert cli("log", *args).code == exit_code


def graph(cli: Run, repo: ab.Repository, *args: str) -> list[str]:
    """The lines of the drawing, without the ids."""
    lines = cli("log", "--graph", *args).out.splitlines()
    ids = {commit["id"][:14] for commit in cli("log", "--graph", *args, "--json").document["commits"]}
    return [" ".join(part for part in line.split(" ") if part not in ids) for line in lines]


def test_the_graph_draws_all_branches(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction("dev", message="Fix another") as tx:
        tx.delete(ORDERS, "id = 2")
    lake.branch_create_from("dev", "dev/x")
    lake.branch_create_from("main~2", "old")
    assert graph(cli, lake) == [
        "* (dev, dev/x) Fix another",
        "| * (main) Add customers",
        "* | Fix a price",
        "|/",
        "* Load orders",
        "* (old) Begin the repository",
    ]


def test_three_lines_of_history_join_at_their_common_commit(cli: Run, lake: ab.Repository) -> None:
    lake.branch_create_from("main~1", "fix")
    with lake.transaction("fix", message="On fix") as tx:
        tx.create_table("in_c_sales.fixes", pa.schema([("id", pa.int64())]))
    with lake.transaction(message="On main") as tx:
        tx.append(CUSTOMERS, pa.table({"name": ["Bo"]}))
    assert graph(cli, lake) == [
        "* (main) On main",
        "| * (fix) On fix",
        "* | Add customers",
        "| | * (dev) Fix a price",
        "|_|/",
        "|/",
        "* Load orders",
        "* Begin the repository",
    ]


def test_the_graph_shows_both_parents_of_a_merge(cli: Run, lake: ab.Repository) -> None:
    made = Graph(lake)
    merge = made.merge("dev")
    assert graph(cli, lake, "main") == [
        f"* (main) {merge.message}",
        "|\\",
        "* | Add customers",
        "| * (dev) Fix a price",
        "|/",
        "* Load orders",
        "* Begin the repository",
    ]
    listed = cli("log", "--json").document["commits"]
    assert [commit["message"].partition("\n")[0] for commit in listed] == [
        *(merge.message, "Add customers", "Load orders", "Begin the repository")
    ]
    assert listed[0]["merged_parent_id"] == lake.head_commit_id_for_branch("dev")
    assert listed[0]["parent_id"] == listed[1]["id"]
    assert lake.head_commit_id_for_branch("dev") in cli("show").out


def test_the_graph_of_many_merges_has_the_newest_of_all_lines(cli: Run, lake: ab.Repository) -> None:
    made = Graph(lake)
    for number in range(6):
        lake.branch_create_from("main", f"b{number}")
        made.commit(f"b{number}")
        made.merge(f"b{number}")
    found = cli("log", "main", "--graph", "--limit", "8", "--json").document
    assert [commit["branch"] for commit in found["commits"]] == ["main", "b5", "main", "b4", "main", "b3", "main", "b2"]
    assert found["has_more"] is True


def test_the_graph_of_a_ref_is_what_led_to_it(cli: Run, lake: ab.Repository) -> None:
    assert graph(cli, lake, "dev") == ["* (dev) Fix a price", "* Load orders", "* Begin the repository"]


def test_the_graph_of_a_limit_is_its_newest_part(cli: Run, lake: ab.Repository) -> None:
    assert graph(cli, lake, "--limit", "2") == ["* (main) Add customers", "| * (dev) Fix a price"]
    found = cli("log", "--graph", "--limit", "2", "--json").document
    assert found["has_more"] is True
    assert found["heads"] == {name: lake.head_commit_id_for_branch(name) for name in ("dev", "main")}
    assert [commit["branch"] for commit in found["commits"]] == ["main", "dev"]


def test_commits_are_listed_in_pages(cli: Run, lake: ab.Repository) -> None:
    ids = [commit.id for commit in lake.list_commits(limit=None)]
    listed = cli("log", "--after", ids[0], "--limit", "1", "--json").document["commits"]
    assert [commit["id"] for commit in listed] == ids[1:2]
    listed = cli("log", "--prefix", ids[-1], "--json").document["commits"]
    assert [commit["id"] for commit in listed] == ids[-1:]


def test_commits_by_author_and_age_in_one_line(cli: Run, lake: ab.Repository) -> None:
    head = lake.snapshot_of("dev").commit
    assert cli("log", "dev", "--oneline", "--author", "bob").out == f"{head.id[:14]} Fix a price\n"
    assert cli("log", "dev", "--author", "nobody").out == "no commits\n"
    assert len(cli("log", "--since", "1d", "--json").document["commits"]) == 3
    assert cli("log", "--since", "2999-01-01").out == "no commits\n"
    assert cli("log", "--since", "yesterday", "--json").error["code"] == "invalid_input"


def test_the_graph_is_drawn_into_a_file(cli: Run, lake: ab.Repository, folder: Path) -> None:
    with lake.transaction(message="<b>&") as tx:
        tx.delete(ORDERS, "id = 1")
    drawn = cli("log", "--svg", "graph.svg", "--json").document
    text = (folder / "graph.svg").read_text()
    assert (drawn["svg"], drawn["ref"], len(drawn["commits"])) == ("graph.svg", None, 5)
    assert text.startswith("<svg ")
    assert all(name in text for name in ("(dev)", "Fix a price", "&lt;b&gt;&amp;"))
    assert cli("log", "--svg", "x.svg", "--author", "bob", "--json").error["code"] == "invalid_input"


def test_the_graph_shows_tags_at_their_commits(cli: Run, lake: ab.Repository, folder: Path) -> None:
    lake.tag_create("v1.0", "main~1")
    lake.tag_create("newest", "main")
    lake.tag_create("best", "main")
    assert graph(cli, lake, "main") == [
        "* (main, tag: best, tag: newest) Add customers",
        "* (tag: v1.0) Load orders",
        "* Begin the repository",
    ]
    tags = {tag.name: tag.commit_id for tag in lake.tag_list()}
    heads = {branch.name: branch.head_commit_id for branch in lake.branch_list()}
    found = cli("log", "main", "--graph", "--json").document
    assert (found["tags"], found["heads"]) == (tags, heads)
    drawn = cli("log", "main", "--svg", "graph.svg", "--json").document
    assert (drawn["tags"], drawn["heads"]) == (tags, heads)
    assert "(main, tag: best, tag: newest) Add customers" in (folder / "graph.svg").read_text()
    # A tag of a commit that is not shown stays out of the drawing, and is in the document.
    assert "v1.0" not in cli("log", "main", "--graph", "--limit", "1").out


def test_the_graph_of_all_branches_has_no_ref(cli: Run, lake: ab.Repository) -> None:
    assert lake.branch == "main"
    assert cli("log", "--graph", "--json").document["ref"] is None
    assert cli("log", "dev", "--graph", "--json").document["ref"] == "dev"
