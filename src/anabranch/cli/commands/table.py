"""`anabranch table`, `cat`, `blame` and `lineage`: the tables of a repository, their rows, and where both come from."""

from typing import TYPE_CHECKING, Annotated

from anabranch.cli.command import BRANCH, WRITES, Here, add_group, command, group
from anabranch.cli.documents import document_of
from anabranch.cli.options import (
    Columns,
    Engine,
    Limit,
    Message,
    RefOption,
    TableName,
    Where,
    argument,
    flag,
    option,
    parse_names,
    parse_pairs,
)
from anabranch.cli.output import Answer, Line, print_stream
from anabranch.cli.texts import Table, count, never_changed, subject, text_value, value_table
from anabranch.display import short_id
from anabranch.errors import InvalidInputError
from anabranch.files.plain_rows import csv_lines, plain_rows
from anabranch.ids import TableKey

if TYPE_CHECKING:
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.transaction import Transaction

app = group()
tables = add_group(app, "table", help="List, show, create, drop and rename tables.", otherwise="anabranch table show")

_DEFAULT_LIMIT = 20


@command(tables, "list", "table list", "table list --ref main~3")
def list_(here: Here, ref: RefOption = None) -> Answer:
    """List tables with their number of rows."""
    snapshot = here.snapshot(ref)
    found = list(snapshot.values())
    rows = [(table.key, table.count_rows(), ", ".join(table.primary_key) or None) for table in found]
    document = {"commit_id": snapshot.id, "tables": found}
    return Answer(document, tables=[Table(("table", "rows", "primary key"), rows, empty="no tables")])


@command(tables, "show", "table show shop.orders --ref dev")
def show(
    here: Here,
    key: TableName,
    ref: RefOption = None,
) -> Answer:
    """Show the columns, primary key, rows and location of a table."""
    snapshot = here.snapshot(ref)
    table = snapshot[key]
    fields = [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in table.schema]
    facts = (
        ("table", table.key),
        ("commit", short_id(snapshot.id)),
        ("rows", table.count_rows()),
        ("primary key", ", ".join(table.primary_key) or None),
        ("Lance dataset", table.uri),
        ("Lance version", str(table.entry.version)),
    )
    columns = [(field["name"], field["type"], field["nullable"]) for field in fields]
    shown = [
        Table(("", ""), facts),
        Table(("column", "type", "nullable"), columns, title="schema"),
    ]
    return Answer({"commit_id": snapshot.id, **document_of(table), "uri": table.uri, "schema": fields}, tables=shown)


@command(
    tables,
    "create",
    "table create shop.orders id=int64 item=string 'price=decimal(10, 2)' --primary-key id",
    on=(*BRANCH, *WRITES),
)
def create(
    here: Here,
    key: TableName,
    columns: Annotated[
        list[str], argument("COLUMN=TYPE...", "Columns with their types, such as id=int64 or 'price=decimal(10, 2)'.")
    ],
    primary_key: Annotated[
        str | None, option("--primary-key", "NAME,...", "Columns of the primary key (default: no primary key).")
    ] = None,
    message: Message = None,
) -> Answer:
    """Create an empty table, as one commit."""
    import pyarrow as pa

    from anabranch.repo.schema.types import to_arrow

    types = parse_pairs(columns, option="column", form="COLUMN=TYPE", example="id=int64")
    schema = pa.schema([(name, to_arrow(text)) for name, text in types.items()])
    with here.on_current_branch(), here.repository.transaction(message=message or f"Create {key}") as tx:
        tx.create_table(key, schema, primary_key=parse_names(primary_key) or [])
    return _changed(here, tx, key, f"created {key} with {count(len(types), 'column')}")


@command(tables, "drop", "table drop shop.orders", on=(*BRANCH, *WRITES))
def drop(here: Here, key: TableName, message: Message = None) -> Answer:
    """Drop a table from the branch. Older commits still have the table."""
    with here.on_current_branch(), here.repository.transaction(message=message or f"Drop {key}") as tx:
        tx.drop_table(key)
    return _changed(here, tx, key, f"dropped {key}")


@command(tables, "rename", "table rename shop.orders shop.sales", on=(*BRANCH, *WRITES))
def rename(
    here: Here,
    key: TableName,
    new: Annotated[str, argument("NEW", "New name of the table.")],
    message: Message = None,
) -> Answer:
    """Rename a table. No data is copied, and its history continues."""
    with here.on_current_branch(), here.repository.transaction(message=message or f"Rename {key} to {new}") as tx:
        tx.rename_table(key, new)
    return _changed(here, tx, new, f"renamed {key} to {new}")


