"""`anabranch changes`: what each commit did to the rows of a table."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import REF_FORMS, AsJson, Repo, StorageOptions, TableName
from anabranch.cli.commits import commit_document, short_id, subject
from anabranch.cli.output import Answer, Line, Table, count, output_for
from anabranch.cli.rows import (
    ChangedRow,
    column_table,
    difference_document,
    iter_row_lines,
    list_changed_rows,
)
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.history.changes import CommitChanges

__all__ = ["changes"]

_Shown = tuple["CommitChanges", list[ChangedRow] | None]


def changes(
    key: TableName,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="REF",
            show_default=False,
            help="Only commits after this one, which has to be in the history; by default all since the first.",
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="REF", show_default=False, help=REF_FORMS)] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Count the rows that each commit changed.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Show the rows that each commit changed.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of rows of each commit.")
    ] = 20,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show what each commit did to a table, oldest first: counts and columns, unless rows are asked for."""
    here = open_session(repo=repo, storage_options=storage_option)
    with here.on_current_branch():
        found = here.repository.changes(key, since=since, until=until)
    shown: list[_Shown] = [(step, list_changed_rows(step.diff, limit=limit) if rows else None) for step in found]
    is_counted = stat or not rows
    answer = Answer(
        document={
            "table": key,
            "commits": [
                {
                    **commit_document(step.commit),
                    **difference_document(step.diff, chosen),
                    "renamed_from": step.renamed_from,
                    "renamed_to": step.renamed_to,
                }
                for step, chosen in shown
            ],
        },
        sentences=[] if shown else ["nothing changed"],
        lines=list(_iter_lines(shown)) if rows else [],
        tables=[*_iter_tables(shown)] if is_counted and shown else [],
    )
    output_for(as_json=as_json).show(answer)


def _iter_lines(shown: Sequence[_Shown]) -> Iterator[Line]:
    for step, chosen in shown:
        commit = step.commit
        at = commit.created.strftime("%Y-%m-%d %H:%M:%S")
        what = "" if step.diff.change == "changed" else f" (table {_fate(step)})"
        yield Line(f"{short_id(commit.graph_commit_id)} {at} {subject(commit)}{what}")
        yield from iter_row_lines(step.diff, chosen or [])
        if step.diff.columns:
            yield Line(f"and {count(len(step.diff.columns), 'change')} of columns; --stat shows them")


def _fate(step: "CommitChanges") -> str:
    """What became of the table."""
    if step.renamed_from is not None:
        return f"renamed from {step.renamed_from}"
    return step.diff.change.value if step.renamed_to is None else f"renamed to {step.renamed_to}"


def _iter_tables(shown: Sequence[_Shown]) -> Iterator[Table]:
    yield Table(
        columns=("commit", "time (UTC)", "by", "message", "table", "inserted", "updated", "deleted"),
        rows=tuple(
            (
                short_id(step.commit.graph_commit_id),
                step.commit.created,
                step.commit.actor_id,
                subject(step.commit),
                _fate(step),
                step.counts.inserted,
                step.counts.updated,
                step.counts.deleted,
            )
            for step, _ in shown
        ),
    )
    for step, _ in shown:
        if step.diff.columns:
            yield column_table(step.diff, title=f"columns changed by {short_id(step.commit.graph_commit_id)}")
