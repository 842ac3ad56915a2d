"""Other datasets that may share files with one: its shallow clones, and the sources that it was cloned from."""

from collections.abc import Iterable

from anabranch.errors import AnabranchError, DatasetInUseError
from anabranch.format.cleanup.versions import manifests_of
from anabranch.format.clone.files import has_manifest
from anabranch.format.clone.holds import list_holds
from anabranch.format.home import Home
from anabranch.format.layout.files import FilesReader
from anabranch.format.layout.listing import layout
from anabranch.format.layout.manifest import BasePath
from anabranch.storage import in_parallel, open_store
from anabranch.storage.uris import follow_links, join_uri, relative_to

__all__ = ["files_of_dataset", "files_of_others"]


def files_of_others(root: Home, bases: Iterable[BasePath]) -> frozenset[str]:
    """The addresses of all files that known clones and sources of a dataset need.

    A clone may have moved inherited files into a base that both use. A clone's own manifests name files that its source
    wrote into a base. So nothing is removed from a base unless each of these datasets can be read.
    """
    needed: set[str] = set()
    for hold in list_holds(root):
        if hold.clone_uri is None:
            continue
        try:
            needed |= files_of_dataset(Home.at(hold.clone_uri, root.storage_options))
        except AnabranchError as err:
            raise DatasetInUseError(
                f"the clone {hold.clone_uri!r} of {root.root!r} cannot be read, and may need files in a base:"
                f" {err.problem}",
                hint=f"relocate it if it was moved, or release it with clone_release({hold.name!r})",
            ) from err
    return frozenset(needed | _files_of_sources(root, bases))


def _files_of_sources(root: Home, bases: Iterable[BasePath]) -> set[str]:
    needed: set[str] = set()
    sources = [Home.at(path, root.storage_options) for path in sorted(_source_roots(root, bases))]
    for source in sources:
        try:
            needed |= files_of_dataset(source)
        except AnabranchError as err:
            raise DatasetInUseError(
                f"the source {source.root!r} of {root.root!r} cannot be read, and may need files in a base:"
                f" {err.problem}",
                hint="make it reachable, or leave out the bases",
            ) from err
    # The version that the source holds for this clone names every file that the clone inherited. Without it, a file
    # that the source has dropped would look like one that this dataset wrote.
    if sources and not any(hold.clone_uri == root.root for source in sources for hold in list_holds(source)):
        raise DatasetInUseError(
            f"{root.root!r} is a clone that none of its sources knows, so files in a base may not be its own",
            hint="run relocate on it, which records it in its source, or leave out the bases",
        )
    return needed


def _source_roots(root: Home, bases: Iterable[BasePath]) -> set[str]:
    own = follow_links(root.root)
    found = set()
    for base in bases:
        path, is_branch, _ = base.path.rstrip("/").partition("/tree/")
        if not base.is_dataset_root or relative_to(follow_links(path), own) is not None:
            continue
        # Only the source of a clone gets the id 0. It counts even if it is not there any more.
        if is_branch or base.id == 0 or has_manifest(open_store(path, root.storage_options)):
            found.add(path)
    return found


def files_of_dataset(root: Home) -> frozenset[str]:
    """The addresses of all files that any version of a dataset needs, index folders as folders."""
    files = layout(root)
    reader = FilesReader(root, files)
    real = follow_links(root.root)
    found: set[str] = set()
    for needs in in_parallel(reader.read, list(manifests_of(files).values())):
        found.update(join_uri(real, path) for path in needs.below)
        found.update(uri for _, uri in needs.elsewhere)
    return frozenset(found)
