"""A staged version made the next ordinary one, and strangers' writes told from our own.

Lance restores blindly, whatever came in between; so each of our restores is stamped, and everything between what we
expected and what we made is looked at afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import lance

from anabranch.errors import ForeignWriteError, NotFoundError
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.recent import Recent

__all__ = [
    "Settled",
    "foreign_versions",
    "is_our_restore",
    "restored_version",
    "settle",
    "settle_by_force",
    "settled_head",
]

_STAMP = "anabranch.restore"
# The ordinary versions that staged ones became; staged ids are never used again, so this cannot go stale.
_SETTLED: Recent[tuple[Home, int], int] = Recent(limit=256)
# On a restore that set strangers' writes aside: the newest version it looked at.
_SET_ASIDE = "anabranch.set_aside"
# On a restore that made a stranger's version the newest again: which that is.
_PUT_BACK = "anabranch.put_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The ordinary version made, and our own restores that came in between since the expected head."""

    version: int
    between: tuple[int, ...]


def settle(home: Home, version: int, *, expected_head: int, stamp: Mapping[str, str] | None = None) -> Settled:
    """Make a version, staged or ordinary, the home's newest ordinary one.

    Raise ForeignWriteError if anybody else wrote since the expected head. If that happens at the same time, the
    stranger's version is made the newest again before the error is raised: nothing of theirs is lost.
    """
    head = _newest(home, beside=home.open(version))
    if strangers := _foreign(home, head, since=expected_head, until=head.version):
        raise _foreign_write(home, strangers)
    made = _restore(home, head, version, stamp or {})
    if strangers := _foreign(home, made, since=head.version, until=made.version - 1):
        _put_back(home, made, strangers[-1])
        raise _foreign_write(home, strangers)
    if is_staged(version):
        _SETTLED.keep((home, version), made.version)
    return Settled(version=made.version, between=tuple(range(expected_head + 1, made.version)))


def settle_by_force(home: Home, version: int) -> Settled:
    """Settle and set aside, for good, what others wrote up to now; their versions stay in the history."""
    head = home.head_version()
    return settle(home, version, expected_head=head, stamp={_SET_ASIDE: str(head)})


def is_our_restore(home: Home, version: int) -> bool:
    """Whether an ordinary version was made by `settle`."""
    return _find_stamp(home, home.open(), version) is not None


def foreign_versions(home: Home, *, since: int) -> tuple[int, ...]:
    """The ordinary versions after `since` that somebody else made, oldest first."""
    head = home.open()
    return _foreign(home, head, since=since, until=head.version)


def restored_version(home: Home, version: int) -> int | None:
    """Which version a stamped restore restored; None if the version is no such restore."""
    stamp = _find_stamp(home, home.open(), version)
    return None if stamp is None else int(stamp[_STAMP])


def settled_head(home: Home, *, published: int, since: int) -> int:
    """The newest ordinary version that is known to have only our restores behind it, back to `since`.

    Where the published version was settled by this process, that is the version it made, and nothing is read.
    """
    if (settled := _SETTLED.find((home, published))) is not None:
        return settled
    head = home.open()
    strangers = _foreign(home, head, since=since, until=head.version)
    return strangers[0] - 1 if strangers else int(head.version)


def _newest(home: Home, *, beside: lance.LanceDataset) -> lance.LanceDataset:
    """The newest ordinary version, by way of a handle that is open: a fraction of the work of opening another."""
    with lance_errors(home.uri, home.storage_options):
        return beside.checkout_version(beside.latest_version)


def _restore(home: Home, head: lance.LanceDataset, version: int, stamp: Mapping[str, str]) -> lance.LanceDataset:
    home.open(version)  # Names the version if it is not there.
    change = lance.Transaction(
        head.version,
        lance.LanceOperation.Restore(version),
        transaction_properties={**stamp, _STAMP: str(version)},
    )
    with lance_errors(home.uri, home.storage_options):
        return lance.LanceDataset.commit(head, change)


def _put_back(home: Home, made: lance.LanceDataset, stranger: int) -> None:
    """Make a stranger's version the newest again, or the one of whoever writes meanwhile."""
    while True:
        again = _restore(home, made, stranger, {_PUT_BACK: str(stranger)})
        later = _foreign(home, again, since=made.version, until=again.version - 1)
        if not later:
            return
        made, stranger = again, later[-1]


def _foreign(home: Home, dataset: lance.LanceDataset, *, since: int, until: int) -> tuple[int, ...]:
    found: set[int] = set()
    for version in range(since + 1, until + 1):
        try:
            stamp = _read_stamp(home, dataset, version)
        except NotFoundError:
            continue  # Collected. It was not the newest, and had it been a stranger's, the next one would tell.
        if stamp is None:
            found.add(version)
        else:
            set_aside = int(stamp.get(_SET_ASIDE, 0))
            found = {stranger for stranger in found if stranger > set_aside}
            found |= {int(stamp[_PUT_BACK])} if _PUT_BACK in stamp else set()
    return tuple(sorted(found))


def _find_stamp(home: Home, dataset: lance.LanceDataset, version: int) -> Mapping[str, str] | None:
    try:
        return _read_stamp(home, dataset, version)
    except NotFoundError:
        return None


def _read_stamp(home: Home, dataset: lance.LanceDataset, version: int) -> Mapping[str, str] | None:
    """The properties of a restore of ours; None for everything else."""
    try:
        with lance_errors(home.uri, home.storage_options):
            found = dataset.read_transaction(version)
    except TypeError:
        return None  # Lance cannot show a compaction that touched indices: not ours in any case.
    if found is None or not isinstance(found.operation, lance.LanceOperation.Restore):
        return None
    properties: Mapping[str, str] = found.transaction_properties or {}
    return properties if _STAMP in properties else None


def _foreign_write(home: Home, strangers: tuple[int, ...]) -> ForeignWriteError:
    versions = ", ".join(map(str, strangers))
    return ForeignWriteError(
        f"somebody else wrote to {home.uri!r}: version {versions}", hint="adopt the change, or settle by force"
    )
