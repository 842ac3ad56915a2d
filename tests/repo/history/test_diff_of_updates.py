"""Diffs of many updated rows: columns that no update changed are read on one side only, with the same result."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.repo.history.diff import TableDiff

KEY = "s.items"
COUNT = 300
ROWS = [
    {
        "id": number,
        "a": number % 7,
        "b": f"text {number % 5}",
        "c": None if number % 3 else float(number),
        "d": [number],
    }
    for number in range(COUNT)
]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("c", pa.float64()), ("d", pa.list_(pa.int64()))]
)
UPDATES = [
    {"a": "a + 1"},
    {"b": "concat(b, '!')"},
    {"a": "a", "c": "coalesce(c, 0.5)"},
    {"c": "NULL"},
    {"d": "d", "b": "'x'"},
]
WHERE = ["true", "id % 2 = 0", "a < 6", "id < 150"]


def new_lake(path: Path) -> ab.Repository:
    lake = ab.init(path, actor="test", durability="none")
    with lake.transaction(message="first") as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        tx.append(KEY, pa.Table.from_pylist(ROWS[:200], SCHEMA))
        tx.append(KEY, pa.Table.from_pylist(ROWS[200:], SCHEMA))
    lake.branch_create("dev")
    return lake


def rows_of(lake: ab.Repository, ref: str) -> dict[Any, dict[str, Any]]:
    return {row["id"]: row for row in lake.table(KEY, ref).to_arrow().to_pylist()}


def changes_of(found: TableDiff) -> dict[Any, tuple[Any, ...]]:
    rows = found.to_arrow().to_pylist()
    changes = {(row["before"] or row["after"])["id"]: (row["before"], row["after"], row["columns"]) for row in rows}
    assert len(changes) == len(rows)
    return changes


def expected_changes(lake: ab.Repository) -> dict[Any, tuple[Any, ...]]:
    old, new = rows_of(lake, "main"), rows_of(lake, "dev")
    expected = {}
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before != after:
            columns = []
            if before is not None and after is not None:
                columns = [name for name in SCHEMA.names if before[name] != after[name]]
            expected[key] = before, after, columns
    return expected


def only_table(lake: ab.Repository) -> TableDiff:
    [found] = lake.diff("main", "dev").tables
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.sampled_from(UPDATES), st.sampled_from(WHERE)), min_size=1, max_size=3),
    with_upsert=st.booleans(),
)
def test_any_updates_give_the_same_rows_as_a_full_comparison(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[str, str], str]], *, with_upsert: bool
) -> None:
    lake = new_lake(tmp_path_factory.mktemp("lake") / "lake")
    for number, (assignments, where) in enumerate(steps):
        with lake.transaction("dev", message="update") as tx:
            tx.update(KEY, assignments, where=where)
            if with_upsert:
                tx.upsert(KEY, [{"id": key, "a": key * number} for key in range(0, COUNT, 2)])
    found = lake.diff("main", "dev").tables
    changes = changes_of(found[0]) if found else {}
    assert changes == expected_changes(lake)


def test_columns_that_no_update_changed_are_known(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    lake.update(KEY, {"a": "a + 1"}, "true", branch="dev")
    assert only_table(lake)._unchanged == {"id", "b", "c", "d"}
    lake.update(KEY, {"b": "'x'"}, "id < 5", branch="dev")
    assert only_table(lake)._unchanged == {"id", "c", "d"}
    lake.append(KEY, [{**ROWS[0], "id": 5000}], branch="dev")
    assert only_table(lake)._unchanged == frozenset()
    assert changes_of(only_table(lake)) == expected_changes(lake)


def test_repeated_keys_are_separate_rows(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    rows = [{**ROWS[3], "b": "other", "c": 0.5}]
    with lake.transaction(message="repeat a key") as tx:
        tx.append(KEY, pa.Table.from_pylist(rows, SCHEMA), check_keys=False)
    lake.branch_create("new")
    lake.update(KEY, {"a": "a + 1"}, "true", branch="new")
    [found] = lake.diff("main", "new").tables
    pairs = [
        (row["before"]["b"], row["after"]["b"]) for row in found.to_arrow().to_pylist() if row["before"]["id"] == 3
    ]
    assert sorted(pairs) == [(one, other) for one in ("other", "text 3") for other in ("other", "text 3")]
