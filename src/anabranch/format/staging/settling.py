"""Settle: put a staged version as the next ordinary one, and recognise the versions that external writers made.

The put is a compare-and-set. If the number is taken, the version there tells who made it: the transaction of each of
our versions has properties that name the staged version it shows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from uuid import NAMESPACE_URL, uuid4, uuid5

from anabranch.errors import (
    DamagedFileError,
    ExternalWriteError,
    NotFoundError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from anabranch.format.cache import BoundedCache
from anabranch.format.home import Home, HomeKey, is_staged, new_home_cache
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.files import (
    FileKind,
    FileMention,
    files_of_fragment,
    folder_of_index,
    names_in_index,
    resolve_path,
)
from anabranch.format.layout.manifest import BasePath, has_mark, read_manifest, with_version
from anabranch.format.layout.names import manifest_of_path, manifest_path
from anabranch.format.layout.settled_manifest import (
    SettledManifest,
    SettledParts,
    inline_transaction,
    read_parts,
    read_properties,
    settled_manifest,
    written_at,
)
from anabranch.format.layout.wire import damaged
from anabranch.storage import ObjectStore, in_parallel, open_store, put_once
from anabranch.storage.uris import join_uri, relative_to

__all__ = [
    "PreparedSettle",
    "Settled",
    "copy_ordinary",
    "find_missing_files",
    "find_shown",
    "foreign_versions",
    "is_damaged",
    "is_newest",
    "is_our_restore",
    "link",
    "newest_version",
    "prepare_settle",
    "put_prepared",
    "remember_settled",
    "rebuild_staged",
    "repair_newest",
    "replace_damaged",
    "restored_version",
    "settle",
    "settle_by_force",
    "settled_head",
    "shown_version",
    "staged_at",
    "versions_shown_by",
]

# In the transaction of an ordinary version that shows another one: the number of that version.
_SETTLED_FROM = "anabranch.settle"
# The same in repositories of earlier releases, which settled by a Restore of Lance.
_RESTORED_FROM = "anabranch.restore"
# On a version that set external writes aside: the newest version that was considered.
_SET_ASIDE = "anabranch.set_aside"
# On a restore of an earlier release that made an external version the newest again: its number.
_PUT_BACK = "anabranch.put_back"

# The ordinary versions that staged ones became; staged ids are never used again, so this cannot go stale.
_SETTLED: BoundedCache[HomeKey, int] = new_home_cache(limit=256)
# The newest ordinary version of a home that this process knows of. It is read again before it is built on.
_NEWEST: BoundedCache[HomeKey, int] = new_home_cache(limit=256)
# Small staged manifests by their ids, which are never used again: each is the base of the next settle.
_STAGED: BoundedCache[HomeKey, bytes] = new_home_cache(limit=64)
_SMALL = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The ordinary version made, and our own versions between it and the expected head."""

    version: int
    between: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSettle:
    """A version of a home, ready to be put as its next ordinary one.

    `path` is relative to the dataset's root and `data` is what to put there. There is nothing to put if the version
    `is_settled` already; `number` is then its ordinary number. A version that `is_restore` makes concurrent native
    writers fail instead of rebase. `staged` is the manifest of the version.
    """

    home: Home
    version: int
    number: int
    path: str
    expected_head: int
    properties: Mapping[str, str]
    made: SettledManifest | None = field(default=None, repr=False)
    staged: bytes = field(default=b"", repr=False)

    @property
    def data(self) -> bytes:
        return b"" if self.made is None else self.made.data

    @property
    def is_settled(self) -> bool:
        return self.made is None

    @property
    def is_restore(self) -> bool:
        return self.made is not None and self.made.is_restore

    @property
    def between(self) -> tuple[int, ...]:
        """Our own versions that were settled since the expected head."""
        return tuple(range(self.expected_head + 1, self.number))

    def list_new_files(self) -> tuple[str, ...]:
        """Return the URIs of all files that readers of this version need and the version before did not reference.

        The staged manifest is one of them.
        """
        if self.made is None:
            return (join_uri(self.home.root, self.path),)
        found = _new_files(self.home, self.made, self.staged, self.version)
        # Lance writes the first version of a table, and nothing refers to it until the second one is settled.
        return (join_uri(self.home.root, _path(self.home, 1)), *found) if self.number == 2 else found


