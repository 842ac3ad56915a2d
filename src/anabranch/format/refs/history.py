"""The versions of one branch: when each was made and what names it, and the way back to an older one."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import lance

from anabranch.errors import BusyError, InvalidInputError
from anabranch.format.bases.bases import bases_of, register_base
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.refs.branches import list_branches
from anabranch.format.refs.tags import list_tags


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionInfo:
    """One ordinary version: its number, its time by the writer's clock, its tags, and the branches made from it."""

    version: int
    created_at: datetime
    tags: tuple[str, ...]
    branches: tuple[str, ...]


def list_versions(home: Home) -> tuple[VersionInfo, ...]:
    """List the versions of a branch, oldest first."""
    tags, branches = list_tags(home.on(None)), list_branches(home.on(None))
    with lance_errors(home.uri, home.storage_options):
        found = home.open().versions()
    return tuple(
        VersionInfo(
            version=int(one["version"]),
            created_at=_in_utc(one["timestamp"]),
            tags=tuple(tag.name for tag in tags if (tag.branch, tag.version) == (home.branch, one["version"])),
            branches=tuple(
                info.name
                for info in branches
                if (info.parent_branch, info.parent_version) == (home.branch, one["version"])
            ),
        )
        for one in sorted(found, key=lambda one: int(one["version"]))
    )


def _in_utc(time: Any) -> datetime:
    """The time of a version; Lance gives local time without a zone."""
    moment: datetime = time
    return moment.astimezone(UTC)


def restore_version(home: Home, version: int) -> int:
    """Make a version the newest again, as a new version, and return that; nothing is lost.

    Bases that were added since then are added again: Lance takes the old version's list.
    """
    if is_staged(version):
        raise InvalidInputError(
            f"version {version} of {home.uri!r} is staged and not part of its history", hint="give an ordinary version"
        )
    # Raises if the version is gone: Lance would restore a collected version and leave a head that cannot be read.
    home.open(version)
    head = home.open()
    with lance_errors(home.uri, home.storage_options):
        made = lance.LanceDataset.commit(
            head,
            lance.LanceOperation.Restore(version),
            read_version=head.version,
            storage_options=home.lance_options(),
            commit_message=f"restore version {version}",
        )
    if int(made.version) != int(head.version) + 1:
        # Lance restores whatever came in between. Make the other writer's version the newest again.
        with lance_errors(home.uri, home.storage_options):
            lance.LanceDataset.commit(
                made,
                lance.LanceOperation.Restore(int(made.version) - 1),
                read_version=made.version,
                storage_options=home.lance_options(),
            )
        raise BusyError(
            f"another writer changed {home.uri!r} at the same time, so version {version} was not restored",
            hint="read the newest version and try again",
        )
    listed = {base.path for base in bases_of(made)}
    for base in bases_of(head):
        if base.path not in listed:
            register_base(home, base)
    return home.head_version()
