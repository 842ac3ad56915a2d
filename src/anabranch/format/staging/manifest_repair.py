"""Damaged and missing manifests: replaced by, or rebuilt from, other manifests with the same state."""

import copy
from dataclasses import replace
from hashlib import sha256
from uuid import NAMESPACE_URL, uuid5

from anabranch.format.home import Home
from anabranch.format.layout.manifest import has_mark
from anabranch.format.layout.manifest_changes import with_version
from anabranch.format.staging.manifests import (
    SETTLED_FROM,
    find_ordinary,
    find_stamp,
    forget_manifest,
    newest_version,
    read_staged,
    shown_version,
)
from anabranch.storage import put_once

__all__ = [
    "copy_id",
    "copy_ordinary",
    "find_shown",
    "is_damaged",
    "rebuild_staged",
    "repair_newest",
    "replace_damaged",
]


def is_damaged(home: Home, number: int) -> bool:
    """Whether a manifest was cut off: it is empty or does not end with the mark of a Lance file."""
    return not has_mark(home.store().get(home.manifest_path(number)))


def replace_damaged(home: Home, number: int, shown: int) -> bool:
    """Replace an ordinary manifest that a power loss cut off; return whether there was one.

    Live writers only link complete files, so no writer is about to finish it. It becomes a version without a change on
    the one before it, by whichever process, so that a concurrent writer that builds on it loses nothing. Where that one
    is gone too, it shows the version `shown`.
    """
    # Not at the top: to find out which versions are ours needs no numpy.
    from anabranch.format.layout.settled_manifest import settled_manifest

    store, path = home.store(), home.manifest_path(number)
    if has_mark(store.get(path)):
        return False
    before = find_ordinary(home, number - 1)
    if before is None or before.known is None:
        before = read_staged(home, shown)
        parts = replace(before.parts, message=copy.deepcopy(before.parts.message))
        parts.message.version = number - 1
    else:
        parts, shown = before.parts, before.shown or number - 1
    made = settled_manifest(
        parts,
        parts,
        parts,
        properties={SETTLED_FROM: str(shown)},
        # Derived from the manifest before it: all processes that repair the same file write the same bytes.
        uuid=str(uuid5(NAMESPACE_URL, sha256(before.data).hexdigest())),
        is_clean=False,
    )
    store.put(path, made.data)
    return True


def repair_newest(home: Home, shown: int) -> None:
    """Replace the newest ordinary manifest of a home if it was cut off, before Lance opens it."""
    number = newest_version(home)
    if number and is_damaged(home, number):
        replace_damaged(home, number, shown)


def find_shown(home: Home, version: int) -> int | None:
    """Return the newest ordinary version that shows a staged one, if there is one."""
    for number in range(newest_version(home), 0, -1):
        if (stamp := find_stamp(home, number)) is not None and shown_version(stamp) == version:
            return number
    return None


def rebuild_staged(home: Home, version: int) -> bool:
    """Write the manifest of a staged version again from an ordinary version that shows it."""
    number = find_shown(home, version)
    if number is None:
        return False
    name = home.manifest_path(number)
    home.store().put(home.manifest_path(version), with_version(home.store().get(name), version, name=name))
    # This process may have kept what it read of the damaged file, and handles on it.
    forget_manifest(home, version)
    home.forget()
    return True


def copy_ordinary(home: Home, number: int) -> int:
    """Put an ordinary version as a staged one and return its id: native cleanup removes only ordinary manifests.

    The id follows from the manifest, so that a second copy of the same version is the same version.
    """
    name = home.manifest_path(number)
    data = home.store().get(name)
    version = copy_id(data)
    put_once(home.store(), home.manifest_path(version), with_version(data, version, name=name))
    return version


def copy_id(data: bytes) -> int:
    """Return the id of the staged copy of an ordinary manifest."""
    # Lance takes ids from 2^63 on for detached versions.
    return 1 << 63 | int.from_bytes(sha256(data).digest()[:8]) >> 1
