"""`anabranch table`, `lineage` and `schema`: the tables of a repository, their origin, and their columns."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.command import COMMITS, READS_BRANCH, Here, add_group, command, group
from anabranch.cli.options import Limit, Message, RefOption, TableName, argument, flag, option, parse_names, parse_pairs
from anabranch.cli.output import DIFFERENT, Answer, Line, document_of
from anabranch.cli.texts import Table, count, first_page, list_columns, never_changed, schema_table, subject
from anabranch.display import short_id
from anabranch.errors import InvalidInputError
from anabranch.ids import TableKey

if TYPE_CHECKING:
    from anabranch.repo.schema.apply import SchemaPlan
    from anabranch.repo.schema.plan import Step
    from anabranch.repo.transaction import Transaction

app = group()
tables = add_group(app, "table", help="List, show, create, drop and rename tables.", otherwise="anabranch table show")
schemas = group(help="Show the schema of tables, and apply a schema file.")
app.add_typer(schemas, name="schema")

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}

File = Annotated[str, argument("FILE", "Schema file in YAML: a path, an s3:// address, or - for stdin.")]


@command(tables, "list", "table list", "table list --ref main~3")
def list_(here: Here, ref: RefOption = None) -> Answer:
    """List tables with their number of rows."""
    snapshot = here.snapshot(ref)
    found = list(snapshot.values())
    rows = [(table.key, table.count_rows(), ", ".join(table.primary_key) or None) for table in found]
    document = {"commit_id": snapshot.id, "tables": found}
    return Answer(document, tables=[Table(("table", "rows", "primary key"), rows, empty="no tables")])


@command(tables, "show", "table show shop.orders --ref dev")
def show(here: Here, key: TableName, ref: RefOption = None) -> Answer:
    """Show the columns, primary key, rows and location of a table."""
    snapshot = here.snapshot(ref)
    table = snapshot[key]
    columns = list_columns(table.schema)
    facts = (
        ("table", table.key),
        ("commit", short_id(snapshot.id)),
        ("rows", table.count_rows()),
        ("primary key", ", ".join(table.primary_key) or None),
        ("Lance dataset", table.uri),
        ("Lance version", str(table.entry.version)),
    )
    shown = [Table(("", ""), facts), schema_table(columns)]
    return Answer({"commit_id": snapshot.id, **document_of(table), "uri": table.uri, "schema": columns}, tables=shown)


@command(
    tables,
    "create",
    "table create shop.orders id=int64 item=string 'price=decimal(10, 2)' --primary-key id",
    on=COMMITS,
)
def create(
    here: Here,
    key: TableName,
    columns: list[str] = argument(
        "COLUMN=TYPE...", "Columns with their types, such as id=int64 or 'price=decimal(10, 2)'."
    ),
    primary_key: str | None = option(
        "--primary-key", "NAME,...", "Columns of the primary key (default: no primary key)."
    ),
    message: Message = None,
) -> Answer:
    """Create an empty table, as one commit."""
    import pyarrow as pa

    from anabranch.column_types import to_arrow

    types = parse_pairs(columns, option="column", form="COLUMN=TYPE", example="id=int64")
    schema = pa.schema([(name, to_arrow(text)) for name, text in types.items()])
    with here.repository.transaction(message=message or f"Create {key}") as tx:
        tx.create_table(key, schema, primary_key=parse_names(primary_key) or [])
    return _changed(here, tx, key, f"created {key} with {count(len(types), 'column')}")


@command(tables, "drop", "table drop shop.orders", on=COMMITS)
def drop(here: Here, key: TableName, message: Message = None) -> Answer:
    """Drop a table from the branch. Older commits still have the table."""
    with here.repository.transaction(message=message or f"Drop {key}") as tx:
        tx.drop_table(key)
    return _changed(here, tx, key, f"dropped {key}")


@command(tables, "rename", "table rename shop.orders shop.sales", on=COMMITS)
def rename(
    here: Here, key: TableName, new: str = argument("NEW", "New name of the table."), message: Message = None
) -> Answer:
    """Rename a table. No data is copied, and its history continues."""
    with here.repository.transaction(message=message or f"Rename {key} to {new}") as tx:
        tx.rename_table(key, new)
    return _changed(here, tx, new, f"renamed {key} to {new}")


def _changed(here: Here, tx: "Transaction", key: str, what: str) -> Answer:
    branch, commit = here.repository.branch, tx.published
    document = {"table": key, "branch": branch, "commit": commit}
    at = "" if commit is None else f" at {short_id(commit.id)}"
    return Answer(document, f"{what} on {branch}{at}")


@command(tables, "history", "table history shop.orders", "table history shop.orders --ref dev")
def history(here: Here, key: TableName, limit: Limit = 20, ref: RefOption = None) -> Answer:
    """List the commits that changed a table, newest first."""
    # Not at the top: a help text needs none of it.
    from anabranch.repo.history.lineage import made_by

    name, seen = TableKey.parse(key), here.snapshot(ref)
    start, main = ref, seen.main_commit_id
    # With an equal entry a live branch shows the table of main, whose history is on main.
    if main is not None and here.repository.snapshot_of(main).entries.get(name) == seen.entries.get(name):
        start = main
    found = here.repository.list_commits(start, limit=limit + 1, table=key)
    if not found:
        raise never_changed(key, ref or here.repository.branch, seen)
    commits, has_more, sentences = first_page(found, limit, "newest", "commit")
    rows, documents = [], []
    for commit in commits:
        entry = here.repository.snapshot_of(commit.id).entries.get(name)
        size, maker = None if entry is None else entry.rows, made_by(commit)
        rows.append((short_id(commit.id), commit.created, commit.actor_id, maker, size, subject(commit)))
        documents.append({**document_of(commit), "rows": size, "made_by": maker})
    shown = Table(("commit", "time (UTC)", "by", "made by", "rows", "message"), rows)
    document = {"table": key, "ref": ref or here.repository.branch, "commits": documents, "has_more": has_more}
    return Answer(document, *sentences, tables=[shown])


@command(tables, "adopt", "table adopt shop.orders", "table adopt shop.events events.lance", on=COMMITS)
def adopt(
    here: Here,
    key: TableName,
    uri: str | None = argument(
        "URI",
        "Lance dataset to add as a new table: a folder, or an s3://, gs:// or az:// address. No data is copied.",
        default=None,
    ),
    primary_key: str | None = option("--primary-key", "NAME,...", "With URI: columns of the primary key."),
) -> Answer:
    """Commit external writes to a table, or add a Lance dataset.

    An external write is a write by another Lance tool. Without URI, the command commits the external writes to TABLE.
    With URI, the Lance dataset at that address becomes the new table TABLE.
    """
    columns = parse_names(primary_key) or []
    if columns and uri is None:
        raise InvalidInputError("--primary-key is for a new table", hint="give its URI, or leave the key out")
    here.repository.adopt(key, uri, primary_key=columns)
    snapshot = here.repository.snapshot()
    rows, where = snapshot[key].count_rows(), f"{here.repository.branch} at {short_id(snapshot.id)}"
    document = {"table": key, "branch": here.repository.branch, "commit_id": snapshot.id, "rows": rows}
    return Answer(document, f"adopted {key} with {count(rows, 'row')} on {where}")


@command(tables, "settle", "table settle shop.orders --force", on=COMMITS)
def settle(
    here: Here,
    key: TableName,
    force: bool = flag(
        "--force", "Discard external writes. Old versions of the Lance dataset still contain their rows."
    ),
) -> Answer:
    """Make the newest state of a table visible to other Lance tools.

    Normally, other Lance tools see every commit at once. Use this command if they see an old state. If another tool has
    written to the table, this command fails. Then commit these external writes with 'anabranch table adopt', or discard
    them with --force.
    """
    here.repository.settle(key, force=force)
    document = {"table": key, "branch": here.repository.branch}
    return Answer(document, f"settled {key} on {here.repository.branch}: Lance tools see what was published")


@command(app, "lineage", "lineage gold.revenue", "lineage gold.revenue --ref v1.0 --svg revenue.svg")
def lineage(
    here: Here,
    key: TableName,
    ref: RefOption = None,
    svg: str | None = option(
        "--svg", "FILE", "Write a drawing to this SVG file instead, local or in the store of the repository."
    ),
) -> Answer:
    """Show what a table was made from: tables, pipelines and loads."""
    with here.output.progress("tracing"):
        found = here.repository.lineage(key, ref)
    if svg is None:
        return Answer(found.to_dict(), lines=[Line(line) for line in found.to_text().splitlines()])
    here.write_file(svg, found.to_svg())
    return Answer({**found.to_dict(), "svg": svg}, f"drew the lineage of {key} into {svg}")


@command(schemas, "show", "schema show > schema.yaml", "schema show --ref main~3")
def show_schema(here: Here, ref: RefOption = None) -> Answer | None:
    """Print the schema of all tables as YAML, for 'plan' and 'apply'."""
    location = ref or here.current().name
    found = here.repository.schema_show(location)
    if here.as_json:
        return Answer({"ref": location, **found.to_dict()})
    typer.echo(found.to_yaml(), nl=False)  # YAML escapes control characters itself
    return None


@command(schemas, "plan", "schema plan schema.yaml", "schema plan schema.yaml -b dev --exit-code", on=READS_BRANCH)
def plan_schema(
    here: Here,
    file: File,
    exit_code: bool = flag("--exit-code", f"Exit with code {DIFFERENT} if there are changes to make."),
) -> Answer:
    """Show the changes that a schema file needs. Nothing changes."""
    with here.output.progress("planning"):
        found = here.repository.schema_plan(_desired(file))
    code = DIFFERENT if exit_code and not found.is_empty else 0
    return Answer(found.to_dict(), _summary(found), lines=list(_lines(found)), exit_code=code)


@command(schemas, "apply", "schema apply schema.yaml", "schema apply schema.yaml --allow-destructive", on=COMMITS)
def apply_schema(
    here: Here,
    file: File,
    allow_destructive: bool = flag(
        "--allow-destructive", "Allow changes that may lose data. Older commits keep the data."
    ),
    dry_run: bool = flag("--dry-run", "Plan, and check the rows. Change nothing."),
    message: Message = None,
) -> Answer:
    """Change tables to match a schema file, as one commit.

    Changes that may lose data need --allow-destructive.
    """
    with here.output.progress("applying"):
        done = here.repository.schema_apply(
            _desired(file), allow_destructive=allow_destructive, dry_run=dry_run, message=message
        )
    plan, commit = done.plan, done.commit
    sentences = [_summary(plan)]
    if commit is not None:
        sentences = [f"applied to {plan.branch} as {short_id(commit.id)}: {_counts(plan)}"]
    elif not plan.is_empty:
        sentences.append("the rows allow it; nothing was changed")
    return Answer({**plan.to_dict(), "dry_run": dry_run, "commit": commit}, *sentences, lines=list(_lines(plan)))


def _desired(file: str) -> str | Path:
    if file == "-":
        # The line end distinguishes text from a path: the library reads a single line such as 'shop.yaml' as a path.
        return f"{sys.stdin.read()}\n"
    # A Path is always read as a file. A string without a suffix such as .yaml would be read as YAML text.
    return file if "://" in file else Path(file)


def _summary(found: "SchemaPlan") -> str:
    where = f"{found.branch} at {short_id(found.commit_id)}"
    return f"{where} has this schema" if found.is_empty else f"{where}: {_counts(found)}"


def _counts(found: "SchemaPlan") -> str:
    losing = f", {len(found.destructive)} of them may lose data" if found.destructive else ""
    return f"{count(len(found.steps), 'change')}{losing}"


def _lines(found: "SchemaPlan") -> Iterator[Line]:
    """Yield a line for each table of a plan, and below it a line for each of its changes."""
    for key in found.tables:
        steps = found.of_table(key)
        whole = next((step for step in steps if step.kind in {"create_table", "drop_table"}), None)
        if whole is None:
            yield Line(f"~ {key}", _COLOURS["~"])
            for step in steps:
                yield Line(f"    {step.symbol} {step.text}{_warning(step)}", _COLOURS[step.symbol])
            continue
        yield Line(f"{whole.symbol} {key}: {whole.text}{_warning(whole)}", _COLOURS[whole.symbol])
        for text in whole.parts:
            yield Line(f"    {whole.symbol} {text}", _COLOURS[whole.symbol])


def _warning(step: "Step") -> str:
    return "  (may lose data)" if step.is_destructive else ""
