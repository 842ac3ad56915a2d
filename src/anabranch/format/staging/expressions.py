"""SQL expressions of users, checked before anything is done with them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import lance
import pyarrow as pa

from anabranch.errors import InvalidExpressionError

__all__ = ["check_predicate", "computed_types", "enclosed", "expression_errors", "quoted_column"]

# How Lance tells that computing failed, as opposed to reading.
_COMPUTING = re.compile(r"Arrow error|LanceError\(Arrow\)|Cast error|Divide by zero|Overflow", re.IGNORECASE)


def enclosed(expression: str) -> str:
    """The expression as one operand.

    Lance puts it behind `SELECT 1 FROM t WHERE` and ignores what else it finds there: without the parentheses
    `id > 5 LIMIT 1` would delete every row above 5.
    """
    return f"({expression}\n)"


def quoted_column(name: str) -> str:
    """A column's name as an expression."""
    if "`" in name:
        raise InvalidExpressionError(
            f"column {name!r} has a backtick in its name, which SQL cannot say", hint="rename the column first"
        )
    return f"`{name}`"


def check_predicate(dataset: lance.LanceDataset, predicate: str) -> None:
    """Refuse a predicate that Lance cannot plan on this version."""
    with expression_errors(predicate):
        # The bare text too: unbalanced parentheses could pair with ours.
        for text in (predicate, enclosed(predicate)):
            dataset.scanner(columns=[], with_row_address=True, filter=text).explain_plan()


def computed_types(dataset: lance.LanceDataset, expressions: Mapping[str, str]) -> pa.Schema:
    """The types that expressions give, each under its column's name; refuse those that Lance cannot plan."""
    fields = []
    for name, expression in expressions.items():
        with expression_errors(expression):
            for text in (expression, enclosed(expression)):
                planned = dataset.scanner(columns={name: text}).projected_schema
        fields.append(planned.field(name))
    return pa.schema(fields)


@contextmanager
def expression_errors(*expressions: str) -> Iterator[None]:
    """Raise what Lance finds wrong with expressions as an error that quotes them."""
    said = ", ".join(map(repr, expressions))
    try:
        yield
    except ValueError as err:
        text = " ".join(re.sub(r",? ?/[^ ,]*/rust/[^ ,]*\.rs:\d+:\d+", "", str(err)).split())[:300]
        if isinstance(err, pa.ArrowInvalid) and not _COMPUTING.search(text):
            raise
        raise InvalidExpressionError(f"expression {said} does not work: {text}", hint="correct it") from None
