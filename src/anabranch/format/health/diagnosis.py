"""A finding with what would help, and what has to be known about other places to come to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.format.health.findings import Finding
from anabranch.format.health.remedies import Remedy

__all__ = ["Diagnosis", "Surroundings", "label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What other places say: base paths of known clones, files missing elsewhere, folders that could not be asked."""

    clone_bases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    unchecked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    finding: Finding
    remedy: Remedy | None = None


def label(branch: str | None) -> str:
    """What people call a home."""
    return "main" if branch is None else f"branch {branch!r}"
