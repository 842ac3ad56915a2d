"""What every part of a repository works with: where it is, who acts, and where time and ids come from."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from anabranch.errors import StaleBaseError
from anabranch.format.bases import bases_of, check_bases
from anabranch.format.home import Home
from anabranch.ids import BranchName, new_ulid
from anabranch.repo.leases.leases import Leases
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.log.numbered import NumberedLog
from anabranch.storage import ObjectStore
from anabranch.storage.links import refuse_links
from anabranch.storage.uris import follow_links, join_uri, relative_to

__all__ = ["BRANCHES", "RUNS", "TABLES", "RepoConfig", "give_way", "now_in_microseconds"]

BRANCHES = "_versions"
RUNS = "_runs"
TABLES = "tables"
_LONGEST_PAUSE_SECONDS = 2.0
_RELOCATE = "run 'anabranch relocate {}', which turns it to where it is now"


def now_in_microseconds() -> int:
    return time.time_ns() // 1000


def give_way(losses: int, took: int) -> None:
    """Let others finish before an attempt that took so many microseconds is made again.

    After a first loss at once, then for longer and longer, by chance: writers that all prepare again at the same time
    only waste each other's work.
    """
    if losses > 1:
        longest = min(_LONGEST_PAUSE_SECONDS, max(took, 0) / 1e6 * 2.0 ** min(losses - 1, 8))
        time.sleep(secrets.SystemRandom().uniform(0, longest))


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoConfig:
    """What all parts of a repository share.

    `made_at` is the root that the repository records, None if it was not read; a moved or copied repository has another
    `root`. `clock_tolerance` is how far the clock may be from the store's when something is published; None for any.
    """

    root: str
    store: ObjectStore
    actor: str | None = None
    made_at: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    clock: Callable[[], int] = now_in_microseconds
    clock_tolerance: timedelta | None = timedelta(minutes=5)
    new_id: Callable[[], str] = new_ulid
    give_way: Callable[[int, int], None] = give_way
    lease: timedelta = timedelta(minutes=1)
    read_root: Callable[[], str] | None = None
    restore: "Callable[[str, Mapping[str, str], str | None, str | None], RepoConfig] | None" = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what it takes to open the repository again: `restore` gets these values in another process.

        The storage options are among them, with any credentials in them.
        """
        if self.restore is None:
            raise TypeError("this part of a repository cannot be pickled; pickle the Repository or a Snapshot")
        return self.restore, (self.root, dict(self.storage_options), self.actor, self.made_at)

    @property
    def leases(self) -> Leases:
        """The leases of this repository."""
        return Leases(store=self.store, duration=self.lease)

    def branch_log(self, branch: BranchName) -> NumberedLog:
        if branch.run_id is not None:
            # Apart from the others, so that listing branches costs the same after any number of runs.
            return NumberedLog(self.store, f"{RUNS}/{branch.run_id}")
        return NumberedLog(self.store, f"{BRANCHES}/{branch.segment}")

    def dataset_root(self, dataset: str) -> Home:
        """Return the root home of a table's dataset, named as entries name it: 'bucket/table.lance'.

        Raise LinkError if a folder on the way there is a symbolic link.
        """
        return self.home_at(f"{TABLES}/{dataset}")

    def home_at(self, path: str) -> Home:
        """Return the root home of the dataset at a path below the repository's root."""
        refuse_links(self.root, path)
        return Home(root=join_uri(self.root, path), storage_options=self.storage_options, recorded_root=self.made_at)

    def home_of(self, entry: TableEntry) -> Home:
        """The home of a table, refused while it reads a place that the repository left."""
        home = self.dataset_root(entry.dataset).on(entry.home)
        if self.made_at is not None and self.made_at != self.root:
            try:
                self._refuse_former_place(home, entry.version, former=self.made_at)
            except StaleBaseError:
                # Another process may have relocated the repository since this handle was opened: read it again.
                home.forget()
                self._refuse_former_place(home, entry.version, former=self.made_at)
        return home

    def require_relocated(self) -> None:
        """Refuse what would take files for unused whose users still name the place that the repository left."""
        recorded = self.made_at
        if recorded is not None and recorded != self.root and self.read_root is not None:
            recorded = self.read_root()  # it may have been relocated since this handle was opened
        if recorded is not None and follow_links(recorded) != follow_links(self.root):
            raise StaleBaseError(
                f"the repository at {self.root!r} was made at {recorded!r}, and branches may still read it there",
                hint=_RELOCATE.format(self.root),
            )

    def _refuse_former_place(self, home: Home, version: int, *, former: str) -> None:
        """Look at exactly the version that is to be read: where a relocation was cut off, others may be right.

        Lance branches hold their root as an absolute path. Those of a copied repository would silently read the
        original.
        """
        bases = bases_of(home.open(version))
        try:
            check_bases(home, bases)
            stale = next((base.path for base in bases if self._was_left(base.path, former)), None)
        except StaleBaseError as err:
            raise self._not_relocated(home, former) from err
        if stale is not None:
            raise self._not_relocated(home, former)

    def _was_left(self, path: str, former: str) -> bool:
        place = follow_links(path)
        return (
            relative_to(place, follow_links(former)) is not None and relative_to(place, follow_links(self.root)) is None
        )

    def _not_relocated(self, home: Home, former: str) -> StaleBaseError:
        return StaleBaseError(
            f"the repository at {self.root!r} was made at {former!r}, and {home.uri!r} still reads it there",
            hint=_RELOCATE.format(self.root),
        )
