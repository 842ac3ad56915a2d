"""Base paths: further locations for files of a dataset, and reports of the files in each location.

Each home has its own ids: a branch keeps the ids it was created with and numbers new bases itself. So look up a base by
its name or path in the list of the version that is read.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import lance

from anabranch.errors import (
    AnabranchError,
    BaseExistsError,
    BusyError,
    InvalidInputError,
    InvalidNameError,
    InvalidPathError,
    StaleBaseError,
)
from anabranch.format.arrow_types import has_own_types
from anabranch.format.home import Home
from anabranch.format.layout.listing import manifest_of_path
from anabranch.format.layout.manifest import BasePath, put_next_version, with_base
from anabranch.format.layout.needed_files import FileKind, files_of_version, unknown_base
from anabranch.format.staging.incoming import as_reader, fit_rows
from anabranch.storage import ObjectStore, is_below_file, open_store
from anabranch.storage.uris import follow_links, is_local, normalise_uri, relative_to

# The word for the home's own folder where a base is expected. None means the same.
OWN_ROOT = "root"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# An attempt fails only if another writer succeeded, so a few attempts are enough.
_ATTEMPTS = 10


def list_bases(home: Home, version: int | None = None) -> tuple[BasePath, ...]:
    """List the bases of a version, of the newest by default, by id."""
    return bases_of(home.open(version))


def bases_of(dataset: lance.LanceDataset) -> tuple[BasePath, ...]:
    """List the bases of an opened version, by id."""
    return tuple(
        BasePath(id=number, path=base.path, name=base.name, is_dataset_root=base.is_dataset_root)
        for number, base in sorted(dataset.base_paths().items())
    )


def find_base(bases: Iterable[BasePath], name_or_id: str | int) -> BasePath | None:
    """Find a base by its name, else by its path, else by its id, which may be written as text."""
    known = tuple(bases)
    if not isinstance(name_or_id, str):
        return next((base for base in known if base.id == name_or_id), None)
    # In this order: a name that is also the id of another base means the base of that name.
    tests: Sequence[Callable[[BasePath], bool]] = (
        lambda base: base.name == name_or_id,
        lambda base: base_location(base.path) == name_or_id.rstrip("/"),
        lambda base: str(base.id) == name_or_id,
    )
    return next((base for test in tests for base in known if test(base)), None)


def get_base(bases: Iterable[BasePath], name_or_id: str | int) -> BasePath:
    """Get a base by its name, path or id, or raise an error that lists them."""
    known = tuple(bases)
    found = find_base(known, name_or_id)
    if found is None:
        raise unknown_base(name_or_id, known)
    return found


def get_target(home: Home, bases: Iterable[BasePath], name_or_id: str | int | None) -> BasePath | None:
    """Get a base to write to; None is the home's own root. Refuse locations whose files another dataset cleans up."""
    if name_or_id is None or name_or_id == OWN_ROOT:
        return None
    base = get_base(bases, name_or_id)
    if is_own_root(home, base):
        return None
    # pylance records a relative path unchanged, but each process may have another working directory.
    if is_local(base.path) and not base.path.startswith("/"):
        raise InvalidInputError(
            f"base {label(base)!r} has the relative path {base.path!r}", hint="add a base with an absolute path"
        )
    # When Lance writes, base id 0 means "no base". It would then search for the new file in the wrong folder.
    if (
        base.id == 0
        or relative_to(base_location(base.path), home.root) is not None
        or has_manifest(open_store(base.path, home.storage_options))
    ):
        raise InvalidInputError(
            f"base {label(base)!r} at {base.path!r} is a dataset or branch of its own, from which {home.uri!r} only"
            " inherits files",
            hint=f"write to {OWN_ROOT!r}, or to a base that was added for this dataset",
        )
    return base


def has_manifest(store: ObjectStore) -> bool:
    """Return whether a store has a dataset, and not only files of one, like a tier."""
    return any(is_manifest(info.path) for info in store.list("_versions"))


def is_dataset(uri: str, options: Mapping[str, str]) -> bool | None:
    """Return whether a dataset exists at an address, None if its store cannot be reached."""
    try:
        return has_manifest(open_store(uri, options))
    except AnabranchError:
        return None


def source_roots(home: Home, bases: Iterable[BasePath], is_source: Callable[[BasePath, str], bool]) -> list[str]:
    """Return the roots of other datasets from which a dataset inherits files, that of the newest base last.

    `is_source` gets a base that is not the folder of a branch, and its path: it may be a plain folder of files.
    """
    roots: list[str] = []
    for base in sorted(bases, key=lambda base: base.id):
        root, is_branch, _ = base.path.rstrip("/").partition("/tree/")
        if not base.is_dataset_root or relative_to(follow_links(root), follow_links(home.root)) is not None:
            continue
        if is_branch or is_source(base, root):
            # A root that occurs again moves to the end: the last one is the direct source of a clone.
            roots = [*(known for known in roots if known != root), root]
    return roots


def is_manifest(path: str) -> bool:
    """Return whether a path below a dataset's root is a manifest of its main branch."""
    return path.startswith("_versions/") and manifest_of_path(path) is not None


