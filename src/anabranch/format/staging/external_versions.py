"""Versions that external writers made, found by the properties that only ours have, and how a version was made."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.errors import DamagedFileError, ExternalWriteError, NotFoundError
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.manifests import (
    PUT_BACK,
    SET_ASIDE,
    copy_id,
    find_ordinary,
    find_stamp,
    newest_version,
    read_stamp,
    shown_version,
)

if TYPE_CHECKING:
    import lance

__all__ = [
    "Origin",
    "alone",
    "find_external",
    "find_origin",
    "find_transaction",
    "is_our_restore",
    "list_external_versions",
    "refuse_external",
    "restored_version",
    "versions_shown_by",
]


def is_our_restore(home: Home, version: int) -> bool:
    """Whether an ordinary version was made by `settle`."""
    return find_stamp(home, version) is not None


def restored_version(home: Home, version: int) -> int | None:
    """Return the version that an ordinary version shows; None if it was not made by `settle`."""
    stamp = find_stamp(home, version)
    return None if stamp is None else shown_version(stamp)


def versions_shown_by(home: Home, number: int) -> tuple[int, ...]:
    """Return the ids under which the state of an ordinary version may have been published, those to read first."""
    ordinary = find_ordinary(home, number)
    if ordinary is None:
        return ()
    shown = ordinary.shown
    # Rows without a key are matched along the staged line, so the staged version comes first while it is there.
    if shown is not None and home.store().find_info(home.manifest_path(shown)) is not None:
        return shown, number
    # A commit may name the ordinary version itself, or the staged copy that protects it from native cleanup.
    return number, copy_id(ordinary.data), *([shown] if shown is not None else [])


def list_external_versions(home: Home, *, since: int) -> tuple[int, ...]:
    """Return the ordinary versions after `since` that external writers made, oldest first."""
    return find_external(home, since=since, until=newest_version(home))


def refuse_external(home: Home, *, since: int, until: int) -> None:
    """Raise ExternalWriteError if an external writer made a version after `since`."""
    if external := find_external(home, since=since, until=until):
        versions = ", ".join(map(str, external))
        raise ExternalWriteError(
            f"an external writer changed {home.uri!r}: version {versions}",
            hint="adopt the change, or settle by force",
        )


def find_external(home: Home, *, since: int, until: int) -> tuple[int, ...]:
    """Return the versions of external writers in a range that no later version of ours has set aside."""
    found: set[int] = set()
    for version in range(since + 1, until + 1):
        try:
            stamp = read_stamp(home, version)
        except NotFoundError:
            continue  # Collected. It was not the newest; if it was external, the next one is too.
        except DamagedFileError:
            continue  # The writer cannot be found out from it, and no reader can open it.
        if stamp is None:
            found.add(version)
        else:
            # A forced settle decided on all external versions up to this number. Later ones are still pending.
            set_aside = int(stamp.get(SET_ASIDE, 0))
            found = {external for external in found if external > set_aside}
            # The external version is the newest state again and still pending, although its number is lower.
            found |= {int(stamp[PUT_BACK])} if PUT_BACK in stamp else set()
    return tuple(sorted(found))


def alone(opened: "lance.LanceDataset") -> "lance.LanceDataset":
    """Return a handle of the same version that no other thread uses.

    Some methods lock their handle while they run: those that read a transaction or build an index. Every other call on
    that handle fails then. The handles of staged versions are shared by all threads, so these methods need their own.
    """
    return opened.checkout_version(opened.version)


def find_transaction(home: Home, opened: "lance.LanceDataset", version: int) -> "lance.Transaction | None":
    """Return the transaction that made a version; None if it has none, or one that Lance cannot show."""
    with lance_errors(home.uri, home.storage_options):
        try:
            return alone(opened).read_transaction(version)
        except TypeError:
            return None  # a compaction that touched indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The version that was branched from. The branch None is main."""

    branch: str | None
    version: int


def find_origin(home: Home, opened: "lance.LanceDataset") -> Origin | None:
    """Where an opened version came from if it was made by branching, else None."""
    import lance  # `status` needs this module for external writes, and must not load Lance

    transaction = find_transaction(home, opened, opened.version)
    operation = None if transaction is None else transaction.operation
    # Lance creates a branch by a Clone, which names the version it was made from.
    if not isinstance(operation, lance.LanceOperation.Clone):
        return None
    return Origin(branch=operation.ref_name, version=operation.ref_version)
