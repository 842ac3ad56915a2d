"""Where each branch is now: the newest entry of its log, and the way to add the next."""

from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from anabranch.errors import BranchNotFoundError, InvalidNameError, RunEndedError, VersionNotFoundError
from anabranch.format.cache import BoundedCache
from anabranch.ids import BranchName
from anabranch.repo.log import codec
from anabranch.repo.log.config import BRANCHES, RUNS, RepoConfig
from anabranch.repo.log.entries import LogEntry
from anabranch.repo.log.numbered import NumberedLog
from anabranch.storage import in_parallel

__all__ = ["Heads"]

_RUNS_AT_ONCE = 16


class Heads:
    """The logs of all branches."""

    def __init__(self, context: RepoConfig) -> None:
        self._context = context
        self._seen: BoundedCache[BranchName, LogEntry] = BoundedCache(limit=16)
        self._numbered: BoundedCache[tuple[BranchName, int], LogEntry] = BoundedCache(limit=16)

    def find(self, branch: BranchName) -> LogEntry | None:
        """The newest entry of a branch's log, a tombstone too; None if there never was such a branch.

        Entries never change and leave no gap, so the one seen last is the newest until there is a next number.
        """
        seen = self._seen.find(branch)
        if seen is not None and self._context.branch_log(branch).find(seen.number + 1) is None:
            return seen
        entry = self._read(branch)
        if entry is not None:
            self._seen.keep(branch, entry)
        return entry

    def get(self, branch: BranchName) -> LogEntry:
        """The newest entry of a branch that exists."""
        entry = self.find(branch)
        if entry is None:
            raise BranchNotFoundError(f"there is no branch '{branch}'", hint="list the branches to see which exist")
        if entry.state.is_deleted:
            if entry.state.run is not None:
                raise RunEndedError(
                    f"run {branch.run_id} is over: it was {entry.state.run.phase}", hint="begin another run"
                )
            raise BranchNotFoundError(f"branch '{branch}' was deleted", hint="restore it, or name another branch")
        return entry

    def get_numbered(self, branch: BranchName, number: int) -> LogEntry:
        """The entry of a number, whether the branch still exists or not."""
        known = self._numbered.find((branch, number))
        if known is not None:
            return known  # entries never change
        log = self._context.branch_log(branch)
        data = log.find(number) if number > 0 else None
        if data is None:
            raise VersionNotFoundError(
                f"branch '{branch}' has no version {number}", hint="list its commits to see which exist"
            )
        entry = _decode(log, branch, number, data)
        self._numbered.keep((branch, number), entry)
        return entry

    def _list_names(self, folder: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self._context.store.list_folders(folder))

    def list(self, *, internal: bool = False) -> tuple[LogEntry, ...]:
        """The newest entry of every branch, deleted ones too, by name; on demand also those of runs and locks."""
        names = [name for name in self._list_branches() if internal or not name.is_internal]
        return self._read_all([*self._list_run_names(), *names] if internal else names)

    def list_all_names(self) -> tuple[BranchName, ...]:
        """The names of all logs: branches that were deleted, runs and locks too."""
        return (*self._list_branches(), *self._list_run_names())

    def _list_branches(self) -> tuple[BranchName, ...]:
        """Return the branches that have a log; a folder whose name is not a branch name is left to doctor."""
        found = map(_find_branch_name, self._list_names(BRANCHES))
        return tuple(name for name in found if name is not None)

    def _list_run_names(self) -> tuple[BranchName, ...]:
        names = self._list_names(RUNS)
        return tuple(BranchName.of_run(name) for name in names if name.isascii() and name.isalnum())

    def list_runs(self) -> Iterator[LogEntry]:
        """The newest entry of every run's hidden branch, newest run first; read as far as somebody asks."""
        names = self._list_run_names()[::-1]
        for start in range(0, len(names), _RUNS_AT_ONCE):
            yield from self._read_all(names[start : start + _RUNS_AT_ONCE])

    def _read_all(self, names: Sequence[BranchName]) -> tuple[LogEntry, ...]:
        return tuple(entry for entry in in_parallel(self._read, names) if entry is not None)

    def append(self, entry: LogEntry, *, after: Sequence[str] = ()) -> bool:
        """Put an entry as the branch's next; this alone makes a change visible. Return False if the number is taken.

        On local disk the files in `after` (absolute paths) become durable before the entry.
        """
        log = self._context.branch_log(entry.branch)
        done = log.append(entry.number, codec.encode_entry(entry), after=after)
        if done:
            self._seen.keep(entry.branch, entry)
        return done

    def _read(self, branch: BranchName) -> LogEntry | None:
        log = self._context.branch_log(branch)
        found = log.find_head()
        return None if found is None else _decode(log, branch, *found)


def _decode(log: NumberedLog, branch: BranchName, number: int, data: bytes) -> LogEntry:
    entry = codec.decode_entry(data, path=log.path(number))
    codec.check_identity(log.path(number), (str(entry.branch), entry.number), (str(branch), number))
    return entry


def _find_branch_name(folder: str) -> BranchName | None:
    try:
        return BranchName.parse(unquote(folder))
    except InvalidNameError:
        return None