def prepare_settle(
    home: Home, version: int, *, expected_head: int, stamp: Mapping[str, str] | None = None
) -> PreparedSettle:
    """Prepare to put a version, staged or ordinary, as the next ordinary version of its home.

    Raise ExternalWriteError if an external writer made a version after the expected head.
    """
    properties = {**(stamp or {}), _SETTLED_FROM: str(version)}
    before = _find_newest(home, version, at_least=expected_head)
    if _shows(before, version):
        # Nothing will be put that would show whether this is the newest version, so it is listed.
        _forget_newest(home)
        before = _find_newest(home, version, at_least=expected_head)
    _refuse_external(home, since=expected_head, newest=before)
    prepared = PreparedSettle(
        home=home,
        version=version,
        number=before.number,
        path=_path(home, before.number),
        expected_head=expected_head,
        properties=properties,
    )
    if _shows(before, version) and _SET_ASIDE not in properties:
        return prepared
    staged = _read_staged(home, version)
    made = _settled_manifest(home, before, staged, prepared)
    return replace(prepared, number=made.number, path=_path(home, made.number), made=made, staged=staged)


def _settled_manifest(home: Home, before: "_Version", staged: bytes, prepared: PreparedSettle) -> SettledManifest:
    parts = read_parts(before.data, name=_path(home, before.number))
    return settled_manifest(
        parts,
        _base_of(home, parts, shown_version(before.stamp), staged_from=prepared.version),
        read_parts(staged, name=_path(home, prepared.version)),
        properties=prepared.properties,
        uuid=str(uuid4()),
        is_clean=_SETTLED_FROM in before.stamp,
    )


def put_prepared(prepared: PreparedSettle) -> bool:
    """Put a prepared version; False if its number is taken."""
    return put_once(prepared.home.store(), prepared.path, prepared.data)


def link(
    prepared: PreparedSettle,
    *,
    put: Callable[[PreparedSettle], bool] = put_prepared,
    is_current: Callable[[], bool] = lambda: True,
) -> Settled | None:
    """Put a prepared version, and prepare it again for the next number if one of our own versions took its number.

    Raise ExternalWriteError if an external writer took it; nothing of theirs is touched. Where others of ours settled
    since the expected head, `is_current` is asked first: None is returned if the version is not the published one any
    more, because a slow writer would put an older state on top of a newer one.
    """
    while not prepared.is_settled:
        if prepared.between and not is_current():
            return None
        if put(prepared):
            break
        _forget_newest(prepared.home)
        prepared = prepare_settle(
            prepared.home, prepared.version, expected_head=prepared.expected_head, stamp=prepared.properties
        )
    remember_settled(prepared)
    return Settled(version=prepared.number, between=prepared.between)


def remember_settled(prepared: PreparedSettle) -> None:
    """Remember that a prepared version was put, so that it is not searched for again."""
    _NEWEST.keep(prepared.home.key(), prepared.number)
    if is_staged(prepared.version):
        _SETTLED.keep(prepared.home.key(prepared.version), prepared.number)


def is_newest(home: Home, version: int) -> bool:
    """Return whether this process settled a staged version, and no ordinary version came after it. One request."""
    number = _SETTLED.find(home.key(version))
    return number is not None and home.store().find_info(_path(home, number + 1)) is None


def settle(home: Home, version: int, *, expected_head: int, stamp: Mapping[str, str] | None = None) -> Settled:
    """Make a version, staged or ordinary, the home's newest ordinary one.

    Raise ExternalWriteError if an external writer made a version since the expected head.
    """
    made = link(prepare_settle(home, version, expected_head=expected_head, stamp=stamp))
    assert made is not None  # noqa: S101 - the version is always current
    return made


def settle_by_force(home: Home, version: int) -> Settled:
    """Settle and set aside all external versions up to now; they stay in the history."""
    head = newest_version(home)
    return settle(home, version, expected_head=head, stamp={_SET_ASIDE: str(head)})


