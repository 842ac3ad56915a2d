"""`anabranch dataset relocate|doctor`: after a move, and after a crash."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    AsJson,
    StorageOptions,
    Uri,
    example,
    open_damaged_dataset,
    open_dataset,
    parse_pairs,
)
from anabranch.cli.exit_codes import GENERAL
from anabranch.cli.health import health_document, health_sentence
from anabranch.cli.output import Answer, Table, count, output_for

if TYPE_CHECKING:
    from anabranch.format.health.findings import DoctorReport

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    app.command(
        "relocate",
        epilog=example(
            "dataset relocate new-place/orders.lance",
            "dataset relocate new-place/orders.lance --map s3://old-cold=s3://new-cold",
        ),
    )(relocate)
    app.command("doctor", epilog=example("dataset doctor lake/orders.lance --repair"))(doctor)


def relocate(
    uri: Uri,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OLD=NEW",
            help="A place that moved besides, with its new path; repeat it for more.",
            show_default=False,
        ),
    ] = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Make a moved or copied dataset whole again.

    URI is the new place: its branches are made to read that place only, by rewriting manifests. Run it while nobody
    writes; after an interruption run it again.
    """
    output = output_for(as_json=as_json)
    dataset = open_dataset(uri, storage_option)
    with output.progress("relocating") as progress:
        report = dataset.relocate(mapping=parse_pairs(mapping, option="--map"), progress=progress)
    document = {
        "root": report.root,
        "changes": report.changes,
        "rewritten": report.rewritten,
        "unchanged": len(report.unchanged),
        "unexplained": [{"branch": base.branch, "path": base.path} for base in report.unexplained],
    }
    changes = Table(columns=("old", "new"), rows=tuple(report.changes.items()), empty="no path had to change")
    tables = [changes]
    if report.unexplained:
        rows = tuple((base.branch, base.path) for base in report.unexplained)
        tables.append(
            Table(title="bases that lie elsewhere (--map them if they moved)", columns=("branch", "path"), rows=rows)
        )
    sentence = f"rewrote {count(len(report.rewritten), 'manifest')}, {len(report.unchanged)} needed no change"
    output.show(Answer(document=document, sentences=[sentence], tables=tables))


def doctor(
    uri: Uri,
    repair: Annotated[bool, typer.Option("--repair", help="Put right what can be put right safely.")] = False,
    grace: Annotated[
        float,
        typer.Option("--grace", metavar="MINUTES", min=0, help="Touch nothing younger: it may be in the making."),
    ] = 15,
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
    dataset = open_damaged_dataset(uri, storage_option)
    report = dataset.doctor(repair=repair, grace=timedelta(minutes=grace), clones=clone or ())
    output_for(as_json=as_json).show(
        Answer(document=health_document(report), sentences=[health_sentence(report)], tables=_tables(report))
    )
    if not report.is_clean:
        raise typer.Exit(GENERAL)


def _tables(report: "DoctorReport") -> list[Table]:
    rows = tuple(
        (
            "repaired" if finding.repaired else finding.severity.value,
            finding.kind.value,
            finding.subject,
            finding.explanation,
            finding.remedy,
        )
        for finding in report.findings
    )
    return [Table(columns=("", "what", "where", "explanation", "remedy"), rows=rows)] if rows else []
