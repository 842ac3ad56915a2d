"""A finding with what would help, and what has to be known about other places to come to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.format.doctor.findings import Finding
from anabranch.format.doctor.remedies import Remedy

__all__ = ["Diagnosis", "Surroundings", "label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known beside the manifests of the dataset.

    These are base paths of known clones, missing files and sizes of files outside of the dataset, folders that could
    not be listed, and deletion files that are damaged, by URI.
    """

    clone_bases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    sizes: Mapping[str, int] = field(default_factory=dict)
    damaged_deletions: Mapping[str, str] = field(default_factory=dict)
    unchecked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    finding: Finding
    remedy: Remedy | None = None


def label(branch: str | None) -> str:
    """What people call a home."""
    return "main" if branch is None else f"branch {branch!r}"
