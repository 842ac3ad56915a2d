"""Show the findings of doctor, of one dataset or of a repository."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.format.doctor.findings import Report

__all__ = ["health_document", "health_sentence"]


def health_document(report: "Report[Any]") -> dict[str, object]:
    """Return the report as JSON, with all fields of each finding."""
    findings = [
        {"severity": finding.severity, **{field.name: getattr(finding, field.name) for field in fields(finding)}}
        for finding in report.findings
    ]
    return {"root": report.root, "clean": report.is_clean, "findings": findings}


def health_sentence(report: "Report[Any]") -> str:
    if not report.findings:
        return f"{report.root} is in order"
    repairable = sum(finding.repairable for finding in report.open)
    return f"{len(report.repaired)} repaired, {len(report.open)} open, of which --repair can repair {repairable}"
