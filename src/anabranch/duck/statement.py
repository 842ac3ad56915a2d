"""Parse one read-only SQL statement, and find the tables that it names.

DuckDB's own parser finds statements, tables and functions, so that parsing and execution agree. Only `AT 'ref'`, which
DuckDB does not support, is removed before.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from anabranch.errors import InvalidExpressionError, TableNotFoundError
from anabranch.ids import time_ref

SYSTEM_BUCKET = "anabranch"
# With spaces, which no bucket name has, so that the name can be split again.
_MARK = " AT "
# A quick test. The tokens decide whether the word is in a text or a comment.
_AT = re.compile(r"\bat\b", re.IGNORECASE)
# After these a name is a table. After any other word, AT would follow an alias or a column.
_BEFORE_A_TABLE = frozenset({"FROM", "JOIN", ",", "(", "DESCRIBE", "SUMMARIZE", "TABLE", "SHOW", "PIVOT", "UNPIVOT"})


def mark_refs(sql: str) -> str:
    """Convert `sales.orders AT 'dev'` to `"sales AT dev".orders`, which any parser of SQL reads as a table."""
    if not _AT.search(sql):
        return sql
    # The parser library takes a while to load, and most queries do not need it.
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


def _marked(before: list[str], ref: str) -> tuple[int, str]:
    """Return the number of words before AT that name the table, and their replacement."""
    padded = ["", "", "", *before]
    if padded[-2] == ".":
        return 3, f"{quoted(unquoted(padded[-3]) + _MARK + ref)}.{padded[-1]}"
    if padded[-2].upper() not in _BEFORE_A_TABLE:
        raise InvalidExpressionError(
            f"AT '{ref}' does not follow a table", hint=f"write it before the alias: in_c_sales.orders AT '{ref}' AS o"
        )
    bucket, dot, table = unquoted(padded[-1]).partition(".")
    if not dot:
        bucket, table = SYSTEM_BUCKET, bucket
    return 1, f"{quoted(bucket + _MARK + ref)}.{quoted(table)}"


def unquoted(name: str) -> str:
    return name[1:-1].replace(name[0] * 2, name[0]) if name[:1] in ('"', "'") else name


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Possessive, like a parser: comments count as space and are never read a second time.
_SPACE = r"(?>\s|--[^\n\r]*|/\*.*?\*/)*+"
_PART = r"\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'|[^\s.\"'(),;]+"
_NAME = re.compile(f"(?:{_PART})(?:{_SPACE}\\.{_SPACE}(?:{_PART}))*".encode(), re.DOTALL)
_PARTS = re.compile(f"({_PART})|{_SPACE}", re.DOTALL)
_EXPLAIN = re.compile(rf"{_SPACE}explain\b{_SPACE}(analyze\b)?", re.DOTALL | re.IGNORECASE)
_AT_END = re.compile(r"\bAT\s+$", re.IGNORECASE)
# A ref without quotes, or in quotes of the wrong kind. Only a time contains a space.
_BARE_REF = re.compile(r"[\"`]([^\"`']+)[\"`]|[0-9-]+ [0-9]+:[0-9:.]+|(?:@\{[^{}']*\}|[^\s,;()\"'`])+")
_FIRST_WORD = re.compile(rf"{_SPACE}(\w*)", re.DOTALL)
_QUERIES = frozenset({"", "DESCRIBE", "FROM", "PIVOT", "SELECT", "SHOW", "SUMMARIZE", "TABLE", "VALUES", "WITH"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """A position in the text that names a table. A system table may have no bucket, and most have no ref."""

    bucket: str | None
    table: str
    ref: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A query, the tables and parameters that it names, and what comes before it: nothing, or EXPLAIN."""

    prefix: str
    body: bytes
    tables: tuple[TableUse, ...]
    parameters: tuple[str, ...]

    def with_names(
        self, names: Sequence[str], connection: duckdb.DuckDBPyConnection, *, catalogs: Collection[str]
    ) -> str:
        """Return the statement with each use of a table replaced by its name in the list."""
        body = self.body
        # From the end to the start, so that the positions before a replaced name stay right.
        for use, name in sorted(zip(self.tables, names, strict=True), key=lambda pair: -pair[0].start):
            body = body[: use.start] + name.encode() + body[use.end :]
        text = body.decode()
        # Parsed again: a table that escaped the replacement would be read from DuckDB's own catalogs.
        if names and any(node["catalog_name"] not in catalogs for node in _iter_tables(_parse(text, connection))):
            raise InvalidExpressionError(
                "the names of its tables cannot be determined", hint="write the SQL in another way"
            )
        return self.prefix + text


