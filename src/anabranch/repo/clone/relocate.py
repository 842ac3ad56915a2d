"""Relocate a repository that was moved or copied: make every table read the new location, then record it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anabranch.errors import InvalidInputError
from anabranch.format.clone.relocate import RelocateReport, moved_path, relocate_with
from anabranch.repo.log.clones import CLONES, follow_source
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.creation import check_repository, replace_mark
from anabranch.repo.log.numbered import BRANCHES, RUNS, TAGS, NumberedLog
from anabranch.storage import in_parallel
from anabranch.storage.uris import normalise_uri, relative_to

_LANCE = ".lance"
# In groups, so that the progress is reported in between.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexplained:
    """A home that reads an unknown location: neither a former root of the repository nor a base of the table."""

    dataset: str
    home: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """The result of a relocation. If `unexplained` is not empty, it is incomplete and those homes cannot be read."""

    root: str
    former_root: str
    datasets: int
    rewritten: int
    unexplained: tuple[Unexplained, ...]

    @property
    def is_complete(self) -> bool:
        """Whether no table reads an unknown location."""
        return not self.unexplained


def relocate_repository(
    config: RepoConfig,
    *,
    mapping: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Relocation:
    """Make the tables of a repository read its current location instead of the former one.

    `mapping` (old prefix to new) is for other locations that moved: tiers, or the source of a shallow clone. Each
    manifest is replaced in one step and the mark is written last, so an interrupted relocation can be run again.
    """
    mark = check_repository(config)
    moved = _checked(mapping or {})
    # Before the own root joins the mapping: the source of a clone does not move together with the clone.
    follow_source(config, lambda path: moved_path(path, moved))
    if mark.root != config.root:
        moved[mark.root] = config.root
    datasets, reports = _list_datasets(config), []
    for start in range(0, len(datasets), _AT_ONCE):
        some = datasets[start : start + _AT_ONCE]
        reports += in_parallel(lambda path: relocate_with(config.home_at(path), moved), some)
        progress(len(reports), len(datasets))
    relocation = Relocation(
        root=config.root,
        former_root=mark.root,
        datasets=len(datasets),
        rewritten=sum(len(report.rewritten) for report in reports),
        unexplained=tuple(found for report in reports for found in _unexplained(config, report)),
    )
    # The mark is last. As long as it names the former root, each home is checked when it is opened, and garbage
    # collection refuses to run.
    if relocation.is_complete and mark.root != config.root:
        _repair_hints(config)
        replace_mark(config, replace(mark, root=config.root))
    return relocation


def _checked(mapping: Mapping[str, str]) -> dict[str, str]:
    checked = {normalise_uri(old): normalise_uri(new) for old, new in mapping.items()}
    for old, new in checked.items():
        if old == new:
            raise InvalidInputError(f"{old!r} is mapped to itself", hint="leave it out of the mapping")
    return checked


def _list_datasets(config: RepoConfig) -> list[str]:
    """Return every dataset below the root: tables and history tables, including those that no commit names."""
    # From the folders, not from the commits: homes of deleted branches and old versions must also read the new
    # location.
    folders = [folder for bucket in config.store.list_folders(TABLES) for folder in config.store.list_folders(bucket)]
    return sorted(folder for folder in [*folders, *config.store.list_folders()] if folder.endswith(_LANCE))


def _repair_hints(config: RepoConfig) -> None:
    """Make the hints of logs agree with the logs: in a copy made during writes, a hint may be ahead of its log.

    A hint that is the next entry of its log is appended to it. A hint that is further ahead is deleted, because the
    entries before it were not copied.
    """
    if config.store.lists_sorted:
        return  # hints are used only on local disk
    folders = [path for folder in (BRANCHES, RUNS, TAGS, CLONES) for path in config.store.list_folders(folder)]

    def repair(folder: str) -> None:
        log = NumberedLog(config.store, folder)
        hint = log.find_hint()
        if hint is None or log.find(hint[0]) is not None:
            return
        if log.find(hint[0] - 1) is None or not log.append(*hint):
            config.store.delete(log.hint_path)

    in_parallel(repair, folders)


def _unexplained(config: RepoConfig, report: RelocateReport) -> list[Unexplained]:
    dataset = relative_to(report.root, config.root) or report.root
    return [Unexplained(dataset=dataset, home=base.branch, path=base.path) for base in report.unexplained]
