"""`anabranch table`: the tables of a repository."""

from typing import TYPE_CHECKING

import typer

from anabranch.cli.arguments import AsJson, RefOption, Repo, StorageOptions, TableName, example
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, Table, output_for
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.snapshots import Table as SnapshotTable

__all__ = ["app"]

app = typer.Typer(help="List and show tables.")


@app.command("list", epilog=example("table list", "table list --ref main~3"))
def list_(
    ref: RefOption = None, repo: Repo = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """List the tables with their rows."""
    snapshot = open_session(repo=repo, storage_options=storage_option).snapshot(ref)
    found = list(snapshot.values())
    rows = tuple((table.key, table.count_rows(), ", ".join(table.primary_key) or None) for table in found)
    document = {"commit_id": snapshot.id, "tables": [_document(table) for table in found]}
    shown = Table(columns=("table", "rows", "primary key"), rows=rows, empty="no tables")
    output_for(as_json=as_json).show(Answer(document=document, tables=[shown]))


@app.command("show", epilog=example("table show in_c_sales.orders --ref dev"))
def show(
    key: TableName,
    ref: RefOption = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show a table: rows, key, columns, and where its data are."""
    snapshot = open_session(repo=repo, storage_options=storage_option).snapshot(ref)
    table = snapshot[key]
    fields = [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in table.schema]
    facts = (
        ("table", table.key),
        ("commit", short_id(snapshot.id)),
        ("rows", table.count_rows()),
        ("primary key", ", ".join(table.primary_key) or None),
        ("Lance dataset", table.uri),
        ("Lance version", table.entry.version),
    )
    columns = tuple((field["name"], field["type"], field["nullable"]) for field in fields)
    tables = [
        Table(columns=("", ""), rows=facts),
        Table(title="schema", columns=("column", "type", "nullable"), rows=columns),
    ]
    document = {"commit_id": snapshot.id, **_document(table), "uri": table.uri, "schema": fields}
    output_for(as_json=as_json).show(Answer(document=document, tables=tables))


def _document(table: "SnapshotTable") -> dict[str, object]:
    return {
        "table": table.key,
        "rows": table.count_rows(),
        "primary_key": table.primary_key,
        "dataset": table.entry.dataset,
        "home": table.entry.home,
        "version": str(table.entry.version),
    }