def parse_statement(sql: str, connection: duckdb.DuckDBPyConnection) -> Statement:
    explain = _EXPLAIN.match(sql)
    text = mark_refs(sql[explain.end() :] if explain else sql)
    body = text.encode()
    tree = _parse(text, connection)
    found = {use.start: use for use in (_use_of(node, body) for node in _iter_tables(tree))}
    # Build the prefix again: its original text was not parsed.
    prefix = "" if explain is None else f"EXPLAIN {explain.group(1) or ''} "
    parameters = tuple(sorted(set(_iter_parameters(tree))))
    return Statement(prefix=prefix, body=body, tables=tuple(found.values()), parameters=parameters)


def _parse(body: str, connection: duckdb.DuckDBPyConnection) -> Any:
    try:
        # As a parameter: the text of a user is parsed here, and not executed.
        answer = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [body]).fetchone()
        tree: Any = json.loads(answer[0]) if answer else {"error": True}
    except RecursionError:
        raise InvalidExpressionError("the SQL is nested too deeply", hint="simplify it") from None
    if tree["error"]:
        raise _refusal(tree, body)
    if not tree["statements"]:
        raise InvalidExpressionError("there is no SQL statement", hint="give a SELECT")
    if len(tree["statements"]) > 1:
        raise InvalidExpressionError("there are several SQL statements", hint="give one SELECT")
    return tree["statements"][0]


_WRITES = {
    "DELETE": "use SELECT, or `delete()` to delete rows",
    "INSERT": "use SELECT, or `append()` to add rows",
    "UPDATE": "use SELECT, or `update()` to change rows",
}


def _refusal(tree: Any, body: str) -> InvalidExpressionError:
    if tree.get("error_type") != "not implemented":
        position, text = int(tree.get("position") or 0), body.encode()
        before, rest = text[:position].decode(), text[position:].decode()
        return InvalidExpressionError(
            f"the SQL does not work: {tree.get('error_message')}",
            hint=_hint_for(str(tree.get("error_message")), before, rest),
            details={"line": 1 + before.count("\n")},
        )
    match = _FIRST_WORD.match(body)
    word = match.group(1).upper() if match else ""
    if word not in _QUERIES:
        hint = _WRITES.get(word, "use SELECT, or a transaction to write")
        return InvalidExpressionError(f"{word} is not allowed: SQL here only reads", hint=hint)
    if "pivot" in body.lower():
        # DuckDB would read the values first, and make a type of them.
        return InvalidExpressionError("PIVOT needs its values", hint="list them: PIVOT t ON c IN ('a', 'b') USING ...")
    return InvalidExpressionError("there are several SQL statements", hint="give one SELECT")


def _hint_for(problem: str, before: str, rest: str) -> str:
    """Return the hint for SQL that cannot be parsed. Most mistakes about refs are a missing AT or its quotes."""
    if 'at or near "@' in problem:
        return "for another branch, tag or commit, write AT and the ref in quotes, such as shop.orders AT 'main~3'"
    if _AT_END.search(before) and (ref := _BARE_REF.match(rest)):
        text = ref[1] or ref[0]
        return f"write the ref in quotes: AT '{time_ref(text) or text}'"
    return "correct the SQL"


