"""Overlay files, written as other Lance tools write them: new values for a few cells, beside the data files."""

import secrets
from collections.abc import Mapping

import lance
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from anabranch.format.home import Home
from anabranch.format.layout.manifest import BasePath
from anabranch.storage import open_store

__all__ = ["ENABLE", "add_overlay"]

# Lance 14 writes overlay files, but opens a version that has them only where this variable is set.
ENABLE = "LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"


def add_overlay(
    home: Home, column: str, values: Mapping[int, object], *, fragment: int = 0, base: BasePath | None = None
) -> str:
    """Replace values of a column at some offsets of a fragment, in a new version; return the path of the file."""
    root = home.uri if base is None else base.path
    dataset = home.open()
    name = f"{secrets.randbits(24):024b}{secrets.token_hex(13)}.lance"
    offsets = sorted(values)
    schema = pa.schema([dataset.schema.field(column)])
    with LanceFileWriter(f"{root}/data/{name}", schema) as writer:
        writer.write_batch(pa.table({column: [values[offset] for offset in offsets]}, schema=schema))
    found, field = dataset.get_fragment(fragment), dataset.lance_schema.field(column)
    assert found is not None
    assert field is not None
    like = found.metadata.files[0]
    file = DataFile(
        path=name,
        fields=[field.id()],
        column_indices=[0],
        file_major_version=like.file_major_version,
        file_minor_version=like.file_minor_version,
        base_id=None if base is None else base.id,
        file_size_bytes=open_store(root).head(f"data/{name}").size,
    )
    overlay = lance.LanceOperation.DataOverlayFile(file, offsets)
    group = lance.LanceOperation.DataOverlayGroup(fragment, [overlay])
    lance.LanceDataset.commit(dataset, lance.LanceOperation.DataOverlay([group]), read_version=dataset.version)
    return f"{home.folder}/data/{name}".lstrip("/")