def _changed(here: Here, tx: "Transaction", key: str, what: str) -> Answer:
    branch, commit = here.repository.branch, tx.published
    document = {"table": key, "branch": branch, "commit": commit}
    at = "" if commit is None else f" at {short_id(commit.graph_commit_id)}"
    return Answer(document, f"{what} on {branch}{at}")


@command(tables, "history", "table history shop.orders", "table history shop.orders --ref dev")
def history(
    here: Here,
    key: TableName,
    limit: Limit = 20,
    ref: RefOption = None,
) -> Answer:
    """List the commits that changed a table, newest first."""
    # Not at the top: a help text needs none of it.
    from anabranch.repo.history.lineage import made_by

    found = _history(here, TableKey.parse(key), ref, limit=limit + 1)
    commits, has_more = found[:limit], len(found) > limit
    counts = [_rows_after(here, commit, TableKey.parse(key)) for commit in commits]
    rows = [
        (
            short_id(commit.graph_commit_id),
            commit.created,
            commit.actor_id,
            made_by(commit),
            rows_after,
            subject(commit),
        )
        for commit, rows_after in zip(commits, counts, strict=True)
    ]
    document = {
        "table": key,
        "ref": ref or here.repository.branch,
        "commits": [
            {**document_of(commit), "rows": rows_after, "made_by": made_by(commit)}
            for commit, rows_after in zip(commits, counts, strict=True)
        ],
        "has_more": has_more,
    }
    shown = Table(("commit", "time (UTC)", "by", "made by", "rows", "message"), rows)
    sentences = [f"the newest {count(limit, 'commit')}; --limit shows more"] if has_more else []
    return Answer(document, *sentences, tables=[shown])


@command(
    tables,
    "adopt",
    "table adopt shop.orders",
    "table adopt shop.events events.lance",
    on=(*BRANCH, *WRITES),
)
def adopt(
    here: Here,
    key: TableName,
    uri: Annotated[
        str | None,
        argument(
            "URI",
            "Lance dataset to add as a new table: a folder, or an s3://, gs:// or az:// address. No data is copied.",
        ),
    ] = None,
    primary_key: Annotated[
        str | None, option("--primary-key", "NAME,...", "With URI: columns of the primary key.")
    ] = None,
) -> Answer:
    """Commit external writes to a table, or add a Lance dataset.

    An external write is a write by another Lance tool. Without URI, the command commits the external writes to TABLE.
    With URI, the Lance dataset at that address becomes the new table TABLE.
    """
    columns = parse_names(primary_key) or []
    if columns and uri is None:
        raise InvalidInputError("--primary-key is for a new table", hint="give its URI, or leave the key out")
    with here.on_current_branch():
        here.repository.adopt(key, uri, primary_key=columns)
    snapshot = here.repository.snapshot()
    rows, where = snapshot[key].count_rows(), f"{here.repository.branch} at {short_id(snapshot.id)}"
    document = {"table": key, "branch": here.repository.branch, "commit_id": snapshot.id, "rows": rows}
    return Answer(document, f"adopted {key} with {count(rows, 'row')} on {where}")


@command(tables, "settle", "table settle shop.orders --force", on=(*BRANCH, *WRITES))
def settle(
    here: Here,
    key: TableName,
    force: Annotated[
        bool, flag("--force", "Discard external writes. Old versions of the Lance dataset still contain their rows.")
    ] = False,
) -> Answer:
    """Make the newest state of a table visible to other Lance tools.

    Normally, other Lance tools see every commit at once. Use this command if they see an old state. If another tool has
    written to the table, this command fails. Then commit these external writes with 'anabranch table adopt', or discard
    them with --force.
    """
    with here.on_current_branch():
        here.repository.settle(key, force=force)
    document = {"table": key, "branch": here.repository.branch}
    return Answer(document, f"settled {key} on {here.repository.branch}: Lance tools see what was published")


def _history(here: Here, key: TableKey, ref: str | None, *, limit: int) -> "list[GraphCommit]":
    """The commits that changed a table; where a live branch follows main, those of main."""
    seen = here.snapshot(ref)
    start, main = ref, seen.main_commit_id
    # With an equal entry the branch shows the table of main, whose history is on main.
    if main is not None and here.repository.snapshot_of(main).entries.get(key) == seen.entries.get(key):
        start = main
    found = here.commits(start, limit=limit, table=str(key))
    if not found:
        raise never_changed(str(key), ref or here.repository.branch, seen)
    return found


def _rows_after(here: Here, commit: "GraphCommit", key: TableKey) -> int | None:
    entry = here.repository.snapshot_of(commit.graph_commit_id).entries.get(key)
    return None if entry is None else entry.rows