def is_own_root(home: Home, base: BasePath) -> bool:
    """Return whether a base is the home's own folder. A dataset may list its own root."""
    return base.is_dataset_root and follow_links(base_location(base.path)) == follow_links(home.uri)


def label(base: BasePath | None) -> str:
    """Return the name of a base for messages."""
    return OWN_ROOT if base is None else base.name or str(base.id)


def add_base(home: Home, path: str, *, name: str, is_dataset_root: bool = False) -> BasePath:
    """Register one more location for files of a dataset.

    With `is_dataset_root`, files are in the standard folders below the path, else directly in it. On a branch the base
    is listed on main first: a root that only a branch knows counts as stale.
    """
    location = _usable_location(home, path)
    _check_name(name)
    # Main first: if a crash follows, main lists one more base, which does no harm. A base that only the branch
    # lists would count as stale.
    if home.branch is not None and find_base(list_bases(home.on(None)), location) is None:
        register_base(home.on(None), location, name=name, is_dataset_root=is_dataset_root)
    return register_base(home, location, name=name, is_dataset_root=is_dataset_root)


def register_base(home: Home, path: str, *, name: str | None, is_dataset_root: bool) -> BasePath:
    """List a base in the newest version of a home. Raise BaseExistsError if it lists one of this name or path."""
    for _ in range(_ATTEMPTS):
        dataset = home.open()
        for base in bases_of(dataset):
            # Other tools add bases without a name. Two of those are different bases.
            if (name is not None and base.name == name) or base_location(base.path) == path:
                raise BaseExistsError(
                    f"{home.uri!r} has the base {label(base)!r} at {base.path!r} already",
                    hint="use it, or choose another name and path",
                )
        if name is None:
            put_next_version(home, partial(with_base, path=path, is_dataset_root=is_dataset_root))
            return get_base(list_bases(home), path)
        try:
            with home.errors():
                dataset.add_bases([lance.DatasetBasePath(path, name=name, is_dataset_root=is_dataset_root)])
        except BusyError:
            continue  # another writer added the same one, which the next read finds
        return get_base(bases_of(dataset), path)
    raise BusyError(f"others keep changing the bases of {home.uri!r}", hint="try again")


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidNameError(
            f"base name {name!r} is not usable",
            hint="use ASCII letters, digits, '.', '-' and '_', at most 100, with a letter or digit first",
        )
    # Callers name a base by name, id or this word, so a name must not look like the others.
    if name == OWN_ROOT or name.isdigit():
        raise InvalidNameError(
            f"base name {name!r} is reserved: {OWN_ROOT!r} is the dataset's own folder, a number is an id",
            hint="choose another name",
        )


def _usable_location(home: Home, path: str) -> str:
    location = normalise_uri(path)
    if relative_to(location, home.root) is not None:
        raise InvalidPathError(
            f"base path {path!r} is in the dataset {home.root!r} itself", hint="choose a folder outside of it"
        )
    # Fails if the store, or its bucket, cannot be reached; a folder that is not there yet is fine.
    next(iter(open_store(location, home.storage_options).list()), None)
    if is_below_file(location):
        raise InvalidPathError(f"base path {path!r} is a file, or is below one", hint="choose a folder")
    return location


def check_bases(home: Home, bases: Iterable[BasePath] | None = None) -> None:
    """Raise StaleBaseError if a branch inherits files from a root that is neither its dataset's nor listed on main.

    Branches of a copied dataset would silently read the original. Only the bases of the branch are read (or `bases`, if
    given), unless one of them is outside the dataset.
    """
    if home.branch is None:
        return
    elsewhere = [base for base in (list_bases(home) if bases is None else bases) if _is_other_root(home, base)]
    if not elsewhere:
        return
    listed = {base_location(base.path) for base in list_bases(home.on(None))}
    for base in elsewhere:
        if base_location(base.path) not in listed:
            raise StaleBaseError(
                f"branch {home.branch!r} of {home.root!r} inherits files from {base.path!r}, which is not this dataset",
                hint="relocate the dataset if it was moved or copied here, or add that path as a base on main",
            )


def _is_other_root(home: Home, base: BasePath) -> bool:
    """Return whether a base is a dataset root, but neither the root of this dataset nor that of one of its branches."""
    # Plain folders of files are absolute on purpose, such as a cold tier. Only a dataset root can be a former location
    # of this dataset.
    if not base.is_dataset_root:
        return False
    below = relative_to(follow_links(base_location(base.path)), follow_links(home.root))
    return below is None or (below != "" and not below.startswith("tree/"))


def append_to_base(home: Home, data: Any, *, base: str | int | None = None) -> int:
    """Append rows with their files in a chosen base, and return the new version; None or 'root' is the own root."""
    dataset = home.open()
    target = get_target(home, bases_of(dataset), base)
    rows = as_reader(data) if has_own_types(data) else fit_rows(data, dataset.schema).to_table()
    with home.errors():
        written = lance.write_dataset(
            rows,
            dataset,
            mode="append",
            # By path: Lance names bases after branches, and such a name may be taken twice.
            target_bases=None if target is None else [target.path],
            storage_options=home.lance_options(),
        )
        return int(written.version)


