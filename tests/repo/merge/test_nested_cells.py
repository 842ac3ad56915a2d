"""Structs and JSON objects that both sides changed: they are merged field by field."""

from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, MergeConflictError
from anabranch.json_values import json_value

HOMES = "in.homes"
POINT = pa.struct([("x", pa.float64()), ("y", pa.float64())])
HOME = pa.struct([("street", pa.string()), ("number", pa.int64()), ("at", POINT)])
OLD = {"street": "Elm", "number": 1, "at": {"x": 0.0, "y": 0.0}}


@pytest.fixture
def homes(repo: ab.Repository) -> ab.Repository:
    with repo.transaction() as tx:
        tx.create_table(HOMES, pa.schema([("id", pa.int64()), ("home", HOME), ("doc", pa.json_())]), primary_key=["id"])
        tx.append(HOMES, [{"id": number, "home": OLD, "doc": '{"a":1,"b":{"c":1,"d":[1,2]}}'} for number in (1, 2)])
    repo.branch_create("dev")
    return repo


def put(repo: ab.Repository, branch: str, number: int = 1, **values: Any) -> None:
    row = next(row for row in repo.table(HOMES, ref=branch).to_arrow().to_pylist() if row["id"] == number)
    repo.upsert(HOMES, [{**row, **values}], branch=branch)


def get(repo: ab.Repository, number: int = 1) -> dict[str, Any]:
    return next(row for row in repo.table(HOMES).to_arrow().to_pylist() if row["id"] == number)


def home(**values: Any) -> dict[str, Any]:
    return {**OLD, **values}


def at(**values: float) -> dict[str, Any]:
    return home(at={"x": 0.0, "y": 0.0, **values})


def test_different_fields_of_a_struct_merge(homes: ab.Repository) -> None:
    put(homes, "dev", home=home(street="Oak", at={"x": 1.0, "y": 0.0}))
    put(homes, "main", home=home(number=7, at={"x": 0.0, "y": 2.0}))
    assert list(homes.conflicts("dev")) == []
    homes.merge("dev")
    assert get(homes)["home"] == {"street": "Oak", "number": 7, "at": {"x": 1.0, "y": 2.0}}
    assert get(homes, 2)["home"] == OLD


def test_same_change_of_a_field_merges(homes: ab.Repository) -> None:
    put(homes, "dev", home=home(street="Oak", number=2))
    put(homes, "main", home=home(street="Oak", at=None))
    homes.merge("dev")
    assert get(homes)["home"] == {"street": "Oak", "number": 2, "at": None}


def test_conflict_names_the_path_of_the_field(homes: ab.Repository) -> None:
    put(homes, "dev", home=home(street="Oak", at={"x": 1.0, "y": 5.0}))
    put(homes, "main", home=home(number=7, at={"x": 2.0, "y": 0.0}))
    (found,) = homes.conflicts("dev")
    assert (found.column, found.path, found.base, found.source, found.target) == ("home", "at.x", 0.0, 1.0, 2.0)
    with pytest.raises(MergeConflictError, match="1 conflict"):
        homes.merge("dev")
    homes.merge("dev", strategy="source")
    assert get(homes)["home"] == {"street": "Oak", "number": 7, "at": {"x": 1.0, "y": 5.0}}


def test_every_path_of_a_cell_is_a_conflict_of_its_own(homes: ab.Repository) -> None:
    put(homes, "dev", home=home(street="Oak", at={"x": 1.0, "y": 0.0}))
    put(homes, "main", home=home(street="Ash", at={"x": 2.0, "y": 0.0}))
    plan = homes.merge("dev", dry_run=True).plan
    assert plan.conflict_count == 2
    assert [one.path for one in plan.conflicts] == ["street", "at.x"]


@pytest.mark.parametrize(
    ("source", "target"), [(None, home(number=7)), (home(number=7), None), (home(at=None), at(x=1.0))]
)
def test_struct_that_became_null_conflicts_as_a_whole(homes: ab.Repository, source: Any, target: Any) -> None:
    put(homes, "dev", home=source)
    put(homes, "main", home=target)
    (found,) = homes.conflicts("dev")
    inside = source is not None and target is not None
    assert found.path == ("at" if inside else None)
    assert (found.source, found.target) == ((source["at"], target["at"]) if inside else (source, target))


def test_structs_of_inserted_rows_conflict_as_a_whole(homes: ab.Repository) -> None:
    for branch, street in (("dev", "Oak"), ("main", "Ash")):
        homes.append(HOMES, [{"id": 9, "home": home(street=street), "doc": "{}"}], branch=branch)
    (found,) = homes.conflicts("dev")
    assert (found.kind, found.column, found.path) == ("divergent_insert", "home", None)


def test_resolutions_decide_a_path_or_the_whole_cell(homes: ab.Repository) -> None:
    for number in (1, 2):
        put(homes, "dev", number, home=home(street="Oak", number=2))
        put(homes, "main", number, home=home(street="Ash", number=3, at=None))
    names = ("table", "kind", "key", "column", "path", "base", "source", "target", "problem")
    printed = [{name: json_value(getattr(one, name)) for name in names} for one in homes.conflicts("dev")]
    assert len(printed) == 4
    first = [{**one, "value": "Elm/Oak" if one["path"] == "street" else 9} for one in printed if one["key"]["id"] == 1]
    second = {"table": HOMES, "key": {"id": 2}, "column": "home", "value": {"street": "None", "at": {"x": 1}}}
    homes.merge("dev", resolutions=[*first, second])
    assert get(homes)["home"] == {"street": "Elm/Oak", "number": 9, "at": None}
    assert get(homes, 2)["home"] == {"street": "None", "number": None, "at": {"x": 1.0, "y": None}}


