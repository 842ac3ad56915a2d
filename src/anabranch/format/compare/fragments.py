"""The fragments of a version, opened once for everything that reads them in a comparison or merge."""

import lance
from lance.fragment import FragmentMetadata

from anabranch.format.cache import BoundedCache
from anabranch.format.home import HomeKey, new_home_cache
from anabranch.format.staging.version_ref import VersionRef

__all__ = ["Fragments", "fragments_of"]


class Fragments:
    """An opened version with its fragments by their ids."""

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self.dataset = dataset
        self.by_id = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
        self._metadata: dict[int, FragmentMetadata] = {}

    def metadata(self, number: int) -> FragmentMetadata:
        """Return the metadata of a fragment. Lance builds it each time, so it is kept."""
        found = self._metadata.get(number)
        if found is None:
            found = self._metadata[number] = self.by_id[number].metadata
        return found


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
