"""`FROM bucket.table AT 'ref'`: tables of several refs in one query."""

import re

from anabranch.errors import InvalidExpressionError

__all__ = ["SYSTEM_BUCKET", "mark_refs", "split_mark", "unquoted"]

SYSTEM_BUCKET = "anabranch"
_MARK = " AT "
_AT = re.compile(r"\bat\b", re.IGNORECASE)
_BEFORE_A_TABLE = frozenset({"FROM", "JOIN", ",", "(", "DESCRIBE", "SUMMARIZE", "TABLE", "SHOW", "PIVOT", "UNPIVOT"})


def mark_refs(sql: str) -> str:
    """Turn `sales.orders AT 'dev'` into `"sales AT dev".orders`, which any parser of SQL takes for a table."""
    if not _AT.search(sql):
        return sql
    # The parser library takes a while to load, and most queries do without it.
    from sqlglot.dialects.duckdb import DuckDB
    from sqlglot.errors import TokenError

    try:
        tokens = DuckDB().tokenize(sql)
    except TokenError:
        return sql  # running it raises the error
    pieces, at = [], 0
    for index in range(1, len(tokens) - 1):
        word, literal = tokens[index], tokens[index + 1]
        if word.token_type.name == "IDENTIFIER" or word.text.upper() != "AT":
            continue
        if literal.token_type.name != "STRING":
            continue
        written = [sql[token.start : token.end + 1] for token in tokens[max(0, index - 4) : index]]
        length, marked = _marked(written, literal.text)
        pieces += [sql[at : tokens[index - length].start], marked]
        at = literal.end + 1
    return "".join([*pieces, sql[at:]])


def split_mark(schema: str) -> tuple[str, str | None]:
    """The bucket and the ref of a marked name."""
    bucket, mark, ref = schema.partition(_MARK)
    return bucket, ref if mark else None


def _marked(before: list[str], ref: str) -> tuple[int, str]:
    """How many of the words before AT name the table, and what to write instead of them."""
    padded = ["", "", "", *before]
    if padded[-2] == ".":
        return 3, f"{_quoted(unquoted(padded[-3]), ref)}.{padded[-1]}"
    if padded[-2].upper() not in _BEFORE_A_TABLE:
        raise InvalidExpressionError(
            f"AT '{ref}' does not follow a table", hint=f"write it before the alias: in_c_sales.orders AT '{ref}' AS o"
        )
    bucket, dot, table = unquoted(padded[-1]).partition(".")
    if not dot:
        bucket, table = SYSTEM_BUCKET, bucket
    return 1, f'{_quoted(bucket, ref)}."{table.replace(chr(34), chr(34) * 2)}"'


def unquoted(name: str) -> str:
    return name[1:-1].replace(name[0] * 2, name[0]) if name[:1] in ('"', "'") else name


def _quoted(bucket: str, ref: str) -> str:
    return '"' + f"{bucket}{_MARK}{ref}".replace('"', '""') + '"'
