"""One version of one home, and how the next one is staged on it."""

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from anabranch.errors import DatasetExistsError, InvalidInputError
from anabranch.format.home import BoundedCache, Home, HomeKey, is_staged, new_home_cache
from anabranch.format.lance_errors import lance_errors

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

    from anabranch.format.layout.next_manifest import ChangedRows


class _Columns(NamedTuple):
    """The columns of a version. Rows are compared and merged in `row_schema`, in which blobs are binary."""

    schema: "pa.Schema"
    row_schema: "pa.Schema"
    blobs: tuple[str, ...]


# Weighed by their columns.
_COLUMNS: "BoundedCache[HomeKey, _Columns]" = new_home_cache(limit=2048, capacity=100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRef:
    """One version, ordinary or staged, of a home. It never changes; recipes return a new one."""

    home: Home
    version: int

    @property
    def is_staged(self) -> bool:
        return is_staged(self.version)

    def open(self) -> "lance.LanceDataset":
        return self.home.open(self.version)

    def open_to_read(self) -> "lance.LanceDataset":
        """Open the version for reading only. A kept handle is returned without another check for links."""
        return self.home.open(self.version, reads_metadata=True)

    @property
    def schema(self) -> "pa.Schema":
        """The Arrow schema. That of a staged version is kept: Lance converts all columns each time."""
        found = _COLUMNS.find(self.home.key(self.version))
        return self._columns().schema if found is None else found.schema

    @property
    def row_schema(self) -> "pa.Schema":
        """The schema of rows as they are compared and merged: blobs are binary."""
        return self._columns().row_schema

    @property
    def blob_columns(self) -> tuple[str, ...]:
        """The names of the blob columns. Those of a staged version are kept."""
        return self._columns().blobs

    def _columns(self) -> _Columns:
        from anabranch.format.arrow_types import find_blobs, with_bytes

        key = self.home.key(self.version)
        found = _COLUMNS.find(key)
        if found is None:
            schema = self.open_to_read().schema
            blobs = find_blobs(schema)
            found = _Columns(schema, with_bytes(schema) if blobs else schema, blobs)
            if self.is_staged:
                _COLUMNS.keep(key, found, weight=len(schema))
        return found

    def count_rows(self) -> int:
        return int(self.home.open(self.version, reads_metadata=True).count_rows())

    def count_fragments(self) -> int:
        return len(self.open().get_fragments())

    def count_bytes(self) -> int:
        """Return the bytes of the data files, as the version records them."""
        fragments = self.open().get_fragments()
        return sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.metadata.files)


def create_empty(home: Home, schema: "pa.Schema") -> VersionRef:
    """Create a dataset without rows, ready for staging; all that a raw reader can see before the first settle."""
    if home.branch is not None:
        raise InvalidInputError(
            f"a dataset cannot be created on the branch {home.branch!r}", hint="create it at the root, then fork"
        )
    import lance

    from anabranch.format.staging.fields import check_columns

    check_columns(schema)
    home.refuse_links()
    try:
        with lance_errors(home.uri, home.storage_options):
            made = lance.write_dataset(
                schema.empty_table(),
                home.uri,
                mode="create",
                storage_options=home.lance_options(),
                # Lance cannot enable this later. Updates then keep the ids of their rows, by which tables without a
                # key are compared.
                enable_stable_row_ids=True,
                # Our own manifests are put under these names. Lance refuses a folder with two naming schemes.
                enable_v2_manifest_paths=True,
            )
    except DatasetExistsError:
        raise DatasetExistsError(
            f"there is a dataset at {home.uri!r} already", hint="open it, or choose another path"
        ) from None
    return VersionRef(home=home, version=made.version)


def stage(
    base: "lance.LanceDataset", version_ref: VersionRef, change: "lance.LanceOperation.BaseOperation"
) -> VersionRef:
    """Commit a change on top of a pinned version, outside the history."""
    import lance

    with lance_errors(version_ref.home.uri, version_ref.home.storage_options):
        # Only a detached commit is never rebased. Lance silently puts an ordinary one on top of concurrent commits.
        made = lance.LanceDataset.commit(base, change, read_version=version_ref.version, detached=True)
    version_ref.home.remember(made.version, made)
    return VersionRef(home=version_ref.home, version=made.version)


def stage_rows(base: "lance.LanceDataset", version_ref: VersionRef, change: "ChangedRows") -> VersionRef | None:
    """Put the manifest of a version with changed rows, outside the history; None if only Lance can write it."""
    # Not at the top: a command that opens no table does not need them.
    from anabranch.format.layout.manifest import join_manifest
    from anabranch.format.layout.next_manifest import staged_manifest
    from anabranch.format.staging.manifests import Manifest, find_manifest, keep_manifest

    home = version_ref.home
    before = find_manifest(home, version_ref.version)
    if before is None:
        return None  # Lance explains it: the version is gone, or the manifests have the names of an old release
    # Like the ids that Lance gives: from the upper half of 64 bits, and never given again.
    version = 1 << 63 | secrets.randbits(63)
    made = staged_manifest(before.parts, change, read_version=version_ref.version, version=version, uuid=str(uuid4()))
    if made is None:
        return None
    path, data = home.manifest_path(version), join_manifest(made)
    # Publishing syncs it with the other new files of the commit.
    home.store().put(path, data, durable=False)
    keep_manifest(home, Manifest(version, path, data, made))
    home.remember(version, base)
    # Only rows change, so that the version has the columns of the one before.
    columns = _COLUMNS.find(home.key(version_ref.version))
    if columns is not None:
        _COLUMNS.keep(home.key(version), columns, weight=len(columns.schema))
    return VersionRef(home=home, version=version)
