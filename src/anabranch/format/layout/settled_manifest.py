"""The manifest of an ordinary version that shows what a staged version holds.

It is the staged manifest under an ordinary number, with a transaction that covers every step since the ordinary
version before it. Native Lance writers that read an older version rebase over that transaction. A manifest that kept
the transaction of its last step only would corrupt the table under a concurrent native delete.

It has other row versions: the versions in which rows were created and last updated. Lance stamps a row with the read
version plus one. For a row that was staged on a staged version that is a number of about 1e19, which means nothing to a
plain reader. A settled manifest carries ordinary numbers: those of the ordinary version before it for rows that did not
change, and its own for the others.
"""

import copy
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from anabranch.format.layout import messages
from anabranch.format.layout.manifest import ManifestParts, join_manifest, read_parts
from anabranch.format.layout.messages import damaged

Fragments = Mapping[int, bytes]
Numbers = npt.NDArray[np.uint64]
# The fragments of the version before, and of the base, in which rows that moved are searched.
_Searched = tuple[Sequence[bytes], Sequence[bytes]]

# The fields of a fragment with row versions.
_UPDATED, _CREATED = "last_updated", "created"
_STAGED = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledManifest:
    """A manifest to put, and what it has that the version before it did not have: fragments and indices.

    Each fragment comes with its former description, empty for a new one. A version that `is_restore` conflicts with
    every concurrent native write, as a Restore by Lance does.
    """

    data: bytes = field(repr=False)
    parts: ManifestParts = field(repr=False)
    is_restore: bool
    has_blobs: bool
    fragments: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    indices: tuple[bytes, ...] = field(repr=False)


def settled_manifest(
    before: ManifestParts,
    base: ManifestParts,
    staged: ManifestParts,
    *,
    properties: Mapping[str, str],
    uuid: str,
    is_clean: bool,
) -> SettledManifest:
    """Return the ordinary version after `before` that shows `staged`.

    `base` is the staged version that `before` shows, or `before` itself. `is_clean` states that the row versions of
    `before` are ordinary ones already, as those of every version that was settled like this are.
    """
    # A version that Lance restored from a staged one has staged row versions. They must not be copied into this one.
    old = before.fragments if is_clean else _clamped_all(before.fragments, {}, before.message.version)
    known = old if base is before else base.fragments
    # Most fragments are those of the version before. They are found by one comparison of all, and not parsed again.
    changed = list(staged.fragments)
    if is_clean:
        differing = {key for key, _ in staged.fragments.items() - known.items()}
        changed = sorted(differing | (staged.fragments.keys() - old.keys()))
    basis = _Basis(before=old, base=known, next_row_id=before.message.next_row_id, number=before.message.version + 1)
    fragments = _settled_all(staged.fragments, basis, changed)
    transaction = messages.Transaction(
        read_version=before.message.version,
        uuid=uuid,
        # Sorted: a repair must produce the same bytes in every process.
        properties=[messages.Property(key=key, value=value) for key, value in sorted(properties.items())],
    )
    is_restore = _needs_restore(before, base, staged, changed)
    if is_restore:
        transaction.restore.version = staged.message.version
    else:
        _set_operation(transaction, before, staged, fragments, changed)
    parts = _assembled(staged, before, fragments, transaction)
    return SettledManifest(
        data=join_manifest(parts),
        parts=parts,
        is_restore=is_restore,
        # A search for the word may find a column that only has it in its name, which costs a listing. A missed column
        # would leave files without a sync.
        has_blobs=any(b"blob" in described for described in staged.message.fields),
        fragments=tuple((fragments[key], before.fragments.get(key, b"")) for key in changed),
        indices=tuple(index for index in staged.indices if index not in before.indices),
    )


def ordinary_manifest(staged: bytes, number: int, *, shown_by: bytes | None, name: str) -> bytes:
    """Return a staged manifest under an ordinary number, for the first version of a fork.

    The row versions are those of the ordinary version that shows the staged one, if there is one.
    """
    parts = read_parts(staged, name=name)
    shown = {} if shown_by is None else read_parts(shown_by, name=name).fragments
    parts.message.version = number
    return join_manifest(replace(parts, fragments=_clamped_all(parts.fragments, shown, number)))


