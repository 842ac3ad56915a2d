"""Resolvers decide on conflicts, by column, table or both. Conflicts that they do not decide are left."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, MergeConflictError
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind
from tests.repo.conftest import nothing_changes

T, U = "s.t", "s.u"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int64()),
        ("small", pa.int8()),
        ("price", pa.decimal128(9, 2)),
        ("share", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", tz="UTC")),
        ("flag", pa.bool_()),
    ]
)
EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
BASE = {
    "n": 10,
    "small": 100,
    "price": Decimal("10.00"),
    "share": 1.0,
    "text": "b",
    "raw": b"b",
    "tags": ["b"],
    "at": datetime(2025, 1, 1, tzinfo=UTC),
    "flag": None,
}
SOURCE = {
    "n": 13,
    "small": 120,
    "price": Decimal("9.50"),
    "share": 2.5,
    "text": "s",
    "raw": b"s",
    "tags": ["s"],
    "at": LATE,
    "flag": True,
}
TARGET = {
    "n": 15,
    "small": 110,
    "price": Decimal("11.25"),
    "share": 0.5,
    "text": "t",
    "raw": b"t",
    "tags": ["t", "u"],
    "at": EARLY,
    "flag": False,
}


def begin(
    repo: ab.Repository, base: Mapping[str, Any] = BASE, source: Mapping[str, Any] = SOURCE, target: Any = TARGET
) -> None:
    """Two tables with row 1, which both sides changed in every column, and row 2, which neither did."""
    with repo.transaction() as tx:
        for key in (T, U):
            tx.create_table(key, SCHEMA, primary_key=["id"])
            tx.append(key, to_table({"id": 1, **base}, {"id": 2, **base}))
    repo.branch_create("dev")
    for branch, row in (("dev", source), ("main", target)):
        with repo.transaction(branch) as tx:
            for key in (T, U):
                tx.upsert(key, to_table({"id": 1, **row}))


def to_table(*rows: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=SCHEMA)


def row(repo: ab.Repository, key: str = T, number: int = 1, *, branch: str = "main") -> dict[str, Any]:
    (found,) = repo.snapshot_of(branch)[key].to_arrow(where=f"id = {number}").to_pylist()
    del found["id"]
    return dict(found)


BY_RESOLVER: dict[str, dict[str, Any]] = {
    "source": SOURCE,
    "target": TARGET,
    "max": {"n": 15, "small": 120, "price": Decimal("11.25"), "share": 2.5, "text": "t", "at": LATE, "flag": True},
    "min": {"n": 13, "small": 110, "price": Decimal("9.50"), "share": 0.5, "text": "s", "at": EARLY, "flag": False},
    "sum_delta": {"n": 18, "price": Decimal("10.75"), "share": 2.0},
    "concat": {"text": "ts", "raw": b"ts", "tags": ["t", "u", "s"]},
    "latest_by(at)": SOURCE,
    "latest_by(n)": TARGET,
    "latest_by(text)": TARGET,
}


def test_each_resolver_decides_on_the_columns_it_fits(repo: ab.Repository) -> None:
    begin(repo)
    for number, (resolver, expected) in enumerate(BY_RESOLVER.items()):
        into = f"into-{number}"
        repo.branch_create_from("main", into)
        repo.merge("dev", into=into, resolvers=dict.fromkeys(expected, resolver), strategy="target")
        assert row(repo, T, branch=into) == row(repo, U, branch=into) == {**TARGET, **expected}, resolver
        assert row(repo, T, 2, branch=into) == BASE


def test_resolvers_are_found_by_table_and_column_before_either_of_them(repo: ab.Repository) -> None:
    begin(repo)
    repo.merge(
        "dev",
        resolvers={T: "source", "n": "max", f"{T}.n": "min", U: {"text": "concat", "price": "sum_delta"}},
        strategy="target",
    )
    assert row(repo, T) == {**SOURCE, "n": 13}
    assert row(repo, U) == {**TARGET, "n": 15, "text": "ts", "price": Decimal("10.75")}


def test_a_function_is_given_the_conflict_and_gives_the_value(repo: ab.Repository) -> None:
    begin(repo)
    seen: list[Conflict] = []

    def decide(conflict: Conflict) -> Any:
        seen.append(conflict)
        return conflict.base

    repo.merge("dev", resolvers={f"{T}.price": decide, f"{T}.tags": lambda _: ["new"]}, strategy="source")
    assert row(repo) == {**SOURCE, "price": BASE["price"], "tags": ["new"]}
    (conflict,) = seen
    assert (conflict.table, conflict.kind, conflict.key, conflict.column) == (
        T,
        ConflictKind.DIVERGENT_UPDATE,
        {"id": 1},
        "price",
    )
    assert (conflict.base, conflict.source, conflict.target) == (BASE["price"], SOURCE["price"], TARGET["price"])


def test_conflicts_that_no_resolver_decides_are_reported_and_nothing_changes(repo: ab.Repository) -> None:
    begin(repo)
    resolvers: dict[str, Any] = {
        U: "source",
        **dict.fromkeys(SOURCE, "target"),
        f"{T}.n": lambda _: NotImplemented,
        f"{T}.tags": lambda conflict: NotImplemented if conflict.source == ["s"] else None,
    }
    left = list(repo.conflicts("dev", resolvers=resolvers))
    assert [(found.table, found.column, found.source, found.target) for found in left] == [
        (T, "n", 13, 15),
        (T, "tags", ["s"], ["t", "u"]),
    ]
    with nothing_changes(repo), pytest.raises(MergeConflictError) as caught:
        repo.merge("dev", resolvers=resolvers)
    assert caught.value.conflicts == tuple(left)
    assert row(repo) == TARGET


def test_some_of_many_rows_can_be_left_open(repo: ab.Repository) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    with repo.transaction() as tx:
        tx.create_table(T, schema, primary_key=["id"])
        tx.append(T, pa.table([range(10), [0] * 10], schema=schema))
    repo.branch_create("dev")
    for branch, value in (("dev", "id + 100"), ("main", "id + 200")):
        with repo.transaction(branch) as tx:
            tx.update(T, {"n": value}, where="true")

    def even(conflict: Conflict) -> Any:
        assert conflict.key is not None
        return 1 if conflict.key["id"] % 2 == 0 else NotImplemented

    left = list(repo.conflicts("dev", resolvers={"n": even}))
    assert sorted((found.key or {})["id"] for found in left) == [1, 3, 5, 7, 9]
    assert all(found.source == (found.key or {})["id"] + 100 for found in left)
    repo.merge("dev", resolvers={"n": lambda conflict: conflict.source + conflict.target})
    assert sorted(repo.snapshot()[T].to_arrow()["n"].to_pylist()) == [300 + 2 * number for number in range(10)]


def test_nulls_lose_against_values_and_count_as_nothing(repo: ab.Repository) -> None:
    nothing = dict.fromkeys(BASE)
    begin(repo, base=BASE, source=nothing, target=TARGET)
    repo.merge(
        "dev",
        resolvers={
            "n": "max",
            "small": "min",
            "price": "sum_delta",
            "text": "concat",
            "tags": "concat",
            "share": "latest_by(at)",
            "raw": "concat",
            "at": "target",
            "flag": lambda conflict: conflict.source,
        },
    )
    assert row(repo) == {**TARGET, "price": Decimal("1.25"), "flag": False}


def test_a_function_may_give_null(repo: ab.Repository) -> None:
    begin(repo)
    repo.merge("dev", resolvers={T: {"n": lambda _: None}}, strategy="target")
    assert row(repo) == {**TARGET, "n": None}


MISFITS: list[tuple[str, Any, str]] = [
    ("small", "sum_delta", "small.*int8"),  # 100 + 20 + 10 is more than 127
    ("text", "sum_delta", "sum_delta.*text"),
    ("flag", "sum_delta", "sum_delta.*flag"),
    ("n", "concat", "concat.*'n'"),
    ("tags", "max", "max.*tags"),
    ("n", "latest_by(nowhere)", "nowhere"),
    ("n", "latest_by(tags)", "tags"),
    ("n", lambda _: "text", "'n'"),
    ("small", lambda _: 1000, "'small'"),
    ("price", lambda _: Decimal("1.234"), "'price'"),
    ("tags", lambda _: 3, "'tags'"),
]


def test_a_resolver_that_does_not_fit_a_column_raises_an_error(repo: ab.Repository) -> None:
    begin(repo)
    with nothing_changes(repo):
        for column, resolver, reason in MISFITS:
            with pytest.raises(InvalidInputError, match=reason):
                repo.merge("dev", resolvers={f"{T}.{column}": resolver}, strategy="source")
    with pytest.raises(InvalidInputError, match=r"small.*int8"):
        list(repo.conflicts("dev", resolvers={"small": "sum_delta"}))


def test_sum_may_exceed_its_type_before_the_final_result(repo: ab.Repository) -> None:
    kinds = {"i": pa.int64(), "u": pa.uint64(), "d": pa.decimal128(38, 2)}
    values = {"i": (2**63 - 1, 5, 2**63 - 2), "u": (5, 2, 4), "d": (Decimal(10) ** 35, Decimal(3), Decimal(10) ** 35)}
    schema = pa.schema([("id", pa.int64()), *kinds.items()])
    for number, branch in enumerate(("main", "dev", "main")):
        with repo.transaction(branch) as tx:
            if number == 0:
                tx.create_table(T, schema, primary_key=["id"])
            tx.upsert(T, pa.Table.from_pylist([{"id": 1, **{k: v[number] for k, v in values.items()}}], schema=schema))
        if number == 0:
            repo.branch_create("dev")
    repo.merge("dev", resolvers=dict.fromkeys(kinds, "sum_delta"))
    assert repo.snapshot()[T].to_arrow().to_pylist() == [{"id": 1, "i": 4, "u": 1, "d": Decimal(3)}]


def test_error_of_a_resolver_function_is_raised_unchanged(repo: ab.Repository) -> None:
    begin(repo)

    def fail(_: Conflict) -> Any:
        raise ZeroDivisionError("mine")

    with nothing_changes(repo), pytest.raises(ZeroDivisionError, match="mine"):
        repo.merge("dev", resolvers={"n": fail}, strategy="source")


NO_RESOLVERS: list[Any] = [
    {"n": "biggest"},
    {"n": ""},
    {"n": None},
    {"n": 3},
    {"n": "latest_by()"},
    {"": "max"},
    {3: "max"},
    {T: "max"},
    {T: "sum_delta"},
    {T: {"n": "biggest"}},
    {T: {"": "max"}},
    {T: {3: "max"}},
    ["n"],
    "max",
    3,
]


def test_unknown_resolvers_and_strategies_are_refused(repo: ab.Repository) -> None:
    begin(repo)
    for resolvers in NO_RESOLVERS:
        with pytest.raises(InvalidInputError):
            repo.merge("dev", resolvers=resolvers, strategy="source")
    for strategy in ("", "ours", "SOURCE-WINS", None, 3):
        with pytest.raises(InvalidInputError, match="strategy"):
            repo.merge("dev", strategy=strategy)  # type: ignore[arg-type]


# Rows that one side deleted


def deleted(repo: ab.Repository) -> None:
    """Row 1 is deleted on dev and changed on main, row 2 the other way round."""
    with repo.transaction() as tx:
        tx.create_table(T, SCHEMA, primary_key=["id"])
        tx.append(T, to_table(*({"id": number, **BASE} for number in (1, 2, 3))))
    repo.branch_create("dev")
    for branch, gone, changed, values in (("dev", 1, 2, SOURCE), ("main", 2, 1, TARGET)):
        with repo.transaction(branch) as tx:
            tx.delete(T, f"id = {gone}")
            tx.upsert(T, to_table({"id": changed, **values}))


def test_a_side_decides_on_deleted_rows_of_a_table(repo: ab.Repository) -> None:
    deleted(repo)
    for side, there in (("source", {2: SOURCE, 3: BASE}), ("target", {1: TARGET, 3: BASE})):
        repo.branch_create_from("main", side)
        repo.merge("dev", into=side, resolvers={T: side})
        assert sorted(repo.snapshot_of(side)[T].to_arrow()["id"].to_pylist()) == sorted(there)
        for number, expected in there.items():
            assert row(repo, T, number, branch=side) == expected


def test_a_function_decides_on_deleted_rows(repo: ab.Repository) -> None:
    deleted(repo)

    def keep(conflict: Conflict) -> Any:
        assert conflict.kind is ConflictKind.DELETE_VS_UPDATE
        assert conflict.column is None
        return {**(conflict.source or conflict.target), "text": "kept"}

    planned = repo.merge("dev", resolvers={T: keep}, dry_run=True).plan
    assert repo.merge("dev", resolvers={T: keep}).plan == planned
    assert row(repo, T, 1) == {**TARGET, "text": "kept"}
    assert row(repo, T, 2) == {**SOURCE, "text": "kept"}
    assert repo.snapshot()[T].count_rows() == 3


def test_a_function_may_delete_rows_or_leave_them_open(repo: ab.Repository) -> None:
    deleted(repo)
    left = list(repo.conflicts("dev", resolvers={T: lambda found: None if found.source else NotImplemented}))
    assert [found.key for found in left] == [{"id": 1}]
    repo.merge("dev", resolvers={T: lambda _: None})
    assert repo.snapshot()[T].to_arrow()["id"].to_pylist() == [3]


def test_a_function_that_gives_no_row_gets_an_error(repo: ab.Repository) -> None:
    deleted(repo)
    with nothing_changes(repo):
        for answer in ("text", 3, {}, {"nowhere": 1}, {"id": 1, "n": "text"}, {"id": None}, {"id": 3}, {"n": 1}):
            with pytest.raises(InvalidInputError, match=T):
                repo.merge("dev", resolvers={T: lambda _: answer})  # noqa: B023 - it is called at once


def test_columns_do_not_decide_on_deleted_rows(repo: ab.Repository) -> None:
    deleted(repo)
    left = list(repo.conflicts("dev", resolvers=dict.fromkeys(SOURCE, "max")))
    assert sorted((found.key or {})["id"] for found in left) == [1, 2]