def fragments_of_base(home: Home, base: str | int | None, version: int | None = None) -> list[lance.LanceFragment]:
    """List the fragments of one base, to scan or to move; None or 'root' is the home's own root.

    A fragment belongs to the base of its first data file, so each belongs to exactly one. Columns added later are in
    the home's own root, where Lance puts them, until the fragment is moved.
    """
    dataset = home.open(version)
    bases = bases_of(dataset)
    # Files of the own root have no base id, or the id of a base that is this root.
    own = {other.id for other in bases if is_own_root(home, other)} | {None}
    found = None if base is None or base == OWN_ROOT else get_base(bases, base).id
    wanted = own if found in own else {found}
    return [fragment for fragment in dataset.get_fragments() if fragment.metadata.files[0].base_id in wanted]


def base_location(path: str) -> str:
    """Return the normalised path of a base. Paths in unsupported stores stay unchanged."""
    try:
        return normalise_uri(path)
    except InvalidPathError:
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The number of some files, and their bytes."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(files=self.files + other.files, bytes=self.bytes + other.bytes)

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(files=self.files - other.files, bytes=self.bytes - other.bytes)


def usage_of(sizes: Iterable[int]) -> Usage:
    """Return the number and the total bytes of files, given their sizes."""
    found = tuple(sizes)
    return Usage(files=len(found), bytes=sum(found))


def usage_by_reason(removed: Iterable[tuple[str, int]]) -> dict[str, Usage]:
    """Sum up removed files, given the reason and the size of each."""
    found: dict[str, Usage] = defaultdict(Usage)
    for reason, size in removed:
        found[reason] += Usage(files=1, bytes=size)
    return dict(sorted(found.items()))


def list_entries(folder: str, options: Mapping[str, str]) -> dict[str, Usage]:
    """Return the entries of a folder: its files, and its folders with all of their files."""
    entries: dict[str, Usage] = defaultdict(Usage)
    for found in open_store(folder, options).list():
        entries[found.path.partition("/")[0]] += Usage(files=1, bytes=found.size)
    return entries


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUsage:
    """The files in one location; `base` is None for the home's own root."""

    base: BasePath | None
    name: str
    path: str
    data: Usage
    deletion: Usage
    index: Usage

    @property
    def total(self) -> Usage:
        """All files of the base together."""
        return self.data + self.deletion + self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageReport:
    """The files that one version needs. `missing` are those that do not exist."""

    uri: str
    version: int
    bases: tuple[BaseUsage, ...]
    missing: tuple[str, ...]

    @property
    def total(self) -> Usage:
        """The files of all bases together."""
        return sum((base.total for base in self.bases), Usage())


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file of one fragment. Rows and deletions are those of the fragment, which may have several files."""

    fragment: int
    uri: str
    rows: int
    deletions: int
    bytes: int | None


def list_data_files(home: Home, version: int) -> list[DataFile]:
    """List the data files of a version, overlay files included, in all bases."""
    files = files_of_version(home, version).files
    deleted = {file.mention.fragment: file.mention.deleted_rows for file in files if file.kind is FileKind.DELETION}
    return [
        DataFile(
            fragment=file.mention.fragment,
            uri=file.uri,
            rows=file.mention.rows,
            deletions=deleted.get(file.mention.fragment) or 0,
            bytes=file.mention.size,
        )
        for file in files
        if file.kind is FileKind.DATA and file.mention.fragment is not None
    ]


def storage_report(home: Home, version: int | None = None) -> StorageReport:
    """Count the live files of a version, the newest by default, in each of its bases.

    Old versions' files are not counted, nor are manifests and transactions, which are always in the home itself.
    """
    number = int(home.open(version).version)
    needed = files_of_version(home, number)
    # A base may be another name of the own root. Its files are counted there, not twice.
    others = {base.id: base for base in sorted(needed.bases, key=lambda base: base.id) if not is_own_root(home, base)}
    counted: dict[tuple[int | None, FileKind], Usage] = defaultdict(Usage)
    missing = []
    listed = cache(partial(list_entries, options=home.storage_options))
    for file in needed.files:
        folder, _, name = file.uri.rpartition("/")
        usage = listed(folder).get(name, Usage())
        if usage.files == 0:
            if file.mention.is_required:
                missing.append(file.uri)
        # Large values are in a folder beside the data file, which no manifest lists.
        elif file.kind is FileKind.DATA:
            usage += listed(folder).get(name.rpartition(".")[0], Usage())
        base_id = file.mention.base_id
        counted[base_id if base_id in others else None, file.kind] += usage
    return StorageReport(
        uri=home.uri,
        version=number,
        bases=tuple(_base_usage(home, base, counted) for base in (None, *others.values())),
        missing=tuple(sorted(missing)),
    )


def _base_usage(home: Home, base: BasePath | None, counted: Mapping[tuple[int | None, FileKind], Usage]) -> BaseUsage:
    kinds = {kind.value: counted[None if base is None else base.id, kind] for kind in FileKind}
    return BaseUsage(base=base, name=label(base), path=home.uri if base is None else base.path, **kinds)
