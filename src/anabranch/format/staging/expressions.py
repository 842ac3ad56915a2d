"""SQL expressions of users, checked before anything is done with them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal

import lance
import pyarrow as pa

from anabranch.errors import InvalidExpressionError
from anabranch.format.dialect import complaint_in, find_unknown_column, hint_for, to_lance_dialect

__all__ = ["COMPUTING", "check_predicate", "computed_types", "enclosed", "expression_errors", "quoted_column"]

# How Lance reports that computing failed, as opposed to reading.
COMPUTING = re.compile(
    r"Arrow error|LanceError\(Arrow\)|Cast error|Divide by zero|Overflow|is not implemented"
    r"|applying filter expression|Execution error: Execution error: (?!.*(?:LanceError|object|IO))",
    re.IGNORECASE,
)

# Texts, quoted names and comments: parentheses and operators in them have no meaning.
_NOT_CODE = re.compile(r"'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)


# Lance overflows its stack, which ends the process, where some 700 such operations are on top of each other.
_MOST_ARITHMETIC = 400
# An operator between two operands. The minus of a negative number follows another operator and is not counted.
_ARITHMETIC = re.compile(r"(?<=[\w)\]])\s*[-+*/%|&^]")


def enclosed(expression: str) -> str:
    """Translate an expression of a user for Lance, as one operand in parentheses. Every one must pass through here.

    Refuse an expression that leaves the parentheses, or would end the process. Lance puts it behind
    `SELECT 1 FROM t WHERE` and ignores what else it finds there: without the parentheses `id > 5 LIMIT 1` would
    delete every row above 5.
    """
    if not isinstance(expression, str):
        is_number = isinstance(expression, int | float | Decimal) and not isinstance(expression, bool)
        example = str(expression) if is_number else "id = 1"
        raise InvalidExpressionError(
            f"expression {expression!r} is not text", hint=f"write SQL in a string, such as {example!r}"
        )
    _require_balanced(expression)
    if (found := len(_ARITHMETIC.findall(_NOT_CODE.sub("x", expression)))) > _MOST_ARITHMETIC:
        raise InvalidExpressionError(
            f"an expression has {found} arithmetic operations", hint=f"use at most {_MOST_ARITHMETIC}"
        )
    # The line break ends a trailing `--` comment, which would hide our closing parenthesis.
    return f"({to_lance_dialect(expression)}\n)"


def _require_balanced(expression: str) -> None:
    """Refuse a parenthesis closed before it was opened: Lance would stop reading there, or pair it with ours."""
    depth = 0
    for character in _NOT_CODE.sub(" ", expression):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            raise InvalidExpressionError(
                f"expression {expression!r} closes a parenthesis that it did not open", hint="remove it, or open it"
            )


def quoted_column(name: str) -> str:
    """A column's name as an expression."""
    if "`" in name:
        raise InvalidExpressionError(
            f"column {name!r} has a backtick in its name, which SQL cannot express", hint="rename the column first"
        )
    return f"`{name}`"


def check_predicate(dataset: lance.LanceDataset, predicate: str) -> None:
    """Refuse a predicate that Lance cannot plan on this version."""
    with expression_errors(dataset, predicate):
        dataset.scanner(columns=[], with_row_address=True, filter=enclosed(predicate)).explain_plan()


def computed_types(dataset: lance.LanceDataset, expressions: Mapping[str, str]) -> pa.Schema:
    """The types that expressions give, each under its column's name; refuse those that Lance cannot plan."""
    try:
        return _plan(dataset, expressions)  # all at once: planning takes long where there are many columns
    except InvalidExpressionError:
        # One by one, so that the error names the expression that fails.
        return pa.schema([_plan(dataset, {name: text}).field(name) for name, text in expressions.items()])


def _plan(dataset: lance.LanceDataset, expressions: Mapping[str, str]) -> pa.Schema:
    with expression_errors(dataset, *expressions.values()):
        columns = {name: enclosed(expression) for name, expression in expressions.items()}
        # Lance does not scan for constants alone, so the row ids are asked for, too.
        planned = dataset.scanner(columns=columns, with_row_id=True).projected_schema
    return pa.schema([planned.field(name) for name in expressions])


@contextmanager
def expression_errors(dataset: lance.LanceDataset, *expressions: str) -> Iterator[None]:
    """Raise what Lance finds wrong with expressions as an error that quotes them."""
    said = ", ".join(map(repr, expressions))
    try:
        yield
    except (ValueError, RuntimeError) as err:
        prefix = f"expression {said} does not work"
        if unknown := find_unknown_column(str(err), expressions, columns=lambda: dataset.schema.names, prefix=prefix):
            raise unknown from None
        # Lance's messages end with a position in its Rust source, which means nothing to a user.
        text = " ".join(re.sub(r",? ?/[^ ,]*/rust/[^ ,]*\.rs:\d+:\d+", "", str(err)).split())[:300]
        # Lance raises the same types if it cannot read a file. That is not a fault of the expression.
        if isinstance(err, pa.ArrowInvalid | RuntimeError) and not COMPUTING.search(text):
            raise
        raise InvalidExpressionError(f"{prefix}: {complaint_in(text)}", hint=hint_for(str(err))) from None
