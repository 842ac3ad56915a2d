"""Which files the versions of a dataset need, read from the bytes of their manifests.

To open a version by Lance costs several times as much, and garbage collection looks at every version that stays. They
have most of their fragments in common, so each of those is taken apart once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from anabranch.errors import InvalidPathError
from anabranch.format.bases import resolve_path
from anabranch.format.described_files import FileKind, Mention, files_of_fragment, folder_of_index
from anabranch.format.health.files import mentioned_as
from anabranch.format.home import Home
from anabranch.format.layout import Layout, LayoutFile, LayoutKind
from anabranch.format.manifest import BasePath, ManifestInfo, read_outline
from anabranch.format.names import ManifestName
from anabranch.format.storage_report import list_live_files
from anabranch.storage.uris import follow_links, normalise_uri, relative_to

__all__ = ["Mentions"]

_BESIDE = frozenset({LayoutKind.BLOB, LayoutKind.INDEX})

_TakeApart = Callable[[bytes], tuple[Mention, ...] | None]


class Mentions:
    """The files that versions of one dataset mention; paths are below its root, and what lies elsewhere is left out."""

    def __init__(self, root: Home, files: Layout) -> None:
        self._root = root
        self._store = root.store()
        # Branches name the root by the path by which it was opened when they were made, perhaps through a link.
        self._real_root = follow_links(root.root)
        self._homes: dict[tuple[str | None, tuple[BasePath, ...]], _HomeMentions] = {}
        # An index is a folder of files, and a data file may have a folder of large values beside it.
        self._beside: dict[str, list[str]] = defaultdict(list)
        for file in files.files:
            if file.kind in _BESIDE:
                self._beside[mentioned_as(file)].append(file.path)

    def files_of(self, manifest: LayoutFile) -> frozenset[str]:
        """All that a version needs, its manifest and transaction among them; raise NotFoundError if that is gone."""
        outline = read_outline(self._store.get(manifest.path), name=manifest.path)
        home = self._root.on(manifest.branch)
        mentions = self._of_home(home, outline.info.base_paths)
        found = mentions.find(outline.fragments, outline.indices)
        if found is None:
            found = mentions.ask_lance(ManifestName.parse(manifest.name).version)
        paths = _own_paths(home, manifest, outline.info)
        for kind, path in found:
            if kind is not FileKind.INDEX:
                paths.add(path)
            paths.update(self._beside.get(path, ()))
        return frozenset(paths)

    def own_files_of(self, manifest: LayoutFile) -> frozenset[str]:
        """The manifest and the transaction of a version, which tell where it came from."""
        info = read_outline(self._store.get(manifest.path), name=manifest.path).info
        return frozenset(_own_paths(self._root.on(manifest.branch), manifest, info))

    def _of_home(self, home: Home, bases: tuple[BasePath, ...]) -> "_HomeMentions":
        known = self._homes.get((home.branch, bases))
        if known is None:
            known = self._homes[home.branch, bases] = _HomeMentions(home, bases, real_root=self._real_root)
        return known


def _own_paths(home: Home, manifest: LayoutFile, info: ManifestInfo) -> set[str]:
    own = {manifest.path}
    if info.transaction is not None:
        own.add(f"{home.folder}/_transactions/{info.transaction}".lstrip("/"))
    return own


class _HomeMentions:
    """What versions of one home mention that have the same bases."""

    def __init__(self, home: Home, bases: Iterable[BasePath], *, real_root: str) -> None:
        self._home = home
        self._bases = {base.id: base for base in bases}
        self._root = real_root
        self._folders: dict[tuple[FileKind, int | None], str | None] = {}
        self._seen: dict[bytes, tuple[tuple[FileKind, str], ...] | None] = {}

    def find(self, fragments: Iterable[bytes], indices: Iterable[bytes]) -> set[tuple[FileKind, str]] | None:
        """The files of these fragments and the folders of these indices; None if they may name others besides."""
        found: set[tuple[FileKind, str]] = set()
        for descriptions, take_apart in ((fragments, files_of_fragment), (indices, folder_of_index)):
            for description in descriptions:
                known = self._seen.get(description)
                if known is None:
                    known = self._seen[description] = self._look_at(description, take_apart)
                if known is None:
                    return None
                found.update(known)
        return found

    def ask_lance(self, version: int) -> set[tuple[FileKind, str]]:
        live = list_live_files(self._home, self._home.open(version))
        paths = ((file.kind, relative_to(follow_links(file.uri), self._root)) for file in live)
        return {(kind, path) for kind, path in paths if path}

    def _look_at(self, description: bytes, take_apart: _TakeApart) -> tuple[tuple[FileKind, str], ...] | None:
        mentioned = take_apart(description)
        if mentioned is None:
            return None
        placed = ((kind, name, self._folder(kind, base_id)) for kind, name, base_id in mentioned)
        return tuple((kind, f"{folder}/{name}") for kind, name, folder in placed if folder is not None)

    def _folder(self, kind: FileKind, base_id: int | None) -> str | None:
        """Where files of a kind lie, below the dataset's root; None for a base that lies elsewhere."""
        place = kind, base_id
        if place not in self._folders:
            uri = resolve_path("", kind, base_id, bases=self._bases, dataset_root=self._home.uri)
            try:
                self._folders[place] = relative_to(follow_links(normalise_uri(uri)), self._root) or None
            except InvalidPathError:
                self._folders[place] = None  # in a kind of store that we do not serve
        return self._folders[place]