def _assembled(
    staged: ManifestParts, before: ManifestParts, fragments: Fragments, transaction: messages.Transaction
) -> ManifestParts:
    """Return the staged manifest with other fragments and another transaction, as the version after `before`."""
    message, inline = copy.deepcopy(staged.message), transaction.SerializeToString()
    message.version = before.message.version + 1
    former, own = before.message.timestamp, message.timestamp
    # A staged version may be the older one.
    if (former.seconds, former.nanos) > (own.seconds, own.nanos):
        own.CopyFrom(former)
    message.transaction_file = f"{before.message.version}-{transaction.uuid}.txn"
    message.transaction_section = len(staged.prefix)
    # What lies before the message (indices, dictionaries) is found by its position, so it stays where it is.
    prefix = staged.prefix + struct.pack("<I", len(inline)) + inline
    return replace(staged, message=message, fragments=fragments, prefix=prefix)


def _needs_restore(before: ManifestParts, base: ManifestParts, staged: ManifestParts, changed: Sequence[int]) -> bool:
    """Whether the change is more than rows and indices on top of what is there.

    An Update cannot express another schema. Where the version goes back to an older one, ids of fragments and rows are
    used a second time, and a native writer would merge its deletions into the wrong rows. Where deleted rows come back,
    it panics, because it expects the deletion file that it read.
    """
    if before.message.fields != staged.message.fields:
        return True
    has_fewer_rows = staged.message.next_row_id < before.message.next_row_id
    if has_fewer_rows or staged.last_fragment_id < before.last_fragment_id:
        return True
    for key in changed:
        old, new = before.fragments.get(key), staged.fragments[key]
        # A new fragment, or one that this change did not touch: a concurrent writer can rebase over both.
        if old is None or new in (old, base.fragments.get(key)):
            continue
        if _is_replaced(messages.Fragment.parse(old, "fragment"), messages.Fragment.parse(new, "fragment")):
            return True
    return False


def _is_replaced(old: messages.Fragment, new: messages.Fragment) -> bool:
    """Whether a fragment has other rows, or deleted rows came back: other changes only ever delete more of them."""
    former, current = old.deletion_file, new.deletion_file
    # Old Lance releases do not record the number of rows; it is 0 then.
    has_fewer = current.num_deleted_rows <= former.num_deleted_rows
    if old.HasField("deletion_file") and former != current and has_fewer:
        return True
    for fragment in (old, new):
        # These may change while the rows stay where they are.
        for changing in ("deletion_file", "last_updated", "created"):
            fragment.ClearField(changing)
    return old != new


def _set_operation(
    transaction: messages.Transaction,
    before: ManifestParts,
    staged: ManifestParts,
    fragments: Fragments,
    changed: Sequence[int],
) -> None:
    """Record the change as an Update, as a CreateIndex where only indices changed, or as a Rewrite where both did.

    A transaction has one operation, and Lance reads it only to judge concurrent writes. It lets an index pass an
    Update, so that the table would have two indices of one name on the same fragments. A Rewrite of all fragments makes
    such a writer, and those that change rows, try again; appends pass it.
    """
    old = before.fragments
    update = messages.Update(
        removed_fragment_ids=sorted(old.keys() - fragments.keys()),
        updated_fragments=[fragments[key] for key in changed if key in old and fragments[key] != old[key]],
        new_fragments=[fragments[key] for key in changed if key not in old],
    )
    if update == messages.Update() and set(before.indices) != set(staged.indices):
        transaction.create_index.CopyFrom(
            messages.CreateIndex(
                new_indices=[index for index in staged.indices if index not in before.indices],
                removed_indices=[index for index in before.indices if index not in staged.indices],
            )
        )
    elif before.indices != staged.indices and _index_ids(before) != _index_ids(staged):
        group = messages.RewriteGroup(old_fragments=old.values(), new_fragments=fragments.values())
        transaction.rewrite.groups.append(group)
    else:
        transaction.update.CopyFrom(update)


