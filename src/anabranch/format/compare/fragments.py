"""The fragments of a version, opened once for everything that reads them in a comparison or merge."""

from functools import cached_property
from typing import NamedTuple

import lance
from lance.fragment import FragmentMetadata

from anabranch.format.home import BoundedCache, HomeKey, new_home_cache
from anabranch.format.staging.version_ref import VersionRef


class FragmentOutline(NamedTuple):
    """What a fragment is made of: data files with their fields, the deletion file, and overlays.

    It does not have the id of the fragment, which may differ between two branches. Names of files are never used again.
    """

    files: tuple[tuple[str, tuple[int, ...]], ...]
    deletion: str | None
    overlays: tuple[object, ...]

    @classmethod
    def of(cls, fragment: FragmentMetadata) -> "FragmentOutline":
        # The public `path` of a file defines a class each time.
        files = tuple((file._path, tuple(file.fields)) for file in fragment.files)
        found = fragment.deletion_file
        # The name begins with the id of the fragment.
        deletion = None if found is None else str(found.path(fragment.id)).rpartition("/")[2].partition("-")[2]
        # The JSON has the versions of all rows too, which takes long where many commits wrote them.
        return cls(files, deletion, tuple(fragment.to_json()["overlays"]) if fragment.overlays else ())


class Fragments:
    """An opened version with its fragments by their ids."""

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self.dataset = dataset
        self.by_id = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
        self._metadata: dict[int, FragmentMetadata] = {}
        self._outlines: dict[int, FragmentOutline] = {}

    def metadata(self, number: int) -> FragmentMetadata:
        """Return the metadata of a fragment. Lance builds it each time, so it is kept."""
        found = self._metadata.get(number)
        if found is None:
            found = self._metadata[number] = self.by_id[number].metadata
        return found

    def outline(self, number: int) -> FragmentOutline:
        """Return what a fragment is made of. A history compares each version with two others."""
        found = self._outlines.get(number)
        if found is None:
            found = self._outlines[number] = FragmentOutline.of(self.metadata(number))
        return found

    @cached_property
    def by_file(self) -> dict[str, int]:
        """The ids of the fragments by the paths of their data files."""
        return {path: number for number in self.by_id for path, _ in self.outline(number).files}


_KEPT: BoundedCache[HomeKey, Fragments] = new_home_cache(limit=2048, capacity=20_000)


def fragments_of(version_ref: VersionRef) -> Fragments:
    """Open a version to read rows from its fragments. Those of a staged version, which never changes, are kept."""
    dataset = version_ref.open_to_read()
    if not version_ref.is_staged:
        return Fragments(dataset)
    key = version_ref.home.key(version_ref.version)
    found = _KEPT.find(key)
    # The handle was opened again, after a relocation for example, and the kept fragments have the old paths.
    if found is None or found.dataset is not dataset:
        found = Fragments(dataset)
        _KEPT.keep(key, found, weight=len(found.by_id))
    return found
