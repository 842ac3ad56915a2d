"""SQL expressions of users, checked and translated into the dialect of Lance, and the defaults of columns.

Lance reads `"x"` as text, so that `"v" <> 'abc'` compares two constants and is true of every row. Here, as in standard
SQL, `"x"` is a column, and only single quotes make text. All text that a user writes passes through `to_lance_dialect`
on its way to Lance. A default is an expression that is noted beside its column, for rows that come without a value.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal

import lance
import numpy as np
import pyarrow as pa

from anabranch.errors import InvalidExpressionError
from anabranch.format.arguments import listed_columns
from anabranch.hints import closest, suggest

# Messages of Lance about a failed computation, as opposed to a failed read.
COMPUTING = re.compile(
    r"Arrow error|LanceError\(Arrow\)|Cast error|Divide by zero|Overflow|is not implemented"
    r"|applying filter expression|Execution error: Execution error: (?!.*(?:LanceError|object|IO))",
    re.IGNORECASE,
)

# The parts of an expression that are not code. One pattern, because each may contain the characters that start another.
# The same as in Lance: quotes are escaped by doubling, a backslash is an ordinary character, comments do not nest.
_NOT_CODE = re.compile(
    r"""(?P<text>'(?:[^']|'')*') | (?P<column>"(?:[^"]|"")*") | `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/""",
    re.DOTALL | re.VERBOSE,
)

# Lance overflows its stack, which ends the process, at about 700 nested operations of this kind.
_MOST_ARITHMETIC = 400
# An operator between two operands. The minus of a negative number follows another operator and is not counted.
_ARITHMETIC = re.compile(r"(?<=[\w)\]])\s*[-+*/%|&^]")