def is_our_restore(home: Home, version: int) -> bool:
    """Whether an ordinary version was made by `settle`."""
    return _find_stamp(home, version) is not None


def restored_version(home: Home, version: int) -> int | None:
    """Return the version that an ordinary version shows; None if it was not made by `settle`."""
    stamp = _find_stamp(home, version)
    return None if stamp is None else shown_version(stamp)


def foreign_versions(home: Home, *, since: int) -> tuple[int, ...]:
    """Return the ordinary versions after `since` that external writers made, oldest first."""
    return _external(home, since=since, until=newest_version(home))


def settled_head(home: Home, *, published: int, since: int) -> int:
    """Return the newest ordinary version that has only versions of ours behind it, back to `since`.

    Where this process settled the published version, that is the version it made, and nothing is read.
    """
    if (settled := _SETTLED.find(home.key(published))) is not None:
        return settled
    newest = _find_newest(home, published, at_least=since).number
    external = _external(home, since=since, until=newest)
    return external[0] - 1 if external else newest


def staged_at(home: Home, version: int) -> int:
    """Return when a version was written, in microseconds, by the clock of its writer."""
    return written_at(read_parts(_read_staged(home, version), name=_path(home, version)))


def find_missing_files(home: Home, version: int, *, expected_head: int) -> tuple[str, ...]:
    """Return the files below the dataset's root that a version added to the home's newest ordinary one and are gone.

    Native cleanup removes files that no ordinary version names.
    """
    before = _find_newest(home, version, at_least=expected_head)
    staged = _read_staged(home, version)
    parts = read_parts(before.data, name=_path(home, before.number))
    there = read_parts(staged, name=_path(home, version))
    made = settled_manifest(parts, parts, there, properties={}, uuid="", is_clean=True)
    below = (relative_to(uri, home.root) for uri in _new_files(home, made, staged, version))
    paths = [path for path in below if path]
    store = home.store()
    found = in_parallel(lambda path: store.find_info(path), paths)
    return tuple(path for path, info in zip(paths, found, strict=True) if info is None)


def copy_ordinary(home: Home, number: int) -> int:
    """Put an ordinary version as a staged one and return its id: native cleanup removes only ordinary manifests.

    The id follows from the manifest, so that a second copy of the same version is the same version.
    """
    name = _path(home, number)
    data = home.store().get(name)
    version = _copy_id(data)
    put_once(home.store(), _path(home, version), with_version(data, version, name=name))
    return version


def versions_shown_by(home: Home, number: int) -> tuple[int, ...]:
    """Return the ids under which the state of an ordinary version may have been published, those to read first."""
    try:
        data = home.store().get(_path(home, number))
    except ObjectNotFoundError:
        return ()
    shown = shown_version(_stamp_in(home, data, number) or {})
    # Rows without a key are matched along the staged line, so the staged version comes first while it is there.
    if shown is not None and home.store().find_info(_path(home, shown)) is not None:
        return shown, number
    return number, _copy_id(data), *([shown] if shown is not None else [])


def _copy_id(data: bytes) -> int:
    return 1 << 63 | int.from_bytes(sha256(data).digest()[:8]) >> 1


def newest_version(home: Home) -> int:
    """Return the number of the newest ordinary version, from the names of the files: it may be damaged."""
    folder = f"{home.folder}/_versions".lstrip("/")
    names = (manifest_of_path(info.path) for info in home.store().list_files(folder))
    return max((name.version for name in names if name is not None and not is_staged(name.version)), default=0)


@dataclass(frozen=True, slots=True)
class _Version:
    """An ordinary version: its number, its manifest, and the properties that make it ours."""

    number: int
    data: bytes = field(repr=False)
    stamp: Mapping[str, str]


