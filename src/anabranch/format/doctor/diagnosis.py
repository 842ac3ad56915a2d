"""A finding with what would help, and what has to be known about other places to come to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.format.doctor.contents import Contents
from anabranch.format.doctor.findings import Finding
from anabranch.format.doctor.remedies import Remedy

__all__ = ["Diagnosis", "Surroundings", "label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known beside the manifests: the base paths of known clones, and the state of all needed files."""

    clone_bases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    contents: Contents = field(default_factory=lambda: Contents(wrong=()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    finding: Finding
    remedy: Remedy | None = None


def label(branch: str | None) -> str:
    """What people call a home."""
    return "main" if branch is None else f"branch {branch!r}"