def test_resolvers_decide_the_field(homes: ab.Repository) -> None:
    put(homes, "dev", home=home(street="Oak", number=5, at={"x": 1.0, "y": 3.0}))
    put(homes, "main", home=home(street="Ash", number=7, at={"x": 2.0, "y": 1.0}))
    seen: list[tuple[str | None, Any]] = []

    def join(conflict: Any) -> Any:
        seen.append((conflict.path, conflict.source))
        return f"{conflict.target}/{conflict.source}"

    resolvers: dict[str, Any] = {"home.number": "sum_delta", f"{HOMES}.home.at": "max", "home": join}
    homes.merge("dev", resolvers=resolvers)
    assert get(homes)["home"] == {"street": "Ash/Oak", "number": 11, "at": {"x": 2.0, "y": 3.0}}
    assert seen == [("street", "Oak")]


def test_resolver_of_an_unknown_field_is_refused(homes: ab.Repository) -> None:
    put(homes, "dev", home=home(street="Oak"))
    with pytest.raises(InvalidInputError, match=r"did you mean 'home\.street'"):
        homes.merge("dev", resolvers={"home.stret": "max"})


# JSON


def test_different_members_of_a_json_object_merge(homes: ab.Repository) -> None:
    put(homes, "dev", doc='{"a": 2, "b": {"c": 1, "d": [1, 2], "e": null}}')
    put(homes, "main", doc='{"b": {"c": 5, "d": [1, 2]}, "a": 1, "z": 0.1}')
    homes.merge("dev")
    assert get(homes)["doc"] == '{"a":2,"b":{"c":5,"d":[1,2],"e":null},"z":0.1}'


def test_removed_member_of_a_json_object_merges(homes: ab.Repository) -> None:
    put(homes, "dev", doc='{"b": {"d": [1, 2]}}')
    put(homes, "main", doc='{"a": 1, "b": {"c": 1, "d": [2]}}')
    homes.merge("dev")
    assert get(homes)["doc"] == '{"b":{"d":[2]}}'


def test_conflict_in_json_names_the_path_and_arrays_are_one_value(homes: ab.Repository) -> None:
    put(homes, "dev", doc='{"a": 1, "b": {"c": 3, "d": [1, 2, 3]}}')
    put(homes, "main", doc='{"a": 1, "b": {"d": [0, 1, 2]}}')
    found = {one.path: (one.base, one.source, one.target) for one in homes.conflicts("dev")}
    assert found == {"b.c": ("1", "3", None), "b.d": ("[1,2]", "[1,2,3]", "[0,1,2]")}
    given: list[dict[str, Any]] = [
        {"table": HOMES, "key": {"id": 1}, "column": "doc", "path": "b.c", "take": "target"},
        {"table": HOMES, "key": {"id": 1}, "column": "doc", "path": "b.d", "value": [9]},
    ]
    homes.merge("dev", resolutions=given)
    assert get(homes)["doc"] == '{"a":1,"b":{"d":[9]}}'


def test_strategy_decides_members_of_json(homes: ab.Repository) -> None:
    put(homes, "dev", doc='{"a": 2, "b": {}}')
    put(homes, "main", doc='{"a": 3, "b": {"c": 1, "d": [1, 2]}, "z": true}')
    homes.merge("dev", strategy="source")
    assert get(homes)["doc"] == '{"a":2,"b":{},"z":true}'


@pytest.mark.parametrize("text", ["[1]", "7", "null", None])
def test_json_that_is_not_an_object_conflicts_as_a_whole(homes: ab.Repository, text: str | None) -> None:
    put(homes, "dev", doc=text)
    put(homes, "main", doc='{"a": 3}')
    (found,) = homes.conflicts("dev")
    assert (found.column, found.path, found.target) == ("doc", None, '{"a":3}')


def test_large_numbers_and_unicode_of_json_are_kept(homes: ab.Repository) -> None:
    put(homes, "dev", doc='{"a": 9007199254740993, "b": {"c": 1, "d": [1, 2]}}')
    put(homes, "main", doc='{"a": 1, "b": {"c": "é\\u0001\\"", "d": [1, 2]}}')
    homes.merge("dev")
    assert get(homes)["doc"] == '{"a":9007199254740993,"b":{"c":"é\\u0001\\"","d":[1,2]}}'


def test_nanoseconds_in_a_struct_are_a_change(repo: ab.Repository) -> None:
    """Python has no such times, so that the change of the source was lost without a conflict."""
    kind = pa.struct([("at", pa.time64("ns")), ("many", pa.list_(pa.time64("ns"))), ("n", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("s", kind)])

    def row(at: int, many: int, n: int) -> pa.Table:
        times = [pa.array([number], pa.int64()).cast(pa.time64("ns")) for number in (at, many)]
        lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), times[1])
        made = pa.StructArray.from_arrays([times[0], lists, pa.array([n], pa.int64())], fields=list(kind))
        return pa.table([[1], made], schema=schema)

    for name, old, source, target, merged in (
        ("s.t", (1, 1, 0), (2, 1, 0), (1, 1, 1), (2, 1, 1)),
        ("s.u", (1, 1, 0), (1, 2, 0), (1, 1, 1), (1, 2, 1)),
    ):
        with repo.transaction() as tx:
            tx.create_table(name, schema, primary_key=["id"])
            tx.append(name, row(*old))
        repo.branch_create(f"of-{name}")
        repo.upsert(name, row(*source), branch=f"of-{name}")
        repo.upsert(name, row(*target))
        repo.merge(f"of-{name}")
        assert repo[name].to_arrow().equals(row(*merged)), name
