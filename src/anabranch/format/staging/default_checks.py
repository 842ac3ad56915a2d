"""Checks of defaults before they are recorded, so that a bad default is refused before it fills a row."""

from collections.abc import Iterable, Mapping

import lance
import pyarrow as pa

from anabranch.errors import InvalidExpressionError, InvalidInputError, SchemaMismatchError
from anabranch.format.staging.defaults import DEFAULT, default_expression, find_constant
from anabranch.format.staging.expressions import computed_types
from anabranch.format.staging.incoming import cast_computed, require_computable

__all__ = ["check_defaults", "find_wrong_default"]


def check_defaults(schema: pa.Schema, columns: Iterable[str] | None = None) -> None:
    """Raise SchemaMismatchError if one of these columns (all by default) has a default that it cannot take."""
    found = {name: (schema.field(name).metadata or {}).get(DEFAULT.encode()) for name in columns or schema.names}
    wrong = find_wrong_default(schema, {name: noted.decode() for name, noted in found.items() if noted is not None})
    if wrong is not None:
        name, err = wrong
        raise SchemaMismatchError(f"the default of column {name!r} does not fit: {err.problem}", hint=err.hint) from err


def find_wrong_default(schema: pa.Schema, defaults: Mapping[str, str]) -> tuple[str, InvalidInputError] | None:
    """The first column whose default cannot be computed from these columns, or gives what the column cannot take."""
    if not defaults:
        return None
    # Lance plans over datasets only; this one is never written anywhere.
    dataset = lance.write_dataset(schema.empty_table(), "memory://defaults")
    # One plan for all is much faster on wide tables. They are planned one by one only if that fails, to find the wrong
    # one.
    known = _types_at_once(dataset, defaults)
    for name, expression in defaults.items():
        try:
            kind = (known or computed_types(dataset, {name: expression})).field(name).type
            _check(schema.field(name), expression, kind)
        except InvalidInputError as err:
            return name, err
    return None


def _types_at_once(dataset: lance.LanceDataset, defaults: Mapping[str, str]) -> pa.Schema | None:
    """The types of all expressions, if all of them can be planned."""
    try:
        return computed_types(dataset, defaults)
    except InvalidExpressionError:
        return None


def _check(field: pa.Field, expression: str, planned: pa.DataType) -> None:
    is_time = pa.types.is_timestamp(field.type)
    # Text and other times are brought into the column's own unit and zone; a number would be a moment of 1970.
    if is_time and (pa.types.is_integer(planned) or pa.types.is_floating(planned)):
        raise SchemaMismatchError(
            f"column {field.name!r} takes {field.type}, and the default is a number",
            hint="write it as a time, such as timestamp '2026-01-31 12:00:00'",
        )
    if not is_time:
        require_computable(planned, field)
    compute = find_constant(default_expression(expression, field.type))
    # The type may fit and the value not, such as 300 for int8. A constant is computed now, before it fails in an
    # append.
    if compute is not None:
        cast_computed(compute(1), field)
