"""Values of resolutions: JSON of every column type, whole rows, names from before a rename, and contradictions."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, MergeConflictError
from anabranch.json_values import json_value
from tests.repo.conftest import ORDERS, nothing_changes

KINDS = "in.kinds"
DAY = date(2026, 1, 31)
NOW = datetime(2026, 1, 31, 10, 30, 0, 250_000, tzinfo=UTC)
PARTS = pa.struct([("day", pa.date32()), ("price", pa.decimal128(10, 2)), ("raw", pa.binary())])
# The column type, a value of each side, and the value of the resolution.
VALUES: Mapping[str, tuple[pa.DataType, Any, Any, Any]] = {
    "time64": (pa.time64("us"), time(1), time(2), time(10, 30, 0, 250)),
    "time32": (pa.time32("ms"), time(1), time(2), time(10, 30, 0, 250_000)),
    "duration": (pa.duration("us"), timedelta(1), timedelta(2), timedelta(days=-3, microseconds=1)),
    "fixed": (pa.binary(2), b"aa", b"bb", b"hi"),
    "days": (pa.list_(pa.date32()), [DAY], [], [DAY, None, date(2026, 2, 1)]),
    "decimal": (pa.decimal128(10, 2), Decimal(1), Decimal(2), Decimal("12.50")),
    "struct": (PARTS, {"day": DAY}, {"raw": b"x"}, {"day": DAY, "price": Decimal("1.25"), "raw": b"\x00\xff"}),
    "timestamp": (pa.timestamp("ms", "UTC"), NOW, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 3, tzinfo=UTC)),
    "uuid": (pa.uuid(), UUID(int=1), UUID(int=2), UUID(int=3)),
    "float": (pa.float64(), 1.0, 2.0, float("inf")),
    "number": (pa.uint64(), 1, 2, 2**64 - 1),
}


def change(repo: ab.Repository, row: dict[str, Any], *, branch: str = "main") -> None:
    repo.upsert(KINDS, [row], branch=branch)


@pytest.fixture
def kinds(repo: ab.Repository) -> ab.Repository:
    """A lake in which main and dev gave the row of day 31 other values in every column, and dev deleted day 30."""
    schema = pa.schema([("day", pa.date32()), *((name, kind) for name, (kind, *_) in VALUES.items())])
    with repo.transaction() as tx:
        tx.create_table(KINDS, schema, primary_key=["day"])
        tx.append(KINDS, [{"day": DAY}, {"day": date(2026, 1, 30)}])
    repo.branch_create("dev")
    change(repo, {"day": DAY, **{name: ours for name, (_, ours, _, _) in VALUES.items()}})
    change(repo, {"day": DAY, **{name: theirs for name, (_, _, theirs, _) in VALUES.items()}}, branch="dev")
    change(repo, {"day": date(2026, 1, 30), "number": 7})
    repo.delete(KINDS, "day = date '2026-01-30'", branch="dev")
    return repo


WANTED = {name: wanted for name, (_, _, _, wanted) in VALUES.items()}


def test_value_of_every_type_is_read_from_json(kinds: ab.Repository) -> None:
    cells = [
        {"table": KINDS, "key": {"day": "2026-01-31"}, "column": name, "value": json_value(wanted)}
        for name, wanted in WANTED.items()
    ]
    row = {"table": KINDS, "key": {"day": "2026-01-30"}, "value": json_value({"day": date(2026, 1, 30), **WANTED})}
    kinds.merge("dev", resolutions=[*cells, row])
    found = {each.pop("day"): each for each in kinds.table(KINDS).to_arrow().to_pylist()}
    assert found == {DAY: WANTED, date(2026, 1, 30): WANTED}


def test_value_may_be_given_as_python_has_it(kinds: ab.Repository) -> None:
    cells = [{"table": KINDS, "key": {"day": DAY}, "column": name, "value": wanted} for name, wanted in WANTED.items()]
    row = {"table": KINDS, "key": {"day": date(2026, 1, 30)}, "value": {"day": date(2026, 1, 30), **WANTED}}
    kinds.merge("dev", resolutions=[*cells, row])
    found = {each.pop("day"): each for each in kinds.table(KINDS).to_arrow().to_pylist()}
    assert found == {DAY: WANTED, date(2026, 1, 30): WANTED}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time64", "10 o'clock"),
        ("duration", "PT"),
        ("fixed", "aGlo"),
        ("days", ["never"]),
        ("days", "2026-01-31"),
        ("decimal", "1.255"),
        ("struct", {"dya": "2026-01-31"}),
        ("uuid", "1"),
        ("number", -1),
    ],
)
def test_value_that_does_not_fit_its_column_is_refused(kinds: ab.Repository, name: str, value: Any) -> None:
    given = {"table": KINDS, "key": {"day": "2026-01-31"}, "column": name, "value": value}
    with nothing_changes(kinds), pytest.raises(InvalidInputError, match=r"^cannot convert") as caught:
        kinds.merge("dev", resolutions=[given], strategy="target")
    assert f"(column '{name}', key {{'day': '2026-01-31'}})" in caught.value.problem
    assert caught.value.hint == "correct the value of the decision"


def test_row_whose_value_does_not_fit_is_refused(kinds: ab.Repository) -> None:
    given = {"table": KINDS, "key": {"day": "2026-01-30"}, "value": {"day": "2026-01-30", "time64": "noon"}}
    with nothing_changes(kinds), pytest.raises(InvalidInputError, match=r"^cannot convert 'noon' to") as caught:
        kinds.merge("dev", resolutions=[given], strategy="target")
    assert "(column 'time64', key {'day': '2026-01-30'})" in caught.value.problem
    assert caught.value.hint == "correct the value of the decision"


# Names from before a rename


@pytest.fixture(params=["dev", "main"])
def renamed(lake: ab.Repository, request: pytest.FixtureRequest) -> ab.Repository:
    """A lake in which dev and main changed order 1, dev deleted 2, main deleted 3, and one renamed both columns."""
    lake.branch_create("dev")
    with lake.transaction(request.param) as tx:
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="v", name="word"), ab.ColumnChange(path="id", name="number")])
    for branch, deleted, changed in (("dev", 2, 3), ("main", 3, 2)):
        key, column = ("number", "word") if branch == request.param else ("id", "v")
        lake.update(ORDERS, {column: f"'{branch}'"}, where=f"{key} in (1, {changed})", branch=branch)
        lake.delete(ORDERS, f"{key} = {deleted}", branch=branch)
    return lake


def orders(repo: ab.Repository) -> dict[int, str]:
    return {row["number"]: row["word"] for row in repo.table(ORDERS).to_arrow().to_pylist()}


@pytest.mark.parametrize(("key", "column"), [("id", "v"), ("number", "word"), ("id", "word"), ("number", "v")])
def test_resolution_may_use_the_name_from_before_a_rename(renamed: ab.Repository, key: str, column: str) -> None:
    given = [
        {"table": ORDERS, "key": {key: 1}, "column": column, "take": "source"},
        {"table": ORDERS, "key": {key: 2}, "value": {key: 2, column: "kept"}},
        {"table": ORDERS, "key": {key: 3}, "take": "base"},
    ]
    renamed.merge("dev", resolutions=given)
    assert orders(renamed) == {1: "dev", 2: "kept", 3: "c"}


@pytest.mark.parametrize("name", ["v", "word", f"{ORDERS}.v", f"{ORDERS}.word"])
def test_resolver_may_use_the_name_from_before_a_rename(renamed: ab.Repository, name: str) -> None:
    renamed.merge("dev", resolvers={name: "min", ORDERS: "target"})
    assert orders(renamed) == {1: "dev", 2: "main"}


def test_resolver_of_swapped_columns_is_for_the_column_of_that_name_in_the_result(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        tx.create_table(
            "in.t", pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())]), primary_key=["id"]
        )
        tx.append("in.t", [{"id": 1, "a": 0, "b": 0}])
    repo.branch_create("dev")
    repo.update("in.t", {"a": "10", "b": "20"}, where="true", branch="dev")
    repo.update("in.t", {"a": "1", "b": "2"}, where="true")
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        with repo.transaction() as tx:
            tx.alter_columns("in.t", [ab.ColumnChange(path=old, name=new)])
    with pytest.raises(MergeConflictError) as caught:
        repo.merge("dev", resolvers={"a": "max"})
    assert [(one.column, one.source) for one in caught.value.conflicts] == [("b", 10)]


def test_resolver_may_use_the_name_of_a_table_from_before_a_rename(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction() as tx:
        tx.rename_table(ORDERS, "in_c_sales.bought")
    lake.update(ORDERS, {"v": "'dev'"}, where="id < 3", branch="dev")
    lake.update("in_c_sales.bought", {"v": "'main'"}, where="id < 3")
    given = [{"table": ORDERS, "key": {"id": 1}, "column": "v", "take": "source"}]
    lake.merge("dev", resolutions=given, resolvers={f"{ORDERS}.v": lambda conflict: f"{conflict.source}!"})
    found = lake.table("in_c_sales.bought").to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in found} == {1: "dev", 2: "dev!", 3: "c"}


# Contradictions


def order(**how: Any) -> dict[str, Any]:
    return {"table": ORDERS, "key": {"id": 1}, "column": "v", **how}


@pytest.fixture
def parted(lake: ab.Repository) -> ab.Repository:
    lake.branch_create("dev")
    for branch in ("dev", "main"):
        lake.update(ORDERS, {"v": f"'{branch}'"}, where="id = 1", branch=branch)
    return lake


@pytest.mark.parametrize(
    "given",
    [
        [order(take="source"), order(take="target")],
        [order(take="source"), order(value="x", target="main")],
        [order(take="source", base="a"), order(take="target", source="dev")],
        [{"table": ORDERS, "column": "v", "take": "source"}, {"table": ORDERS, "column": "v", "take": "target"}],
        [{"table": ORDERS, "take": "source"}, {"table": ORDERS, "take": "target"}],
    ],
)
def test_two_resolutions_of_one_conflict_are_refused(parted: ab.Repository, given: Any) -> None:
    with nothing_changes(parted), pytest.raises(InvalidInputError, match="decide the same conflict") as caught:
        parted.merge("dev", resolutions=given)
    assert all(repr(one) in str(caught.value) for one in given)


def test_two_resolutions_by_the_names_of_before_and_after_a_rename_are_refused(renamed: ab.Repository) -> None:
    given = [
        {"table": ORDERS, "key": {"id": 1}, "column": "v", "take": "source"},
        {"table": ORDERS, "key": {"number": 1}, "column": "word", "take": "target"},
    ]
    with nothing_changes(renamed), pytest.raises(InvalidInputError, match="decide the same conflict"):
        renamed.merge("dev", resolutions=given, strategy="target")


def test_resolver_that_is_given_twice_is_refused(parted: ab.Repository) -> None:
    with pytest.raises(InvalidInputError, match="two resolvers"):
        parted.merge("dev", resolvers={ORDERS: {"v": "max"}, f"{ORDERS}.v": "min"})


def test_equal_resolutions_may_be_repeated(parted: ab.Repository) -> None:
    parted.merge("dev", resolutions=[order(take="source"), order(take="source")])
    assert {row["id"]: row["v"] for row in parted.table(ORDERS).to_arrow().to_pylist()}[1] == "dev"
