"""Files of a dataset that lie outside of it, in its base paths: asked for folder by folder."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.format.home import Home
from anabranch.storage import open_store
from anabranch.storage.uris import relative_to

__all__ = ["Elsewhere", "look_elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Which files outside of a dataset are there, with their sizes, and which are not.

    `unchecked` are the folders that could not be asked, with the reason.
    """

    sizes: Mapping[str, int]
    missing: frozenset[str]
    unchecked: Mapping[str, str]


def look_elsewhere(root: Home, uris: Iterable[str]) -> Elsewhere:
    """Look for those of some files that lie outside of the dataset; each of their folders is listed once."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for uri in {uri for uri in uris if relative_to(uri, root.root) is None}:
        folder, _, name = uri.rpartition("/")
        wanted[folder].add(name)
    sizes: dict[str, int] = {}
    missing: set[str] = set()
    unchecked: dict[str, str] = {}
    for folder, names in wanted.items():
        listed: Counter[str] = Counter()
        try:
            for info in open_store(folder, root.storage_options).list():
                # An index is a folder, so the first part of each path is what is asked for.
                name = info.path.partition("/")[0]
                if name in names:
                    listed[name] += info.size
        except AnabranchError as err:
            unchecked[folder] = err.problem
            continue
        sizes |= {f"{folder}/{name}": size for name, size in listed.items()}
        missing |= {f"{folder}/{name}" for name in names - set(listed)}
    return Elsewhere(sizes=sizes, missing=frozenset(missing), unchecked=unchecked)
