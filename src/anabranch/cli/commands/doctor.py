"""`anabranch doctor`: check that everything in a repository can be read."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from anabranch.cli.command import WRITES, Here, command, group
from anabranch.cli.options import TableNames, flag
from anabranch.cli.output import GENERAL, Answer, Line, count
from anabranch.hints import Door, words_at

if TYPE_CHECKING:
    from anabranch.format.doctor.findings import DoctorReport, Finding

app = group()


@command(app, "doctor", "doctor", "doctor --rows --table shop.orders", "doctor --repair", on=WRITES)
def doctor(
    here: Here,
    repair: Annotated[bool, flag("--repair", "Repair what can be repaired. No committed data is deleted.")] = False,
    rows: Annotated[
        bool, flag("--rows", "Also read every row, and check that primary keys are unique and not null.")
    ] = False,
    table: TableNames = None,
) -> Answer:
    """Check that everything in the repository can be read.

    doctor also works on a repository that other commands cannot open. It changes nothing without --repair. The exit
    code is 1 if there is a problem that was not repaired.
    """
    from anabranch.bootstrap import open_damaged_repository

    settings = here.settings
    repository = open_damaged_repository(
        settings.repository, storage_options=here.storage_options, actor=settings.actor
    )
    with here.output.progress("checking") as progress:
        report = repository.doctor(repair=repair, tables=table or None, rows=rows, progress=progress)
    return health_answer(report)


_COLOURS = {"error": "red", "warning": "yellow", "repaired": "green"}
# The maximum number of names of one kind in a line.
_NAMED = 5


def health_answer(report: "DoctorReport") -> Answer:
    """Show a report. The exit code is 1 if something is wrong and was not repaired."""
    return Answer(report, _sentence(report), lines=list(_lines(report)), exit_code=0 if report.is_clean else GENERAL)


def _sentence(report: "DoctorReport") -> str:
    if not report.findings:
        return f"{report.root} is in order"
    repairable = sum(finding.repairable for finding in report.open)
    return f"{len(report.repaired)} repaired, {len(report.open)} open, of which --repair can repair {repairable}"


def _lines(report: "DoctorReport") -> Iterator[Line]:
    for finding in report.findings:
        state = "repaired" if finding.repaired else finding.severity.value
        yield Line("")
        yield Line(f"{state}: ", _COLOURS.get(state), more=[(f"{finding.kind.value} {finding.subject}", None)])
        yield Line(f"  {finding.explanation}")
        effect = _effect(finding)
        if effect:
            yield Line(f"  {effect}")
        if not finding.repaired:
            yield Line(f"  what to do: {words_at(Door.COMMAND_LINE, finding.remedy)}")


def _effect(finding: "Finding") -> str:
    """Return which tables, refs and commits are affected, in one sentence."""
    affected = _some(finding.refs)
    if finding.commits:
        affected += [count(len(finding.commits), "commit")]
    if not affected:
        return ""
    tables = f"{', '.join(_some(finding.tables))} on " if finding.tables else ""
    return f"affects {tables}{', '.join(affected)}"


def _some(names: tuple[str, ...]) -> list[str]:
    return [*names[:_NAMED], *([f"{len(names) - _NAMED} more"] if len(names) > _NAMED else [])]
