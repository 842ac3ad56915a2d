"""A manifest file as bytes: what is read from it, and the few things ever rewritten in it.

The file ends with 8 bytes that give the position of the protobuf message (after 4 bytes of length), 4 bytes of format
version and `LANC`. Whatever lies before the message (index and transaction sections) is found by offsets from the start
of the file, so a message may change its length without harm.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from anabranch.errors import ConflictError
from anabranch.format.layout.wire import (
    WireField,
    bytes_field,
    damaged,
    iter_fields,
    read_varint,
    split_fields,
    varint_field,
)

__all__ = [
    "BasePath",
    "Contents",
    "ManifestInfo",
    "Outline",
    "fragment_id",
    "base_paths_of",
    "has_fragment",
    "has_mark",
    "inherited_indices",
    "message_span",
    "read_contents",
    "read_manifest",
    "read_outline",
    "read_section",
    "with_base_paths",
    "with_own_indices",
    "with_version",
    "without_base",
    "without_base_paths",
]

_MAGIC = b"LANC"
# Position of the message, format version and mark: see above.
_FOOTER = 16
# Field numbers of Lance's Manifest.
_VERSION = 3
_BASE_PATHS = 18
_FIELD, _FRAGMENT, _INDEX_SECTION = 1, 2, 6
# In a field: its name, and the id of the field that it is in, which is -1 for a column.
_FIELD_NAME, _PARENT_FIELD, _NO_PARENT = 2, 4, (1 << 64) - 1
_NEXT_ROW_ID = 14
# Data files and overlays: the fields of a fragment that stay when rows are deleted.
_FILES_IN_FRAGMENT = frozenset({2, 11})
# The bit of the feature flags that requires a client to know base paths.
_HAS_BASE_PATHS = 16
# Where a message names bases: the number of `base_id` in each part, or the parts of that part in turn.
_BaseIds = Mapping[int, "int | _BaseIds"]
_BASE_ID_IN_INDEX = 9
# Data files, the deletion file, and the data files of overlays.
_BASE_IDS_IN_FRAGMENT: _BaseIds = {2: 7, 3: 7, 11: {1: 7}}
_BASE_IDS_IN_INDEX_SECTION: _BaseIds = {1: _BASE_ID_IN_INDEX}


@dataclass(frozen=True, slots=True, kw_only=True)
class BasePath:
    """Another location that holds files of a dataset."""

    id: int
    path: str
    name: str | None
    is_dataset_root: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestInfo:
    """`transaction` is the name of the file that records how the version was made, if it has one of its own."""

    version: int
    branch: str | None
    base_paths: tuple[BasePath, ...]
    transaction: str | None = None


def read_manifest(data: bytes, *, name: str = "manifest") -> ManifestInfo:
    """Read version, branch, base paths and transaction; `name` is for the error's message."""
    _, others = split_fields(_message(data, name), _FRAGMENT, _called(name))
    return _info_of(others, name)


def base_paths_of(fields: Iterable[WireField], name: str) -> tuple[BasePath, ...]:
    """Return the base paths, given the fields of a manifest that are not fragments."""
    found = (field.value for field in fields if field.number == _BASE_PATHS and isinstance(field.value, bytes))
    return tuple(_read_base_path(value, name) for value in found)


