"""SQL of Spark or DuckDB over `bucket.table` names: the tables that it reads, and their views for Spark."""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from anabranch.duck.engine import default_engine
from anabranch.duck.statement import TableUse
from anabranch.duck.statement import parse_statement as parse_duck
from anabranch.errors import AnabranchError
from anabranch.ids import TableKey

# The parser warns of statements that it cannot parse, which are refused here.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


class StatementError(Exception):
    """A bad statement, and the line in it. The caller, which knows its location, raises an error of the public tree."""

    def __init__(self, problem: str, *, hint: str, line: int = 1) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """A part of the text to be replaced by the view of a table, or, without a table, to be left out."""

    start: int
    end: int
    key: str | None = None
    alias: str | None = None

    def spelled(self, views: Mapping[str, str]) -> str:
        if self.key is None:
            return ""
        return f"`{views[self.key]}`" + (f" AS `{self.alias}`" if self.alias else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One query: its text, the tables and the parameters that it names."""

    text: str
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    uses: tuple[_Use, ...]

    def over(self, views: Mapping[str, str]) -> str:
        """Return the text with each table replaced by its view."""
        text = self.text
        # From the end to the beginning, so that the positions of the other parts stay valid.
        for use in sorted(self.uses, key=lambda each: -each.start):
            text = text[: use.start] + use.spelled(views) + text[use.end :]
        return text


def parse_statement(text: str) -> Statement:
    """Parse one SELECT. Refuse invalid SQL, statements that write, and names that are not `bucket.table`."""
    tree = _parse(text)
    common = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [table for table in tree.find_all(exp.Table) if not _is_other(table, common)]
    uses = sorted(map(_use_of, tables), key=lambda use: use.start)
    # In SQL, a table with an alias is known by the alias only, not by its whole name.
    whole_names = {use.key for use in uses if use.alias is not None}
    return Statement(
        text=text,
        inputs=tuple(dict.fromkeys(use.key for use in uses if use.key is not None)),
        parameters=tuple(sorted({_parameter_of(found) for found in tree.find_all(exp.Placeholder)})),
        uses=(*uses, *_iter_buckets(tree, whole_names)),
    )


def parse_duck_statement(text: str) -> Statement:
    """Parse one query of DuckDB. Refuse invalid SQL, statements that write, and names that are not `bucket.table`.

    DuckDB itself replaces the names of the tables, so that the statement has no `uses`.
    """
    session = default_engine().database.session()
    try:
        found = parse_duck(text, session.connection)
    except AnabranchError as err:
        raise StatementError(err.problem, hint=_duck_hint(err), line=err.details.get("line", 1)) from None
    finally:
        session.close()
    if found.prefix:
        raise StatementError("the SQL is an EXPLAIN", hint="give a SELECT; its rows are written")
    # DuckDB gives numbers to parameters without a name.
    if any(name.isdigit() for name in found.parameters):
        raise StatementError("there is a '?' without a name", hint="name the parameter, such as $since")
    inputs = dict.fromkeys(_duck_key(use, found.body) for use in found.tables)
    return Statement(text=text, inputs=tuple(inputs), parameters=found.parameters, uses=())


def _duck_hint(error: AnabranchError) -> str:
    if 'at or near ":"' in error.problem:
        return "a parameter is written $name in DuckDB's SQL"
    # Templates of dbt.
    return "name tables as bucket.table, without templates" if 'near "{"' in error.problem else error.hint


def _duck_key(use: TableUse, body: bytes) -> str:
    written = use.table if use.bucket is None else f"{use.bucket}.{use.table}"
    return str(_key(written, None if use.ref is None else f"'{use.ref}'", line=1 + body[: use.start].count(b"\n")))


def _key(written: str, time: str | None, *, line: int) -> TableKey:
    """Return the table of a name. Refuse one that is read as of a time or a ref."""
    try:
        key = TableKey.parse(written)
    except AnabranchError as err:
        raise StatementError(err.problem, hint=err.hint, line=line) from None
    if time is not None:
        raise StatementError(
            f"table '{key}' is read as of {time}", hint="a pipeline reads its branch as it is", line=line
        )
    return key


def _parse(text: str) -> exp.Query:
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None]
    except ParseError as err:
        raise _statement_error(err) from None
    # The parser is recursive, and a deeply nested statement exhausts the stack.
    except (SqlglotError, RecursionError) as err:
        raise StatementError(f"the SQL does not parse: {err}", hint="correct it") from None
    if not trees:
        raise StatementError("there is no SQL", hint="give a SELECT")
    if len(trees) > 1:
        raise StatementError("there are several SQL statements", hint="declare one output for each SELECT")
    if not isinstance(trees[0], exp.Query):
        word = text.split(maxsplit=1)[0].upper()
        raise StatementError(
            f"the SQL is not a SELECT: it begins with {word}", hint="give a SELECT; its rows are written"
        )
    return trees[0]


def _statement_error(err: ParseError) -> StatementError:
    first = err.errors[0] if err.errors else {}
    text, near = first.get("description", str(err)), first.get("highlight")
    # At the end of the text, the message contains internals of the parser.
    text = text.partition(" but got <Token")[0]
    where = f" near {near!r}" if near else ""
    return StatementError(f"the SQL does not parse: {text}{where}", hint="correct it", line=first.get("line") or 1)


def _is_other(table: exp.Table, common: set[str]) -> bool:
    """Return whether a table of a statement is a table function, or the name of a common table expression."""
    if not isinstance(table.this, exp.Identifier):
        if table.name.lower() == "identifier" or getattr(table.this, "name", "").lower() == "identifier":
            raise StatementError("IDENTIFIER(...) hides which table is read", hint="write the table's name")
        return True
    # A name with a bucket is a table, also if a common table expression has the same last part.
    return not table.db and table.name.lower() in common


def _use_of(table: exp.Table) -> _Use:
    parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
    time = "another time" if table.args.get("version") or table.args.get("when") else None
    key = _key(".".join(part.name for part in parts), time, line=parts[0].meta.get("line", 1))
    # Names of columns may contain that of the table, so the view gets it as an alias. Spark expects an alias after
    # the sample, whose end is not known here.
    alias = None if table.alias or table.args.get("sample") else key.table
    return _Use(start=parts[0].meta["start"], end=parts[-1].meta["end"] + 1, key=str(key), alias=alias)


def _iter_buckets(tree: exp.Query, keys: Collection[str | None]) -> Iterator[_Use]:
    """Yield the buckets in names of columns such as `bucket.table.column`: a view is only known as `table`."""
    for column in tree.find_all(exp.Column):
        bucket, table = column.args.get("db"), column.args.get("table")
        if bucket is not None and table is not None and f"{bucket.name}.{table.name}" in keys:
            yield _Use(start=bucket.meta["start"], end=table.meta["start"])


def _parameter_of(found: exp.Placeholder) -> str:
    if not isinstance(found.this, str):
        raise StatementError("there is a '?' without a name", hint="name the parameter, such as :since")
    return found.this
