"""Write data files that are not visible yet, then stage them: append and overwrite."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple

import lance
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata
from lance.fragment import write_fragments as lance_write_fragments
from lance.schema import LanceSchema

from anabranch.errors import BusyError, SchemaMismatchError
from anabranch.format.home import VersionRef, is_staged
from anabranch.format.layout.listing import new_data_file
from anabranch.format.layout.next_manifest import ChangedRows
from anabranch.format.staging.fields import FieldTree, check_columns
from anabranch.format.staging.incoming import Rows, as_reader, fit_rows, read_rows
from anabranch.format.staging.manifests import find_transaction, stage, stage_rows
from anabranch.format.staging.schema_notes import with_ids_of_overwritten
from anabranch.storage import in_parallel
from anabranch.storage.uris import is_local

# Up to this number of rows and bytes, a data file is written without a plan of Lance, which takes three times as long.
_FEW_ROWS, _FEW_BYTES = 1_000, 1 << 20
# The first version of the file format in which each plain column is one column of the file.
_FIRST_FORMAT = (2, 0)
_PLAIN_TYPES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_date,
    pa.types.is_timestamp,
)
# Lance panics at decimals that begin between 16-byte borders.
_ALIGNED = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The schema, format and location for which data files were written.

    Lance takes fragments on any version and then reads nulls, wrong columns or missing files, so all three must agree.
    """

    home: str
    base_paths: str
    fields: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFragment:
    """The original metadata of data files that no version has yet. It may be staged on several versions."""

    metadata: str
    rows: int
    fingerprint: Fingerprint

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "WrittenFragment":
        found = json.loads(text)
        return cls(**{**found, "fingerprint": Fingerprint(**found["fingerprint"])})


def require_files(version_ref: VersionRef, fragments: Sequence[WrittenFragment]) -> None:
    """Refuse missing data files: another process may have written them long ago, and gc may have removed them."""
    files = [file for written in fragments for file in json.loads(written.metadata)["files"]]
    # Files in other bases are never collected.
    paths = [
        f"{version_ref.home.folder}/data/{file['path']}".lstrip("/") for file in files if file.get("base_id") is None
    ]
    found = in_parallel(version_ref.home.store().find_info, paths)
    for path, info in zip(paths, found, strict=True):
        if info is None:
            raise BusyError(f"the data file {path!r} was collected before it was published", hint="write it again")


def write_fragments(version_ref: VersionRef, data: Any, *, for_overwrite: bool = False) -> tuple[WrittenFragment, ...]:
    """Write rows as data files of the pinned home, in their own schema for an overwrite, and else in the pinned one."""
    dataset = version_ref.open()
    rows = read_rows(data) if for_overwrite else fit_rows(data, dataset.schema)
    # Lance numbers the columns of an overwrite from 0, not by the ids that the table has now.
    fields = LanceSchema.from_pyarrow(rows.schema) if for_overwrite else dataset.lance_schema
    with rows.reading() as reader, version_ref.home.errors():
        written = lance_write_fragments(reader, dataset, mode="overwrite" if for_overwrite else "append")
    return as_written(version_ref, dataset, written, fields=fields)


def write_rows(version_ref: VersionRef, dataset: lance.LanceDataset, rows: Rows) -> list[FragmentMetadata]:
    """Write rows in the schema of a version as data files that no version has yet. Without rows, write none."""
    first = list(islice(rows.batches, 2))
    if not first:
        return []  # Lance would write an empty file.
    with version_ref.home.errors():
        if len(first) == 1 and _is_small_and_plain(first[0]) and is_local(version_ref.home.uri):
            written = _write_file(version_ref, dataset, rows.schema, first[0].columns)
            if written is not None:
                return [written]
        with replace(rows, batches=chain(first, rows.batches)).reading() as reader:
            return list(lance_write_fragments(reader, dataset, mode="append"))


def _is_small_and_plain(batch: pa.RecordBatch) -> bool:
    is_small = 0 < len(batch) <= _FEW_ROWS and batch.nbytes <= _FEW_BYTES
    return is_small and all(any(is_kind(field.type) for is_kind in _PLAIN_TYPES) for field in batch.schema)


def _write_file(
    version_ref: VersionRef, dataset: lance.LanceDataset, schema: pa.Schema, columns: Sequence[pa.Array]
) -> FragmentMetadata | None:
    """Write plain columns as one data file, in Lance's form. Return None if the table has an old format."""
    major, minor = map(int, str(dataset.data_storage_version).split("."))
    if (major, minor) < _FIRST_FORMAT:
        return None
    fields, name = [field.id() for field in dataset.lance_schema.fields()], new_data_file()
    path = f"{version_ref.home.uri}/data/{name}"
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    with LanceFileWriter(path, schema, version=f"{major}.{minor}") as writer:
        writer.write_batch(batch)
    file = DataFile(name, fields, list(range(len(fields))), major, minor, writer.size_bytes)
    return FragmentMetadata(id=0, files=[file], physical_rows=len(batch))