def enclosed(expression: str) -> str:
    """Translate an expression of a user for Lance, as one operand in parentheses. Use this for every expression.

    Refuse an expression that leaves the parentheses, or would end the process. Lance parses it after `SELECT 1 FROM t
    WHERE` and ignores further clauses: without the parentheses `id > 5 LIMIT 1` would delete every row above 5.
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
    """Refuse a closing parenthesis without an opening one: Lance would stop there, or pair it with ours."""
    depth = 0
    for character in _NOT_CODE.sub(" ", expression):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            raise InvalidExpressionError(
                f"expression {expression!r} closes a parenthesis that it did not open", hint="remove it, or open it"
            )


def quoted_column(name: str) -> str:
    """Return the name of a column as an expression."""
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
    """Return the types of expressions by column name. Refuse expressions that Lance cannot plan."""
    try:
        return _plan(dataset, expressions)  # all at once: planning takes long where there are many columns
    except InvalidExpressionError:
        # One by one, so that the error names the expression that fails.
        return pa.schema([_plan(dataset, {name: text}).field(name) for name, text in expressions.items()])


def _plan(dataset: lance.LanceDataset, expressions: Mapping[str, str]) -> pa.Schema:
    with expression_errors(dataset, *expressions.values()):
        columns = {name: enclosed(expression) for name, expression in expressions.items()}
        # Lance does not scan for constants alone, so request the row ids, too.
        planned = dataset.scanner(columns=columns, with_row_id=True).projected_schema
    return pa.schema([planned.field(name) for name in expressions])


@contextmanager
def expression_errors(dataset: lance.LanceDataset, *expressions: str) -> Iterator[None]:
    """Translate errors of Lance about expressions into errors that quote them."""
    listed = ", ".join(map(repr, expressions))
    try:
        yield
    except (ValueError, RuntimeError) as err:
        prefix = f"expression {listed} does not work"
        if unknown := find_unknown_column(str(err), expressions, columns=lambda: dataset.schema.names, prefix=prefix):
            raise unknown from None
        # Lance's messages end with a position in its Rust source, which means nothing to a user.
        text = " ".join(re.sub(r",? ?/[^ ,]*/rust/[^ ,]*\.rs:\d+:\d+", "", str(err)).split())[:300]
        # Lance raises the same types if it cannot read a file. That is not a fault of the expression.
        if isinstance(err, pa.ArrowInvalid | RuntimeError) and not COMPUTING.search(text):
            raise
        raise InvalidExpressionError(f"{prefix}: {complaint_in(text)}", hint=hint_for(str(err))) from None


# Lance's parser has syntax of its own for these calls, which its planner then refuses; with a quoted name they work.
_CALL = re.compile(r"(?<![\w$@.])(ceil|floor|substr|substring|trim)(?=\s*\()", re.IGNORECASE)
# Another call of this kind. `date_part` is the same function.
_EXTRACT = re.compile(r"(?<![\w$@.])extract\s*\(\s*([a-z]+)\s+from(?!\w)", re.IGNORECASE)
# Types with another name in Lance. A type with a length is not translated: Lance would ignore the length.
_TYPE = re.compile(r"((?<![\w$@.])as\s+|::\s*)(varchar|text|real|numeric)(?![\w$@])(?!\s*\(\s*\d+\s*\))", re.IGNORECASE)
_TYPES = {"varchar": "string", "text": "string", "real": "float", "numeric": "decimal"}

# Values that make Lance panic: placeholders, and text with a prefix such as N'a'. X'61' is a binary value.
_PLACEHOLDER = re.compile(r"\?|(?<![\w$])\$\w*|(?<!:):(?=\w)\w+")
_PREFIX = re.compile(r"(?<![\w$@])[nbr]\Z", re.IGNORECASE)

# Lance has no error type for a missing column. These are the texts of its planner.
_NAMED = re.compile(r'No field named ("(?:[^"]|"")*"|[^\s.]*)\.')
_IN_STRUCT = re.compile(r"Field (.+?) not found in struct")
_SEE_SCHEMA = "see the table's schema; names in quotes are case sensitive"
# Lance compares text with text only.
_TEXT_WITH = re.compile(
    r'Received literal Utf8\("(.*?)"\) and could not convert to literal of type \'(Date|Timestamp)?'
)

# Lance does not compare a number with a fraction with decimals or whole numbers either.
_NUMBER_WITH = re.compile(
    r"Received literal Float64\(([0-9.]+)\) and could not convert to literal of type '(?:Decimal128\((\d+), (\d+)\))?"
)
_NOT_COMPARED = re.compile(
    r'Received literal (?:Utf8|Float64|Int64)\("?(.*?)"?\) and could not convert to literal of type \'(.*?)\''
)
_STATEMENT = re.compile(
    r"\bError (?:parsing statement|tokenizing statement|optimizing sql filter): .*?"
    r" \(((?:sql parser|LanceError|Error|Untermin).*)\)"
)
_PARTS = re.compile(
    r"sql parser error: |Error during planning: |Error parsing function: |LanceError\(\w+\): | at Line: \d+, Column.*"
)
_LANCE_TYPE = re.compile(r"\b(?:U?Int\d+|Float\d+|Decimal128|Date32|Utf8|Boolean)\b")
_OUR_TYPES = {"Decimal128": "decimal", "Utf8": "string", "Boolean": "bool"}


def to_lance_dialect(expression: str) -> str:
    """Translate an expression: quoted columns, and functions and types that Lance has under another name.

    The translation of a translated expression is the same expression. Other code is left to Lance, which may refuse it.
    """
    parts: list[str] = []
    end = 0
    for found in _NOT_CODE.finditer(expression):
        code = expression[end : found.start()]
        # The prefix is code and the text is not, so it is found only where the two meet.
        if found["text"] is not None and (prefix := _PREFIX.search(code)):
            raise InvalidExpressionError(
                f"expression {expression!r} has text with the prefix {prefix.group()}", hint="remove the prefix"
            )
        parts += [_translate_code(code), _translate_quoted(found)]
        end = found.end()
    return "".join([*parts, _translate_code(expression[end:])])


def _translate_quoted(found: re.Match[str]) -> str:
    if found["column"] is None:
        return found.group()
    name = found["column"][1:-1].replace('""', '"')
    if not name:
        raise InvalidExpressionError(
            'an expression has an empty column name, ""', hint="write empty text in single quotes: ''"
        )
    return "`" + name.replace("`", "``") + "`"


def _translate_code(code: str) -> str:
    if found := _PLACEHOLDER.search(code):
        raise InvalidExpressionError(
            f"an expression has the placeholder {found.group()!r}",
            hint="write the value into the expression, text in single quotes",
        )
    code = _CALL.sub(lambda found: f"`{found[1].lower()}`", code)
    code = _EXTRACT.sub(lambda found: f"date_part('{found[1].lower()}', ", code)
    return _TYPE.sub(lambda found: found[1] + _TYPES[found[2].lower()], code)


def hint_for(complaint: str) -> str:
    """Return the hint for an expression that Lance refused with a message."""
    if number := _NUMBER_WITH.search(complaint):
        return _hint_for_number(*number.groups())
    found = _TEXT_WITH.search(complaint)
    if found is None:
        return "correct it: write an SQL expression over the columns, with text in single quotes"
    text, kind = found.groups()
    if kind is None:
        return "text is not compared with other types: write a value of the column's type"
    return f"text is not compared with other types: write {kind.upper()} '{text}'"


def _hint_for_number(number: str, precision: str | None, scale: str | None) -> str:
    if precision is None or scale is None:
        return "write a value of the column's type, or cast the column: CAST(column AS DOUBLE)"
    # With as many digits as the number has: a cast to fewer would round it.
    more = max(0, len(number.partition(".")[2]) - int(scale))
    return f"write the number as a decimal: CAST('{number}' AS DECIMAL({int(precision) + more}, {int(scale) + more}))"


def complaint_in(error: str) -> str:
    """Return Lance's message about an expression in terms of the user, without internal names."""
    if text := _NOT_COMPARED.search(error):
        what = f"the text '{text[1]}'" if "literal Utf8" in text[0] else f"the number {text[1]}"
        return f"{what} is not of the type {_with_our_types(text[2])}"
    error = re.sub(r"^dataset '[^']*': |\bInvalid user input: |\bError resolving filter expression .*?\): ", "", error)
    # Lance completes an expression to a statement, inside the parentheses of `enclosed`, and quotes that.
    error = re.sub(r'Custom\(.*? value: "(.*?)".*\), \[\]\)', r"\1", error)
    error = _PARTS.sub("", _STATEMENT.sub(r"\1", error)).replace(" SQL in lance", " SQL")
    error = error.replace("Expected: )", "Expected: an operator or the end").replace(
        "found: )", "found: the end or ')'"
    )
    return _with_our_types(error)


