"""Settle: put a staged version as the next ordinary one of its home.

The put is a compare-and-set. If the number is taken, the properties of that version show whether it is ours: then the
next number is tried. Otherwise an external writer made it.

`fork` makes a version, staged ones too, the first ordinary one of a new branch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from anabranch.errors import BranchExistsError, CorruptError, DamagedFileError, VersionNotFoundError
from anabranch.format.home import BoundedCache, Home, HomeKey, VersionRef, is_staged, new_home_cache
from anabranch.format.layout.listing import MANAGED_TAG, tag_ref_path
from anabranch.format.layout.needed_files import (
    FileKind,
    files_of_fragment,
    folder_of_index,
    names_in_index,
    resolve_path,
)
from anabranch.format.staging.manifests import (
    ADOPTED,
    MANIFESTS,
    PUT_BACK,
    SET_ASIDE,
    SETTLED_FROM,
    Manifest,
    Origin,
    find_manifest,
    find_origin,
    get_manifest,
    list_external_versions,
    newest_version,
    refuse_external,
    replace_damaged,
    restored_version,
)
from anabranch.storage import in_parallel, open_store, put_once
from anabranch.storage.local_store import refuse_links
from anabranch.storage.uris import join_uri, relative_to

if TYPE_CHECKING:
    from anabranch.format.layout.next_manifest import SettledManifest


# The ordinary versions of staged ones. Staged ids are never used again, so this cannot become outdated.
_SETTLED: BoundedCache[HomeKey, int] = new_home_cache(limit=4096)
# The newest known ordinary version of a home. It is read again before it is built on.
_NEWEST: BoundedCache[HomeKey, int] = new_home_cache(limit=4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSettle:
    """A version of a home, and its ordinary number. `made` is what to put; None if the version is settled already."""

    home: Home
    version: int
    number: int
    expected_head: int
    properties: Mapping[str, str]
    made: "SettledManifest | None" = field(default=None, repr=False)

    @property
    def between(self) -> tuple[int, ...]:
        """Our own versions that were settled since the expected head."""
        return tuple(range(self.expected_head + 1, self.number))

    def list_new_files(self) -> tuple[str, ...]:
        """Return the URIs of all files that readers of this version need and the version before did not reference.

        The staged manifest is one of them.
        """
        home, made = self.home, self.made
        if made is None:
            return list_created_files(home, self.number)
        # Lance writes the first version of a table, and nothing refers to it until the second one is settled.
        found = [*list_created_files(home, 1)] if self.number == 2 else []
        found.append(f"{home.root}/{home.manifest_path(self.version)}")
        message = made.parts.message
        bases = {base.id: base for base in message.base_paths}
        # A column that only has the word in its name costs a listing. A missed one would leave files without a sync.
        has_blobs = any(b"blob" in described for described in message.fields)
        for fragment, former in made.fragments:
            known = files_of_fragment(former) if former else ()
            for file in files_of_fragment(fragment):
                if file in known:
                    continue
                uri = resolve_path(file.name, file.kind, file.base_id, bases=bases, dataset_root=home.uri)
                found.append(uri)
                # Large values are in a folder beside the data file, and no manifest lists them.
                if has_blobs and file.kind is FileKind.DATA:
                    found.extend(_list_files(uri.removesuffix(".lance"), home.storage_options))
        for index in made.indices:
            file, names = folder_of_index(index), names_in_index(index)
            folder = resolve_path(file.name, file.kind, file.base_id, bases=bases, dataset_root=home.uri)
            # Manifests of older Lance releases do not list the files of an index.
            listed = _list_files(folder, home.storage_options) if not names else ()
            found.extend(listed or (join_uri(folder, name) for name in names))
        return tuple(dict.fromkeys(found))


def list_created_files(home: Home, version: int) -> tuple[str, ...]:
    """Return the URIs of the files of a new table: its manifest, and the tag that marks it as managed if it has one."""
    manifest, mark = home.manifest_path(version), tag_ref_path(MANAGED_TAG)
    is_marked = version == 1 and home.branch is None and home.store().find_info(mark) is not None
    return tuple(join_uri(home.root, path) for path in ((manifest, mark) if is_marked else (manifest,)))


def prepare_settle(
    home: Home, version: int, *, expected_head: int, stamp: Mapping[str, str] | None = None
) -> PreparedSettle:
    """Prepare to put a version, staged or ordinary, as the next ordinary version of its home.

    Raise ExternalWriteError if an external writer made a version after the expected head.
    """
    # Not at the top, because it loads Lance, which is not needed to recognize our own versions.
    from anabranch.format.layout.next_manifest import settled_manifest

    before = _find_newest(home, version, at_least=expected_head)
    if version in (before.version, before.shown):
        # No put will test whether this is the newest version, so list the versions.
        _forget_newest(home)
        before = _find_newest(home, version, at_least=expected_head)
    # The usual case needs no further read: the newest version is the expected one, or the one of ours after it.
    is_next_of_ours = before.version == expected_head + 1 and before.stamp and PUT_BACK not in before.stamp
    if before.version > expected_head and not is_next_of_ours:
        refuse_external(home, since=expected_head, until=before.version)
    properties = {**(stamp or {}), SETTLED_FROM: str(version)}
    # The published version includes the external one that it expects, because it was adopted. The first version of a
    # dataset is not external, although it has no stamp either.
    if before.version == expected_head > 1 and not before.stamp:
        properties[ADOPTED] = str(expected_head)
    prepared = PreparedSettle(
        home=home, version=version, number=before.version, expected_head=expected_head, properties=properties
    )
    # A forced settle puts a version in any case: only its properties set the external versions aside.
    if version in (before.version, before.shown) and SET_ASIDE not in properties:
        return prepared
    staged, base = find_manifest(home, version), None
    if staged is None:
        raise home.no_version(version)
    if before.shown is not None and is_staged(before.shown) and before.shown != version:
        base = find_manifest(home, before.shown)
    made = settled_manifest(
        before.parts,
        # The version that the one before shows, or that one itself if it is not ours or its source is missing.
        before.parts if base is None else base.parts,
        staged.parts,
        properties=properties,
        uuid=str(uuid4()),
        is_clean=SETTLED_FROM in before.stamp,
    )
    return replace(prepared, number=before.version + 1, made=made)


def link(prepared: PreparedSettle, *, is_current: Callable[[], bool] = lambda: True) -> PreparedSettle | None:
    """Put a prepared version, and prepare it again for the next number if one of our own versions took its number.

    Raise ExternalWriteError if an external writer took it. Its version is not changed. If versions of ours were settled
    since the expected head, `is_current` is called first. Return None if the version is no longer the published one:
    otherwise a slow writer would put an older state on top of a newer one.
    """
    while prepared.made is not None:
        if prepared.between and not is_current():
            return None
        if put_once(prepared.home.store(), prepared.home.manifest_path(prepared.number), prepared.made.data):
            break
        # The number is taken, so the newest known version is out of date.
        _forget_newest(prepared.home)
        prepared = prepare_settle(
            prepared.home, prepared.version, expected_head=prepared.expected_head, stamp=prepared.properties
        )
    remember_settled(prepared)
    return prepared


def remember_settled(prepared: PreparedSettle) -> None:
    """Remember that a prepared version was put, so that it is not searched for again."""
    _NEWEST.keep((prepared.home, None), prepared.number)
    if prepared.made is not None:  # the next settle builds on it
        made, number = prepared.made, prepared.number
        manifest = Manifest(number, made.data, made.parts, prepared.properties, prepared.version)
        MANIFESTS.keep((prepared.home, number), manifest, weight=len(made.data))
    if is_staged(prepared.version):
        _SETTLED.keep((prepared.home, prepared.version), prepared.number)


def is_newest(home: Home, version: int) -> bool:
    """Return whether this process settled a staged version, and no ordinary version came after it. One request."""
    number = _SETTLED.find((home, version))
    return number is not None and home.store().find_info(home.manifest_path(number + 1)) is None


def settle(home: Home, version: int, *, expected_head: int, stamp: Mapping[str, str] | None = None) -> PreparedSettle:
    """Make a version, staged or ordinary, the home's newest ordinary one.

    Raise ExternalWriteError if an external writer made a version since the expected head.
    """
    made = link(prepare_settle(home, version, expected_head=expected_head, stamp=stamp))
    assert made is not None  # noqa: S101 - the version is always current
    return made


def settle_by_force(home: Home, version: int) -> PreparedSettle:
    """Settle, and set aside all external versions up to now. They stay in the history."""
    head = newest_version(home)
    return settle(home, version, expected_head=head, stamp={SET_ASIDE: str(head)})


def settled_head(home: Home, *, published: int, since: int) -> int:
    """Return the newest ordinary version that has only versions of ours behind it, back to `since`.

    If this process settled the published version, return the version that it made. Nothing is read.
    """
    if (settled := _SETTLED.find((home, published))) is not None:
        return settled
    newest = _find_newest(home, published, at_least=since).version
    external = list_external_versions(home, since=since, until=newest)
    # Not beyond the first external version: `prepare_settle` must find it after the head that it expects.
    return external[0] - 1 if external else newest


def staged_at(home: Home, version: int) -> int:
    """Return the time when a version was written, in microseconds, by the clock of its writer."""
    written = get_manifest(home, version).parts.message.timestamp
    return written.seconds * 1_000_000 + written.nanos // 1_000


def find_missing_files(home: Home, version: int, *, expected_head: int) -> tuple[str, ...]:
    """Return the missing files below the dataset's root that a version added to the home's newest ordinary one."""
    # Native cleanup removes files that no ordinary version names.
    from anabranch.format.layout.next_manifest import settled_manifest

    before = _find_newest(home, version, at_least=expected_head)
    staged = get_manifest(home, version)
    # Computed for its list of new files only, and never put.
    made = settled_manifest(before.parts, before.parts, staged.parts, properties={}, uuid="", is_clean=True)
    number = before.version + 1
    prepared = PreparedSettle(
        home=home, version=version, number=number, expected_head=expected_head, properties={}, made=made
    )
    below = (relative_to(uri, home.root) for uri in prepared.list_new_files())
    paths = [path for path in below if path]
    found = in_parallel(home.store().find_info, paths)
    return tuple(path for path, info in zip(paths, found, strict=True) if info is None)


def _find_newest(home: Home, version: int, *, at_least: int) -> Manifest:
    """Read the newest ordinary version. Start at the newest known version, if it still exists."""
    # Versions are collected from the oldest on. So if a version exists and the next one does not, it is the newest.
    # It may be out of date. Then the put of the next number fails, and the search starts again without it.
    number = known = _NEWEST.find((home, None))
    if number is None or number < at_least:
        with home.errors():
            number = int(home.open(version).latest_version)
    try:
        found = find_manifest(home, number)
    except DamagedFileError:
        replace_damaged(home, number, version)
        found = find_manifest(home, number)
    if found is None and number == known:
        _forget_newest(home)
        return _find_newest(home, version, at_least=at_least)
    if found is None:
        raise VersionNotFoundError(f"{home.uri!r} has no ordinary version", hint="run `doctor()`")
    _NEWEST.keep((home, None), found.version)
    return found


def _forget_newest(home: Home) -> None:
    _NEWEST.forget(lambda known: known[0].uri == home.uri)


def _list_files(folder: str, storage_options: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(join_uri(folder, info.path) for info in open_store(folder, storage_options).list())


def fork(source: VersionRef, branch: str) -> Home:
    """Make a Lance branch that starts at the pinned version. No data is copied.

    Use a name that no other process uses at the same time: Lance may mix the halves of two forks of one name. This is
    detected afterwards and raised.
    """
    # Not at the top: a settle does not need them.
    from anabranch.format.refs.branches import clone_version, put_branch, read_parent

    target = source.home.on(branch)
    refuse_links(target.root, *target.folders)
    # The newest version of the home is opened below. A manifest that a power loss cut off would stop the fork.
    if source.is_staged and (newest := newest_version(source.home)):
        replace_damaged(source.home, newest, source.version)
    head = source.open() if not source.is_staged else source.home.open()
    parent = read_parent(source.home)
    clone_version(source.home, source.version, branch)
    if source.is_staged:
        give_ordinary_version(target, source.version, head.version, source=source.home)
    made = target.open()
    expected = Origin(branch=source.home.branch, version=source.version)
    # Of two forks of one name, the ref of one and the manifest of the other may be left.
    if made.version != head.version or find_origin(target, made) != expected:
        raise CorruptError(
            f"the branch {branch!r} did not become a fork of version {source.version}",
            hint="fork again under another name",
        )
    put_branch(source.home, source.version, branch, first=head.version, parent=parent)
    return target


def give_ordinary_version(target: Home, staged: int, number: int, *, source: Home) -> None:
    """Put a staged version of a home as an ordinary one beside it: Lance branches and clones it as it is.

    `source` is the home that the version was staged in, and `number` is its newest ordinary version.
    """
    from anabranch.format.layout.next_manifest import ordinary_manifest

    store = target.store()
    path, ordinary = target.manifest_path(staged), target.manifest_path(number)
    shown_by = None
    # The ordinary version that shows the same state has the right row versions; the staged one has staged numbers.
    if restored_version(source, number) == staged:
        shown_by = source.store().get(source.manifest_path(number))
    manifest = ordinary_manifest(store.get(path), number, shown_by=shown_by, name=path)
    # Not durable here: the caller syncs it together with what refers to it.
    if not put_once(store, ordinary, manifest, durable=False):
        raise BranchExistsError(f"another process is creating the branch {target.branch!r}", hint="choose another name")
