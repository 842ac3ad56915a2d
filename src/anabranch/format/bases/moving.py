"""A whole version of one home taken over into another, by copying its files and reading none of its rows."""

import json
from collections.abc import Iterator, Sequence

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.deletions import offsets_in
from anabranch.format.layout.files import FileKind, files_of_version
from anabranch.format.staging.appended import as_written
from anabranch.format.staging.rows import Addresses, delete_at, join_addresses
from anabranch.format.staging.version_ref import VersionRef, stage
from anabranch.storage import copy_between, in_parallel, open_store
from anabranch.storage.uris import join_uri

__all__ = ["copy_version"]

_BLOB = b"lance-encoding:blob"


def copy_version(source: VersionRef, *, onto: VersionRef) -> VersionRef:
    """Stage a table that holds the rows of another version and nothing else, in its schema; row ids are new.

    What was deleted from a fragment is deleted from its copy, by a second step: Lance takes no new fragment with a
    deletion file.
    """
    dataset = source.open()
    fragments = dataset.get_fragments()
    _copy_files(source, dataset, onto)
    copies = [FragmentMetadata.from_json(json.dumps(_copied(fragment))) for fragment in fragments]
    # The schema as Lance has it, since the files are tied to its field ids.
    staged = stage(onto.open(), onto, lance.LanceOperation.Overwrite(dataset.lance_schema, copies))
    copied = staged.open()
    gone = join_addresses(list(_iter_deleted(source, dataset, fragments, copied.get_fragments())))
    return delete_at(staged, copied, gone, predicate="rows deleted before the copy").version_ref


def _copied(fragment: lance.LanceFragment) -> dict[str, object]:
    found = as_written(fragment.metadata.to_json())
    files = [{**file, "base_id": None} for file in found["files"]]
    overlays = [{**one, "data_file": {**one["data_file"], "base_id": None}} for one in found["overlays"]]
    return {**found, "files": files, "overlays": overlays, "deletion_file": None}


def _iter_deleted(
    source: VersionRef,
    dataset: lance.LanceDataset,
    fragments: Sequence[lance.LanceFragment],
    copies: Sequence[lance.LanceFragment],
) -> Iterator[Addresses]:
    with lance_errors(source.home.uri, source.home.storage_options):
        for fragment, copy in zip(fragments, copies, strict=True):
            offsets = offsets_in(source.home, dataset, fragment).astype(np.uint64)
            yield np.uint64(copy.fragment_id) << np.uint64(32) | offsets


def _copy_files(source: VersionRef, dataset: lance.LanceDataset, onto: VersionRef) -> None:
    """Copy the data files to where the other home has its own; they have names that nobody else has."""
    needed = files_of_version(source.home, source.version).files
    places = {file.mention.name: file.uri for file in needed if file.kind is FileKind.DATA}
    store = open_store(join_uri(onto.home.uri, FileKind.DATA.folder), onto.home.storage_options)
    has_blobs = any(_has_blobs(field) for field in dataset.schema)

    def copy(item: tuple[str, str]) -> None:
        path, uri = item
        folder, _, name = uri.rpartition("/")
        found = open_store(folder, source.home.storage_options)
        if found.uri == store.uri and name == path:
            return
        # Large blobs lie in a folder that is called like their file.
        beside = [info.path for info in found.list(name.rpartition(".")[0])] if has_blobs else []
        for each in dict.fromkeys([name, *beside]):
            copy_between(found, each, store, path if each == name else each)

    in_parallel(copy, places.items())


def _has_blobs(field: pa.Field) -> bool:
    return _BLOB in (field.metadata or {})