def _with_our_types(text: str) -> str:
    """Spell the types of Lance as we do, such as int64."""
    return _LANCE_TYPE.sub(lambda found: _OUR_TYPES.get(found[0], found[0].lower()), text)


def find_unknown_column(
    message: str, expressions: Sequence[str], *, columns: Callable[[], Sequence[str]], prefix: str
) -> InvalidExpressionError | None:
    """Read Lance's message about an unknown column. Return an error that names it and the existing columns.

    The message quotes the expression first, which may contain anything, so the last match counts.
    """
    if named := _NAMED.findall(message):
        name = named[-1]
        if name.startswith('"'):
            name = name[1:-1].replace('""', '"')
        hint = _hint(name, columns(), expressions)
        return InvalidExpressionError(f"{prefix}: there is no column {name!r}", hint=hint, details={"column": name})
    if fields := _IN_STRUCT.findall(message):
        return InvalidExpressionError(f"{prefix}: there is no field {fields[-1]!r} in its column", hint=_SEE_SCHEMA)
    return None


def _hint(name: str, columns: Sequence[str], expressions: Sequence[str]) -> str:
    listed = listed_columns(columns)
    if closest(name, columns, n=1):
        return suggest(name, columns, listed)
    quoted = '"' + name.replace('"', '""') + '"'
    # A common mistake: text in double quotes, which is a column here.
    if any(quoted in text for text in expressions):
        return f"write text in single quotes, {quoted} is a column; {listed}"
    return f"{listed}; write text in single quotes: '{name}'" if name.isalnum() else listed


DEFAULT = "anabranch:default"

_ROW, _VALUE = "__row", "__value"
# The units of Arrow as `arrow_cast` spells them.
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def default_expression(expression: str, kind: pa.DataType) -> str:
    """Return the expression. For a timestamp column, cast it to the column's type, whose precision SQL may not have."""
    if not pa.types.is_timestamp(kind):
        return expression
    # `arrow_cast` expects a type as Rust prints it, so the zone is an Option.
    zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
    return f"arrow_cast({enclosed(expression)}, 'Timestamp({_UNITS[kind.unit]}, {zone})')"


def find_default(field: pa.Field, *, columns: Sequence[str]) -> Callable[[int], pa.Array] | None:
    """Return the function that computes a column's default for some rows. None if it has none or needs columns.

    Refuse a default with a name in double quotes that is not one of the columns: a version that took such a name for
    text may have recorded it, and null instead of that text would be wrong.
    """
    noted = (field.metadata or {}).get(DEFAULT.encode())
    if noted is None:
        return None
    expression = noted.decode()
    in_type = default_expression(expression, field.type)
    try:
        # On a dataset without the columns of the table: an expression that needs one of them fails with its name.
        _compute(in_type, 1)
    except InvalidExpressionError as err:
        name = err.details.get("column")
        if name is None:
            raise
        if f'"{name}"' in expression and name not in columns:
            raise InvalidExpressionError(
                f"the default {expression!r} of column {field.name!r} names a column that does not exist",
                hint="write text in single quotes, and apply a schema with the new default",
            ) from None
        return None
    return lambda rows: _compute(in_type, rows)


def _compute(expression: str, rows: int) -> pa.Array:
    # Lance computes only over rows of a dataset. This one is never written.
    scratch = lance.write_dataset(pa.table({_ROW: np.zeros(rows, dtype=np.int8)}), "memory://defaults")
    with expression_errors(scratch, expression):
        found = scratch.to_table(columns={_ROW: _ROW, _VALUE: enclosed(expression)})
    return found.column(_VALUE).combine_chunks()
