"""Tags of the model, and the commits that garbage collection and purges must keep."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from anabranch.errors import InvalidInputError, TagExistsError, TagNotFoundError
from tests.model.branches import ModelBranches
from tests.model.history import ModelCommit, ModelEntry

_HINT = "the model has no advice"


class ModelRetention(ModelBranches):
    """The commits that branches and tags need, now or until recently.

    The model states which commits garbage collection must keep, and which it must collect. The caller reports which of
    the others it collected.
    """

    def __init__(self, first_commit_id: str) -> None:
        super().__init__(first_commit_id)
        self._lengths: dict[str, int] = {}  # of the logs when time passed last
        self._untagged: list[ModelCommit] = []  # since time passed last
        self.ever_tagged: set[ModelCommit] = set()

    # Tags

    def tag_create(self, name: str, ref: str) -> None:
        view = self.resolve(ref)
        if not view.is_recorded:
            raise InvalidInputError(f"no commit is just {ref!r}", hint=_HINT)
        if self.exists(name):
            raise InvalidInputError(f"{name!r} is a branch", hint=_HINT)
        if name in self.tags:
            raise TagExistsError(f"there is a tag {name!r}", hint=_HINT)
        self.tags[name] = view.commit
        self.ever_tagged.add(view.commit)

    def tag_delete(self, name: str) -> None:
        if name not in self.tags:
            raise TagNotFoundError(f"there is no tag {name!r}", hint=_HINT)
        self._untagged.append(self.tags.pop(name))

    def stop_publishing(self, name: str) -> None:
        """Fence off publishers of a run: add an entry to its target that does not move it."""
        paused = replace(self.head(name))
        self.logs[name].append(paused)
        self.pauses.add(paused)

    # Garbage collection

    def pass_time(self) -> None:
        """Let more time pass than the grace period: only current refs count, and all runs have expired."""
        self._lengths = {name: len(log) for name, log in self.logs.items()}
        self._untagged.clear()
        for run in self.runs.values():
            run.is_alive, run.is_idle = False, True

    def find_expired_runs(self) -> set[str]:
        """Return the runs that a garbage collection must end. It may end others whose lease has expired."""
        return {run.id for run in self.runs.values() if run.is_idle and not run.is_alive and not run.is_over}

    def find_kept(self, keep_last: int | None) -> set[ModelCommit]:
        """Return the commits that a garbage collection must keep. Without a number, all of every branch."""
        kept = {*self.tags.values(), *self._untagged}
        for name, log in self.logs.items():
            for life in _lives(log):
                seen = [number for number, entry in enumerate(log) if entry.incarnation == life]
                kept.update(self._kept_of_life(name, seen, keep_last))
        return kept - self.collected

    def _kept_of_life(self, name: str, numbers: list[int], keep_last: int | None) -> Iterator[ModelCommit]:
        log, before = self.logs[name], self._lengths.get(name, 0)
        last = log[numbers[-1]]
        # An undo of the creation of a branch ends it by an entry of the branch before it.
        over = numbers[-1] if last.is_deleted else numbers[-1] + 1
        if over < min(before, len(log)):
            return
        since = max(before - 1, numbers[0]) if numbers[-1] >= before else numbers[-1]
        for number in numbers if keep_last is None else [number for number in numbers if number >= since]:
            yield log[number].commit
            if keep_last is None:
                yield from log[number].commit.history()
        yield from islice(last.commit.history(), keep_last)

    def find_needed_beside(self, name: str) -> set[ModelCommit]:
        """Return the commits that other branches descend from, deleted ones too. A purge must keep them."""
        heads = {entry.commit for other, log in self.logs.items() if other != name for entry in log}
        return {found for head in heads for found in head.history()} | self.ever_tagged

    def find_known_beside(self, name: str) -> set[ModelCommit]:
        """Return the commits that other branches may refer to in any way. A purge may keep them."""
        heads = [entry.commit for other, log in self.logs.items() if other != name for entry in log]
        return _known_from([*heads, *self.ever_tagged, *(run.below for run in self.runs.values())])

    def find_unneeded(self, keep_last: int | None) -> set[ModelCommit]:
        """Return the commits that a garbage collection must collect when everything is older than the grace period.

        It keeps merge bases, so these are only commits that no two branches or tags refer to. It keeps the commits that
        branches were created from. A run that it ends itself keeps what it refers to for another grace period.
        """
        heads: list[list[ModelCommit | None]] = [[commit] for commit in self.tags.values()]
        heads += [[self.view(name).commit, self.view(name).below] for name in self.branches]
        counted = Counter(commit for both in heads for commit in _known_from(both))
        unshared = {commit for commit in self.commits.values() if counted[commit] < 2}
        runs = [run for run in self.runs.values() if not run.is_over]
        in_runs = _known_from(commit for run in runs for commit in (run.origin, run.below))
        forks = {self._find_first(name).commit for name in self.branches}
        return unshared - self.find_kept(keep_last) - in_runs - forks - self.collected

    def _find_first(self, name: str) -> ModelEntry:
        """Return the entry that created a branch."""
        life = self.head(name).incarnation
        return next(entry for entry in self.logs[name] if entry.incarnation == life)

    def collect(self, commits: Iterable[ModelCommit]) -> None:
        """Record that commits were collected. All others must be compared again."""
        self.collected.update(commits)
        self.stale = set(self.verified)


def _known_from(heads: Iterable[ModelCommit | None]) -> set[ModelCommit]:
    """Return all commits that these refer to in any way."""
    found: set[ModelCommit] = set()
    waiting = [*heads]
    while waiting:
        commit = waiting.pop()
        if commit is not None and commit not in found:
            found.add(commit)
            origins = (each for origin in commit.origins.values() for each in origin)
            waiting += [*commit.parents, commit.below, commit.merged_below, *origins]
    return found


def _lives(log: list[ModelEntry]) -> list[int]:
    """Return the branches that a name was used for, one after the other."""
    return sorted({entry.incarnation for entry in log})
