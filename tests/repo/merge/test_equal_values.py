"""Values that are equal although their bytes differ: diffs and merges agree on them."""

import struct
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab

FLOATS = "in.floats"
NAN = float("nan")
# A NaN with other bits than the usual one.
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
POINT = pa.struct([("x", pa.float64())])


@pytest.fixture
def floats(repo: ab.Repository) -> ab.Repository:
    schema = pa.schema([("id", pa.int64()), ("f", pa.float64()), ("l", pa.list_(pa.float64())), ("s", POINT)])
    with repo.transaction() as tx:
        tx.create_table(FLOATS, schema, primary_key=["id"])
        tx.append(FLOATS, [row(1, 0.0), row(2, NAN)])
    repo.branch_create("dev")
    return repo


def row(number: int, value: float) -> dict[str, Any]:
    return {"id": number, "f": value, "l": [value], "s": {"x": value}}


@pytest.mark.both_engines(spark_is_slow=True)
def test_change_between_equal_floats_is_not_a_change(floats: ab.Repository) -> None:
    floats.upsert(FLOATS, [row(1, -0.0), row(2, OTHER_NAN)], branch="dev")
    assert floats.diff("main", "dev").summary() == {}
    floats.upsert(FLOATS, [row(1, 5.0), row(2, 6.0)])
    plan = floats.merge("dev").plan
    assert plan.is_clean
    assert sorted(floats.table(FLOATS).to_arrow().column("f").to_pylist()) == [5.0, 6.0]


def test_both_sides_with_equal_floats_do_not_conflict(floats: ab.Repository) -> None:
    floats.upsert(FLOATS, [row(1, NAN), row(2, -0.0)], branch="dev")
    floats.upsert(FLOATS, [row(1, OTHER_NAN), row(2, 0.0)])
    assert list(floats.conflicts("dev")) == []
    assert sum(table.counts.total for table in floats.merge("dev").plan.tables) == 0


def test_delete_is_not_in_conflict_with_an_equal_float(floats: ab.Repository) -> None:
    floats.delete(FLOATS, "true", branch="dev")
    floats.upsert(FLOATS, [row(1, -0.0), row(2, OTHER_NAN)])
    floats.merge("dev")
    assert len(floats.table(FLOATS)) == 0


def test_resolver_that_returns_an_equal_float_changes_nothing(floats: ab.Repository) -> None:
    floats.upsert(FLOATS, [{**row(1, 0.0), "f": 1.0}], branch="dev")
    floats.upsert(FLOATS, [{**row(1, 0.0), "f": NAN}])
    plan = floats.merge("dev", resolvers={"f": lambda _: OTHER_NAN}).plan
    assert plan.tables[0].counts.updated == 0