def _index_ids(parts: ManifestParts) -> set[bytes]:
    """The ids of the indices: an index whose covered fragments changed keeps its id."""
    return {messages.Index.parse(index, "index").uuid.uuid for index in parts.indices}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What the row versions of a new ordinary version, `number`, follow from.

    `before` are the fragments of the ordinary version before it. `base` are those of the staged version that the
    ordinary version before it shows: the same rows, with staged row versions. If it shows none, both are the same.
    Rows with ids from `next_row_id` on are new.
    """

    before: Fragments
    base: Fragments
    next_row_id: int
    number: int


def _settled_all(staged: Fragments, basis: _Basis, changed: Sequence[int]) -> dict[int, bytes]:
    """Return the staged fragments with the row versions that plain readers of the ordinary version expect.

    All fragments but the `changed` ones are those of the base and of the version before.
    """
    # A row that moved to a new fragment has left an old one, so only fragments that changed are searched.
    left = basis.base.keys() - staged.keys()
    left |= {number for number in changed if number in basis.base and staged[number] != basis.base[number]}
    rows_before = [basis.before[number] for number in sorted(left) if number in basis.before]
    rows_base = [basis.base[number] for number in sorted(left)]
    settled = {number: basis.before.get(number, message) for number, message in staged.items()}
    for number in changed:
        message, before, base = staged[number], basis.before.get(number), basis.base.get(number)
        if before is None or message != base:
            settled[number] = _settled(message, before, base, basis, (rows_before, rows_base))
    return settled


def _clamped_all(fragments: Fragments, source: Fragments, number: int) -> dict[int, bytes]:
    """Return the fragments with ordinary row versions: their own, or those of another manifest of the same state."""
    return {key: _clamped(description, number, source.get(key)) for key, description in fragments.items()}


def _settled(description: bytes, before: bytes | None, base: bytes | None, basis: _Basis, rows: _Searched) -> bytes:
    fragment = messages.Fragment.parse(description, "fragment")
    if not fragment.HasField("row_ids"):
        return description  # Without stable row ids Lance keeps no row versions.
    old = messages.Fragment.parse(before or b"", "fragment")
    known = messages.Fragment.parse(base or b"", "fragment")
    changed: list[str] = []
    new: dict[str, bytes] = {}
    for name in (_UPDATED, _CREATED):
        if not fragment.HasField(name):
            continue
        # Sequences that did not change since the base are those of the version before.
        if old.HasField(name) and getattr(fragment, name) == getattr(known, name):
            new[name] = getattr(old, name)
        else:
            changed.append(name)
    if changed:
        new |= _computed(fragment, changed, basis, rows)
    return _with(description, fragment, new)


def _computed(fragment: messages.Fragment, changed: list[str], basis: _Basis, rows: _Searched) -> dict[str, bytes]:
    segments = messages.RowIds.parse(fragment.row_ids, "row ids").segments
    # Row ids from `next_row_id` on did not exist before, so all rows are new: no search is needed. This is every
    # append.
    if len(segments) == 1 and segments[0].HasField("range") and segments[0].range.start >= basis.next_row_id:
        new_rows = segments[0].range
        return dict.fromkeys(changed, encode_run(0, new_rows.end - new_rows.start, basis.number))
    row_ids = np.concatenate([np.empty(0, np.uint64), *map(_numbers, segments)])
    own = np.uint64(basis.number)
    if len(row_ids) == 0 or int(row_ids.min()) >= basis.next_row_id:
        return dict.fromkeys(changed, encode_run(0, len(row_ids), basis.number))
    before, base = (_find_rows(fragments, row_ids) for fragments in rows)
    new: dict[str, bytes] = {}
    if _CREATED in changed:
        new[_CREATED] = _encode(np.where(before.found, before.created, own))
    if _UPDATED in changed:
        updated = _decode(fragment.last_updated)
        if len(updated) != len(row_ids):
            raise damaged("a fragment", f"it has row versions for {len(updated)} of its {len(row_ids)} rows")
        # A row keeps its version only if staging did not touch it: then the staged value is still that of the base.
        kept = before.found & base.found & (base.updated == updated)
        new[_UPDATED] = _encode(np.where(kept, before.updated, own))
    return new


@dataclass(frozen=True, slots=True)
class _Found:
    found: npt.NDArray[np.bool_]
    created: Numbers
    updated: Numbers


def _find_rows(fragments: Sequence[bytes], row_ids: Numbers) -> _Found:
    """Find rows by their ids in some fragments."""
    found = np.zeros(len(row_ids), dtype=bool)
    created, updated = np.zeros(len(row_ids), np.uint64), np.zeros(len(row_ids), np.uint64)
    for description in fragments:  # A row that is in several fragments is alive in the newest.
        fragment = messages.Fragment.parse(description, "fragment")
        at, rows = _positions(fragment, row_ids)
        here = at >= 0
        found |= here
        for versions, into in ((fragment.created, created), (fragment.last_updated, updated)):
            ends, numbers = _runs(versions)
            # Versions are found by the position of a row, so runs for another number of rows are not used.
            if ends[-1] == rows:
                into[here] = numbers[np.searchsorted(ends, at[here], side="right")]
    return _Found(found, created, updated)


def _positions(fragment: messages.Fragment, row_ids: Numbers) -> tuple[npt.NDArray[np.int64], int]:
    """Return where rows are in a fragment, -1 if they are not, and the number of its rows.

    A fragment of appended rows has one range of ids, which is not expanded.
    """
    at = np.full(len(row_ids), -1, dtype=np.int64)
    rows = 0
    for segment in messages.RowIds.parse(fragment.row_ids, "row ids").segments:
        ids = find_range(segment)
        if ids is not None:
            here = (row_ids >= np.uint64(ids.start)) & (row_ids < np.uint64(ids.stop))
            at[here] = (row_ids[here] - np.uint64(ids.start)).astype(np.int64) + rows
            rows += len(ids)
            continue
        own = _numbers(segment)
        if len(own):
            # The ids of moved rows are in any order, so a sorted copy is searched.
            order = np.argsort(own, kind="stable")
            nearest = order[np.minimum(np.searchsorted(own[order], row_ids), len(own) - 1)]
            here = own[nearest] == row_ids
            at[here] = nearest[here] + rows
            rows += len(own)
    return at, rows


def _clamped(description: bytes, number: int, source: bytes | None) -> bytes:
    """Return a fragment with ordinary row versions: its own, or those of another description of it."""
    fragment = messages.Fragment.parse(description, "fragment")
    other = fragment if source is None else messages.Fragment.parse(source, "fragment")
    new: dict[str, bytes] = {}
    for name in (_UPDATED, _CREATED):
        if not fragment.HasField(name):
            continue
        encoded = getattr(other if other.HasField(name) else fragment, name)
        versions = _decode(encoded)
        # Staging records its own random id (above 2^63) as the version of new rows. Readers would take it for a
        # far future.
        if len(versions) and int(versions.max()) >= _STAGED:
            encoded = _encode(np.where(versions >= np.uint64(_STAGED), np.uint64(number), versions))
        if encoded != getattr(fragment, name):
            new[name] = encoded
    return _with(description, fragment, new)


def _with(description: bytes, fragment: messages.Fragment, new: Mapping[str, bytes]) -> bytes:
    """Return a fragment with other row versions. Without any, its description stays the same: it is compared."""
    for name, versions in new.items():
        setattr(fragment, name, versions)
    return fragment.SerializeToString() if new else description


def find_range(segment: messages.Segment) -> range | None:
    """Return the numbers of a segment if they are one range, as the ids of appended rows are."""
    return range(segment.range.start, segment.range.end) if segment.HasField("range") else None


def _numbers(segment: messages.Segment) -> Numbers:
    """The numbers of a segment. Lance has five encodings; ranges are read here, and it decodes the others itself."""
    from lance.fragment import RowIdMeta, RowIdSequence

    ids = find_range(segment)
    if ids is not None:
        return np.arange(ids.start, ids.stop, dtype=np.uint64)
    described = json.dumps({"Inline": list(messages.RowIds(segments=[segment]).SerializeToString())})
    try:
        whole = RowIdMeta.from_json(described)  # type: ignore[misc, call-arg] # Lance's stub takes it for a method.
        return np.asarray(RowIdSequence.from_inline_metadata(whole).to_pyarrow().to_numpy(), dtype=np.uint64)
    except (OSError, RuntimeError, ValueError) as err:
        raise damaged("a fragment", f"its row ids cannot be decoded: {err}") from err


def _decode(versions: bytes) -> Numbers:
    """The version of each row, from runs of equal ones."""
    ends, numbers = _runs(versions)
    return np.repeat(numbers, np.diff(ends, prepend=0))


def _runs(versions: bytes) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Return where runs of rows with the same version end, and their versions. The first run is empty."""
    # With an empty run in front, there is a last end even if no version is recorded.
    lengths, numbers = [0], [0]
    try:
        for run in messages.RowVersions.parse(versions, "row versions").runs:
            ids = find_range(run.span)
            lengths.append(len(_numbers(run.span)) if ids is None else len(ids))
            numbers.append(run.version)
        return np.cumsum(lengths, dtype=np.int64), np.array(numbers, dtype=np.uint64)
    except OverflowError:
        raise damaged("a fragment", "a row version has too many rows") from None


def _encode(versions: Numbers) -> bytes:
    if not len(versions):
        return b""
    starts = [0, *(np.flatnonzero(versions[1:] != versions[:-1]) + 1).tolist()]
    ends = [*starts[1:], len(versions)]
    return b"".join(encode_run(start, end, int(versions[start])) for start, end in zip(starts, ends, strict=True))


def encode_run(start: int, end: int, version: int) -> bytes:
    """Encode one version for the rows from one position to another; without rows, return nothing."""
    if start == end:
        return b""
    span = messages.Segment(range=messages.Range(start=start, end=end))
    return messages.RowVersions(runs=[messages.VersionRun(span=span, version=version)]).SerializeToString()
