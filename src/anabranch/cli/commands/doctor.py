"""`anabranch doctor`: whether everything in a repository can be read, and what to do if not."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions, parse_pairs
from anabranch.cli.exit_codes import GENERAL
from anabranch.cli.health import health_document, health_sentence
from anabranch.cli.output import Answer, Line, count, output_for
from anabranch.config import load_settings

if TYPE_CHECKING:
    from anabranch.repo.doctor.findings import RepositoryFinding, RepositoryReport

__all__ = ["doctor"]

_COLOURS = {"error": "red", "warning": "yellow", "repaired": "green"}
_NAMED = 5


def doctor(
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild what can be rebuilt; nothing that was published is removed.")
    ] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Read every row too, and make sure that primary keys are unique and set.")
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="TABLE", show_default=False, help="Only this table. May be repeated."),
    ] = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Check everything that branches, tags and commits can reach.

    It works on a damaged repository too. The exit code is 1 if something is wrong and stays so.
    """
    from anabranch.bootstrap import open_damaged_repository

    options = parse_pairs(storage_option, option="--storage-option")
    settings = load_settings(repository=repo, branch=None, actor=actor)
    repository = open_damaged_repository(settings.repository, storage_options=options, actor=settings.actor)
    output = output_for(as_json=as_json)
    with output.progress("checking") as progress:
        report = repository.doctor(repair=repair, tables=table or None, rows=rows, progress=progress)
    output.show(
        Answer(document=health_document(report), sentences=[health_sentence(report)], lines=list(_lines(report)))
    )
    if not report.is_clean:
        raise typer.Exit(GENERAL)


def _lines(report: "RepositoryReport") -> Iterator[Line]:
    for finding in report.findings:
        state = "repaired" if finding.repaired else finding.severity.value
        yield Line("")
        yield Line(f"{state}: ", _COLOURS.get(state), more=[(f"{finding.kind.value} {finding.subject}", None)])
        yield Line(f"  {finding.explanation}")
        effect = _effect(finding)
        if effect:
            yield Line(f"  {effect}")
        if not finding.repaired:
            yield Line(f"  what to do: {finding.remedy}")


def _effect(finding: "RepositoryFinding") -> str:
    """Who is affected, in one sentence."""
    whom = _some(finding.refs)
    if finding.commits:
        whom += [count(len(finding.commits), "commit")]
    if not whom:
        return ""
    return f"affects {_some_text(finding.tables)}{', '.join(whom)}"


def _some(names: tuple[str, ...]) -> list[str]:
    return [*names[:_NAMED], *([f"{len(names) - _NAMED} more"] if len(names) > _NAMED else [])]


def _some_text(tables: tuple[str, ...]) -> str:
    return f"{', '.join(_some(tables))} on " if tables else ""
