"""One read-only SQL statement, and the tables it names.

DuckDB's own parser says what is a statement, a table and a function, so nothing is read differently here than where it
is run. Only `AT 'ref'`, which DuckDB does not know, is taken out before.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from anabranch.duck.functions import check_function, check_table_function
from anabranch.duck.travel import mark_refs, split_mark
from anabranch.errors import InvalidExpressionError, TableNotFoundError

__all__ = ["Statement", "TableUse", "parse_statement", "quoted"]

_SPACE = rb"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
_PART = rb"\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'|[^\s.\"'(),;]+"
_NAME = re.compile(rb"(?:" + _PART + rb")(?:" + _SPACE + rb"\." + _SPACE + rb"(?:" + _PART + rb"))*", re.DOTALL)
_EXPLAIN = re.compile(_SPACE.decode() + r"explain\b" + _SPACE.decode() + r"(?:analyze\b)?", re.DOTALL | re.IGNORECASE)
_QUERIES = frozenset({"", "DESCRIBE", "FROM", "PIVOT", "SELECT", "SHOW", "SUMMARIZE", "TABLE", "VALUES", "WITH"})
_FIRST_WORD = re.compile(_SPACE.decode() + r"(\w*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """A place in the text that names a table; a system table may come without a bucket, and most without a ref."""

    bucket: str | None
    table: str
    ref: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    text: bytes
    tables: tuple[TableUse, ...]

    def with_names(self, names: list[str]) -> str:
        """The statement with each use of a table spelled as the list says."""
        text = self.text
        for use, name in sorted(zip(self.tables, names, strict=True), key=lambda pair: -pair[0].start):
            text = text[: use.start] + name.encode() + text[use.end :]
        return text.decode()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def parse_statement(sql: str, connection: duckdb.DuckDBPyConnection) -> Statement:
    explain = _EXPLAIN.match(sql)
    prefix = explain.group() if explain else ""
    body = mark_refs(sql[len(prefix) :])
    tree = _parse(body, connection)
    text, shift = (prefix + body).encode(), len(prefix.encode())
    found = {use.start: use for use in _iter_tables(tree, frozenset(), text, shift)}
    return Statement(text=text, tables=tuple(found.values()))


def _parse(body: str, connection: duckdb.DuckDBPyConnection) -> Any:
    try:
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


def _refusal(tree: Any, body: str) -> InvalidExpressionError:
    if tree.get("error_type") != "not implemented":
        return InvalidExpressionError(f"the SQL does not work: {tree.get('error_message')}", hint="correct it")
    match = _FIRST_WORD.match(body)
    word = match.group(1).upper() if match else ""
    if word not in _QUERIES:
        return InvalidExpressionError(
            f"{word} is not allowed: SQL here only reads", hint="use SELECT, or a transaction to write"
        )
    if "pivot" in body.lower():
        # DuckDB would look for the values first, and make a type of them.
        return InvalidExpressionError("PIVOT needs its values", hint="list them: PIVOT t ON c IN ('a', 'b') USING ...")
    return InvalidExpressionError("there are several SQL statements", hint="give one SELECT")


def _iter_tables(node: Any, visible: frozenset[str], text: bytes, shift: int) -> Iterator[TableUse]:
    """The tables below a node of the tree; `visible` are the names that common table expressions have taken."""
    if isinstance(node, list):
        for child in node:
            yield from _iter_tables(child, visible, text, shift)
        return
    if not isinstance(node, dict):
        return
    _check(node)
    if node.get("type") == "BASE_TABLE":
        if node["schema_name"] or node["table_name"].lower() not in visible:
            yield _use_of(node, text, shift)
        return
    for entry in node.get("cte_map", {}).get("map", ()):
        name = entry["key"].lower()
        inner = visible | {name} if _is_recursive(entry) else visible
        yield from _iter_tables(entry["value"], inner, text, shift)
        visible = visible | {name}
    for key, child in node.items():
        if key != "cte_map":
            yield from _iter_tables(child, visible, text, shift)


def _is_recursive(entry: Any) -> bool:
    return bool(entry["value"]["query"]["node"]["type"] == "RECURSIVE_CTE_NODE")


def _check(node: Any) -> None:
    if node.get("type") == "TABLE_FUNCTION":
        check_table_function(node["function"].get("function_name", ""))
    elif isinstance(node.get("function_name"), str):
        check_function(node["function_name"])
    elif node.get("type") == "SHOW_REF" and node.get("query") is None:
        raise InvalidExpressionError(
            f"SHOW {node.get('table_name') or 'ALL'} is not allowed",
            hint="use SELECT * FROM tables, or DESCRIBE a.table",
        )


def _use_of(node: Any, text: bytes, shift: int) -> TableUse:
    written = ".".join(part for part in (node["catalog_name"], node["schema_name"], node["table_name"]) if part)
    if node["catalog_name"]:
        raise TableNotFoundError(f"there is no table '{written}'", hint="name it like in_c_sales.orders")
    if node.get("at_clause") is not None:
        raise InvalidExpressionError(f"table '{written}' has an AT (...)", hint="write it like AT 'main~3'")
    match = _NAME.match(text, node["query_location"] + shift)
    if match is None or _plain(match.group()) != written.lower().encode():
        raise InvalidExpressionError(f"table '{written}' cannot be found in the SQL", hint="write it in another way")
    bucket, ref = split_mark(node["schema_name"])
    table = node["table_name"]
    if not bucket and table.count(".") == 1:
        bucket, table = table.split(".")
    return TableUse(bucket=bucket or None, table=table, ref=ref, start=match.start(), end=match.end())


def _plain(name: bytes) -> bytes:
    """A name as it was written, without its quotes and spaces."""
    parts = re.findall(_PART, re.sub(rb"(" + _PART + rb")|" + _SPACE, rb"\1", name, flags=re.DOTALL))
    plain = [part[1:-1].replace(part[:1] * 2, part[:1]) if part[:1] in (b'"', b"'") else part for part in parts]
    return b".".join(plain).decode().lower().encode()
