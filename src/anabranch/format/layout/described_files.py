"""The files that the description of a fragment or an index in a manifest names."""

from enum import StrEnum
from uuid import UUID

from anabranch.format.layout.manifest import fragment_id
from anabranch.format.layout.names import DeletionFileName, DeletionKind
from anabranch.format.layout.wire import iter_fields

__all__ = ["FileKind", "Mention", "files_of_fragment", "folder_of_index", "names_in_index"]

# The fields of a fragment whose meaning is known: id, data files, deletion file, rows, row ids and row versions; and
# all fields of an index. A description with other fields may name more files, and only Lance can read it.
_FRAGMENT_FIELDS = frozenset({1, 2, 3, 4, 5, 7, 9})
_INDEX_FIELDS = frozenset(range(1, 12))


class FileKind(StrEnum):
    """The kinds of file that may lie below a base."""

    DATA = "data"
    DELETION = "deletion"
    INDEX = "index"

    @property
    def folder(self) -> str:
        """Where files of this kind are in a dataset root."""
        return _FOLDERS[self]


_FOLDERS = {FileKind.DATA: "data", FileKind.DELETION: "_deletions", FileKind.INDEX: "_indices"}

# A file as a manifest names it: its kind, its name, and the id of the base that it lies in.
Mention = tuple[FileKind, str, int | None]


def files_of_fragment(description: bytes) -> tuple[Mention, ...] | None:
    """Return the data and deletion files of a fragment; None if its description may name others."""
    found: list[Mention] = []
    for field in iter_fields(description, "fragment"):
        if field.number not in _FRAGMENT_FIELDS:
            return None
        if field.number == 2 and isinstance(field.value, bytes):
            found.append(_data_file(field.value))
        elif field.number == 3 and isinstance(field.value, bytes):
            found.append(_deletion_file(field.value, fragment_id(description)))
    return tuple(found)


def _data_file(message: bytes) -> Mention:
    values = _values(message)
    return FileKind.DATA, _bytes(values, 1).decode(), _base_id(values, 7)


def _deletion_file(message: bytes, fragment: int) -> Mention:
    values = _values(message)
    name = DeletionFileName(
        fragment_id=fragment,
        read_version=_number(values, 2),
        id=str(_number(values, 3)),
        kind=DeletionKind.BITMAP if _number(values, 1) else DeletionKind.ARROW,
    )
    return FileKind.DELETION, str(name), _base_id(values, 7)


def folder_of_index(description: bytes) -> tuple[Mention, ...] | None:
    """Return the folder of an index; None if its description may name other files."""
    values = _values(description)
    if not values.keys() <= _INDEX_FIELDS:
        return None
    uuid = UUID(bytes=_bytes(_values(_bytes(values, 1)), 1))
    return ((FileKind.INDEX, str(uuid), _base_id(values, 9)),)


def _values(message: bytes) -> dict[int, int | bytes]:
    return {field.number: field.value for field in iter_fields(message, "manifest")}


def _number(values: dict[int, int | bytes], number: int) -> int:
    """A number, which is left out where it is zero."""
    value = values.get(number, 0)
    return value if isinstance(value, int) else 0


def _base_id(values: dict[int, int | bytes], number: int) -> int | None:
    value = values.get(number)
    return value if isinstance(value, int) else None


def _bytes(values: dict[int, int | bytes], number: int) -> bytes:
    value = values.get(number, b"")
    return value if isinstance(value, bytes) else b""


def names_in_index(description: bytes) -> tuple[str, ...]:
    """Return the names of the files in an index folder, if the description lists them."""
    listed = (part.value for part in iter_fields(description, "index") if part.number == 10)
    return tuple(_bytes(_values(file), 1).decode() for file in listed if isinstance(file, bytes))
