"""The manifest of an ordinary version that shows what a staged version holds.

It is the staged manifest under an ordinary number, with a transaction that covers every step since the ordinary
version before it. Native Lance writers that read an older version rebase over that transaction. A manifest that kept
the transaction of its last step only would corrupt the table under a concurrent native delete.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.format.layout.manifest import fragment_id, message_span, read_section
from anabranch.format.layout.wire import (
    WireField,
    bytes_field,
    bytes_fields,
    iter_fields,
    made_field,
    read_values,
    split_fields,
    varint_field,
)

__all__ = [
    "NO_PARTS",
    "Properties",
    "SettledManifest",
    "SettledParts",
    "inline_transaction",
    "join_manifest",
    "ordinary_manifest",
    "read_parts",
    "property_fields",
    "read_properties",
    "settled_manifest",
    "written_at",
]

Properties = Mapping[str, str]
Fragments = Mapping[int, bytes]

# Field numbers of Lance's Manifest.
_FIELD, _FRAGMENT, _VERSION, _INDEX_SECTION, _TIMESTAMP = 1, 2, 3, 6, 7
_MAX_FRAGMENT_ID, _TRANSACTION_FILE, _NEXT_ROW_ID, _TRANSACTION_SECTION = 11, 12, 14, 23
# Field numbers of its Transaction.
_READ_VERSION, _UUID, _PROPERTIES, _CREATE_INDEX, _REWRITE, _RESTORE, _UPDATE = 1, 2, 4, 103, 104, 106, 108
# Field numbers of its DataFragment that may change while the rows stay where they are: deletions and row versions.
_DELETION_FILE, _ROW_VERSIONS = 3, frozenset({7, 8, 9, 10})
# Field number of its DeletionFile.
_DELETED_ROWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledParts:
    """A manifest taken apart as far as settling needs it: the fragments by their ids, and all `others` as they are."""

    others: tuple[WireField, ...] = field(repr=False)
    prefix: bytes = field(repr=False)
    suffix: bytes = field(repr=False)
    footer: bytes = field(repr=False)
    version: int
    fields: tuple[bytes, ...] = field(repr=False)
    fragments: Fragments = field(repr=False)
    indices: tuple[bytes, ...] = field(repr=False)
    timestamp: bytes
    next_row_id: int
    max_fragment_id: int


# Of a manifest that is damaged.
NO_PARTS = SettledParts(
    others=(),
    prefix=b"",
    suffix=b"",
    footer=b"",
    version=0,
    fields=(),
    fragments={},
    indices=(),
    timestamp=b"",
    next_row_id=0,
    max_fragment_id=-1,
)


def read_parts(data: bytes, *, name: str) -> SettledParts:
    """Take a manifest apart."""
    start, size = message_span(data, name)
    fragments, others = split_fields(data[start : start + size], _FRAGMENT, f"manifest {name!r}")
    numbers = {part.number: part.value for part in others if isinstance(part.value, int)}
    texts = {part.number: part.value for part in others if isinstance(part.value, bytes)}
    return SettledParts(
        others=others,
        prefix=data[: start - 4],
        # A manifest file ends with 16 bytes: the position of the message (8), the format version (4) and the mark
        # `LANC`.
        suffix=data[start + size : -16],
        footer=data[-8:],
        version=numbers.get(_VERSION, 0),
        fields=_values(others, _FIELD),
        fragments={fragment_id(value): value for value in fragments},
        indices=_indices(data, numbers[_INDEX_SECTION], name) if _INDEX_SECTION in numbers else (),
        timestamp=texts.get(_TIMESTAMP, b""),
        next_row_id=numbers.get(_NEXT_ROW_ID, 0),
        max_fragment_id=numbers.get(_MAX_FRAGMENT_ID, -1),
    )


def inline_transaction(parts: SettledParts) -> bytes | None:
    """Return the transaction that a manifest contains; None if it is in a file of its own."""
    for part in parts.others:
        if part.number == _TRANSACTION_SECTION and isinstance(part.value, int):
            return read_section(parts.prefix, part.value, f"the manifest of version {parts.version}")
    return None


def read_properties(transaction: bytes) -> dict[str, str]:
    """Return the properties of a serialised transaction."""
    found: dict[str, str] = {}
    for value in _values(tuple(iter_fields(transaction, "transaction")), _PROPERTIES):
        texts = read_values(value, "transaction")
        key, text = texts.get(1, b""), texts.get(2, b"")
        if isinstance(key, bytes) and isinstance(text, bytes):
            found[key.decode(errors="replace")] = text.decode(errors="replace")
    return found


def property_fields(properties: Properties) -> bytes:
    """Return properties as the fields of a serialised transaction."""
    # Sorted: a repair must produce the same bytes in every process.
    entries = [
        bytes_field(1, key.encode()) + bytes_field(2, value.encode()) for key, value in sorted(properties.items())
    ]
    return bytes_fields(_PROPERTIES, entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledManifest:
    """A manifest to put, and what it has that the version before it did not have: fragments and indices.

    Each fragment comes with its former description, empty for a new one. A version that `is_restore` conflicts with
    every concurrent native write, as a Restore by Lance does.
    """

    number: int
    data: bytes = field(repr=False)
    parts: SettledParts = field(repr=False)
    is_restore: bool
    has_blobs: bool
    fragments: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    indices: tuple[bytes, ...] = field(repr=False)


def settled_manifest(
    before: SettledParts,
    base: SettledParts,
    staged: SettledParts,
    *,
    properties: Properties,
    uuid: str,
    is_clean: bool,
) -> SettledManifest:
    """Return the ordinary version after `before` that shows `staged`.

    `base` is the staged version that `before` shows, or `before` itself. `is_clean` states that the row versions of
    `before` are ordinary ones already, as those of every version that was settled like this are.
    """
    # Not at the top: to find out which versions are ours needs no numpy.
    from anabranch.format.layout.row_versions import Basis, clamped_fragments, settled_fragments

    number = before.version + 1
    # A version that Lance restored from a staged one has staged row versions. They must not be copied into this one.
    old = before.fragments if is_clean else clamped_fragments(before.fragments, before.version)
    known = old if base is before else base.fragments
    # Most fragments are those of the version before. They are found by one comparison of all, and not parsed again.
    changed = _changed(staged.fragments, known, old) if is_clean else list(staged.fragments)
    basis = Basis(before=old, base=known, next_row_id=before.next_row_id, number=number)
    fragments = settled_fragments(staged.fragments, basis, changed)
    is_restore = _needs_restore(before, base, staged, changed)
    transaction = varint_field(_READ_VERSION, before.version) + bytes_field(_UUID, uuid.encode())
    transaction += property_fields(properties)
    if is_restore:
        transaction += bytes_field(_RESTORE, varint_field(1, staged.version))
    else:
        transaction += _operation(before, staged, fragments, changed)
    parts = _assembled(staged, before, fragments, transaction, uuid)
    data = join_manifest(parts)
    return SettledManifest(
        number=number,
        data=data,
        parts=parts,
        is_restore=is_restore,
        # A search for the word may find a column that only has it in its name, which costs a listing. A missed column
        # would leave files without a sync.
        has_blobs=any(b"blob" in described for described in staged.fields),
        fragments=tuple((fragments[key], before.fragments.get(key, b"")) for key in changed),
        indices=tuple(index for index in staged.indices if index not in before.indices),
    )


def _changed(staged: Fragments, base: Fragments, before: Fragments) -> list[int]:
    """Return the ids of the staged fragments that are not those of the base, or that are new, in their order."""
    other = {key for key, _ in staged.items() - base.items()} | (staged.keys() - before.keys())
    return sorted(other)


def ordinary_manifest(staged: bytes, number: int, *, shown_by: bytes | None, name: str) -> bytes:
    """Return a staged manifest under an ordinary number, for the first version of a fork.

    The row versions are those of the ordinary version that shows the staged one, if there is one.
    """
    from anabranch.format.layout.row_versions import copied_fragments

    parts = read_parts(staged, name=name)
    shown = {} if shown_by is None else read_parts(shown_by, name=name).fragments
    others = (part for part in parts.others if part.number != _VERSION)
    fragments = copied_fragments(parts.fragments, shown, number)
    return join_manifest(replace(parts, others=(*others, made_field(_VERSION, number)), fragments=fragments))


def _assembled(
    staged: SettledParts,
    before: SettledParts,
    fragments: Fragments,
    transaction: bytes,
    uuid: str,
) -> SettledParts:
    """Return the staged manifest with other fragments and another transaction, as the version after `before`."""
    version = before.version + 1
    later = max(staged.timestamp, before.timestamp, key=_moment)  # a staged version may be the older one
    own = (
        made_field(_VERSION, version),
        made_field(_TIMESTAMP, later),
        made_field(_TRANSACTION_FILE, f"{before.version}-{uuid}.txn".encode()),
        made_field(_TRANSACTION_SECTION, len(staged.prefix)),
    )
    replaced = {part.number for part in own}
    return replace(
        staged,
        others=(*(part for part in staged.others if part.number not in replaced), *own),
        # What lies before the message (indices, dictionaries) is found by its position, so it stays where it is.
        prefix=staged.prefix + struct.pack("<I", len(transaction)) + transaction,
        version=version,
        timestamp=later,
        fragments=fragments,
    )


def join_manifest(parts: SettledParts) -> bytes:
    """Return the bytes of a manifest."""
    message = b"".join(part.raw for part in parts.others) + bytes_fields(_FRAGMENT, parts.fragments.values())
    footer = parts.suffix + struct.pack("<Q", len(parts.prefix)) + parts.footer
    return parts.prefix + struct.pack("<I", len(message)) + message + footer


def _needs_restore(before: SettledParts, base: SettledParts, staged: SettledParts, changed: Sequence[int]) -> bool:
    """Whether the change is more than rows and indices on top of what is there.

    An Update cannot express another schema. Where the version goes back to an older one, ids of fragments and rows are
    used a second time, and a native writer would merge its deletions into the wrong rows. Where deleted rows come back,
    it panics, because it expects the deletion file that it read.
    """
    if before.fields != staged.fields:
        return True
    if staged.next_row_id < before.next_row_id or staged.max_fragment_id < before.max_fragment_id:
        return True
    for key in changed:
        old, new = before.fragments.get(key), staged.fragments[key]
        # A new fragment, or one that this change did not touch: a concurrent writer can rebase over both.
        if old is None or new in (old, base.fragments.get(key)):
            continue
        if _rows_of(new) != _rows_of(old) or _has_rows_back(old, new):
            return True
    return False


def _rows_of(fragment: bytes) -> list[bytes]:
    changing = _ROW_VERSIONS | {_DELETION_FILE}
    return [part.raw for part in iter_fields(fragment, "fragment") if part.number not in changing]


def _has_rows_back(old: bytes, new: bytes) -> bool:
    """Whether deleted rows of a fragment came back: other changes only ever delete more of them."""
    former, current = _deletions_of(old), _deletions_of(new)
    return former is not None and former != current and (current is None or _deleted(current) <= _deleted(former))


def _deletions_of(fragment: bytes) -> bytes | None:
    return next((value for value in _values(tuple(iter_fields(fragment, "fragment")), _DELETION_FILE)), None)


def _deleted(deletion_file: bytes) -> int:
    """How many rows a deletion file names; 0 if it is not recorded, as in old Lance releases."""
    found = (part.value for part in iter_fields(deletion_file, "deletion file") if part.number == _DELETED_ROWS)
    return next((value for value in found if isinstance(value, int)), 0)


def _operation(before: SettledParts, staged: SettledParts, fragments: Fragments, changed: Sequence[int]) -> bytes:
    """The change as an Update, as a CreateIndex where only indices changed, or as a Rewrite where both did.

    A transaction has one operation, and Lance reads it only to judge concurrent writes. It lets an index pass an
    Update, so that the table would have two indices of one name on the same fragments. A Rewrite of all fragments makes
    such a writer, and those that change rows, try again; appends pass it.
    """
    old = before.fragments
    # Fields of an Update: 1 ids of removed fragments, 2 changed fragments, 3 new ones.
    update = b"".join(varint_field(1, key) for key in sorted(old.keys() - fragments.keys()))
    update += bytes_fields(2, (fragments[key] for key in changed if key in old and fragments[key] != old[key]))
    update += bytes_fields(3, (fragments[key] for key in changed if key not in old))
    if not update and set(before.indices) != set(staged.indices):
        added = bytes_fields(1, (index for index in staged.indices if index not in before.indices))
        removed = bytes_fields(2, (index for index in before.indices if index not in staged.indices))
        return bytes_field(_CREATE_INDEX, added + removed)
    if before.indices != staged.indices and _index_ids(before) != _index_ids(staged):
        group = bytes_fields(1, old.values()) + bytes_fields(2, fragments.values())
        return bytes_field(_REWRITE, bytes_field(3, group))
    return bytes_field(_UPDATE, update)


def _index_ids(parts: SettledParts) -> set[bytes]:
    """The ids of the indices: an index whose covered fragments changed keeps its id."""
    return {uuid for index in parts.indices for uuid in _values(tuple(iter_fields(index, "index")), 1)}


def _values(message: tuple[WireField, ...], number: int) -> tuple[bytes, ...]:
    return tuple(part.value for part in message if part.number == number and isinstance(part.value, bytes))


def _indices(data: bytes, position: int, name: str) -> tuple[bytes, ...]:
    what = f"manifest {name!r}"
    return _values(tuple(iter_fields(read_section(data, position, what), what)), 1)


def written_at(parts: SettledParts) -> int:
    """Return when a manifest was written, in microseconds."""
    seconds, nanoseconds = _moment(parts.timestamp)
    return seconds * 1_000_000 + nanoseconds // 1_000


def _moment(timestamp: bytes) -> tuple[int, int]:
    numbers = read_values(timestamp, "timestamp")
    seconds, nanoseconds = numbers.get(1, 0), numbers.get(2, 0)
    return (seconds, nanoseconds) if isinstance(seconds, int) and isinstance(nanoseconds, int) else (0, 0)