def as_written(
    version_ref: VersionRef,
    dataset: lance.LanceDataset,
    written: Sequence[FragmentMetadata],
    *,
    fields: LanceSchema | None = None,
) -> tuple[WrittenFragment, ...]:
    """Describe data files that were just written for a version, in other fields than its own if some are given."""
    against = fingerprint(version_ref, dataset, dataset.lance_schema if fields is None else fields)
    return tuple(
        WrittenFragment(metadata=json.dumps(f.to_json()), rows=f.physical_rows, fingerprint=against) for f in written
    )


def append_fragments(version_ref: VersionRef, fragments: Sequence[WrittenFragment]) -> VersionRef:
    """Stage written fragments as new rows; without any, return the same version."""
    if not fragments:
        return version_ref
    dataset = version_ref.open()
    require_same_fields(version_ref, dataset, fragments)
    written = as_metadata(fragments)
    staged = stage_rows(dataset, version_ref, ChangedRows(written=written, is_append=True))
    return staged or stage(dataset, version_ref, lance.LanceOperation.Append(written))


def require_same_fields(
    version_ref: VersionRef,
    dataset: lance.LanceDataset,
    fragments: Sequence[WrittenFragment],
    *,
    fields: LanceSchema | None = None,
) -> None:
    """Refuse data files that were not written for this version or one like it, with its fields or the given ones."""
    expected = fingerprint(version_ref, dataset, dataset.lance_schema if fields is None else fields)
    for fragment in fragments:
        found = fragment.fingerprint
        if found == expected:
            continue
        if found.home != expected.home:
            problem = f"the fragments were written for {found.home!r}, not for {expected.home!r}"
        elif found.fields != expected.fields:
            problem = f"the fragments were written against another schema of {expected.home!r}"
        else:
            problem = f"the fragments were written against other base paths of {expected.home!r}"
        raise SchemaMismatchError(problem, hint="write the rows again on the version they are to be staged on")


