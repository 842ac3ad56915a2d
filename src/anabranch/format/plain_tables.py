"""Plain Lance tables that are not versioned by commits: written as a whole, or updated by several writers.

Lance rebases an append onto concurrent changes, so two writers that add the same rows both succeed. Here a change is
staged, and its manifest is put as the next version unless that exists: only one of two writers succeeds.
"""

from collections.abc import Mapping
from contextlib import suppress

import lance
import pyarrow as pa

from anabranch.errors import DatasetExistsError, DatasetNotFoundError, ObjectExistsError, StorageError
from anabranch.format.home import Home, VersionRef
from anabranch.format.layout.listing import manifest_path
from anabranch.format.layout.manifest import with_version
from anabranch.format.layout.needed_files import files_of_version
from anabranch.format.staging.compaction import compact
from anabranch.format.staging.fragments import append, overwrite
from anabranch.format.staging.incoming import read_rows
from anabranch.format.staging.manifests import create_empty
from anabranch.storage import ObjectStore
from anabranch.storage.local_store import refuse_links
from anabranch.storage.uris import is_local, join_uri

# A manifest names every fragment, so that without compaction all manifests together would grow with their square.
_MOST_FRAGMENTS = 64


def find_newest(home: Home) -> VersionRef | None:
    """Return the newest version, or None if there is no table."""
    try:
        return VersionRef(home=home, version=home.head_version())
    except DatasetNotFoundError:
        return None


def make_table(home: Home, schema: pa.Schema) -> VersionRef:
    """Make a table without rows, or return the one that another writer made at the same time."""
    try:
        made = create_empty(home, schema)
    except DatasetExistsError:
        return VersionRef(home=home, version=home.head_version())
    if is_local(home.root):
        home.store().sync([join_uri(home.root, manifest_path(made.version))])
    return made


def remove_table(home: Home) -> None:
    """Delete every file of a table that can no longer be opened."""
    store = home.store()
    for info in list(store.list()):
        store.delete(info.path)
    home.forget()


def add_rows(version_ref: VersionRef, rows: pa.Table) -> bool:
    """Make the next version with more rows. Return False, without a change, if another writer has made it."""
    if not len(rows):
        return True
    added = append(version_ref, rows)
    # Each append adds a fragment. Compacted in the same version, so that there is no second race to win.
    if len(added.open().get_fragments()) <= _MOST_FRAGMENTS:
        return _publish(version_ref, added)
    done = _publish(version_ref, compact(added))
    _forget(version_ref.home.store(), added)
    return done


def replace_rows(version_ref: VersionRef, rows: pa.Table) -> bool:
    """Make the next version with these rows alone. Return False, without a change, if another writer has made it."""
    return _publish(version_ref, overwrite(version_ref, rows))


def _publish(before: VersionRef, staged: VersionRef) -> bool:
    store = before.home.store()
    path = manifest_path(staged.version)
    number = before.version + 1
    try:
        manifest = with_version(store.get(path), number, name=path)
        # The compare-and-set: the first writer of this number wins, and the loser has changed nothing.
        store.put_if_absent(manifest_path(number), manifest, after=_new_files(before, staged))
    except ObjectExistsError:
        return False
    finally:
        # In both cases nothing refers to the staged manifest now.
        _forget(store, staged)
    return True


def _new_files(before: VersionRef, staged: VersionRef) -> list[str]:
    """Return the files that have to be durable before the new manifest; none on an object store."""
    if not is_local(before.home.root):
        return []
    old, new = ({file.uri for file in files_of_version(each.home, each.version).files} for each in (before, staged))
    return sorted(new - old)


def _forget(store: ObjectStore, staged: VersionRef) -> None:
    """Remove a staged manifest that nothing refers to; left behind, it would do no harm."""
    with suppress(StorageError):
        store.delete(manifest_path(staged.version))


def write_plain_dataset(
    uri: str, storage_options: Mapping[str, str], data: pa.RecordBatchReader, *, overwrite: bool
) -> int:
    """Write rows as a dataset of its own, as one version. Return the number of rows."""
    home = Home.at(uri, storage_options)
    refuse_links(home.root, *home.folders)
    rows = read_rows(data)
    try:
        with rows.reading() as reader, home.errors():
            made = lance.write_dataset(
                reader,
                home.uri,
                # `create` is refused by Lance if there is a dataset by now, so a dataset is replaced only on request.
                mode="overwrite" if overwrite and find_newest(home) is not None else "create",
                storage_options=home.lance_options(),
                enable_stable_row_ids=True,
            )
            return int(made.count_rows())
    except DatasetExistsError:
        raise DatasetExistsError(
            f"there is a dataset at {home.uri!r} already", hint="choose another path, or overwrite it"
        ) from None