def _find_newest(home: Home, version: int, *, at_least: int) -> _Version:
    """Read the newest ordinary version. Start at the newest that this process knows of, where that is still there.

    Versions are collected from the oldest on. So if a version exists and the next one does not, it is the newest.
    """
    known = max(at_least, _NEWEST.find(home.key()) or 0)
    found = _find_version(home, known) if known == _NEWEST.find(home.key()) else None
    if found is None:
        found = _find_version(home, _latest(home, version))
    if found is not None and not has_mark(found.data):
        replace_damaged(home, found.number, version)
        found = _find_version(home, found.number)
    if found is None:
        raise VersionNotFoundError(f"{home.uri!r} has no ordinary version", hint="run 'anabranch doctor'")
    _NEWEST.keep(home.key(), found.number)
    return found


def is_damaged(home: Home, number: int) -> bool:
    """Whether a manifest was cut off: it is empty or does not end with the mark of a Lance file."""
    return not has_mark(home.store().get(_path(home, number)))


def replace_damaged(home: Home, number: int, shown: int) -> bool:
    """Replace an ordinary manifest that a power loss cut off; return whether there was one.

    Live writers only link complete files, so no writer is about to finish it. It becomes a version without a change on
    the one before it, whoever replaces it, so that a concurrent writer that builds on it loses nothing. Where that one
    is gone too, it shows the version `shown`.
    """
    store, path = home.store(), _path(home, number)
    if has_mark(store.get(path)):
        return False
    before = _find_version(home, number - 1)
    if before is None or not has_mark(before.data):
        data = _read_staged(home, shown)
        parts = replace(read_parts(data, name=_path(home, shown)), version=number - 1)
    else:
        data, shown = before.data, shown_version(before.stamp) or number - 1
        parts = read_parts(data, name=_path(home, number - 1))
    made = settled_manifest(
        parts,
        parts,
        parts,
        properties={_SETTLED_FROM: str(shown)},
        uuid=str(uuid5(NAMESPACE_URL, sha256(data).hexdigest())),
        is_clean=False,
    )
    store.put(path, made.data)
    return True


def repair_newest(home: Home, shown: int) -> None:
    """Replace the newest ordinary manifest of a home if it was cut off, before Lance opens it."""
    number = newest_version(home)
    if number and is_damaged(home, number):
        replace_damaged(home, number, shown)


def find_shown(home: Home, version: int) -> int | None:
    """Return the newest ordinary version that shows a staged one, if there is one."""
    for number in range(newest_version(home), 0, -1):
        if (stamp := _find_stamp(home, number)) is not None and shown_version(stamp) == version:
            return number
    return None


def rebuild_staged(home: Home, version: int) -> bool:
    """Write the manifest of a staged version again from an ordinary version that shows it."""
    number = find_shown(home, version)
    if number is None:
        return False
    name = _path(home, number)
    home.store().put(_path(home, version), with_version(home.store().get(name), version, name=name))
    _STAGED.forget(lambda known: known[1:] == (home, version))
    home.forget()
    return True


def _latest(home: Home, version: int) -> int:
    with lance_errors(home.uri, home.storage_options):
        return int(home.open(version).latest_version)


def _find_version(home: Home, number: int) -> _Version | None:
    try:
        data = home.store().get(_path(home, number))
    except ObjectNotFoundError:
        return None
    return _Version(number, data, (_stamp_in(home, data, number) or {}) if has_mark(data) else {})


def _path(home: Home, version: int) -> str:
    return f"{home.folder}/{manifest_path(version)}".lstrip("/")


def _read_staged(home: Home, version: int) -> bytes:
    known = _STAGED.find(home.key(version))
    if known is not None:
        return known
    try:
        data = home.store().get(_path(home, version))
    except ObjectNotFoundError:
        raise VersionNotFoundError(
            f"dataset {home.uri!r} has no version {version!r}", hint="list its versions to see which exist"
        ) from None
    if is_staged(version) and len(data) <= _SMALL:
        _STAGED.keep(home.key(version), data)
    return data


def _base_of(home: Home, before: SettledParts, shown: int | None, *, staged_from: int) -> SettledParts:
    """Return the version that the one before shows; that one itself if it is not ours, or its source is gone."""
    if shown is None or not is_staged(shown) or shown == staged_from:
        return before
    try:
        return read_parts(_read_staged(home, shown), name=_path(home, shown))
    except NotFoundError:
        return before


