"""`anabranch schema`: the schema of tables, and changes to it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.command import BRANCH, READS, WRITES, Here, command, group
from anabranch.cli.options import Message, RefOption, argument, flag
from anabranch.cli.output import DIFFERENT, Answer, Line
from anabranch.cli.texts import count
from anabranch.display import short_id

if TYPE_CHECKING:
    from anabranch.repo.schema.plan import SchemaPlan
    from anabranch.repo.schema.steps import Step

app = group()
schemas = group(help="Show the schema of tables, and apply a schema file.")
app.add_typer(schemas, name="schema")

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}

File = Annotated[str, argument("FILE", "Schema file in YAML: a path, an s3:// address, or - for stdin.")]


@command(schemas, "show", "schema show > schema.yaml", "schema show --ref main~3")
def show(here: Here, ref: RefOption = None) -> Answer | None:
    """Print the schema of all tables as YAML, for 'plan' and 'apply'."""
    location = ref or here.current().name
    found = here.repository.schema_show(location)
    if here.as_json:
        return Answer({"ref": location, **found.to_dict()})
    typer.echo(found.to_yaml(), nl=False)  # YAML escapes control characters itself
    return None


@command(schemas, "plan", "schema plan schema.yaml", "schema plan schema.yaml -b dev --exit-code", on=(*BRANCH, *READS))
def plan(
    here: Here,
    file: File,
    exit_code: Annotated[
        bool, flag("--exit-code", f"Exit with code {DIFFERENT} if there are changes to make.")
    ] = False,
) -> Answer:
    """Show the changes that a schema file needs. Nothing changes."""
    with here.output.progress("planning"), here.on_current_branch():
        found = here.repository.schema_plan(_desired(file))
    code = DIFFERENT if exit_code and not found.is_empty else 0
    return Answer(found.to_dict(), _summary(found), lines=list(_lines(found)), exit_code=code)


@command(
    schemas, "apply", "schema apply schema.yaml", "schema apply schema.yaml --allow-destructive", on=(*BRANCH, *WRITES)
)
def apply(
    here: Here,
    file: File,
    allow_destructive: Annotated[
        bool, flag("--allow-destructive", "Allow changes that may lose data. Older commits keep the data.")
    ] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Plan, and check the rows. Change nothing.")] = False,
    message: Message = None,
) -> Answer:
    """Change tables to match a schema file, as one commit.

    Changes that may lose data need --allow-destructive.
    """
    with here.output.progress("applying"), here.on_current_branch():
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
        "commit": commit,
    }
    return Answer(document, *sentences, lines=list(_lines(done.plan)))


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
