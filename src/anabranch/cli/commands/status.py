"""`anabranch status`: where this folder is."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import AsJson, Repo, StorageOptions
from anabranch.cli.commits import commit_document, moment, short_id, subject
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import Session, open_session

if TYPE_CHECKING:
    from anabranch.repo.settling import ForeignWrite
    from anabranch.repo.snapshots import Snapshot

__all__ = ["status"]


def status(
    branch: Annotated[
        str | None,
        typer.Option("--branch", "-b", metavar="NAME", show_default=False, help="Another branch than the current one."),
    ] = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the current repository, branch and commit.

    Tables that somebody wrote to with another tool are listed too, as far as this branch has written to them.
    """
    here = open_session(repo=repo, storage_options=storage_option, branch=branch)
    snapshot = here.snapshot(None)
    strangers = here.repository.list_foreign_writes()
    rows = sum(entry.rows for entry in snapshot.entries.values())
    document = {
        "repository": here.repository.uri,
        "branch": here.repository.branch,
        "branch_source": here.settings.branch_source,
        "version": snapshot.version,
        "head": commit_document(snapshot.commit),
        "tables": len(snapshot),
        "rows": rows,
        "foreign_writes": [{"table": one.table, "home": one.home, "problem": one.problem} for one in strangers],
    }
    tables = [Table(columns=("", ""), rows=_facts(here, snapshot, rows=rows))]
    if strangers:
        tables.append(_strangers_table(strangers))
    output_for(as_json=as_json).show(Answer(document=document, tables=tables))


def _facts(here: Session, snapshot: "Snapshot", *, rows: int) -> tuple[tuple[str, object], ...]:
    commit = snapshot.commit
    return (
        ("repository", here.repository.uri),
        ("branch", here.repository.branch),
        ("head", f"{short_id(snapshot.id)} {subject(commit)}".rstrip()),
        ("committed (UTC)", moment(commit.created_at)),
        ("by", commit.actor_id),
        ("tables", f"{count(len(snapshot), 'table')}, {count(rows, 'row')}"),
    )


def _strangers_table(strangers: "tuple[ForeignWrite, ...]") -> Table:
    return Table(
        title="written to by another tool; adopt or settle them in Python",
        columns=("table", "what happened"),
        rows=tuple((one.table, one.problem) for one in strangers),
    )
