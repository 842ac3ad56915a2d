"""Delete, update or replace rows, found by a predicate or by their addresses."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence

from anabranch.errors import InvalidInputError, WriteConflictError
from anabranch.format.arrow_types import WITH_BYTES, find_blobs
from anabranch.format.home import VersionRef
from anabranch.format.lance_errors import iter_batches
from anabranch.format.layout.fragment_rows import offsets_in, write_deletion_file
from anabranch.format.layout.next_manifest import ChangedRows
from anabranch.format.staging.expressions import (
    check_predicate,
    computed_types,
    enclosed,
    expression_errors,
    quoted_column,
)
from anabranch.format.staging.fields import family_ids
from anabranch.format.staging.fragments import (
    FragmentOutline,
    WrittenFragment,
    as_metadata,
    as_written,
    require_same_fields,
    write_rows,
)
from anabranch.format.staging.incoming import Rows, cast_computed, require_columns, require_computable
from anabranch.format.staging.manifests import stage, stage_rows

Addresses = npt.NDArray[np.uint64]
_ROW_ID, _ROW_ADDRESS = "_rowid", "_rowaddr"
_BY_ADDRESS = "rows by their address"
_NOWHERE: Addresses = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsChanged:
    """The new version and the number of changed rows. Without changes, it is the old version."""

    version_ref: VersionRef
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Rows in the schema of their table that replace those at the addresses. With `row_ids`, they have these ids."""

    rows: pa.Table | None
    addresses: Addresses = field(default_factory=lambda: _NOWHERE)
    row_ids: Addresses = field(default_factory=lambda: _NOWHERE)


def delete(version_ref: VersionRef, predicate: str) -> RowsChanged:
    """Stage the table without the rows for which the predicate is true."""
    return delete_rows(version_ref, find_rows(version_ref, predicate), predicate=predicate)


def find_rows(version_ref: VersionRef, predicate: str) -> Addresses:
    """Return the addresses of the rows for which the predicate is true."""
    dataset = version_ref.open()
    check_predicate(dataset, predicate)
    with version_ref.home.errors(), expression_errors(dataset, predicate):
        batches = iter_batches(dataset, columns=[], filter=enclosed(predicate), with_row_address=True)
        return join_addresses([batch.column(_ROW_ADDRESS).to_numpy() for batch in batches])


def update(version_ref: VersionRef, assignments: Mapping[str, str], *, where: str | None = None) -> RowsChanged:
    """Stage new values, given as expressions of the old ones; rows keep their ids, with or without a key."""
    dataset = version_ref.open()
    schema = dataset.schema
    if not assignments:
        raise InvalidInputError("an update without a column changes nothing", hint="name a column and its expression")
    require_columns(schema, list(assignments))
    for planned in computed_types(dataset, assignments):
        require_computable(planned.type, schema.field(planned.name))
    if where is not None:
        check_predicate(dataset, where)
    with version_ref.home.errors():  # the old rows are read here, too
        changed = _iter_updated(dataset, assignments, where)
        return replace_rows(version_ref, changed, changed_columns=list(assignments))


def _iter_updated(dataset: lance.LanceDataset, assignments: Mapping[str, str], where: str | None) -> Iterator[RowBatch]:
    schema = dataset.schema
    batches = iter_batches(
        dataset,
        columns={
            name: enclosed(assignments[name]) if name in assignments else quoted_column(name) for name in schema.names
        },
        filter=None if where is None else enclosed(where),
        with_row_id=True,
        with_row_address=True,
        **(WITH_BYTES if find_blobs(schema) else {}),
    )
    with expression_errors(dataset, *assignments.values(), *([] if where is None else [where])):
        for batch in batches:
            yield RowBatch(
                rows=pa.Table.from_arrays([cast_computed(batch.column(f.name), f) for f in schema], schema=schema),
                addresses=batch.column(_ROW_ADDRESS).to_numpy(),
                row_ids=batch.column(_ROW_ID).to_numpy(),
            )


