"""From any schema to any other: the result has the desired schema, and kept columns keep their values."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.column_types import is_widening, to_arrow
from anabranch.repo.schema.desired import read_desired
from anabranch.repo.schema.state import SchemaState

# Each type can become each other one of its line, if the values are small.
LINES = (("int8", "int32", "int64", "float64", "decimal(20, 2)"), ("string", "large_string"))
DEFAULTS = ("7", "'x'")
NAMES = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.none() | st.sampled_from(["Eins", "two: 2", "# drei", "yes"])


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {"id": {"type": "int64"}}
    for name in draw(st.lists(NAMES, unique=True, max_size=3)):
        line = 0 if name in "ab" else 1  # a name keeps its line, so that every change of type is possible
        found[name] = {
            "type": draw(st.sampled_from(LINES[line])),
            "nullable": draw(st.booleans()),
            "default": DEFAULTS[line],
            "description": draw(TEXTS),
        }
    return found


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    found = draw(columns())
    return {
        "description": draw(TEXTS),
        "columns": found,
        "primary_key": draw(st.sampled_from([[], ["id"]])),
        "indices": draw(st.lists(st.sampled_from(list(found)), unique=True, max_size=2)),
    }


SCHEMAS = st.dictionaries(st.sampled_from(["t", "u"]), tables(), max_size=2).map(lambda found: {"tables": {"b": found}})


def fill(repo: ab.Repository) -> None:
    """Three rows for each table, with values that any type of their line can hold."""
    with repo.transaction() as tx:
        for key in tx.tables:
            schema = tx[key].schema
            values = {
                field.name: pa.array([1, 2, 3], pa.int64()) if _is_number(field.type) else pa.array(["k", "l", "m"])
                for field in schema
            }
            tx.append(key, pa.table(values), check_keys=False)


def _is_number(kind: pa.DataType) -> bool:
    return not (pa.types.is_string(kind) or pa.types.is_large_string(kind))


def shape(state: SchemaState) -> dict[str, Any]:
    """The content of a schema, in any order."""
    return {
        str(table.key): (
            {(column.name, column.summary, column.description) for column in table.columns},
            table.primary_key,
            {(index.column, index.kind) for index in table.indices},
            table.description,
        )
        for table in state.tables
    }


def content(repo: ab.Repository) -> dict[str, dict[str, list[Any]]]:
    return {key: table.to_arrow().sort_by("id").to_pydict() for key, table in repo.snapshot_of("main").items()}


@given(before=SCHEMAS, after=SCHEMAS, state=st.sampled_from(["empty", "filled"]))
def test_any_schema_can_follow_any_other(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, Any], after: dict[str, Any], state: str
) -> None:
    repo = ab.init(tmp_path_factory.mktemp("any") / "lake")
    repo.schema_apply(before)
    if state == "filled":
        fill(repo)
    old, old_state = content(repo), repo.schema_show()
    plan = repo.schema_plan(after)
    assert bool(plan.destructive) == loses(old_state, read_desired(after, storage_options={}))
    repo.schema_apply(after, allow_destructive=True)
    found = repo.schema_show()
    assert repo.schema_plan(after).is_empty
    assert repo.schema_plan(found.to_yaml()).is_empty
    assert shape(found) == shape(read_desired(after, storage_options={}))
    for key, table in content(repo).items():
        for name, values in table.items():
            if name in old.get(key, {}):
                assert values == old[key][name]
            elif old.get(key, {}).get("id"):
                assert values == [7] * 3 or values == ["x"] * 3


def loses(before: SchemaState, after: SchemaState) -> bool:
    """Whether a table, a column or some values of one do not fit into another schema."""
    for table in before.tables:
        kept = after.by_key.get(table.key)
        if kept is None:
            if "b" in after.buckets:
                return True
            continue
        for column in table.columns:
            new = kept.find_column(column.name)
            if new is None or not is_widening(to_arrow(column.type), to_arrow(new.type)):
                return True
    return False
