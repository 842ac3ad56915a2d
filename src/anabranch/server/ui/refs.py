"""Fields in which a visitor chooses a branch, a tag, a commit or a time."""

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.ids import MAIN, BranchName
from anabranch.server.ui.site import Visit

__all__ = ["RefChoices", "chosen_ref", "list_choices"]

# More names are not suggested, but can be typed.
_MOST_NAMES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RefChoices:
    """The names that a field suggests: branches with the names that people gave them, and tags."""

    branches: Mapping[str, str]
    tags: tuple[str, ...]


def list_choices(visit: Visit) -> RefChoices:
    """Return the names that fields for refs suggest."""
    repository = visit.lake.repository
    names = visit.lake.host.branch_names()
    found = repository.branch_names(limit=_MOST_NAMES)
    branches = [MAIN, *(name for name in found if name != MAIN and not BranchName(name).is_internal)]
    return RefChoices(
        branches={name: names.get(name, name) for name in branches},
        tags=tuple(repository.tag_names(limit=_MOST_NAMES)),
    )


def chosen_ref(visit: Visit, name: str = "ref", default: str = MAIN) -> str:
    """Return the ref that a visitor chose. With a time, it is a branch as it was then."""
    ref, time = visit.query(name) or default, visit.query("at")
    return f"{ref.partition('@')[0]}@{{{time}}}" if time else ref
