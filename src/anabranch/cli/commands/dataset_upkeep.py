"""`anabranch dataset relocate|doctor`: after a move, and after a crash."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    AsJson,
    DryRun,
    StorageOptions,
    Uri,
    example,
    open_damaged_dataset,
    open_dataset,
    parse_duration,
    parse_pairs,
)
from anabranch.cli.health import show_health
from anabranch.cli.output import Answer, Table, count, output_for

if TYPE_CHECKING:
    from anabranch.format.clone.address import HoldChange

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    app.command(
        "relocate",
        epilog=example(
            "dataset relocate new-location/orders.lance",
            "dataset relocate new-location/orders.lance --mapping s3://old-cold=s3://new-cold",
        ),
    )(relocate)
    app.command("doctor", epilog=example("dataset doctor lake/orders.lance --repair"))(doctor)


def relocate(
    uri: Uri,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--mapping",
            metavar="OLD=NEW",
            help="Another location that moved, with its new path. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Make a moved or copied dataset whole again.

    URI is the new address: its branches are made to read that address only, by rewriting manifests. If the dataset is a
    shallow clone, its source records the new address. Run it while there are no writers; after an interruption run it
    again.
    """
    output = output_for(as_json=as_json)
    dataset = open_dataset(uri, storage_option)
    with output.progress("relocating") as progress:
        report = dataset.relocate(mapping=parse_pairs(mapping, option="--mapping"), progress=progress, dry_run=dry_run)
    document = {
        "root": report.root,
        "changes": report.changes,
        "rewritten": report.rewritten,
        "unchanged": len(report.unchanged),
        "unexplained": [{"branch": base.branch, "path": base.path} for base in report.unexplained],
        "holds": [
            {"source": hold.source, "tag": hold.tag, "outcome": hold.outcome, "problem": hold.problem}
            for hold in report.holds
        ],
        "dry_run": report.dry_run,
    }
    changes = Table(columns=("old", "new"), rows=tuple(report.changes.items()), empty="no path had to change")
    tables = [changes]
    if report.unexplained:
        rows = tuple((base.branch, base.path) for base in report.unexplained)
        tables.append(
            Table(
                title="bases that lie elsewhere (if they moved, name their new paths with --mapping)",
                columns=("branch", "path"),
                rows=rows,
            )
        )
    did = "would rewrite" if report.dry_run else "rewrote"
    sentences = [f"{did} {count(len(report.rewritten), 'manifest')}, {len(report.unchanged)} needed no change"]
    sentences += [_hold_sentence(hold, dry_run=report.dry_run) for hold in report.holds]
    output.show(Answer(document=document, sentences=sentences, tables=tables))


def _hold_sentence(hold: "HoldChange", *, dry_run: bool) -> str:
    """Describe what happened to the record that the source of a clone keeps of it."""
    would = "would record" if dry_run else "recorded"
    match hold.outcome.value:
        case "unchanged":
            return f"the source {hold.source} knows this clone"
        case "updated":
            return f"{would} the new address in the source {hold.source} (tag {hold.tag})"
        case "added":
            return f"{would} this clone in the source {hold.source}, which did not know it"
    return f"the source {hold.source} does not know this clone: {hold.problem}"


def doctor(
    uri: Uri,
    repair: Annotated[bool, typer.Option("--repair", help="Put right what can be put right safely.")] = False,
    grace: Annotated[
        str,
        typer.Option("--grace", metavar="TIME", help="Touch nothing younger, such as 30m: it may be in the making."),
    ] = "15m",
    clone: Annotated[
        list[str] | None,
        typer.Option("--clone", metavar="URI", help="A clone made by another tool, whose files to keep; repeatable."),
    ] = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Find what crashes and other tools left behind.

    It works on a damaged dataset too. The exit code is 1 if something is wrong and stays so.
    """
    output = output_for(as_json=as_json)
    dataset = open_damaged_dataset(uri, storage_option)
    with output.progress("examining versions") as progress:
        report = dataset.doctor(
            repair=repair, grace=parse_duration(grace, option="--grace"), clones=clone or (), progress=progress
        )
    show_health(output, report)
