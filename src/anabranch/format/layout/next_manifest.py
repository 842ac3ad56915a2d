"""The manifest of the next version of a home: a staged one with changed rows, or the ordinary one that shows it.

A staged manifest with changed rows is that of the version before with fragments removed, added, or given another
deletion file, as Lance writes it for an Append, or for a Delete and an Append at once. Lance's own commit takes several
times as long, and needs two versions for the latter, or an Update that reads the id of every row.

A settled manifest is the staged one under an ordinary number, with a transaction that covers every step since the
ordinary version before it. Native Lance writers that read an older version rebase over that transaction. A manifest
that kept the transaction of its last step only would corrupt the table under a concurrent native delete. It has other
row versions (`fragment_rows`).
"""

import copy
import json
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from lance.fragment import FragmentMetadata, RowIdSequence

from anabranch.format.layout import messages
from anabranch.format.layout.fragment_rows import Basis, Fragments, clamped_all, settled_fragment
from anabranch.format.layout.manifest import ManifestParts, join_manifest, read_parts

# A property of the transaction of an update: the ids of the fields that it changed. Rows and other fields stay.
UPDATED_FIELDS = "anabranch.updated_fields"

# The bits of the feature flags: some fragment has a deletion file; rows have stable ids.
_HAS_DELETIONS, _HAS_ROW_IDS = 1, 2
_LARGEST_VERSION = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Fragments that lost rows, the ids of those that lost all rows, and new ones.

    The first rows of a written fragment may have ids, which the fragment records; the others are new and get ids here.
    `is_append` states that rows are only written, and may be appended again to another version, whatever rows it has.
    `updated_fields` are given if every row that was cut is written again with the same values in all other fields.
    """

    cut: Sequence[FragmentMetadata] = ()
    removed: Sequence[int] = ()
    written: Sequence[FragmentMetadata] = ()
    is_append: bool = False
    updated_fields: Sequence[int] = ()


def staged_manifest(
    base: ManifestParts, change: ChangedRows, *, read_version: int, version: int, uuid: str
) -> ManifestParts | None:
    """Return the manifest of a version with changed rows.

    Return None if Lance must write it: for a table with indices, whose coverage it decides on, and for one without
    stable row ids.
    """
    # Indices and dictionaries before the message are found by their positions. If the transaction is alone there, it
    # begins with the length of the rest.
    has_transaction = base.message.HasField("transaction_section") and base.message.transaction_section == 0
    size = 4 + int.from_bytes(base.prefix[:4], "little") if has_transaction else 0
    has_other_sections = len(base.prefix) != size
    has_row_ids = base.message.reader_feature_flags & _HAS_ROW_IDS
    if base.message.HasField("index_section") or has_other_sections or not has_row_ids:
        return None
    message = copy.deepcopy(base.message)
    message.version = version
    message.timestamp.seconds, message.timestamp.nanos = divmod(time.time_ns(), 1_000_000_000)
    message.transaction_file = f"{read_version}-{uuid}.txn"
    message.transaction_section = 0
    described, new = _new_fragments(base, change.written, message, read_version)
    fragments = {**base.fragments, **new}
    transaction = messages.Transaction(read_version=read_version, uuid=uuid)
    if change.is_append:
        transaction.append.CopyFrom(messages.Append(fragments=described))
    else:
        update = _cut_fragments(fragments, change, message)
        update.new_fragments.extend(described)
        transaction.update.CopyFrom(update)
    if change.updated_fields:
        updated = " ".join(map(str, change.updated_fields))
        transaction.properties.append(messages.Property(key=UPDATED_FIELDS, value=updated))
    last_id = max(base.last_fragment_id, *fragments, -1)
    if last_id >= 0:
        message.max_fragment_id = last_id
    inline = transaction.SerializeToString()
    # Omit the transaction of the base: otherwise manifests would grow with each step.
    prefix = struct.pack("<I", len(inline)) + inline
    return replace(base, message=message, fragments=fragments, prefix=prefix, last_fragment_id=last_id)


def _cut_fragments(fragments: dict[int, bytes], change: ChangedRows, message: messages.Manifest) -> messages.Update:
    """Cut and remove fragments of a manifest, and return the Update that records this."""
    cut = {one.id: _with_deletions(fragments[one.id], one) for one in change.cut}
    if cut:
        message.reader_feature_flags |= _HAS_DELETIONS
        message.writer_feature_flags |= _HAS_DELETIONS
    fragments.update(cut)
    for number in change.removed:
        fragments.pop(number, None)
    return messages.Update(removed_fragment_ids=change.removed, updated_fragments=cut.values())


def _new_fragments(
    base: ManifestParts, written: Sequence[FragmentMetadata], message: messages.Manifest, read_version: int
) -> tuple[list[bytes], dict[int, bytes]]:
    """Return the written fragments as a transaction has them, and as the version has them, by their new ids.

    A transaction has new fragments without their ids, and without the ids of new rows. These are the next ids of the
    manifest's message.
    """
    # As Lance does: rows are created and updated in the version after the one that was read. Settling replaces it.
    version = min(read_version + 1, _LARGEST_VERSION)
    described, found = [], {}
    for number, metadata in enumerate(written, max(base.last_fragment_id, *base.fragments, -1) + 1):
        # The rows that have ids come first.
        given = metadata.row_id_meta
        fragment = messages.Fragment(
            files=[
                messages.DataFile(
                    path=file._path,  # the public `path` of a file defines a class each time
                    fields=file.fields,
                    column_indices=file.column_indices,
                    file_major_version=file.file_major_version,
                    file_minor_version=file.file_minor_version,
                    file_size_bytes=file.file_size_bytes,
                    base_id=file.base_id,
                )
                for file in metadata.files
            ],
            physical_rows=metadata.physical_rows,
            row_ids=None if given is None else bytes(json.loads(given.json())["Inline"]),
        )
        described.append(fragment.SerializeToString())
        new_rows = fragment.physical_rows - (0 if given is None else len(RowIdSequence.from_inline_metadata(given)))
        if new_rows:
            span = messages.Range(start=message.next_row_id, end=message.next_row_id + new_rows)
            # A list of segments followed by another one is the list of both.
            fragment.row_ids += messages.RowIds(segments=[messages.Segment(range=span)]).SerializeToString()
            message.next_row_id += new_rows
        fragment.id = number
        fragment.last_updated = fragment.created = messages.encode_run(0, fragment.physical_rows, version)
        found[number] = fragment.SerializeToString()
    return described, found


def _with_deletions(description: bytes, metadata: FragmentMetadata) -> bytes:
    deletions = metadata.deletion_file
    assert deletions is not None  # noqa: S101 - rows were deleted
    fragment = messages.Fragment.parse(description, "fragment")
    fragment.deletion_file.CopyFrom(
        messages.DeletionFile(
            file_type=int(deletions.file_type == "bitmap"),
            read_version=deletions.read_version,
            id=deletions.id,
            num_deleted_rows=deletions.num_deleted_rows,
            base_id=deletions.base_id,
        )
    )
    return fragment.SerializeToString()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledManifest:
    """A manifest to put, with the fragments and indices that it adds to the version before.

    Each fragment comes with its former description, empty for a new one.
    """

    data: bytes = field(repr=False)
    parts: ManifestParts = field(repr=False)
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
    old = before.fragments if is_clean else clamped_all(before.fragments, {}, before.message.version)
    known = old if base is before else base.fragments
    basis = Basis(next_row_id=before.message.next_row_id, number=before.message.version + 1)
    fragments, found = _settled_all(old, known, staged.fragments, basis)
    # Otherwise every fragment may have got other row versions.
    changed = sorted(found) if is_clean else list(fragments)
    transaction = messages.Transaction(
        read_version=before.message.version,
        uuid=uuid,
        # Sorted: a repair must produce the same bytes in every process.
        properties=[messages.Property(key=key, value=value) for key, value in sorted(properties.items())],
    )
    if _needs_restore(before, base, staged, changed):
        # It conflicts with every concurrent native write, as a Restore by Lance does.
        transaction.restore.version = staged.message.version
    else:
        _set_operation(transaction, before, staged, fragments, changed)
    message, inline = copy.deepcopy(staged.message), transaction.SerializeToString()
    message.version = before.message.version + 1
    # A staged version may be the older one.
    message.timestamp.CopyFrom(max(before.message.timestamp, message.timestamp, key=attrgetter("seconds", "nanos")))
    message.transaction_file = f"{before.message.version}-{uuid}.txn"
    message.transaction_section = len(staged.prefix)
    # Sections before the message (indices, dictionaries) are found by their positions, so they must not move.
    prefix = staged.prefix + struct.pack("<I", len(inline)) + inline
    parts = replace(staged, message=message, fragments=fragments, prefix=prefix)
    return SettledManifest(
        data=join_manifest(parts),
        parts=parts,
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
    return join_manifest(replace(parts, fragments=clamped_all(parts.fragments, shown, number)))


def _needs_restore(before: ManifestParts, base: ManifestParts, staged: ManifestParts, changed: Sequence[int]) -> bool:
    """Return whether the change is more than added rows, deleted rows and indices."""
    # An Update cannot express another schema. Where the version goes back to an older one, ids of fragments and rows
    # are used a second time, and a native writer would merge its deletions into the wrong rows. Where deleted rows come
    # back, it panics, because it expects the deletion file that it read.
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
    """Return whether a fragment has other rows, or fewer deleted rows. All other changes only delete rows."""
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
    """Record the change as an Update, as a CreateIndex where only indices changed, or as a Rewrite where both did."""
    # A transaction has one operation, and Lance reads it only to judge concurrent writes. It lets an index pass an
    # Update, so that the table would have two indices of one name on the same fragments. A Rewrite of all fragments
    # makes such a writer, and those that change rows, try again; appends pass it.
    old = before.fragments
    update = messages.Update(removed_fragment_ids=sorted(old.keys() - fragments.keys()))
    for key in changed:
        if key not in old:
            update.new_fragments.append(fragments[key])
        elif fragments[key] != old[key]:
            update.updated_fragments.append(fragments[key])
    if update == messages.Update() and set(before.indices) != set(staged.indices):
        transaction.create_index.CopyFrom(_index_change(before, staged))
    elif before.indices != staged.indices and _index_ids(before) != _index_ids(staged):
        group = messages.RewriteGroup(old_fragments=old.values(), new_fragments=fragments.values())
        transaction.rewrite.groups.append(group)
    else:
        transaction.update.CopyFrom(update)


def _index_change(before: ManifestParts, staged: ManifestParts) -> messages.CreateIndex:
    return messages.CreateIndex(
        new_indices=[index for index in staged.indices if index not in before.indices],
        removed_indices=[index for index in before.indices if index not in staged.indices],
    )


def _index_ids(parts: ManifestParts) -> set[bytes]:
    """Return the ids of the indices. An index whose covered fragments changed keeps its id."""
    return {messages.Index.parse(index, "index").uuid.uuid for index in parts.indices}


def _settled_all(old: Fragments, known: Fragments, new: Fragments, basis: Basis) -> tuple[dict[int, bytes], set[int]]:
    """Return new fragments with the row versions that plain readers expect, and the ids of the changed ones."""
    # All others are those of the version before (`old`) and of the base (`known`).
    # Most fragments are those of the version before. They are found by one comparison of all, and not parsed again.
    changed = {key for key, _ in new.items() - known.items()}
    # A row that moved to a new fragment has left an old one, so only fragments that changed are searched.
    left = known.keys() - (new.keys() - changed)
    rows = [old[key] for key in sorted(left & old.keys())], [known[key] for key in sorted(left)]
    settled = {key: old.get(key, description) for key, description in new.items()}
    changed |= new.keys() - old.keys()
    for key in changed:
        appended = None if key in old else _settled_new(new[key], basis)
        settled[key] = appended or settled_fragment(new[key], old.get(key), known.get(key), basis, rows)
    return settled, changed


def _settled_new(description: bytes, basis: Basis) -> bytes | None:
    """Return a fragment of new rows, as every append writes it; None if rows of it may have been there before."""
    fragment = messages.Fragment.parse(description, "fragment")
    segments = messages.RowIds.parse(fragment.row_ids, "row ids").segments
    # Row ids from `next_row_id` on did not exist before.
    is_new = len(segments) == 1 and segments[0].HasField("range") and segments[0].range.start >= basis.next_row_id
    if not (is_new and fragment.HasField("last_updated") and fragment.HasField("created")):
        return None
    rows = segments[0].range.end - segments[0].range.start
    fragment.last_updated = fragment.created = messages.encode_run(0, rows, basis.number)
    return fragment.SerializeToString()
