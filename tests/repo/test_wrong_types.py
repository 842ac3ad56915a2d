"""Values of a wrong type: every read refuses them with an error of ours, which names no internal class."""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.repo.conftest import ORDERS

SOURCES = Path(ab.__file__).parent
# Names such as `BranchName`: a word like `Column` is in many messages.
CLASSES = {
    name for path in SOURCES.rglob("*.py") for name in re.findall(r"^class (\w*[a-z][A-Z]\w*)", path.read_text(), re.M)
}
INTERNAL = CLASSES - {*ab.__all__, *ab.types.__all__}
# Arguments with which each read works.
RIGHT = {
    "key": ORDERS,
    "id": 1,
    "before": "main~1",
    "branch": "main",
    "name": "main",
    "ref": "main",
    "sql": f"FROM {ORDERS}",
    "version": 2,
    "column": "id",
    "vector": [1.0],
}
READS = {
    ab.Repository: (
        *("table", "tables", "snapshot_of", "snapshot_at_version", "sync_branch", "get_commit", "list_commits", "diff"),
        *(
            "iter_commits",
            "entity_at",
            "entity_history",
            "changes",
            "lineage",
            "reflog",
            "sql",
            "sql_reader",
            "run_get",
        ),
        *("run_list", "branch_get", "branch_drift", "tag_get", "conflicts", "schema_show", "storage_report"),
        *("head_commit_id_for_branch", "__getitem__", "list_external_writes"),
    ),
    ab.Snapshot: ("__getitem__",),
    ab.Table: ("head", "count_rows", "scan", "to_arrow", "to_pandas", "to_polars", "nearest"),
}
CASES = [(each, name) for each, names in READS.items() for name in names]


def wrong_values(repo: ab.Repository) -> Iterator[Any]:
    yield from (
        7,
        b"main",
        ["main"],
        {"a": 1},
        repo,
        repo.snapshot(),
        repo[ORDERS],
        repo.list_commits()[0],
        ORDERS[:-1],
    )


@pytest.mark.parametrize(("each", "name"), CASES, ids=lambda part: part if isinstance(part, str) else part.__name__)
def test_a_read_refuses_values_of_a_wrong_type(lake: ab.Repository, each: type, name: str) -> None:
    held = {ab.Repository: lake, ab.Snapshot: lake.snapshot(), ab.Table: lake[ORDERS]}[each]
    parameters = [one for one in inspect.signature(getattr(held, name)).parameters.values() if one.name != "progress"]
    needed = {one.name: RIGHT.get(one.name) for one in parameters if one.default is inspect.Parameter.empty}
    for parameter in parameters:
        for wrong in wrong_values(lake):
            message = refusal(getattr(held, name), **{**needed, parameter.name: wrong})
            named = {word for word in re.findall(r"\w+", message) if word in INTERNAL}
            assert named == set(), f"{parameter.name}={wrong!r}: {message}"


def refusal(read: Callable[..., Any], **arguments: Any) -> str:
    """The message of the error that a read raises, if any. Errors that are not ours fail the test."""
    try:
        found = read(**arguments)
        if inspect.isgenerator(found):
            list(found)
    except ab.AnabranchError as err:
        return str(err)
    return ""


@pytest.mark.parametrize("wrong", [7, b"x", ["region"], "region"])
def test_storage_options_are_a_mapping(lake: ab.Repository, wrong: Any) -> None:
    with pytest.raises(ab.InvalidInputError, match="storage_options must be a dict"):
        ab.open(lake.uri, storage_options=wrong)


def test_the_id_of_a_commit_is_a_ref(lake: ab.Repository) -> None:
    commit = lake.list_commits()[0]
    assert commit.id == commit.graph_commit_id == lake.snapshot_of(commit.id).id
