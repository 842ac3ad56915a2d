"""The report of doctor, of one dataset and of a whole repository, for people and for programs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.cli.exit_codes import GENERAL
from anabranch.cli.output import Answer, Line, count
from anabranch.hints import Door, words_at

if TYPE_CHECKING:
    from anabranch.format.doctor.findings import DoctorReport, Finding

__all__ = ["health_answer"]

_COLOURS = {"error": "red", "warning": "yellow", "repaired": "green"}
# The maximum number of names of one kind in a line.
_NAMED = 5


def health_answer(report: "DoctorReport") -> Answer:
    """Show a report. The exit code is 1 if something is wrong and was not repaired."""
    code = 0 if report.is_clean else GENERAL
    return Answer(document=report, sentences=[_sentence(report)], lines=list(_lines(report)), exit_code=code)


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
