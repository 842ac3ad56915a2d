"""The names of branches, runs and tags that have a log, and hints for a name that does not exist."""

from collections.abc import Callable, Iterable, Sequence
from urllib.parse import unquote

from anabranch.errors import AnabranchError, InvalidNameError
from anabranch.hints import closest, suggest
from anabranch.ids import BranchName
from anabranch.repo.log.config import BRANCHES, RUNS, TAGS, RepoConfig
from anabranch.repo.log.entries import LogEntry
from anabranch.repo.log.numbered import NamePage

# A hint names all branches if there are at most this many.
_NAMES_IN_HINT = 10


class Names:
    """The names of all logs of a repository. `read_all` returns the newest entries of branches, for hints."""

    def __init__(self, config: RepoConfig, read_all: Callable[[Sequence[BranchName]], tuple[LogEntry, ...]]) -> None:
        self._config = config
        self._read_all = read_all

    def select(self, page: NamePage, *, internal: bool = False) -> list[str]:
        """List the names of branches from a page on, deleted ones too. No head is read."""
        names = [str(name) for name in self.list_branches() if internal or not name.is_internal]
        runs = map(str, self.list_runs()) if internal else ()
        return page.select([*runs, *names])

    def list_all(self) -> tuple[BranchName, ...]:
        """List the names of all logs: branches that were deleted, runs and locks too."""
        return (*self.list_branches(), *self.list_runs())

    def list_branches(self) -> tuple[BranchName, ...]:
        """List the branches that have a log; a folder whose name is not a branch name is left to doctor."""
        found = map(_find_branch_name, self._list(BRANCHES))
        return tuple(name for name in found if name is not None)

    def list_runs(self) -> tuple[BranchName, ...]:
        """List the hidden branches of runs."""
        # Other folders may be here, and an id becomes part of a path.
        names = self._list(RUNS)
        return tuple(BranchName.of_run(name) for name in names if name.isascii() and name.isalnum())

    def list_similar(self, name: str) -> list[str]:
        """List the branches whose names are most like a name, for a hint. It reads the heads of three at most."""
        try:
            return self._existing(closest(name, self._list_public(), n=3))
        except AnabranchError:
            return []  # the error that the hint is for matters more

    def hint_for(self, missing: BranchName) -> str:
        """Return the hint for a branch that does not exist: the one that was probably meant, and those that exist.

        It costs one list and reads the heads of a few branches, however many there are.
        """
        try:
            names = self._list_public()
            exist = self._existing([*closest(str(missing), names, n=3), *names[:_NAMES_IN_HINT]])
        except AnabranchError:
            exist = names = []
        # Reads accept a tag where this call needs a branch, so that the name of a tag is a likely mistake.
        if self._has_tag(missing):
            return f"a tag does not move: make a branch from it with `branch_create('NAME', source='{missing}')`"
        if not exist or len(names) > _NAMES_IN_HINT:
            return suggest(str(missing), exist, "list the branches with `branch_list()`")
        return suggest(str(missing), exist, f"the branches are {', '.join(map(repr, sorted(exist)))}")

    def hint_for_any(self, missing: BranchName) -> str:
        """Return the hint for a branch that never existed: the one that was probably meant, deleted or not."""
        way = "list the deleted branches with `branch_list(deleted=True)`"
        try:
            return suggest(str(missing), self._list_public(), way)
        except AnabranchError:
            return way

    def _has_tag(self, name: BranchName) -> bool:
        """Whether there is, or was, a tag of a name."""
        try:
            return str(name) in self._list(TAGS)
        except AnabranchError:
            return False

    def _list_public(self) -> list[str]:
        return [str(name) for name in self.list_branches() if not name.is_internal]

    def _existing(self, names: Iterable[str]) -> list[str]:
        entries = self._read_all([BranchName(name) for name in dict.fromkeys(names)])
        return [str(entry.branch) for entry in entries if not entry.state.is_deleted]

    def _list(self, folder: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self._config.store.list_folders(folder))


def _find_branch_name(folder: str) -> BranchName | None:
    try:
        return BranchName.parse(unquote(folder))
    except InvalidNameError:
        return None
