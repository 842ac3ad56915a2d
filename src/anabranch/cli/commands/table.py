"""`anabranch table`: the tables of a repository."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    Actor,
    AsJson,
    BranchOption,
    Limit,
    RefOption,
    Repo,
    StorageOptions,
    TableName,
    example,
)
from anabranch.cli.commits import commit_document, short_id, subject
from anabranch.cli.groups import ListGroup
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import Session, open_session
from anabranch.errors import InvalidInputError, TableNotFoundError
from anabranch.ids import TableKey

if TYPE_CHECKING:
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.snapshot import Table as SnapshotTable

__all__ = ["app"]


class _Tables(ListGroup):
    otherwise = "anabranch table show"


app = typer.Typer(cls=_Tables, help="List and show tables, and adopt external writes.")


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


@app.command("history", epilog=example("table history in_c_sales.orders", "table history in_c_sales.orders --ref dev"))
def history(
    key: TableName,
    limit: Limit = 20,
    ref: RefOption = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the commits that changed a table, newest first: what made each, and the rows after it."""
    # Not at the top: a help text needs none of it.
    from anabranch.repo.history.lineage.provenance import made_by

    here = open_session(repo=repo, storage_options=storage_option)
    found = _history(here, TableKey.parse(key), ref, limit=limit + 1)
    commits, has_more = found[:limit], len(found) > limit
    counts = [_rows_after(here, commit, TableKey.parse(key)) for commit in commits]
    rows = tuple(
        (
            short_id(commit.graph_commit_id),
            commit.created,
            commit.actor_id,
            made_by(commit),
            rows_after,
            subject(commit),
        )
        for commit, rows_after in zip(commits, counts, strict=True)
    )
    document = {
        "table": key,
        "ref": ref or here.repository.branch,
        "commits": [
            {**commit_document(commit), "rows": rows_after, "made_by": made_by(commit)}
            for commit, rows_after in zip(commits, counts, strict=True)
        ],
        "has_more": has_more,
    }
    shown = Table(columns=("commit", "time (UTC)", "by", "made by", "rows", "message"), rows=rows)
    sentences = [f"the newest {count(limit, 'commit')}; --limit shows more"] if has_more else []
    output_for(as_json=as_json).show(Answer(document=document, sentences=sentences, tables=[shown]))


@app.command("adopt", epilog=example("table adopt in_c_sales.orders", "table adopt in_c_sales.events events.lance"))
def adopt(
    key: TableName,
    uri: Annotated[
        str | None,
        typer.Argument(
            metavar="URI", show_default=False, help="A Lance table to take in as a new one, without copying its data."
        ),
    ] = None,
    primary_key: Annotated[
        str | None,
        typer.Option(
            "--primary-key", metavar="NAME,...", show_default=False, help="The columns that are the new table's key."
        ),
    ] = None,
    branch: BranchOption = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Take in what another tool wrote to a table, or a whole Lance table."""
    columns = [] if primary_key is None else [name.strip() for name in primary_key.split(",")]
    if columns and uri is None:
        raise InvalidInputError("--primary-key is for a new table", hint="give its URI, or leave the key out")
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    with here.on_current_branch():
        here.repository.adopt(key, uri, primary_key=columns)
    snapshot = here.repository.snapshot()
    rows, where = snapshot[key].count_rows(), f"{here.repository.branch} at {short_id(snapshot.id)}"
    document = {"table": key, "branch": here.repository.branch, "commit_id": snapshot.id, "rows": rows}
    sentence = f"adopted {key} with {count(rows, 'row')} on {where}"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))


@app.command("settle", epilog=example("table settle in_c_sales.orders --force"))
def settle(
    key: TableName,
    force: Annotated[bool, typer.Option("--force", help="Set aside what another tool wrote.")] = False,
    branch: BranchOption = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Let every Lance tool see a table as it was published.

    Refused where another tool has written to the table, unless by force; such a write stays among the table's old
    versions.
    """
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    with here.on_current_branch():
        here.repository.settle(key, force=force)
    document = {"table": key, "branch": here.repository.branch}
    sentence = f"settled {key} on {here.repository.branch}: Lance tools see what was published"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))


def _history(here: Session, key: TableKey, ref: str | None, *, limit: int) -> "list[GraphCommit]":
    """The commits that changed a table; where a live branch follows main, those of main."""
    seen = here.snapshot(ref)
    start, main = ref, seen.main_commit_id
    if main is not None and here.repository.snapshot_of(main).entries.get(key) == seen.entries.get(key):
        start = main
    found = here.commits(start, limit=limit, table=str(key))
    if not found:
        raise TableNotFoundError(
            f"no commit of '{ref or here.repository.branch}' changed a table '{key}'",
            hint="list the tables to see which exist",
        )
    return found


def _rows_after(here: Session, commit: "GraphCommit", key: TableKey) -> int | None:
    entry = here.repository.snapshot_of(commit.graph_commit_id).entries.get(key)
    return None if entry is None else entry.rows


def _document(table: "SnapshotTable") -> dict[str, object]:
    return {
        "table": table.key,
        "rows": table.count_rows(),
        "primary_key": table.primary_key,
        "dataset": table.entry.dataset,
        "home": table.entry.home,
        "version": str(table.entry.version),
    }