def _iter_tables(tree: Any) -> Iterator[Any]:
    """Yield the nodes that name tables, without names of common table expressions."""
    # With each node, keep the names that surrounding and earlier expressions define.
    todo: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while todo:
        node, visible = todo.pop()
        if isinstance(node, list):
            todo += ((child, visible) for child in node)
            continue
        if not isinstance(node, dict):
            continue
        _check(node)
        if node.get("type") == "BASE_TABLE":
            # A name with a schema is never a common table expression.
            if node["schema_name"] or node["table_name"].lower() not in visible:
                yield node
            continue
        todo += _iter_children(node, visible)


def _iter_children(node: Any, visible: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Yield the parts of a node, and the names of common table expressions that each part can use."""
    for entry in node.get("cte_map", {}).get("map", ()):
        with_itself = visible | {entry["key"].lower()}
        # Only a recursive expression can name itself in its body. Otherwise the name means the table.
        is_recursive = entry["value"]["query"]["node"]["type"] == "RECURSIVE_CTE_NODE"
        yield entry["value"], with_itself if is_recursive else visible
        visible = with_itself
    yield from ((child, visible) for key, child in node.items() if key != "cte_map")


def _iter_parameters(tree: Any) -> Iterator[str]:
    """Yield the names of `$name` parameters. The name of a `?` is its number."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        elif isinstance(node, dict):
            if node.get("class") == "PARAMETER":
                yield str(node["identifier"])
            todo += node.values()


# Table functions may read files, memory of other processes, settings and SQL in strings. Allow only those that compute.
_TABLE_FUNCTIONS = frozenset(
    {"generate_series", "generate_subscripts", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"}
)
# Forbidden functions: they read the machine's state, write, or wait. All others only compute.
_FORBIDDEN = frozenset(
    {
        "current_query",
        "current_setting",
        "currval",
        "getenv",
        "getvariable",
        "json_execute_serialized_sql",
        "nextval",
        "pg_sleep",
        "setseed",
        "sleep_ms",
        "write_log",
    }
)


def _check(node: Any) -> None:
    if node.get("type") == "TABLE_FUNCTION":
        name = node["function"].get("function_name", "")
        if name.lower() not in _TABLE_FUNCTIONS:
            raise InvalidExpressionError(
                f"the table function {name} is not allowed",
                hint=f"name a table of the repository, or use {', '.join(sorted(_TABLE_FUNCTIONS))}",
            )
    elif isinstance(name := node.get("function_name"), str):
        if name.lower() in _FORBIDDEN:
            raise InvalidExpressionError(f"the function {name} is not allowed", hint="leave it out")
    # It would list DuckDB's own catalogs, not the tables of the repository.
    elif node.get("type") == "SHOW_REF" and node.get("query") is None:
        raise InvalidExpressionError(
            f"SHOW {node.get('table_name') or 'ALL'} is not allowed",
            hint="use SELECT * FROM tables, or DESCRIBE a.table",
        )


def _use_of(node: Any, body: bytes) -> TableUse:
    parts = list(filter(None, (node["catalog_name"], node["schema_name"], node["table_name"])))
    written = ".".join(parts)
    if node["catalog_name"]:
        raise TableNotFoundError(
            f"there is no table '{written}'",
            hint=f"write its bucket and name, such as {'.'.join(parts[1:])}; for another branch add AT '{parts[0]}'",
        )
    if node.get("at_clause") is not None:
        raise InvalidExpressionError(f"table '{written}' has an AT (...)", hint="write it like AT 'main~3'")
    # The name is replaced in the text at this position. If DuckDB's position and the text disagree, refuse instead of
    # replacing something else.
    match = _NAME.match(body, node["query_location"])
    if match is None or _parts_of(match.group().decode()) != list(map(str.lower, parts)):
        raise InvalidExpressionError(f"table '{written}' cannot be found in the SQL", hint="write it in another way")
    bucket, mark, ref = node["schema_name"].partition(_MARK)
    table = node["table_name"]
    if not bucket and table.count(".") == 1:
        bucket, table = table.split(".")
    return TableUse(bucket=bucket or None, table=table, ref=ref if mark else None, start=match.start(), end=match.end())


def _parts_of(name: str) -> list[str]:
    found = (match.group(1) for match in _PARTS.finditer(name))
    return [unquoted(part).lower() for part in found if part]
