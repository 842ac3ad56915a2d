"""Filters of requests: SQL predicates from untrusted clients.

Lance plans and evaluates them. This module refuses predicates that would crash or exhaust the process.
"""

import re

from anabranch.errors import InvalidExpressionError
from anabranch.format.staging.fields import RESERVED

# Allowed functions. Their results are not much larger than their arguments, unlike those of `repeat`.
FUNCTIONS = frozenset(
    {
        "abs",
        "array_contains",
        "array_has",
        "array_has_all",
        "array_has_any",
        "array_length",
        "arrow_typeof",
        "btrim",
        "cardinality",
        "ceil",
        "char_length",
        "character_length",
        "coalesce",
        "contains",
        "current_date",
        "date_part",
        "date_trunc",
        "ends_with",
        "extract",
        "floor",
        "get_field",
        "greatest",
        "isnan",
        "json_extract",
        "json_get",
        "least",
        "left",
        "length",
        "ln",
        "log10",
        "lower",
        "ltrim",
        "md5",
        "now",
        "nullif",
        "octet_length",
        "power",
        "regexp_like",
        "regexp_match",
        "reverse",
        "right",
        "round",
        "rtrim",
        "sha256",
        "signum",
        "sqrt",
        "starts_with",
        "strpos",
        "substr",
        "substring",
        "to_date",
        "to_timestamp",
        "trim",
        "trunc",
        "upper",
    }
)
# Other words that may precede a parenthesis: syntax, and types with sizes.
_WORDS = frozenset(
    {
        "all",
        "and",
        "any",
        "between",
        "case",
        "cast",
        "char",
        "decimal",
        "distinct",
        "else",
        "end",
        "escape",
        "for",
        "from",
        "ilike",
        "in",
        "interval",
        "is",
        "like",
        "not",
        "numeric",
        "or",
        "similar",
        "then",
        "time",
        "timestamp",
        "try_cast",
        "values",
        "varchar",
        "when",
    }
)
# Lance overflows its stack, which ends the process, at about 500 nested operations.
_MOST_OPERATIONS = 300

_QUOTED = r"`[^`]*`|\"(?:[^\"]|\"\")*\""
# One pattern for all: each of these may contain the characters that start the others.
_NOT_CODE = re.compile(rf"(?P<name>{_QUOTED})|'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_OF_LANCE = re.compile(rf"\b(?:{'|'.join(sorted(RESERVED))})\b", re.IGNORECASE)
# Lance panics at any other precision or scale.
_ODD_DECIMAL = re.compile(
    r"\b(?:dec|decimal|numeric)\s*\((?!\s*(?:[1-9]|[12]\d|3[0-8])\s*,\s*(?:\d|[12]\d|3[0-8])\s*\))", re.IGNORECASE
)
_CALL = re.compile(rf"([\w$]+|{_QUOTED})\s*\(")
_OPERATION = re.compile(
    r"\|\||::|<=|>=|<>|!=|[-+*/%=<>!|&^~#(\[]|(?<![\w])\.|\.(?![\d])"
    r"|\b(?:and|or|not|is|in|like|ilike|similar|between|case|when|cast|collate|at|div)\b",
    re.IGNORECASE,
)


def checked_filter(text: str) -> str:
    """Return a predicate unchanged. Raise InvalidExpressionError if it is not safe to run."""
    # Literals and comments may contain any text. Quoted names stay, because they may name a function or a column.
    code = _NOT_CODE.sub(lambda found: found["name"] or " ", text)
    for match in _CALL.finditer(code):
        name = match.group(1).strip('`"').lower()
        if name not in FUNCTIONS and name not in _WORDS:
            raise InvalidExpressionError(
                f"the function {name!r} is not allowed in a predicate", hint=f"use {', '.join(sorted(FUNCTIONS))}"
            )
    # Lance also resolves its own columns, such as `_rowid`, which no schema of a table shows.
    if name := _OF_LANCE.search(code):
        raise InvalidExpressionError(f"there is no column {name.group()!r}", hint="use columns of the table")
    if _ODD_DECIMAL.search(code):
        raise InvalidExpressionError(
            "the predicate has an unsupported decimal type", hint="write DECIMAL(10, 2), with up to 38 digits"
        )
    # Operators inside a quoted name are not operations.
    code = re.sub(_QUOTED, "x", code)
    if character := re.search(r"[?$;]", code):
        raise InvalidExpressionError(
            f"the predicate contains {character.group()!r}", hint="write values as literals, text in single quotes"
        )
    if (found := len(_OPERATION.findall(code))) > _MOST_OPERATIONS:
        raise InvalidExpressionError(
            f"the predicate has {found} operations",
            hint=f"use at most {_MOST_OPERATIONS}; IN takes any number of values",
        )
    return text
