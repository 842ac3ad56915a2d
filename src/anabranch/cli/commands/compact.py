"""`anabranch compact`: the same rows in fewer and larger files."""

from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, BranchOption, Repo, StorageOptions
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, Table, output_for
from anabranch.cli.session import open_session

__all__ = ["compact"]


def compact(
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            show_default=False,
            help="The tables, such as in_c_sales.orders; by default all that the branch has written.",
        ),
    ] = None,
    branch: BranchOption = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="Where the work is done: local, or spark for many machines.")
    ] = "local",
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite small and half-deleted files of tables as larger ones, in one commit; no row changes."""
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    output = output_for(as_json=as_json)
    with output.progress("compacting") as report, here.on_current_branch():
        done = here.repository.compact(keys or None, branch=branch, engine=engine, progress=report)
    tables = [
        {
            "table": table.table,
            "rows": table.rows,
            "fragments_before": table.fragments_before,
            "fragments_after": table.fragments_after,
        }
        for table in done.tables
    ]
    commit_id = None if done.commit is None else done.commit.graph_commit_id
    sentence = "nothing to compact" if commit_id is None else f"compacted by commit {short_id(commit_id)}"
    shown = Table(
        columns=("table", "rows", "fragments before", "fragments"),
        rows=tuple(tuple(table.values()) for table in tables),
        empty="no tables",
    )
    document = {"commit_id": commit_id, "tables": tables}
    output.show(Answer(document=document, sentences=[sentence], tables=[shown]))
