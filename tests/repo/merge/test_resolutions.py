"""Decisions on single conflicts, and resolvers whose names match nothing."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, MergeConflictError
from anabranch.json_values import json_value
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, nothing_changes, table


def set_words(repo: ab.Repository, branch: str, word: str, where: str = "id < 4") -> None:
    repo.update(ORDERS, {"v": f"concat('{word}', arrow_cast(id, 'Utf8'))"}, where=where, branch=branch)


@pytest.fixture
def parted(lake: ab.Repository) -> ab.Repository:
    """A lake in which main and dev gave orders 1, 2 and 3 different words."""
    lake.branch_create("dev")
    set_words(lake, "dev", "dev")
    set_words(lake, "main", "main")
    return lake


def decide(number: int, **how: Any) -> dict[str, Any]:
    return {"table": ORDERS, "key": {"id": number}, "column": "v", **how}


def words(repo: ab.Repository) -> dict[int, str]:
    return {row["id"]: row["v"] for row in repo.table(ORDERS).to_arrow().to_pylist()}


def test_each_conflict_is_decided_by_its_own_resolution(parted: ab.Repository) -> None:
    chosen = [decide(1, take="source"), decide(2, take="base"), decide(3, value="other")]
    parted.merge("dev", resolutions=chosen)
    assert words(parted) == {1: "dev1", 2: "b", 3: "other"}


def test_conflicts_without_a_resolution_are_left(parted: ab.Repository) -> None:
    left = parted.conflicts("dev", resolutions=[decide(2, take="target")])
    assert [conflict.key for conflict in left] == [{"id": 1}, {"id": 3}]
    with nothing_changes(parted), pytest.raises(MergeConflictError, match="2 conflicts"):
        parted.merge("dev", resolutions=[decide(2, take="target")])


def test_strategy_and_resolvers_decide_what_resolutions_leave(parted: ab.Repository) -> None:
    parted.merge("dev", resolutions=[decide(2, value=None)], strategy="source")
    assert words(parted) == {1: "dev1", 2: None, 3: "dev3"}


def test_resolver_decides_what_resolutions_leave(parted: ab.Repository) -> None:
    parted.merge("dev", resolutions=[decide(2, take="source")], resolvers={"v": "max"})
    assert words(parted) == {1: "main1", 2: "dev2", 3: "main3"}


def test_resolution_without_a_key_decides_a_column_or_a_table(parted: ab.Repository) -> None:
    parted.merge("dev", resolutions=[{"table": ORDERS, "column": "v", "take": "source"}, decide(3, take="target")])
    assert words(parted) == {1: "dev1", 2: "dev2", 3: "main3"}


def test_printed_conflicts_can_be_passed_back(parted: ab.Repository) -> None:
    names = ("table", "kind", "key", "column", "base", "source", "target", "problem")
    printed = [{name: json_value(getattr(one, name)) for name in names} for one in parted.conflicts("dev")]
    for number, one in enumerate(printed):
        one["take"] = "source" if number % 2 else "target"
    parted.merge("dev", resolutions=printed)
    assert words(parted) == {1: "main1", 2: "dev2", 3: "main3"}


def test_resolution_applies_only_while_the_sides_have_the_same_values(parted: ab.Repository) -> None:
    decided = [decide(number, take="source", target=f"main{number}") for number in (1, 2, 3)]
    set_words(parted, "main", "later", where="id = 2")
    with pytest.raises(MergeConflictError) as caught:
        parted.merge("dev", resolutions=decided)
    assert [(one.key, one.target) for one in caught.value.conflicts] == [({"id": 2}, "later2")]
    parted.merge("dev", resolutions=[*decided, decide(2, take="target", target="later2")])
    assert words(parted) == {1: "dev1", 2: "later2", 3: "dev3"}


def test_row_that_one_side_deleted_is_decided(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.delete(ORDERS, "id < 3", branch="dev")
    set_words(lake, "main", "main")
    lake.merge(
        "dev",
        resolutions=[
            {"table": ORDERS, "key": {"id": 1}, "take": "source"},
            {"table": ORDERS, "key": {"id": 2}, "value": {"id": 2, "v": "kept"}},
        ],
    )
    assert words(lake) == {2: "kept", 3: "main3"}


def test_values_are_given_as_in_json(lake: ab.Repository) -> None:
    kinds = {"t": pa.timestamp("us", "UTC"), "d": pa.decimal128(10, 2), "b": pa.binary(), "f": pa.float64()}
    schema = pa.schema([("day", pa.date32()), *kinds.items()])
    day = date(2026, 1, 31)
    with lake.transaction() as tx:
        tx.create_table("in.kinds", schema, primary_key=["day"])
        tx.append("in.kinds", [{"day": day}])
    lake.branch_create("dev")
    for number, branch in enumerate(("main", "dev")):
        at = datetime(2026, 1, number + 1, tzinfo=UTC)
        row = {"day": day, "t": at, "d": Decimal(number), "b": branch.encode(), "f": float(number)}
        lake.upsert("in.kinds", [row], branch=branch)
    given = {"t": "2026-01-31T10:00:00Z", "d": "12.50", "b": "aGk=", "f": 3}
    lake.merge(
        "dev",
        resolutions=[
            {"table": "in.kinds", "key": {"day": "2026-01-31"}, "column": name, "value": value}
            for name, value in given.items()
        ],
    )
    (row,) = lake.table("in.kinds").to_arrow().to_pylist()
    assert (row["t"], row["d"], row["b"], row["f"]) == (
        datetime(2026, 1, 31, 10, tzinfo=UTC),
        Decimal("12.50"),
        b"hi",
        3.0,
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"table": ORDERS, "take": "source"}, "must be a list"),
        ([{"key": {"id": 1}, "take": "source"}], "must name its table"),
        ([decide(1, take="ours")], "cannot take 'ours'"),
        ([decide(1, take="source", value=1)], "both take and value"),
        ([decide(1, tkae="source")], "did you mean 'take'"),
        ([{"table": ORDERS, "key": 1, "take": "source"}], "is not a mapping"),
        ([{"table": ORDERS, "column": "v", "value": "x"}], "has no key"),
        ([{**decide(1, take="source"), "table": "in_c_sales.order"}], "did you mean 'in_c_sales.orders.v'"),
        ([{**decide(1, take="source"), "column": "vv"}], "did you mean 'in_c_sales.orders.v'"),
        ([decide(1, value={"a": 1})], r"cannot convert \{'a': 1\} to string \(column 'v', key \{'id': 1\}\)"),
    ],
)
def test_wrong_resolutions_are_refused(parted: ab.Repository, given: Any, problem: str) -> None:
    with nothing_changes(parted), pytest.raises(InvalidInputError, match=problem):
        parted.merge("dev", resolutions=given)


@pytest.mark.parametrize(
    "wrong",
    [
        decide(99, take="source"),
        {**decide(1, take="source"), "key": {"id": "1"}},
        {**decide(1, take="source"), "column": "id"},
        {**decide(1, take="source"), "path": "city"},
        {"table": ORDERS, "key": {"id": 1}, "take": "source"},
    ],
)
@pytest.mark.parametrize("is_dry", [False, True])
def test_resolution_that_matches_no_conflict_is_refused(
    parted: ab.Repository, wrong: dict[str, Any], *, is_dry: bool
) -> None:
    given = [decide(1, take="source"), decide(1, take="source"), wrong]
    with nothing_changes(parted), pytest.raises(InvalidInputError, match="matches no conflict") as caught:
        parted.merge("dev", resolutions=given, strategy="target", dry_run=is_dry)
    assert str(wrong) in caught.value.problem


def test_resolution_for_other_values_of_the_sides_may_match_no_conflict(parted: ab.Repository) -> None:
    names = ("table", "kind", "key", "column", "base", "source", "target")
    printed = [
        {"take": "source", **{name: getattr(conflict, name) for name in names}} for conflict in parted.conflicts("dev")
    ]
    set_words(parted, "main", "dev", where="id < 3")
    parted.merge("dev", resolutions=printed, strategy="target")
    assert words(parted) == {1: "dev1", 2: "dev2", 3: "dev3"}
    # It has the result already.
    parted.merge("dev", resolutions=[decide(99, take="source")])


def test_resolution_for_one_of_several_commits_matches(parted: ab.Repository) -> None:
    set_words(parted, "dev", "later", where="id = 2")
    given = [decide(number, take="source") for number in (1, 2)]
    parted.cherry_pick("main..dev", branch="main", resolutions=given, strategy="target", dry_run=True)
    wrong = [*given, decide(99, take="source")]
    for is_dry in (True, False):
        with pytest.raises(InvalidInputError, match="matches no conflict"):
            parted.cherry_pick("main..dev", branch="main", resolutions=wrong, strategy="target", dry_run=is_dry)
    assert words(parted)[1] == "main1"
    parted.cherry_pick("main..dev", branch="main", resolutions=given, strategy="target")
    assert words(parted)[1] == "dev1"


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("prize", None),
        ("V", "did you mean 'v'"),
        (f"{ORDERS}.x", None),
        ("in_c_sales.order", "did you mean 'in_c_sales.orders'"),
        ("nowhere.orders.v", None),
    ],
)
def test_resolver_that_matches_nothing_is_refused(parted: ab.Repository, name: str, suggestion: str | None) -> None:
    with nothing_changes(parted), pytest.raises(InvalidInputError, match="matches no table and no column") as caught:
        parted.merge("dev", resolvers={name: "source"}, strategy="source")
    assert suggestion is None or suggestion in str(caught.value)


def test_resolver_may_be_for_a_table_that_did_not_change(parted: ab.Repository) -> None:
    parted.merge("dev", resolvers={CUSTOMERS: "target", f"{CUSTOMERS}.id": "max", "v": "source"})
    assert words(parted) == {1: "dev1", 2: "dev2", 3: "dev3"}


@pytest.mark.parametrize(("side", "name"), [("source", "theirs"), ("target", "ours")])
def test_resolver_of_a_column_decides_its_schema_conflict(lake: ab.Repository, side: str, name: str) -> None:
    lake.branch_create("dev")
    for branch, renamed in (("dev", "theirs"), ("main", "ours")):
        with lake.transaction(branch) as tx:
            tx.alter_columns(ORDERS, [ab.ColumnChange(path="v", name=renamed)])
            tx.annotate(ORDERS, {}, columns={renamed: {"unit": branch}})
    with pytest.raises(MergeConflictError):
        lake.merge("dev")
    lake.merge("dev", resolvers={f"{ORDERS}.v": side, f"{ORDERS}.{name}": side})
    assert lake.table(ORDERS).schema.names == ["id", name]


def test_decision_on_a_note_decides_nothing_else(parted: ab.Repository) -> None:
    for branch in ("dev", "main"):
        with parted.transaction(branch) as tx:
            tx.annotate(ORDERS, {"owner": branch}, columns={"v": {"unit": branch}})
    names = ("table", "kind", "key", "column", "base", "source", "target", "problem")
    printed = [{name: getattr(one, name) for name in names} for one in parted.conflicts("dev")]
    noted = [{**one, "take": "source"} for one in printed if one["kind"] == "schema"]
    assert len(noted) == 2
    left = list(parted.conflicts("dev", resolutions=noted))
    assert [one.key for one in left] == [{"id": 1}, {"id": 2}, {"id": 3}]
    with parted.transaction() as tx:
        tx.annotate(ORDERS, {"owner": "later"})
    left = list(parted.conflicts("dev", resolutions=noted))
    assert [(one.column, one.target) for one in left if one.key is None] == [(None, "later")]


def test_rows_without_a_key_have_decisions_of_their_own(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.create_table("in.words", SCHEMA)
    for number in range(3):  # a fragment each
        lake.append("in.words", table(number))
    lake.branch_create("dev")
    lake.update("in.words", {"v": "'new'"}, where="id < 2", branch="dev")
    lake.delete("in.words", "id < 2")
    keys = [one.key for one in lake.conflicts("dev")]
    assert len({str(key) for key in keys}) == 2
    sides = zip(keys, ("source", "target"), strict=True)
    lake.merge("dev", resolutions=[{"table": "in.words", "key": key, "take": side} for key, side in sides])
    assert len(lake.table("in.words")) == 2


@pytest.mark.parametrize(
    "given",
    [
        [{**decide(1, take="source"), "column": ["v"]}],
        [decide(1, take="source", base=object())],
        [{"table": ORDERS, "key": {"id": object()}, "take": "source"}],
    ],
)
def test_values_that_no_table_has_are_refused(parted: ab.Repository, given: Any) -> None:
    with nothing_changes(parted), pytest.raises(InvalidInputError):
        parted.merge("dev", resolutions=given)


def test_key_may_have_numbers_of_numpy(parted: ab.Repository) -> None:
    chosen = [{**decide(number, take="source"), "key": {"id": np.int64(number)}} for number in (1, 2, 3)]
    parted.merge("dev", resolutions=chosen)
    assert words(parted) == {1: "dev1", 2: "dev2", 3: "dev3"}


def test_resolver_of_a_range_may_be_for_a_table_of_a_later_commit(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    set_words(lake, "dev", "dev", where="id = 1")
    with lake.transaction("dev") as tx:
        tx.create_table("in.later", SCHEMA)
    lake.cherry_pick("main..dev", branch="main", resolvers={"in.later": "source"})
    assert "in.later" in lake.tables()


def test_dry_run_of_a_range_takes_a_resolver_for_a_later_table(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    set_words(lake, "dev", "dev", where="id = 1")
    with lake.transaction("dev") as tx:
        tx.create_table("in.later", SCHEMA)
    planned = lake.cherry_pick("main..dev", branch="main", resolvers={"in.later": "source"}, dry_run=True)
    assert len(planned.plan) == 2


def test_resolver_function_is_not_called_for_decided_conflicts(parted: ab.Repository) -> None:
    def never(conflict: Any) -> Any:
        raise AssertionError(conflict)

    decided = [decide(number, take="target") for number in (1, 2, 3)]
    parted.merge("dev", resolutions=decided, resolvers={"v": never})
    assert words(parted) == {1: "main1", 2: "main2", 3: "main3"}
