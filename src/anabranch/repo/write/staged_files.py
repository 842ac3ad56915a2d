"""Check that the files of a change are still there when it is published."""

from anabranch.errors import DamagedFileError, NotFoundError
from anabranch.format import staging
from anabranch.format.home import Home, is_staged
from anabranch.ids import BranchName
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import Changes, owns

__all__ = ["refuse_removed_files"]

# A change that is published sooner costs no request. Native cleanup spares files that were written in the last days
# unless it is asked not to.
_YOUNG_MICROSECONDS = 5 * 60 * 1_000_000


def refuse_removed_files(config: RepoConfig, branch: BranchName, changes: Changes, *, staged_since: int) -> None:
    """Refuse a change that was staged some minutes ago and whose files were removed since.

    Our own gc respects leases. Native `cleanup_old_versions` knows nothing of staged versions and removes their files.
    If nothing was staged before `staged_since`, and that is recent, no manifest is read.
    """
    if config.clock() - staged_since < _YOUNG_MICROSECONDS:
        return
    for key, entry in changes.items():
        if entry is None or not owns(branch, entry.home) or not is_staged(entry.version):
            continue
        home = config.home_of(entry)
        if _is_young(config, home, entry.version):
            continue
        missing = staging.find_missing_files(home, entry.version, expected_head=entry.head)
        if missing:
            raise DamagedFileError(
                f"{len(missing)} files of the change to '{key}' are gone, for example {missing[0]!r}",
                hint="make the change again, and do not clean up tables of a repository with other Lance tools",
            )


def _is_young(config: RepoConfig, home: Home, version: int) -> bool:
    try:
        return config.clock() - staging.staged_at(home, version) < _YOUNG_MICROSECONDS
    except NotFoundError:
        return True  # Native cleanup never removes staged manifests, and our own gc respects leases.
