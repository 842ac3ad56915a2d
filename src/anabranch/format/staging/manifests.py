"""The manifests of a home, of its staged and its ordinary versions, and the properties of those that we made.

The transaction of each ordinary version of ours has properties that name the version it shows. A version without them
was made by an external writer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.errors import DamagedFileError, NotFoundError, ObjectNotFoundError
from anabranch.format.cache import BoundedCache
from anabranch.format.home import Home, HomeKey, is_staged, new_home_cache
from anabranch.format.layout.manifest import has_mark, read_manifest
from anabranch.format.layout.names import manifest_of_path, manifest_path
from anabranch.format.layout.settled_manifest import SettledParts, inline_transaction, read_parts, read_properties
from anabranch.format.layout.wire import damaged
from anabranch.storage import ObjectStore

__all__ = [
    "PUT_BACK",
    "SETTLED_FROM",
    "SET_ASIDE",
    "OrdinaryVersion",
    "find_ordinary",
    "find_stamp",
    "forget_manifest",
    "keep_manifest",
    "newest_version",
    "parts_of",
    "path_of",
    "read_staged",
    "read_stamp",
    "shown_version",
]

# In the transaction of an ordinary version that shows another one: the number of that version.
SETTLED_FROM = "anabranch.settle"
# The same in repositories of earlier releases, which settled by a Restore of Lance.
_RESTORED_FROM = "anabranch.restore"
# On a version that set external writes aside: the newest version that was considered.
SET_ASIDE = "anabranch.set_aside"
# On a restore of an earlier release that made an external version the newest again: its number.
PUT_BACK = "anabranch.put_back"

# Small manifests and their parts: each is the base of the next settle. The id of a staged version is never used again,
# so its manifest is read once. An ordinary manifest is read each time, because a repair may have replaced it; its parts
# are used again if the bytes are the same.
_MANIFESTS: BoundedCache[HomeKey, tuple[bytes, SettledParts]] = new_home_cache(limit=1024, capacity=32 * 1024 * 1024)
_SMALL = 256 * 1024


def path_of(home: Home, version: int) -> str:
    """Return the path of a manifest below the dataset's root."""
    return f"{home.folder}/{manifest_path(version)}".lstrip("/")


def parts_of(home: Home, version: int, data: bytes) -> SettledParts:
    """Return the parts of a manifest that was read."""
    known = _MANIFESTS.find(home.key(version))
    if known is not None and known[0] == data:
        return known[1]
    parts = read_parts(data, name=path_of(home, version))
    keep_manifest(home, version, data, parts)
    return parts


def keep_manifest(home: Home, version: int, data: bytes, parts: SettledParts) -> None:
    """Keep a small manifest for the next caller that needs it."""
    if len(data) <= _SMALL:
        _MANIFESTS.keep(home.key(version), (data, parts), weight=len(data))


def forget_manifest(home: Home, version: int) -> None:
    """Drop a manifest that was written again."""
    _MANIFESTS.forget(lambda known: known[1:] == (home, version))


def read_staged(home: Home, version: int) -> bytes:
    """Return the manifest of a version; that of a staged one may be kept from an earlier read."""
    known = _MANIFESTS.find(home.key(version)) if is_staged(version) else None
    if known is not None:
        return known[0]
    try:
        return home.store().get(path_of(home, version))
    except ObjectNotFoundError:
        raise home.no_version(version) from None


def newest_version(home: Home) -> int:
    """Return the number of the newest ordinary version, from the names of the files: it may be damaged."""
    folder = f"{home.folder}/_versions".lstrip("/")
    names = (manifest_of_path(info.path) for info in home.store().list_files(folder))
    return max((name.version for name in names if name is not None and not is_staged(name.version)), default=0)


@dataclass(frozen=True, slots=True)
class OrdinaryVersion:
    """An ordinary version: its number, its manifest, and the properties that make it ours."""

    number: int
    data: bytes = field(repr=False)
    stamp: Mapping[str, str]


def find_ordinary(home: Home, number: int) -> OrdinaryVersion | None:
    """Read an ordinary version; None if there is none of this number. It may be damaged."""
    try:
        data = home.store().get(path_of(home, number))
    except ObjectNotFoundError:
        return None
    return OrdinaryVersion(number, data, (_stamp_in(home, data, number) or {}) if has_mark(data) else {})


def shown_version(stamp: Mapping[str, str]) -> int | None:
    """Return the version that an ordinary version shows, by the properties of its transaction."""
    text = stamp.get(SETTLED_FROM, stamp.get(_RESTORED_FROM, ""))
    return int(text) if text.isdecimal() else None


def find_stamp(home: Home, version: int) -> Mapping[str, str] | None:
    """Return the properties of an ordinary version of ours; None for any other, and for one that cannot be read."""
    try:
        return read_stamp(home, version)
    except (NotFoundError, DamagedFileError):
        return None


def read_stamp(home: Home, version: int) -> Mapping[str, str] | None:
    """Return the properties of an ordinary version of ours; None for one of an external writer."""
    data = home.store().get(path_of(home, version))
    if not has_mark(data):
        raise damaged(f"manifest {path_of(home, version)!r}", "it does not end with the mark of a Lance file")
    return _stamp_in(home, data, version)


def _stamp_in(home: Home, data: bytes, version: int) -> Mapping[str, str] | None:
    """Return the properties of a version of ours; None for any other."""
    transaction = inline_transaction(data, parts_of(home, version, data))
    if transaction is None:
        name = read_manifest(data, name=path_of(home, version)).transaction
        transaction = _transaction_file(home.store(), home, name)
    properties = read_properties(transaction)
    return properties if shown_version(properties) is not None else None


def _transaction_file(store: ObjectStore, home: Home, name: str | None) -> bytes:
    if name is None:
        return b""
    try:
        return store.get(f"{home.folder}/_transactions/{name}".lstrip("/"))
    except ObjectNotFoundError:
        return b""