def _info_of(fields: Sequence[WireField], name: str) -> ManifestInfo:
    # Fields of the manifest: 3 version, 12 name of the transaction file, 20 branch.
    version, branch, transaction = 0, None, None
    for field in fields:
        match field.number, field.value:
            case 3, int(value):
                version = value
            case 12, bytes(value):
                transaction = _text(value, name) or None
            case 20, bytes(value):
                branch = _text(value, name)
    return ManifestInfo(version=version, branch=branch, base_paths=base_paths_of(fields, name), transaction=transaction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A whole manifest, with its fragments and indices as they are described in it, not taken apart."""

    info: ManifestInfo
    fragments: tuple[bytes, ...]
    indices: tuple[bytes, ...]


def read_outline(data: bytes, *, name: str = "manifest") -> Outline:
    fragments, others = split_fields(_message(data, name), _FRAGMENT, _called(name))
    # Indices are in a section before the message. The message has its position only.
    sections = [field.value for field in others if field.number == _INDEX_SECTION and isinstance(field.value, int)]
    what = _called(name)
    indices = (part.value for at in sections for part in iter_fields(read_section(data, at, what), what))
    return Outline(
        info=_info_of(others, name),
        fragments=tuple(fragments),
        indices=tuple(index for index in indices if isinstance(index, bytes)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a version is made of, as its manifest describes it: fields of the schema, and fragments with deletions.

    `next_row_id` is the number of rows that were ever inserted: an update keeps the id of its row.

    Files never change and have names that are never used again, so what is described alike is alike.
    """

    fields: tuple[bytes, ...]
    fragments: frozenset[bytes]
    next_row_id: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, without the fields inside them."""
        names = []
        for description in self.fields:
            values = {part.number: part.value for part in iter_fields(description, "field")}
            name = values.get(_FIELD_NAME, b"")
            if values.get(_PARENT_FIELD) == _NO_PARENT and isinstance(name, bytes):
                names.append(_text(name, "field"))
        return tuple(names)

    def find_fragment(self, like: bytes) -> bytes | None:
        """Return the fragment with the same data files as another one. Rows may have been deleted since, or before."""
        files = _data_files(like)
        # A search in the bytes rules out most fragments before one is parsed.
        return next((found for found in self.fragments if files in found and _data_files(found) == files), None)


def has_fragment(data: bytes, like: bytes, *, fields: tuple[bytes, ...], name: str = "manifest") -> bool:
    """Return whether a manifest has these fields of the schema, and a fragment with the same data files as another one.

    It takes a fraction of the time of `read_contents`: most manifests without the fragment are not parsed.
    """
    files = _data_files(like)
    if files not in data:
        return False
    fragments, others = split_fields(_message(data, name), _FRAGMENT, _called(name))
    # With other fields of the schema, the same files show other columns.
    if tuple(field.value for field in others if field.number == _FIELD) != fields:
        return False
    return any(files in found and _data_files(found) == files for found in fragments)


def _data_files(description: bytes) -> bytes:
    """Return the parts of a fragment's description that name its data files and overlays, as they are written there."""
    return b"".join(field.raw for field in iter_fields(description, "fragment") if field.number in _FILES_IN_FRAGMENT)


def read_contents(data: bytes, *, name: str = "manifest") -> Contents:
    fragments, others = split_fields(_message(data, name), _FRAGMENT, _called(name))
    fields = (field.value for field in others if field.number == _FIELD and isinstance(field.value, bytes))
    row_ids = (field.value for field in others if field.number == _NEXT_ROW_ID and isinstance(field.value, int))
    return Contents(fields=tuple(fields), fragments=frozenset(fragments), next_row_id=next(row_ids, 0))


def fragment_id(description: bytes) -> int:
    """Return the id in a fragment's description; zero is left out there."""
    # The id comes first, as field 1 with a varint. It is read for every fragment of a table at every commit.
    return read_varint(description, 1)[0] if description[:1] == b"\x08" else 0


def with_version(data: bytes, version: int, *, name: str = "manifest") -> bytes:
    """The same manifest under another version number."""
    return _rewrite(data, name, lambda f: varint_field(_VERSION, version) if f.number == _VERSION else f.raw)


def with_base_paths(data: bytes, change: Callable[[BasePath], BasePath], *, name: str = "manifest") -> bytes:
    """The same manifest with each base path changed; the very same bytes if nothing does."""

    def changed(field: WireField) -> bytes:
        if field.number != _BASE_PATHS or not isinstance(field.value, bytes):
            return field.raw
        old = _read_base_path(field.value, name)
        new = change(old)
        return field.raw if new == old else bytes_field(_BASE_PATHS, _write_base_path(field.value, new, name))

    return _rewrite(data, name, changed)


def without_base(data: bytes, path: str, *, name: str = "manifest") -> bytes:
    """The same manifest without one base path; raise ConflictError if a file is in that base."""
    outline = read_outline(data, name=name)
    removed = {base.id for base in outline.info.base_paths if base.path == path}
    used = [_used_bases(fragment, _BASE_IDS_IN_FRAGMENT, name) for fragment in outline.fragments]
    used += [_own_numbers(index, _BASE_ID_IN_INDEX, name) for index in outline.indices]
    # A file in the removed base would have no address left, and readers would look for it below the root.
    if removed & set().union(*used):
        raise ConflictError(
            f"the newest version, {outline.info.version}, has files in {path!r}",
            hint="another writer put them there: move them and try again",
        )
    is_last = len(removed) == len(outline.info.base_paths)

    def changed(field: WireField) -> bytes:
        match field.number, field.value:
            case 18, bytes(value) if _read_base_path(value, name).id in removed:
                return b""
            # The feature flags of readers and writers state that there are bases.
            case (9 | 10) as flags, int(value) if is_last:
                return varint_field(flags, value & ~_HAS_BASE_PATHS)
        return field.raw

    return _rewrite(data, name, changed) if removed else data


def _used_bases(message: bytes, base_ids: _BaseIds, name: str) -> set[int]:
    """Return the bases that the files in a message name."""
    used: set[int] = set()
    for part in iter_fields(message, _called(name)):
        inner = base_ids.get(part.number)
        if inner is not None and isinstance(part.value, bytes):
            # A number is the field of the base id itself. A mapping leads to messages one level deeper.
            if isinstance(inner, int):
                used |= _own_numbers(part.value, inner, name)
            else:
                used |= _used_bases(part.value, inner, name)
    return used


def _own_numbers(message: bytes, number: int, name: str) -> set[int]:
    fields = iter_fields(message, _called(name))
    return {field.value for field in fields if field.number == number and isinstance(field.value, int)}


def without_base_paths(data: bytes, *, name: str = "manifest") -> bytes:
    """The same manifest for a dataset that has all files in its own root: no base path, and no file that names one."""
    return _with_own_sections(data, name, _without_bases(name))


def _without_bases(name: str) -> Callable[[WireField], bytes]:
    def changed(field: WireField) -> bytes:
        match field.number, field.value:
            case 2, bytes(fragment):
                return bytes_field(_FRAGMENT, _without_base_ids(fragment, _BASE_IDS_IN_FRAGMENT, name))
            case (9 | 10) as flags, int(value):
                return varint_field(flags, value & ~_HAS_BASE_PATHS)
            case 18, _:
                return b""
        return field.raw

    return changed


def inherited_indices(data: bytes, *, name: str = "manifest") -> set[str]:
    """The UUIDs of the indices that are in a base."""
    found = set()
    for index in read_outline(data, name=name).indices:
        values = {field.number: field.value for field in iter_fields(index, _called(name))}
        # A UUID is a message with 16 bytes in its field 1.
        uuid = values.get(1)
        if _BASE_ID_IN_INDEX in values and isinstance(uuid, bytes):
            inner = {field.number: field.value for field in iter_fields(uuid, _called(name))}
            found.add(str(UUID(bytes=inner[1] if isinstance(inner[1], bytes) else b"")))
    return found


def with_own_indices(data: bytes, *, name: str = "manifest") -> bytes:
    """The same manifest with all indices in the home's own folder."""
    return _with_own_sections(data, name, lambda field: field.raw) if inherited_indices(data, name=name) else data


def _with_own_sections(data: bytes, name: str, change: Callable[[WireField], bytes]) -> bytes:
    """The manifest with an index section in which no index names a base, and with a changed message."""
    start, size = message_span(data, name)
    fields = tuple(iter_fields(data[start : start + size], _called(name)))
    sections, index_at = data[: start - 4], 0
    for field in fields:
        if field.number == _INDEX_SECTION and isinstance(field.value, int):
            # Put at the end, as sections are found by their position: none of the others may move.
            section = _index_section_without_base_ids(data, field.value, name)
            index_at, sections = len(sections), sections + struct.pack("<I", len(section)) + section

    def changed(field: WireField) -> bytes:
        is_index_section = field.number == _INDEX_SECTION and isinstance(field.value, int)
        return varint_field(_INDEX_SECTION, index_at) if is_index_section else change(field)

    message = b"".join(map(changed, fields))
    footer = data[start + size : -16] + struct.pack("<Q", len(sections)) + data[-8:]
    return sections + struct.pack("<I", len(message)) + message + footer


def _without_base_ids(message: bytes, base_ids: _BaseIds, name: str) -> bytes:
    """Return a message in which no file names a base."""
    out = bytearray()
    for part in iter_fields(message, _called(name)):
        inner = base_ids.get(part.number)
        # What is not known is copied as it is.
        if inner is None or not isinstance(part.value, bytes):
            out += part.raw
        elif isinstance(inner, int):
            fields = iter_fields(part.value, _called(name))
            out += bytes_field(part.number, b"".join(field.raw for field in fields if field.number != inner))
        else:
            out += bytes_field(part.number, _without_base_ids(part.value, inner, name))
    return bytes(out)


def _index_section_without_base_ids(data: bytes, position: int, name: str) -> bytes:
    return _without_base_ids(read_section(data, position, _called(name)), _BASE_IDS_IN_INDEX_SECTION, name)


def read_section(data: bytes, position: int, what: str) -> bytes:
    """Return the section at a position, where its length comes first; `what` names the manifest in the error."""
    if position + 4 > len(data):
        raise damaged(what, "one of its sections lies outside the file")
    (size,) = struct.unpack("<I", data[position : position + 4])
    return data[position + 4 : position + 4 + size]


def _message(data: bytes, name: str) -> bytes:
    start, size = message_span(data, name)
    return data[start : start + size]


def has_mark(data: bytes) -> bool:
    """Whether a manifest was written to its end. A file that a power loss cut off may be empty or full of zeros."""
    return len(data) >= _FOOTER and data[-4:] == _MAGIC


def message_span(data: bytes, name: str) -> tuple[int, int]:
    """Return where the protobuf message of a manifest begins, after its length, and its size."""
    if not has_mark(data):
        raise damaged(_called(name), "it does not end with the mark of a Lance file")
    (position,) = struct.unpack("<Q", data[-16:-8])
    # Positions are checked first: a slice beyond the end is shorter, without an error.
    if position + 4 > len(data) - _FOOTER:
        raise damaged(_called(name), "its message lies outside the file")
    (size,) = struct.unpack("<I", data[position : position + 4])
    if position + 4 + size > len(data) - _FOOTER:
        raise damaged(_called(name), "its message is longer than the file")
    return position + 4, size


def _rewrite(data: bytes, name: str, change: Callable[[WireField], bytes]) -> bytes:
    start, size = message_span(data, name)
    message = b"".join(change(field) for field in iter_fields(data[start : start + size], _called(name)))
    return data[: start - 4] + struct.pack("<I", len(message)) + message + data[start + size :]


def _read_base_path(message: bytes, name: str) -> BasePath:
    # Fields of a base path: 1 id, 2 name, 3 whether it is a dataset root, 4 path. Zero and false are left out.
    base = BasePath(id=0, path="", name=None, is_dataset_root=False)
    for field in iter_fields(message, _called(name)):
        match field.number, field.value:
            case 1, int(value):
                base = replace(base, id=value)
            case 2, bytes(value):
                base = replace(base, name=_text(value, name))
            case 3, int(value):
                base = replace(base, is_dataset_root=bool(value))
            case 4, bytes(value):
                base = replace(base, path=_text(value, name))
    return base


def _write_base_path(old: bytes, new: BasePath, name: str) -> bytes:
    """Only name and path ever change, so every other field, known to us or not, is kept as it was."""
    kept = b"".join(field.raw for field in iter_fields(old, _called(name)) if field.number not in {2, 4})
    alias = b"" if new.name is None else bytes_field(2, new.name.encode())
    return kept + alias + bytes_field(4, new.path.encode())


def _text(value: bytes, name: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise damaged(_called(name), "it holds a text that is not UTF-8") from None


def _called(name: str) -> str:
    return f"manifest {name!r}"