def _shows(ordinary: _Version, version: int) -> bool:
    return version in (ordinary.number, shown_version(ordinary.stamp))


def _forget_newest(home: Home) -> None:
    _NEWEST.forget(lambda known: known[1] == home)


def shown_version(stamp: Mapping[str, str]) -> int | None:
    """Return the version that an ordinary version shows, by the properties of its transaction."""
    text = stamp.get(_SETTLED_FROM, stamp.get(_RESTORED_FROM, ""))
    return int(text) if text.isdecimal() else None


def _refuse_external(home: Home, *, since: int, newest: _Version) -> None:
    is_only_ours = newest.number <= since or (
        newest.number == since + 1 and newest.stamp and _PUT_BACK not in newest.stamp
    )
    if is_only_ours:
        return
    if external := _external(home, since=since, until=newest.number):
        versions = ", ".join(map(str, external))
        raise ExternalWriteError(
            f"an external writer changed {home.uri!r}: version {versions}",
            hint="adopt the change, or settle by force",
        )


def _external(home: Home, *, since: int, until: int) -> tuple[int, ...]:
    found: set[int] = set()
    for version in range(since + 1, until + 1):
        try:
            stamp = _read_stamp(home, version)
        except NotFoundError:
            continue  # Collected. It was not the newest; if it was external, the next one is too.
        except DamagedFileError:
            continue  # The writer cannot be told from it, and no reader can open it.
        if stamp is None:
            found.add(version)
        else:
            set_aside = int(stamp.get(_SET_ASIDE, 0))
            found = {external for external in found if external > set_aside}
            found |= {int(stamp[_PUT_BACK])} if _PUT_BACK in stamp else set()
    return tuple(sorted(found))


def _find_stamp(home: Home, version: int) -> Mapping[str, str] | None:
    try:
        return _read_stamp(home, version)
    except (NotFoundError, DamagedFileError):
        return None


def _read_stamp(home: Home, version: int) -> Mapping[str, str] | None:
    data = home.store().get(_path(home, version))
    if not has_mark(data):
        raise damaged(f"manifest {_path(home, version)!r}", "it does not end with the mark of a Lance file")
    return _stamp_in(home, data, version)


def _stamp_in(home: Home, data: bytes, version: int) -> Mapping[str, str] | None:
    """Return the properties of a version of ours; None for any other."""
    name = _path(home, version)
    transaction = inline_transaction(data, name=name)
    if transaction is None:
        transaction = _transaction_file(home.store(), home, read_manifest(data, name=name).transaction)
    properties = read_properties(transaction)
    return properties if shown_version(properties) is not None else None


def _transaction_file(store: ObjectStore, home: Home, name: str | None) -> bytes:
    if name is None:
        return b""
    try:
        return store.get(f"{home.folder}/_transactions/{name}".lstrip("/"))
    except ObjectNotFoundError:
        return b""


def _new_files(home: Home, made: SettledManifest, staged: bytes, version: int) -> tuple[str, ...]:
    bases = {base.id: base for base in read_manifest(staged).base_paths}
    found = [join_uri(home.root, _path(home, version))]
    for fragment, former in made.fragments:
        known = set(files_of_fragment(former))
        new = (mention for mention in files_of_fragment(fragment) if mention not in known)
        for mention in new:
            uri = _uri(home, bases, mention)
            found.append(uri)
            if made.has_blobs and mention.kind is FileKind.DATA:
                found.extend(_list_files(uri.removesuffix(".lance"), home.storage_options))
    for index in made.indices:
        folder = _uri(home, bases, folder_of_index(index))
        names = names_in_index(index)
        listed = _list_files(folder, home.storage_options) if not names else ()
        found.extend(listed or (join_uri(folder, name) for name in names))
    return tuple(dict.fromkeys(found))


def _uri(home: Home, bases: Mapping[int, BasePath], file: FileMention) -> str:
    return resolve_path(file.name, file.kind, file.base_id, bases=bases, dataset_root=home.uri)


def _list_files(folder: str, storage_options: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(join_uri(folder, info.path) for info in open_store(folder, storage_options).list())
