"""The files of a version as Lance itself lists them: what `anabranch.format.layout.needed_files` is compared with."""

from dataclasses import dataclass
from typing import Any

from anabranch.format.bases import bases_of
from anabranch.format.home import Home
from anabranch.format.layout.needed_files import FileKind, resolve_path
from anabranch.storage.uris import normalise_uri

__all__ = ["LiveFile", "list_live_files"]


@dataclass(frozen=True, kw_only=True)
class LiveFile:
    """A data file, a deletion file, or the folder of an index."""

    kind: FileKind
    base_id: int | None
    uri: str


def list_live_files(home: Home, dataset: Any) -> list[LiveFile]:
    """List the files of an opened version."""
    bases = {base.id: base for base in bases_of(dataset)}
    found: list[tuple[FileKind, int | None, str]] = []
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        files = [*metadata.files, *(overlay.data_file for overlay in metadata.overlays)]
        found += [(FileKind.DATA, file.base_id, file.path) for file in files]
        if (deletion := metadata.deletion_file) is not None:
            name = deletion.path(fragment.fragment_id).rpartition("/")[2]
            found.append((FileKind.DELETION, deletion.base_id, name))
    for index in dataset.describe_indices():
        found += [(FileKind.INDEX, part.base_id, str(part.uuid)) for part in index.segments]
    return [
        LiveFile(
            kind=kind,
            base_id=base_id,
            uri=normalise_uri(resolve_path(name, kind, base_id, bases=bases, dataset_root=home.uri)),
        )
        for kind, base_id, name in found
    ]
