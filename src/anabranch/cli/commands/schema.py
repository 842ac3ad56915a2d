"""`anabranch schema`: what tables look like, and what they are to look like."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    Actor,
    AsJson,
    BranchOption,
    Message,
    RefOption,
    Repo,
    StorageOptions,
    example,
)
from anabranch.cli.commits import commit_document, short_id
from anabranch.cli.output import Answer, Line, count, output_for
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.schema.plan import SchemaPlan
    from anabranch.repo.schema.steps import Step

__all__ = ["HAS_CHANGES", "app"]

# Beside the codes of errors, for scripts that ask whether anything is to be done.
HAS_CHANGES = 8

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}

app = typer.Typer(help="Show the schema of all tables, and bring tables to a desired one.")

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", show_default=False, help="The desired schema in YAML: a path, an s3:// address, or - for stdin."
    ),
]


@app.command("show", epilog=example("schema show > schema.yaml", "schema show --ref main~3"))
def show(
    ref: RefOption = None, repo: Repo = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Print the schema of all tables as YAML, which plan and apply read."""
    here = open_session(repo=repo, storage_options=storage_option)
    location = ref or here.current().name
    found = here.repository.schema_show(location)
    if as_json:
        output_for(as_json=True).show(Answer(document={"ref": location, **found.to_dict()}))
    else:
        typer.echo(found.to_yaml(), nl=False)  # as it is: YAML spells out what could steer a terminal


@app.command("plan", epilog=example("schema plan schema.yaml", "schema plan schema.yaml -b dev --exit-code"))
def plan(
    file: File,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"Exit with {HAS_CHANGES} if there is anything to change.")
    ] = False,
    branch: BranchOption = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show what would bring the tables of a branch to a desired schema; nothing is changed."""
    here = open_session(repo=repo, storage_options=storage_option, branch=branch)
    with here.on_current_branch():
        found = here.repository.schema_plan(_desired(file))
    answer = Answer(document=found.to_dict(), sentences=[_summary(found)], lines=list(_lines(found)))
    output_for(as_json=as_json).show(answer)
    if exit_code and not found.is_empty:
        raise typer.Exit(HAS_CHANGES)


@app.command("apply", epilog=example("schema apply schema.yaml", "schema apply schema.yaml --allow-destructive"))
def apply(
    file: File,
    allow_destructive: Annotated[
        bool, typer.Option("--allow-destructive", help="Also make changes that may lose data.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan, and check the rows, without changing anything.")
    ] = False,
    message: Message = None,
    branch: BranchOption = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Bring the tables of a branch to a desired schema, by one commit.

    What may lose data is refused unless it is allowed; older commits keep the data.
    """
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    with here.on_current_branch():
        done = here.repository.schema_apply(
            _desired(file), allow_destructive=allow_destructive, dry_run=dry_run, message=message
        )
    commit = done.commit
    sentences = [_summary(done.plan)]
    if commit is not None:
        sentences = [f"applied to {done.plan.branch} as {short_id(commit.graph_commit_id)}: {_counts(done.plan)}"]
    elif not done.plan.is_empty:
        sentences.append("the rows allow it; nothing was changed")
    document = {
        **done.plan.to_dict(),
        "dry_run": dry_run,
        "commit": None if commit is None else commit_document(commit),
    }
    output_for(as_json=as_json).show(Answer(document=document, sentences=sentences, lines=list(_lines(done.plan))))


def _desired(file: str) -> str | Path:
    if file == "-":
        return sys.stdin.read()
    return file if "://" in file else Path(file)


def _summary(found: "SchemaPlan") -> str:
    where = f"{found.branch} at {short_id(found.commit_id)}"
    return f"{where} has this schema" if found.is_empty else f"{where}: {_counts(found)}"


def _counts(found: "SchemaPlan") -> str:
    losing = f", {len(found.destructive)} of them may lose data" if found.destructive else ""
    return f"{count(len(found.steps), 'change')}{losing}"


def _lines(found: "SchemaPlan") -> Iterator[Line]:
    """The plan as a difference: a line for each table, below it one for each of its changes."""
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
