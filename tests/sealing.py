"""Objects of a repository rewritten by hand, with checksums that are right again."""

import json
from typing import Any
from zlib import crc32

from anabranch.repo.log.numbered_log import NumberedLog
from anabranch.storage import ObjectStore


class _NoStore:
    """Where a hint is written, to read its bytes."""

    lists_sorted = False
    written = b""

    def put(self, _path: str, data: bytes, **_options: bool) -> None:
        self.written = data


def with_fields(data: bytes, **changes: Any) -> bytes:
    """A JSON object with other values, sealed again."""
    return sealed({**json.loads(data), **changes})


def sealed(fields: dict[str, Any]) -> bytes:
    """Fields as a writer of this release stores them."""
    kept = {name: value for name, value in fields.items() if name != "~crc"}
    body = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False).removesuffix("}").encode()
    return body + b',"~crc":"%08x"}' % crc32(body)


def unsealed(data: bytes, *, format: int = 2) -> bytes:  # noqa: A002 - the name of the field
    """An object as a release before checksums stored it."""
    fields = {name: value for name, value in json.loads(data).items() if name != "~crc"}
    return json.dumps(fields | {"format": format}, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def hint(number: int, data: bytes) -> bytes:
    """The copy of an entry that is beside its log."""
    store = _NoStore()
    NumberedLog(store, "log").write_hint(number, data)  # type: ignore[arg-type]
    return store.written


def reseal(path: str, data: bytes) -> bytes:
    """The bytes of any file of a repository after some of them were replaced, with the right checksum if it has one."""
    if path.startswith("tables/") or "~crc" not in (text := data.decode(errors="replace")):
        return data
    if text.startswith("{"):
        return sealed(json.loads(data))
    first, _, copied = data.partition(b"\n")
    return hint(int(first.split(b" ")[-2]), sealed(json.loads(copied)))


def is_whole(store: ObjectStore, path: str) -> bool:
    """Whether an object can be read and sealed again to the same bytes."""
    data = store.get(path)
    return sealed(json.loads(data)) == data