@command(app, "cat", "cat shop.orders --where 'amount > 100' --columns id,amount")
def cat(
    here: Here,
    key: TableName,
    columns: Columns = None,
    where: Where = None,
    limit: Annotated[
        int | None,
        option("--limit -n", "N", f"Maximum number of rows (default: {_DEFAULT_LIMIT}; with --csv, all).", min=1),
    ] = None,
    as_csv: Annotated[bool, flag("--csv", "Print CSV with a header.")] = False,
    ref: RefOption = None,
) -> Answer | None:
    """Print the rows of a table."""
    if as_csv and here.as_json:
        raise InvalidInputError("--csv and --json do not go together", hint="leave one out")
    snapshot = here.snapshot(ref)
    table = snapshot[key]
    chosen = parse_names(columns)
    if as_csv:
        header = chosen or table.schema.names
        # Batch by batch: without a limit this prints the whole table, which may be larger than the memory.
        texts = csv_lines(header, table.scan(columns=chosen, where=where, limit=limit))
        print_stream(here.output, f"reading {key}", texts)
        return None
    most = limit or _DEFAULT_LIMIT
    # One more than is shown, to know whether there are more.
    with here.output.progress(f"reading {key}"):
        found = table.to_arrow(columns=chosen, where=where, limit=most + 1)
    has_more = len(found) > most
    rows, names = plain_rows(found.slice(0, most)), found.column_names
    document = {
        "table": table.key,
        "commit_id": snapshot.id,
        "columns": names,
        "rows": [dict(zip(names, row, strict=True)) for row in rows],
        "has_more": has_more,
    }
    shown = value_table(names, rows)
    sentences = [f"the first {count(most, 'row')}; --limit shows more"] if has_more else []
    return Answer(document, *sentences, tables=[shown])


@command(app, "lineage", "lineage gold.revenue", "lineage gold.revenue --ref v1.0 --svg revenue.svg")
def lineage(
    here: Here,
    key: TableName,
    ref: RefOption = None,
    svg: Annotated[
        str | None,
        option("--svg", "FILE", "Write a drawing to this SVG file instead, local or in the store of the repository."),
    ] = None,
) -> Answer:
    """Show what a table was made from: tables, pipelines and loads."""
    with here.output.progress("tracing"), here.on_current_branch():
        found = here.repository.lineage(key, ref)
    if svg is None:
        return Answer(found.to_dict(), lines=[Line(line) for line in found.to_text().splitlines()])
    here.write_file(svg, found.to_svg())
    return Answer({**found.to_dict(), "svg": svg}, f"drew the lineage of {key} into {svg}")


@command(app, "blame", "blame shop.orders --where 'id = 7'", "blame shop.orders --cells --limit 5 --json")
def blame(
    here: Here,
    key: TableName,
    cells: Annotated[bool, flag("--cells", "Show the commit of each cell, not of each row.")] = False,
    columns: Annotated[str | None, option("--columns -c", "NAME,...", "Only the cells of these columns.")] = None,
    where: Annotated[str | None, option("--where", "SQL", "Only rows for which this condition is true.")] = None,
    limit: Annotated[int, option("--limit -n", "N", "Maximum number of rows.", min=1)] = 20,
    engine: Engine = "auto",
    ref: RefOption = None,
) -> Answer:
    """Show the commit that last changed each row of a table."""
    chosen = parse_names(columns)
    with here.output.progress("reading the history"), here.on_current_branch():
        found = here.repository.blame(
            key, ref=ref, where=where, limit=limit + 1, columns=chosen, cells=cells, engine=engine
        )
    in_row = len(chosen) if chosen is not None else len(here.snapshot(ref)[key].schema.names) if cells else 1
    has_more = len(found) > limit * in_row
    if has_more:
        # The rows of one column follow each other, and the last row of each column is one too many.
        kept = [number for number in range(len(found)) if number % (limit + 1) < limit]
        found = found.take(kept)
    names, rows = found.column_names, plain_rows(found)
    document = {
        "table": key,
        "columns": names,
        "rows": [dict(zip(names, row, strict=True)) for row in rows],
        "has_more": has_more,
    }
    at = names.index("commit_id")
    shown = [(*map(text_value, row[:at]), short_id(row[at]), *row[at + 1 :]) for row in rows]
    titles = (*names[:at], "commit", "time (UTC)", "by", "message")
    sentences = [f"the first {count(limit, 'row')}; --limit shows more"] if has_more else []
    return Answer(document, *sentences, tables=[Table(titles, tuple(shown), empty="no rows")])
