"""The SQL of predicates and expressions, translated into the dialect of Lance.

Lance reads `"x"` as text, so that `"v" <> 'abc'` compares two constants and is true of every row. Here, as in standard
SQL, `"x"` is a column, and only single quotes make text. All text that a user writes passes through `to_lance_dialect`
on its way to Lance.
"""

import re
from collections.abc import Callable, Sequence

from anabranch.errors import InvalidExpressionError
from anabranch.format.arguments import listed_columns
from anabranch.hints import closest, suggest

__all__ = ["find_unknown_column", "hint_for", "to_lance_dialect"]


# The parts of an expression that are not code. One pattern, because each may contain the characters that start another.
# The same as in Lance: quotes are escaped by doubling, a backslash is an ordinary character, comments do not nest.
_NOT_CODE = re.compile(
    r"""(?P<text>'(?:[^']|'')*') | (?P<column>"(?:[^"]|"")*") | `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/""",
    re.DOTALL | re.VERBOSE,
)

# Lance's parser has syntax of its own for these calls, which its planner then refuses; with a quoted name they work.
_CALL = re.compile(r"(?<![\w$@.])(ceil|floor|substr|substring|trim)(?=\s*\()", re.IGNORECASE)
# Another call of this kind. `date_part` is the same function.
_EXTRACT = re.compile(r"(?<![\w$@.])extract\s*\(\s*([a-z]+)\s+from(?!\w)", re.IGNORECASE)
# Types that Lance has under another name. One with a length is left alone: Lance would ignore the length.
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

# Nor does it compare a number with a fraction with decimals, or with whole numbers.
_NUMBER_WITH = re.compile(
    r"Received literal Float64\(([0-9.]+)\) and could not convert to literal of type '(?:Decimal128\((\d+), (\d+)\))?"
)
_NOT_COMPARED = re.compile(
    r'Received literal (?:Utf8|Float64)\("?(.*?)"?\) and could not convert to literal of type \'(.*?)\''
)


def to_lance_dialect(expression: str) -> str:
    """Translate an expression: quoted columns, and functions and types that Lance has under another name.

    The translation of a translated expression is the same expression. What this function does not know is left to
    Lance, which refuses it.
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
    """Return what to write instead of an expression that Lance refused with a complaint."""
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


def complaint_in(said: str) -> str:
    """Return what Lance finds wrong with an expression in the words of a user, without the names of its parts."""
    if text := _NOT_COMPARED.search(said):
        what = f"the text '{text[1]}'" if "literal Utf8" in text[0] else f"the number {text[1]}"
        return f"{what} is not of the type {text[2]}"
    said = re.sub(r"^dataset '[^']*': |\bInvalid user input: |\bError resolving filter expression .*?\): ", "", said)
    return said.replace(" SQL in lance", " SQL")


def find_unknown_column(
    message: str, expressions: Sequence[str], *, columns: Callable[[], Sequence[str]], prefix: str
) -> InvalidExpressionError | None:
    """Read Lance's message about a column that does not exist; return an error that names it, and those that exist.

    The message quotes the expression first, which may contain anything, so the last match counts.
    """
    if named := _NAMED.findall(message):
        name = _unquoted(named[-1])
        hint = _hint(name, columns(), expressions)
        return InvalidExpressionError(f"{prefix}: there is no column {name!r}", hint=hint, details={"column": name})
    if fields := _IN_STRUCT.findall(message):
        return InvalidExpressionError(f"{prefix}: there is no field {fields[-1]!r} in its column", hint=_SEE_SCHEMA)
    return None


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _hint(name: str, columns: Sequence[str], expressions: Sequence[str]) -> str:
    listed = listed_columns(columns)
    if closest(name, columns, n=1):
        return suggest(name, columns, listed)
    quoted = '"' + name.replace('"', '""') + '"'
    # A common mistake: text in double quotes, which is a column here.
    if any(quoted in text for text in expressions):
        return f"write text in single quotes, {quoted} is a column; {listed}"
    return f"{listed}; write text in single quotes: '{name}'" if name.isalnum() else listed
