"""One more version of a home, made from its newest manifest by a change that Lance has no operation for.

The manifest is put under the next number if nothing is there yet, which is a strict compare-and-set. Its transaction
is a Restore: Lance lets no concurrent writer land on top of a Restore, so a writer that planned on what was changed
here fails and reads again. What the version holds is what the version before it held, but for the change.
"""

import struct
from collections.abc import Callable
from uuid import uuid4

from anabranch.errors import BusyError, ObjectExistsError
from anabranch.format.home import Home, is_staged
from anabranch.format.layout.manifest import message_span
from anabranch.format.layout.names import ManifestName, manifest_of_path
from anabranch.format.layout.wire import bytes_field, iter_fields, varint_field

__all__ = ["put_next_version"]

_ATTEMPTS = 10
# Field numbers of Lance's Manifest and of its Transaction.
_VERSION, _TRANSACTION_FILE, _TRANSACTION_SECTION = 3, 12, 23
_READ_VERSION, _UUID, _RESTORE = 1, 2, 106


def put_next_version(home: Home, change: Callable[[bytes], bytes]) -> int:
    """Change the newest manifest of a home and put it as the next version; return the newest version.

    `change` gets the bytes of a manifest and may raise. If it returns them as they are, no version is made. It is
    called again if another writer was faster.
    """
    store = home.store()
    prefix = f"{home.folder}/_versions".lstrip("/")
    for _ in range(_ATTEMPTS):
        found = [(info.path, manifest_of_path(info.path)) for info in store.list(prefix)]
        ordinary = {name.version: (path, name) for path, name in found if name and not is_staged(name.version)}
        newest = max(ordinary)
        path, name = ordinary[newest]
        data = store.get(path)
        changed = change(data)
        # The change was made before, by this or by another process. Another version would only cost space.
        if changed == data:
            return newest
        following = ManifestName(version=newest + 1, scheme=name.scheme)
        try:
            store.put_if_absent(f"{prefix}/{following}", _as_restore(changed, newest, name=path))
        # The put is the compare-and-set: another writer made this version, so change what it made.
        except ObjectExistsError:
            continue
        return newest + 1
    raise BusyError(f"other writers keep writing to {home.uri!r}", hint="try again when they are done")


def _as_restore(data: bytes, version: int, *, name: str) -> bytes:
    """The manifest as the version after another, with a transaction that restores that one."""
    uuid = str(uuid4())
    transaction = varint_field(_READ_VERSION, version) + bytes_field(_UUID, uuid.encode())
    transaction += bytes_field(_RESTORE, varint_field(1, version))
    start, size = message_span(data, name)
    # Sections before the message are found by their position: the new one comes after all others.
    sections = data[: start - 4]
    position = len(sections)
    sections += struct.pack("<I", len(transaction)) + transaction
    replaced = {_VERSION, _TRANSACTION_FILE, _TRANSACTION_SECTION}
    fields = iter_fields(data[start : start + size], f"manifest {name!r}")
    message = b"".join(field.raw for field in fields if field.number not in replaced)
    message += varint_field(_VERSION, version + 1) + varint_field(_TRANSACTION_SECTION, position)
    message += bytes_field(_TRANSACTION_FILE, f"{version}-{uuid}.txn".encode())
    footer = data[start + size : -16] + struct.pack("<Q", len(sections)) + data[-8:]
    return sections + struct.pack("<I", len(message)) + message + footer
