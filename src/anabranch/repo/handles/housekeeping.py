"""What a handle does for the repository as a whole: check it, mend it, free its space."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from anabranch.repo.doctor.doctor import Scope, check_repository
from anabranch.repo.doctor.findings import RepositoryReport
from anabranch.repo.gc.collecting import Progress, collect_garbage
from anabranch.repo.gc.measuring import Part, measure_storage
from anabranch.repo.gc.policy import checked_policy
from anabranch.repo.gc.report import GcReport
from anabranch.repo.gc.usage import RepositoryStorage
from anabranch.repo.handles.base import Handle
from anabranch.repo.leases.work import working
from anabranch.repo.log.clones import CloneInfo, Clones
from anabranch.repo.log.reserve import freeing_space

__all__ = ["HousekeepingHandle"]


class HousekeepingHandle(Handle):
    """Looks after everything that a repository keeps."""

    def gc(
        self,
        *,
        keep_newer_than: timedelta | None = None,
        keep_last: int | None = None,
        grace: timedelta | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> GcReport:
        """Free the space of what no branch, tag, run or clone can reach any more; a day after it became so.

        The history of branches is kept whole unless told otherwise: commits `keep_newer_than` some time, or the
        `keep_last` of each branch. Other processes may read and write meanwhile.

        >>> report = repo.gc(keep_last=10, dry_run=True)
        >>> report.bytes, report.damaged
        (0, ())
        """
        policy = checked_policy(self._context, keep_newer_than=keep_newer_than, keep_last=keep_last, grace=grace)

        def collect() -> GcReport:
            return collect_garbage(self._records, policy, dry_run=dry_run, progress=progress or _say_nothing)

        return collect() if dry_run else freeing_space(self._context, collect)

    @contextmanager
    def working(self, *, since: float | None = None) -> Iterator[None]:
        """Keep garbage collection from files that are written here and published later, maybe by another process.

        `since` is when they were begun to be written, in seconds of the wall clock.
        """
        with working(self._context, since=since):
            yield

    def storage_report(
        self,
        *,
        branch: str | None = None,
        tables: Sequence[str] | None = None,
        keep_newer_than: timedelta | None = None,
        keep_last: int | None = None,
        grace: timedelta | None = None,
        progress: Progress | None = None,
    ) -> RepositoryStorage:
        """Tell how many bytes each branch, tag, run and clone needs, alone or with whom, and what `gc` would free.

        The policy is that of `gc`, and by default keeps all history. A `branch`, or `tables`, limit what is looked at.
        """
        policy = checked_policy(self._context, keep_newer_than=keep_newer_than, keep_last=keep_last, grace=grace)
        return measure_storage(self._records, policy, Part.of(branch, tables), progress=progress or _say_nothing)

    def doctor(
        self,
        *,
        repair: bool = False,
        tables: Sequence[str] | None = None,
        rows: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> RepositoryReport:
        """Check everything that can be reached: logs, commits, tables and their files; `rows` reads all rows, too.

        With `repair`, what can be rebuilt from something else is, and everything is looked at again. `tables` limits
        what is looked at beside logs and commits.

        >>> repo.doctor().is_clean
        True
        """
        scope = Scope.of(tables, rows=rows)
        return check_repository(self._context, scope, repair=repair, progress=progress or _say_nothing)

    def clone_list(self) -> list[CloneInfo]:
        """The clones that were made of this repository, oldest first; registered ones keep what they read."""
        return list(Clones(self._context).list())

    def clone_release(self, clone_id: str) -> CloneInfo:
        """Stop keeping what a clone reads: for one that is gone, or that was cut off while it was made."""
        return Clones(self._context).release(clone_id)


def _say_nothing(*_: object) -> None:
    """For whoever wants to hear of no progress."""
