"""Merge cells that both sides changed by path: structs field by field, JSON objects member by member."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.format.compare.matching import Mask, differ
from anabranch.repo.merge.cell_resolvers import Cells, Decide, choose, decide_on_each, put_at

_JSON = "arrow.json"


def has_paths(kind: pa.DataType) -> bool:
    """Return whether values of a type are merged by path."""
    return pa.types.is_struct(kind) or _is_json(kind)


def _is_json(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == _JSON


def field_paths(field: pa.Field, parent: str = "") -> Iterator[str]:
    """Yield the name of a column and the paths of its fields. The members of JSON, which are unknown, are `name.*`."""
    name = f"{parent}{field.name}"
    yield name
    if _is_json(field.type):
        yield f"{name}.*"
    elif pa.types.is_struct(field.type):
        for child in field.type:
            yield from field_paths(child, f"{name}.")


def merge_by_path(cells: Cells, decide: Decide) -> tuple[pa.Array, Mask]:
    """Merge cells. `decide` is called for changes of both sides at the same path.

    Cells that are null on a side, or are not JSON objects there, are decided on as a whole. So are those of rows that
    both sides inserted.
    """
    if pa.types.is_struct(cells.target.type):
        masks = [array.is_valid().to_numpy(zero_copy_only=False) for array in cells.sides]
        merge = _merge_structs
    elif _is_json(cells.target.type):
        masks = [[isinstance(_parse(text), dict) for text in array.to_pylist()] for array in cells.sides]
        merge = _merge_json
    else:
        return decide(cells)
    have_parts = np.asarray(np.logical_and.reduce(masks), dtype=bool)
    return decide_on_each(cells, have_parts, partial(merge, decide=decide), decide)


# Structs


def _merge_structs(cells: Cells, decide: Decide) -> tuple[pa.Array, Mask]:
    are_resolved = np.ones(len(cells), dtype=bool)
    children = []
    for field in cells.target.type:
        base, source, target = (pc.struct_field(array, [field.name]) for array in cells.sides)
        by_source, by_target = differ(base, source), differ(base, target)
        is_clash = by_source & by_target & differ(source, target)
        values = choose(target, source, by_source & ~by_target)
        if is_clash.any():
            path = field.name if cells.path is None else f"{cells.path}.{field.name}"
            child = replace(cells, base=base, source=source, target=target, path=path).filter(is_clash)
            decided, resolved = merge_by_path(child, decide)
            values = put_at(values, np.flatnonzero(is_clash), decided)
            are_resolved[np.flatnonzero(is_clash)[~resolved]] = False
        children.append(values)
    return pa.StructArray.from_arrays(children, fields=list(cells.target.type)), are_resolved


# JSON


# Marks a member that an object does not have, which is not the same as null.
_MISSING = object()
# The path of a clash, and the values of the base, the source and the target.
_Clash = tuple[tuple[str, ...], tuple[Any, Any, Any]]


def _merge_json(cells: Cells, decide: Decide) -> tuple[pa.Array, Mask]:
    sides = [[_parse(text) for text in array.to_pylist()] for array in cells.sides]
    merged: list[dict[str, Any]] = []
    clashes: dict[tuple[str, ...], dict[int, tuple[Any, Any, Any]]] = {}
    for row, (base, source, target) in enumerate(zip(*sides, strict=True)):
        found: list[_Clash] = []
        merged.append(_merge_objects(base, source, target, (), found))
        for path, values in found:
            # By path, so that a resolver gets all values of one field in one call.
            clashes.setdefault(path, {})[row] = values
    are_resolved = np.ones(len(cells), dtype=bool)
    for path, by_row in clashes.items():
        rows = np.array(list(by_row))
        decided, resolved = decide(_leaf(cells, path, by_row))
        are_resolved[rows[~resolved]] = False
        for row, text in zip(rows.tolist(), decided.to_pylist(), strict=True):
            _put(merged[row], path, _MISSING if text is None else _parse(text))
    return pa.array([_dumps(value) for value in merged], cells.target.type), are_resolved


def _leaf(cells: Cells, path: tuple[str, ...], by_row: Mapping[int, tuple[Any, Any, Any]]) -> Cells:
    mask = np.zeros(len(cells), dtype=bool)
    mask[list(by_row)] = True
    base, source, target = (
        pa.array([None if value is _MISSING else _dumps(value) for value in values], cells.target.type)
        for values in zip(*by_row.values(), strict=True)
    )
    # A dot in a name would read as two steps of the path.
    names = [json.dumps(name, ensure_ascii=False) if "." in name else name for name in path]
    return replace(cells.filter(mask), base=base, source=source, target=target, path=".".join(names))


def _merge_objects(
    base: dict[str, Any], source: dict[str, Any], target: dict[str, Any], path: tuple[str, ...], clashes: list[_Clash]
) -> dict[str, Any]:
    """Merge three objects, and add what both sides changed differently to `clashes`."""
    result = dict(target)
    for name in {**base, **source, **target}:
        before, ours, theirs = (side.get(name, _MISSING) for side in (base, source, target))
        if _is_same(ours, before) or _is_same(ours, theirs):
            continue
        if _is_same(theirs, before):
            _put(result, (name,), ours)
        elif isinstance(before, dict) and isinstance(ours, dict) and isinstance(theirs, dict):
            result[name] = _merge_objects(before, ours, theirs, (*path, name), clashes)
        else:
            clashes.append(((*path, name), (before, ours, theirs)))
    return result


def _put(value: dict[str, Any], path: tuple[str, ...], member: Any) -> None:
    *parents, name = path
    for parent in parents:
        value = value[parent]
    if member is _MISSING:
        value.pop(name, None)
    else:
        value[name] = member


def _parse(text: str | None) -> Any:
    # Decimals, because a float cannot represent every number of JSON.
    return None if text is None else json.loads(text, parse_float=Decimal)


def _dumps(value: Any) -> str:
    """Return JSON in the form of Lance: without spaces, members by name."""
    match value:
        case dict():
            members = (f"{json.dumps(name, ensure_ascii=False)}:{_dumps(value[name])}" for name in sorted(value))
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(map(_dumps, value))}]"
        # In the digits that it was parsed from. A float would round long numbers.
        case Decimal():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _is_same(one: Any, other: Any) -> bool:
    if one is _MISSING or other is _MISSING:
        return one is other
    return _dumps(one) == _dumps(other)  # In Python true equals 1.