def copy_rows(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a copy of rows in the columns of a schema, to stage later. Refuse rows that do not fit.

    It shares no memory with the rows, which the caller may change, and is aligned for Lance.
    """
    has_same_columns = data.schema.equals(schema) and all(field.nullable for field in schema)
    # With the same columns there is nothing to cast or to refuse.
    rows = pa.Table.from_arrays(data.columns, schema=schema) if has_same_columns else fit_rows(data, schema).to_table()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue(), options=_ALIGNED).read_all()


def append_copied(version_ref: VersionRef, rows: pa.Table) -> tuple[VersionRef, list[FragmentMetadata]]:
    """Stage rows that `copy_rows` returned. Return the new version and its new data files."""
    home = version_ref.home
    dataset = home.open(version_ref.version)
    with home.errors():
        # Return this metadata, to stage it again after a conflict: Lance refuses fragments that were read back.
        written = lance_write_fragments(rows, dataset, mode="append")
    staged = stage_rows(dataset, version_ref, ChangedRows(written=written, is_append=True))
    return staged or stage(dataset, version_ref, lance.LanceOperation.Append(written)), written


def append(version_ref: VersionRef, data: Any) -> VersionRef:
    """Stage rows after the existing ones. Without rows, return the same version."""
    return append_fragments(version_ref, write_fragments(version_ref, data))


def overwrite_fragments(
    version_ref: VersionRef, fragments: Sequence[WrittenFragment], *, schema: pa.Schema, is_another_table: bool = False
) -> VersionRef:
    """Stage a table that has only these fragments, without indices.

    The columns keep the identity of those with the same names, unless the rows are those of another table.
    """
    check_columns(schema)
    dataset = version_ref.open()
    numbered = LanceSchema.from_pyarrow(schema)
    require_same_fields(version_ref, dataset, fragments, fields=numbered)
    given = FieldTree.of(numbered)
    before = None if is_another_table else FieldTree.of(dataset.lance_schema)
    tree = with_ids_of_overwritten(given, before)
    columns = schema if tree == given else tree.to_lance()
    return stage(dataset, version_ref, lance.LanceOperation.Overwrite(columns, as_metadata(fragments)))


def overwrite(version_ref: VersionRef, data: Any, *, is_another_table: bool = False) -> VersionRef:
    """Stage a table that has only these rows, with the schema of the data. Row ids are new."""
    reader = as_reader(data)
    schema = reader.schema
    check_columns(schema)
    fragments = write_fragments(version_ref, reader, for_overwrite=True)
    return overwrite_fragments(version_ref, fragments, schema=schema, is_another_table=is_another_table)


def has_same_fields(one: VersionRef, other: VersionRef) -> bool:
    """Return whether two versions have the same columns: ids, names, types, and nullability."""
    if one == other:
        return True
    fields, others = (FieldTree.of(version_ref.open().lance_schema).describe() for version_ref in (one, other))
    return fields == others


def as_metadata(fragments: Sequence[WrittenFragment]) -> list[FragmentMetadata]:
    """Return the fragments as Lance's metadata."""
    return [FragmentMetadata.from_json(fragment.metadata) for fragment in fragments]


def fingerprint(version_ref: VersionRef, dataset: lance.LanceDataset, fields: LanceSchema) -> Fingerprint:
    """Return the fingerprint of files that are written now for a version."""
    # All three decide where a file is searched: in the `data` folder of a dataset root, or directly in the base.
    bases = [[key, base.path, base.is_dataset_root] for key, base in sorted(dataset.base_paths().items())]
    messages = tuple(field.message for field in FieldTree.of(fields).fields)
    return Fingerprint(home=version_ref.home.uri, base_paths=_digest(bases), fields=_digest_of_fields(messages))


@lru_cache(maxsize=256)
def _digest_of_fields(messages: tuple[bytes, ...]) -> str:
    """Return the digest of a schema by its stored fields, which is kept: every append needs that of its table."""
    return _digest(FieldTree.read(messages).describe())


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


class FragmentOutline(NamedTuple):
    """The parts of a fragment: data files with their fields, the deletion file, and overlays.

    It does not have the id of the fragment, which may differ between two branches. Names of files are never used again.
    """

    files: tuple[tuple[str, tuple[int, ...]], ...]
    deletion: str | None
    overlays: str

    @classmethod
    def of(cls, fragment: FragmentMetadata) -> "FragmentOutline":
        # The public `path` of a file defines a class each time.
        files = tuple((file._path, tuple(file.fields)) for file in fragment.files)
        found = fragment.deletion_file
        # The name begins with the id of the fragment.
        deletion = None if found is None else str(found.path(fragment.id)).rpartition("/")[2].partition("-")[2]
        # The JSON has the versions of all rows too, which takes long where many commits wrote them.
        return cls(files, deletion, json.dumps(fragment.to_json()["overlays"]) if fragment.overlays else "")


# Values that a version records of a fragment beyond its files. On another version Lance sets them again.
_GIVEN_BY_THE_VERSION = ("row_id_meta", "created_at_version_meta", "last_updated_at_version_meta")


def find_appended(before: VersionRef, after: VersionRef) -> tuple[WrittenFragment, ...] | None:
    """Return the fragments that appends added since `before`, as they were written. None after other changes.

    `after` may be in a fork of the home that `before` is of.
    """
    older, newer = before.open(), after.open()
    # With metadata: a changed default or description is a change that another version must not lose.
    if not (has_same_fields(before, after) and older.schema.equals(newer.schema, check_metadata=True)):
        return None
    # A step that built or dropped an index leaves the fragments as they are.
    if _index_ids(older) != _index_ids(newer):
        return None
    added = _find_added(older, newer)
    if added is None or any(found.deletion_file is not None for found in added):
        return None
    if not _only_appends(before, after, newer):
        return None
    against = fingerprint(after, newer, newer.lance_schema)
    return tuple(
        WrittenFragment(
            metadata=json.dumps(as_new_fragment(found.to_json())), rows=found.physical_rows, fingerprint=against
        )
        for found in added
    )


def _find_added(older: lance.LanceDataset, newer: lance.LanceDataset) -> list[FragmentMetadata] | None:
    """Return the fragments that were added. None if another one was changed or removed."""
    known = {fragment.fragment_id: FragmentOutline.of(fragment.metadata) for fragment in older.get_fragments()}
    current = {fragment.fragment_id: fragment.metadata for fragment in newer.get_fragments()}
    # An append keeps every older fragment untouched. A missing or different one means another kind of change.
    if any(number not in current or FragmentOutline.of(current[number]) != known[number] for number in known):
        return None
    return [found for number, found in current.items() if number not in known]


def _only_appends(before: VersionRef, after: VersionRef, newer: lance.LanceDataset) -> bool:
    """Return whether each step from one version to the other was an append."""
    # The fragments do not show it: an upsert of new keys, or an overwrite of an empty table, adds the same fragments.
    version = after.version
    # Staged versions form a chain by their read versions. The chain ends at an ordinary version.
    while is_staged(version) and version != before.version:
        step = find_transaction(after.home, newer, version)
        if step is None or not isinstance(step.operation, lance.LanceOperation.Append):
            return False
        version = step.read_version
    # In a fork, the chain ends at its first ordinary version, with another number. The fragments were compared above.
    return version == before.version or before.home != after.home


def as_new_fragment(fragment: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fragment as it was before it was added to a version."""
    return {**fragment, "id": 0, **dict.fromkeys(_GIVEN_BY_THE_VERSION)}


def _index_ids(dataset: lance.LanceDataset) -> set[str]:
    return {str(segment.uuid) for found in dataset.describe_indices() for segment in found.segments}
