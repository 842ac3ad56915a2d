"""After a repository was moved or copied: turn every table to where it lies now, then record that place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anabranch.errors import InvalidInputError
from anabranch.format.relocate import RelocateReport, moved_place, relocate_with
from anabranch.repo.log.clones import CLONES
from anabranch.repo.log.config import BRANCHES, RUNS, TABLES, RepoConfig
from anabranch.repo.log.creation import check_repository, replace_mark
from anabranch.repo.log.numbered import NumberedLog
from anabranch.repo.log.origins import follow_source
from anabranch.repo.refs.tags import TAGS
from anabranch.storage import in_parallel
from anabranch.storage.uris import normalise_uri, relative_to

__all__ = ["Relocation", "Unexplained", "relocate_repository"]

_LANCE = ".lance"
_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexplained:
    """A home that reads a place of which nobody knows what it is: neither left, nor listed as one of the table's."""

    dataset: str
    home: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """What a relocation did; with anything `unexplained` it is not complete, and those homes are still refused."""

    root: str
    former_root: str
    datasets: int
    rewritten: int
    unexplained: tuple[Unexplained, ...]

    @property
    def is_complete(self) -> bool:
        """Whether no table still reads a place that nobody knows."""
        return not self.unexplained


def relocate_repository(
    context: RepoConfig,
    *,
    mapping: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Relocation:
    """Make a repository read only where it is now; other places only if they were other ones before.

    `mapping` (old prefix to new) is for places that moved besides: tiers, or the source of a shallow clone. Each
    manifest is replaced in one step and the mark comes last, so that whoever is cut off simply does it again.
    """
    mark = check_repository(context)
    moved = _checked(mapping or {})
    follow_source(context, lambda path: moved_place(path, moved))
    if mark.root != context.root:
        moved[mark.root] = context.root
    datasets, reports = _list_datasets(context), []
    for start in range(0, len(datasets), _AT_ONCE):
        some = datasets[start : start + _AT_ONCE]
        reports += in_parallel(lambda path: relocate_with(context.home_at(path), moved), some)
        progress(len(reports), len(datasets))
    relocation = Relocation(
        root=context.root,
        former_root=mark.root,
        datasets=len(datasets),
        rewritten=sum(len(report.rewritten) for report in reports),
        unexplained=tuple(found for report in reports for found in _unexplained(context, report)),
    )
    if relocation.is_complete and mark.root != context.root:
        _mend_hints(context)
        replace_mark(context, replace(mark, root=context.root))
    return relocation


def _checked(mapping: Mapping[str, str]) -> dict[str, str]:
    checked = {normalise_uri(old): normalise_uri(new) for old, new in mapping.items()}
    for old, new in checked.items():
        if old == new:
            raise InvalidInputError(f"{old!r} is mapped to itself", hint="leave it out of the mapping")
    return checked


def _list_datasets(context: RepoConfig) -> list[str]:
    """Every dataset below the root, of tables and of the history, whether a commit still names it or not."""
    folders = [folder for bucket in context.store.list_folders(TABLES) for folder in context.store.list_folders(bucket)]
    return sorted(folder for folder in [*folders, *context.store.list_folders()] if folder.endswith(_LANCE))


def _mend_hints(context: RepoConfig) -> None:
    """Make hints agree with the logs beside them: in a copy that was made while others wrote, they may be ahead.

    One that is the next entry becomes that; one that is further ahead tells of what was not copied, and goes.
    """
    if context.store.lists_sorted:
        return  # there are none that count
    folders = [path for folder in (BRANCHES, RUNS, TAGS, CLONES) for path in context.store.list_folders(folder)]

    def mend(folder: str) -> None:
        log = NumberedLog(context.store, folder)
        hint = log.find_hint()
        if hint is None or log.find(hint[0]) is not None:
            return
        if log.find(hint[0] - 1) is None or not log.append(*hint):
            context.store.delete(log.hint_path)

    in_parallel(mend, folders)


def _unexplained(context: RepoConfig, report: RelocateReport) -> list[Unexplained]:
    dataset = relative_to(report.root, context.root) or report.root
    return [Unexplained(dataset=dataset, home=base.branch, path=base.path) for base in report.unexplained]