def replace_rows(
    version_ref: VersionRef, batches: Iterable[RowBatch], *, changed_columns: Sequence[str] | None = None
) -> RowsChanged:
    """Stage the table with rows replaced, added and removed, all of them named by their addresses.

    Batches whose rows have ids must come before those whose rows are new. The cost does not depend on unchanged rows.
    `changed_columns` are those in which rows may differ from the rows that they replace, all by default.
    """
    dataset = version_ref.open()
    row_ids: list[Addresses] = []
    addresses: list[Addresses] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            row_ids.append(batch.row_ids)
            addresses.append(batch.addresses)
            if batch.rows is not None:
                yield from batch.rows.to_batches()

    # The ids and addresses are recorded while the rows are written, so they are complete only after this line.
    written = write_rows(version_ref, dataset, Rows(schema=dataset.schema, batches=rows()))
    moved = give_ids(dataset, written, join_addresses(row_ids))
    return replace_at(
        version_ref, dataset, written, moved=moved, addresses=join_addresses(addresses), changed_columns=changed_columns
    )


def write_moved_rows(
    version_ref: VersionRef, batches: Iterable[tuple[pa.RecordBatch, Addresses]]
) -> tuple[WrittenFragment, ...]:
    """Write rows in the schema of the table as data files. They keep their row ids."""
    dataset = version_ref.open()
    row_ids: list[Addresses] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for batch, ids in batches:
            row_ids.append(ids)
            yield batch

    written = write_rows(version_ref, dataset, Rows(schema=dataset.schema, batches=rows()))
    give_ids(dataset, written, join_addresses(row_ids))
    return as_written(version_ref, dataset, written)


def replace_written(
    version_ref: VersionRef, *, addresses: Addresses, moved: Sequence[WrittenFragment], fresh: Sequence[WrittenFragment]
) -> VersionRef:
    """Stage the table with written rows instead of those at the addresses: `moved` keep their ids, `fresh` are new."""
    dataset = version_ref.open()
    require_same_fields(version_ref, dataset, [*moved, *fresh])
    written, count = as_metadata([*moved, *fresh]), sum(fragment.rows for fragment in moved)
    return replace_at(version_ref, dataset, written, moved=count, addresses=addresses).version_ref


def require_rows(read: VersionRef, now: VersionRef, addresses: Addresses) -> None:
    """Refuse addresses of one version that name other or deleted rows in another version."""
    if read == now or not len(addresses):
        return
    before, dataset = read.open(), now.open()
    # Only fragments with other deletions than before may have lost rows, and are read.
    changed = _with_other_deletions(before, dataset, np.unique(addresses >> np.uint64(32)).tolist())
    if not changed:
        return
    batches = iter_batches(dataset, columns=[], fragments=changed, with_row_address=True)
    left = join_addresses([batch.column(_ROW_ADDRESS).to_numpy() for batch in batches])
    inside = np.isin(addresses >> np.uint64(32), [fragment.fragment_id for fragment in changed])
    if not np.isin(addresses[inside], left).all():
        raise _changed_rows()


def _with_other_deletions(
    read: lance.LanceDataset, now: lance.LanceDataset, owners: Iterable[int]
) -> list[lance.LanceFragment]:
    """Return those fragments that have other deletions now. Refuse fragments that are gone or have other files."""
    before = {fragment.fragment_id: fragment for fragment in read.get_fragments()}
    after = {fragment.fragment_id: fragment for fragment in now.get_fragments()}
    changed = []
    for owner in owners:
        if owner not in after:
            raise _changed_rows()
        old, new = (FragmentOutline.of(fragments[owner].metadata) for fragments in (before, after))
        # An address is a fragment and an offset. If the fragment has other files, for example after a compaction, it
        # names another row. An overlay replaces values of the same row.
        if old._replace(deletion=None) != new._replace(deletion=None):
            raise _changed_rows()
        if old.deletion != new.deletion:
            changed.append(after[owner])
    return changed


def _changed_rows() -> WriteConflictError:
    return WriteConflictError(
        "rows that this statement changes were changed by another commit", hint="run the statement again"
    )


def give_ids(dataset: lance.LanceDataset, written: Sequence[FragmentMetadata], row_ids: Addresses) -> int:
    """Assign these ids to the first written rows, in this order. Return their number."""
    # Lance assigns new ids to the others, or to all rows if the dataset has no stable row ids.
    at = 0
    for fragment in written if dataset.has_stable_row_ids else ():
        own = row_ids[at : at + fragment.physical_rows]
        if len(own):
            fragment.row_id_meta = RowIdSequence(pa.array(own, pa.uint64())).to_inline_metadata()
        at += fragment.physical_rows
    return len(row_ids)


