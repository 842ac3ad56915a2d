"""Which files the versions of a dataset need, read from the bytes of their manifests.

To open a version by Lance costs several times as much, and garbage collection looks at every version that stays. They
have most of their fragments in common, so each of those is taken apart once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anabranch.errors import InvalidPathError
from anabranch.format.bases.bases import resolve_path
from anabranch.format.doctor.files import mentioned_as
from anabranch.format.home import Home
from anabranch.format.layout.described_files import FileKind, Mention, files_of_fragment, folder_of_index
from anabranch.format.layout.listing import Layout, LayoutFile, LayoutKind
from anabranch.format.layout.manifest import BasePath, ManifestInfo, read_outline
from anabranch.format.layout.names import ManifestName
from anabranch.format.storage_report import list_live_files
from anabranch.storage.uris import follow_links, normalise_uri, relative_to

__all__ = ["Mentions", "Needs"]

_BESIDE = frozenset({LayoutKind.BLOB, LayoutKind.INDEX})

_TakeApart = Callable[[bytes], tuple[Mention, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The files that one version needs.

    `below` are paths below the dataset's root, the version's manifest and transaction among them. `elsewhere` are URIs
    of data files, deletion files and index folders in other places. `bases` are the base paths that it lists.
    """

    below: frozenset[str]
    elsewhere: frozenset[tuple[FileKind, str]]
    bases: tuple[BasePath, ...]


class Mentions:
    """The files that versions of one dataset mention."""

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
        """The files below the root that a version needs; raise NotFoundError if its manifest is gone."""
        return self.needs_of(manifest).below

    def needs_of(self, manifest: LayoutFile) -> Needs:
        """All files that a version needs; raise NotFoundError if its manifest is gone."""
        outline = read_outline(self._store.get(manifest.path), name=manifest.path)
        home = self._root.on(manifest.branch)
        mentions = self._of_home(home, outline.info.base_paths)
        found = mentions.find(outline.fragments, outline.indices)
        if found is None:
            found = mentions.ask_lance(ManifestName.parse(manifest.name).version)
        paths = _own_paths(home, manifest, outline.info)
        elsewhere = set()
        for kind, path in found:
            if _is_elsewhere(path):
                elsewhere.add((kind, path))
                continue
            if kind is not FileKind.INDEX:
                paths.add(path)
            paths.update(self._beside.get(path, ()))
        return Needs(below=frozenset(paths), elsewhere=frozenset(elsewhere), bases=outline.info.base_paths)

    def own_files_of(self, manifest: LayoutFile) -> frozenset[str]:
        """The manifest and the transaction of a version, which tell where it came from."""
        info = read_outline(self._store.get(manifest.path), name=manifest.path).info
        return frozenset(_own_paths(self._root.on(manifest.branch), manifest, info))

    def _of_home(self, home: Home, bases: tuple[BasePath, ...]) -> "_HomeMentions":
        known = self._homes.get((home.branch, bases))
        if known is None:
            known = self._homes[home.branch, bases] = _HomeMentions(home, bases, real_root=self._real_root)
        return known


def _is_elsewhere(path: str) -> bool:
    """Whether a path is a whole address, and not below the dataset's root."""
    return path.startswith("/") or "://" in path


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
        return {(file.kind, self._place(follow_links(file.uri))) for file in live}

    def _place(self, uri: str) -> str:
        """A path below the dataset's root, or the whole address of what lies elsewhere."""
        return relative_to(uri, self._root) or uri

    def _look_at(self, description: bytes, take_apart: _TakeApart) -> tuple[tuple[FileKind, str], ...] | None:
        mentioned = take_apart(description)
        if mentioned is None:
            return None
        placed = ((kind, name, self._folder(kind, base_id)) for kind, name, base_id in mentioned)
        return tuple((kind, f"{folder}/{name}") for kind, name, folder in placed if folder is not None)

    def _folder(self, kind: FileKind, base_id: int | None) -> str | None:
        """The folder that holds files of a kind; None for a base in a kind of store that we do not serve."""
        place = kind, base_id
        if place not in self._folders:
            uri = resolve_path("", kind, base_id, bases=self._bases, dataset_root=self._home.uri)
            try:
                self._folders[place] = self._place(follow_links(normalise_uri(uri)))
            except InvalidPathError:
                self._folders[place] = None
        return self._folders[place]
