"""The manifest of an ordinary version that shows what a staged version holds.

It is the staged manifest under an ordinary number, with a transaction that covers every step since the ordinary
version before it. Native Lance writers that read an older version rebase over that transaction. A manifest that kept
the transaction of its last step only would corrupt the table under a concurrent native delete.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.format.layout import messages
from anabranch.format.layout.manifest import ManifestParts, join_manifest, read_parts
from anabranch.format.layout.row_versions import Basis, clamped_fragments, copied_fragments, settled_fragments

__all__ = ["SettledManifest", "ordinary_manifest", "settled_manifest"]

Fragments = Mapping[int, bytes]


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

    @property
    def number(self) -> int:
        return self.parts.version


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
    old = before.fragments if is_clean else clamped_fragments(before.fragments, before.version)
    known = old if base is before else base.fragments
    # Most fragments are those of the version before. They are found by one comparison of all, and not parsed again.
    changed = list(staged.fragments)
    if is_clean:
        differing = {key for key, _ in staged.fragments.items() - known.items()}
        changed = sorted(differing | (staged.fragments.keys() - old.keys()))
    basis = Basis(before=old, base=known, next_row_id=before.message.next_row_id, number=before.version + 1)
    fragments = settled_fragments(staged.fragments, basis, changed)
    transaction = messages.Transaction(
        read_version=before.version,
        uuid=uuid,
        # Sorted: a repair must produce the same bytes in every process.
        properties=[messages.Property(key=key, value=value) for key, value in sorted(properties.items())],
    )
    is_restore = _needs_restore(before, base, staged, changed)
    if is_restore:
        transaction.restore.version = staged.version
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
    return join_manifest(replace(parts, fragments=copied_fragments(parts.fragments, shown, number)))


def _assembled(
    staged: ManifestParts, before: ManifestParts, fragments: Fragments, transaction: messages.Transaction
) -> ManifestParts:
    """Return the staged manifest with other fragments and another transaction, as the version after `before`."""
    message, inline = messages.copy_of(staged.message), transaction.SerializeToString()
    message.version = before.version + 1
    # A staged version may be the older one.
    message.timestamp.CopyFrom(max(before.message.timestamp, staged.message.timestamp, key=_moment))
    message.transaction_file = f"{before.version}-{transaction.uuid}.txn"
    message.transaction_section = len(staged.prefix)
    # What lies before the message (indices, dictionaries) is found by its position, so it stays where it is.
    prefix = staged.prefix + struct.pack("<I", len(inline)) + inline
    return replace(staged, message=message, fragments=fragments, prefix=prefix)


def _moment(timestamp: messages.Timestamp) -> tuple[int, int]:
    return timestamp.seconds, timestamp.nanos


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