def delete_rows(version_ref: VersionRef, addresses: Addresses, *, predicate: str = _BY_ADDRESS) -> RowsChanged:
    """Stage the table without the rows at these addresses. The predicate is only recorded in the transaction."""
    if not len(addresses):
        return RowsChanged(version_ref=version_ref)
    dataset = version_ref.open()
    with version_ref.home.errors():
        left, gone = _cut(version_ref, dataset, addresses)
        staged = stage(dataset, version_ref, lance.LanceOperation.Delete(left, gone, predicate))
    return RowsChanged(version_ref=staged, deleted=len(addresses))


def replace_at(
    version_ref: VersionRef,
    dataset: lance.LanceDataset,
    written: Sequence[FragmentMetadata],
    *,
    moved: int,
    addresses: Addresses,
    changed_columns: Sequence[str] | None = None,
) -> RowsChanged:
    """Stage written rows instead of all rows at the addresses. The first `moved` written rows were at one of them.

    If no other rows are written, indices on columns that did not change still cover all rows.
    """
    if not len(addresses) and not written:
        return RowsChanged(version_ref=version_ref)
    inserted = sum(fragment.physical_rows for fragment in written) - moved
    all_columns, deleted = dataset.schema.names, len(addresses) - moved
    changed_columns = all_columns if changed_columns is None else changed_columns
    with version_ref.home.errors():
        left, gone = _cut(version_ref, dataset, addresses)
        # All rows only got new values in some columns.
        is_update = not inserted and not deleted and len(changed_columns) < len(all_columns)
        updated_fields = family_ids(dataset.lance_schema, changed_columns) if is_update else []
        change = ChangedRows(cut=left, removed=gone, written=written, updated_fields=updated_fields)
        staged = stage_rows(dataset, version_ref, change)
        if staged is None:
            staged = stage(
                dataset, version_ref, _to_operation(dataset, change, changed_columns, has_new=bool(inserted))
            )
    return RowsChanged(version_ref=staged, inserted=inserted, updated=moved, deleted=deleted)


def _to_operation(
    dataset: lance.LanceDataset, change: ChangedRows, changed_columns: Sequence[str], *, has_new: bool
) -> lance.LanceOperation.BaseOperation:
    """Return the operation by which Lance makes the same change."""
    if not change.written:
        return lance.LanceOperation.Delete(change.cut, change.removed, _BY_ADDRESS)
    # Lance would take new rows for moved ones, and count them as covered by indices that do not know them.
    only_moved = dataset.has_stable_row_ids and not has_new
    return lance.LanceOperation.Update(
        removed_fragment_ids=list(change.removed),
        updated_fragments=list(change.cut),
        new_fragments=list(change.written),
        fields_for_preserving_frag_bitmap=family_ids(
            dataset.lance_schema, changed_columns if only_moved else dataset.schema.names
        ),
        update_mode="rewrite_rows",
    )


def join_addresses(parts: Sequence[Addresses]) -> Addresses:
    return np.concatenate(parts) if parts else _NOWHERE


def _cut(
    version_ref: VersionRef, dataset: lance.LanceDataset, addresses: Addresses
) -> tuple[list[FragmentMetadata], list[int]]:
    """Mark rows as deleted. Return the fragments with remaining rows, and the ids of those without."""
    if not len(addresses):
        return [], []
    ordered = np.sort(addresses)
    # A row address has the fragment in its upper 32 bits and the offset in its lower ones.
    owners, starts = np.unique(ordered >> np.uint64(32), return_index=True)
    fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    left, gone = [], []
    for owner, offsets in zip(owners.tolist(), np.split(ordered.astype(np.uint32), starts[1:]), strict=True):
        metadata = fragments[owner].metadata
        deleted = np.union1d(offsets_in(version_ref.home, dataset, fragments[owner]), offsets)
        # A fragment without rows is removed, without a deletion file.
        if len(deleted) == metadata.physical_rows:
            gone.append(owner)
        else:
            metadata.deletion_file = write_deletion_file(version_ref.home, dataset.version, owner, deleted)
            left.append(metadata)
    return left, gone
