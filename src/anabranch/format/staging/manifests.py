"""The manifests of the staged and ordinary versions of a home, and the properties of versions that Anabranch made.

The transaction of each ordinary version of ours has properties that name the version it shows. A version without them
was made by an external writer.

Damaged and missing manifests are replaced by, or rebuilt from, other manifests with the same state.
"""

import copy
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid4, uuid5

from anabranch.errors import DamagedFileError, DatasetExistsError, ExternalWriteError, InvalidInputError, NotFoundError
from anabranch.format.home import BoundedCache, Home, HomeKey, VersionRef, is_staged, new_home_cache
from anabranch.format.layout.listing import manifest_of_path
from anabranch.format.layout.manifest import (
    ManifestParts,
    has_mark,
    inline_transaction,
    join_manifest,
    read_parts,
    with_version,
)
from anabranch.format.layout.messages import Transaction
from anabranch.storage import put_once
from anabranch.storage.local_store import refuse_links

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

    from anabranch.format.layout.next_manifest import ChangedRows


# In the transaction of an ordinary version that shows another one: the number of that version.
SETTLED_FROM = "anabranch.settle"
# The same in repositories of earlier releases, which settled by a Restore of Lance.
_RESTORED_FROM = "anabranch.restore"
# On a version that set external writes aside: the newest version that was considered.
SET_ASIDE = "anabranch.set_aside"
# On the first version after adopted external writes: the newest of them. Without it they would be pending again for an
# older state of the table, such as after an undo of the adoption.
ADOPTED = "anabranch.adopted"
# On a restore of an earlier release that made an external version the newest again: its number.
PUT_BACK = "anabranch.put_back"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that was read.

    Of an ordinary version of ours, `stamp` has the properties that make it ours, and `shown` is the version it shows.
    """

    version: int
    data: bytes = field(repr=False)
    parts: ManifestParts = field(repr=False)
    stamp: Mapping[str, str] = field(default_factory=dict)
    shown: int | None = None


# Small manifests: each is the base of the next settle. A staged one is read once, as its id is never used again. An
# ordinary one is read each time, as a repair may replace it; its parts are used again if the bytes are the same.
# A few manifests of tables with many fragments would displace all others.
MANIFESTS: BoundedCache[HomeKey, Manifest] = new_home_cache(limit=1024, capacity=32 * 1024 * 1024, heaviest=256 * 1024)


def find_manifest(home: Home, version: int) -> Manifest | None:
    """Return the manifest of a version; None if it does not exist. That of a staged one may be kept."""
    known = MANIFESTS.find((home, version))
    staged = is_staged(version)
    if known is not None and staged:
        return known
    path = home.manifest_path(version)
    data = home.store().find(path)
    if data is None:
        return None
    if known is not None and known.data == data:
        return known
    parts = read_parts(data, name=path)
    properties = {} if staged else _read_properties(home, parts)
    shown = shown_version(properties)
    manifest = Manifest(version, data, parts, {} if shown is None else properties, shown)
    MANIFESTS.keep((home, version), manifest, weight=len(data))
    return manifest


def get_manifest(home: Home, version: int) -> Manifest:
    """Return the manifest of a version that exists."""
    found = find_manifest(home, version)
    if found is None:
        raise home.no_version(version)
    return found


def newest_version(home: Home) -> int:
    """Return the number of the newest ordinary version, from the names of the files: it may be damaged."""
    # Lance is not used, because it cannot open a table whose newest manifest is damaged.
    folder = f"{home.folder}/_versions".lstrip("/")
    names = (manifest_of_path(info.path) for info in home.store().list_files(folder))
    return max((name.version for name in names if name is not None and not is_staged(name.version)), default=0)


def shown_version(stamp: Mapping[str, str]) -> int | None:
    """Return the version that an ordinary version shows, by the properties of its transaction."""
    text = stamp.get(SETTLED_FROM, stamp.get(_RESTORED_FROM, ""))
    return int(text) if text.isdecimal() else None


def _read_properties(home: Home, parts: ManifestParts) -> dict[str, str]:
    """Return the properties of the transaction that made an ordinary version."""
    inline = inline_transaction(parts)
    if inline is not None:
        return _properties_of(inline)
    name = parts.message.transaction_file
    stored = home.store().find(f"{home.folder}/_transactions/{name}".lstrip("/")) if name else None
    # Transaction files are not synced, so a power loss may leave zeros. Native cleanup removes them. Without one the
    # version counts as external, so that it is not overwritten.
    with suppress(DamagedFileError):
        return _properties_of(stored or b"")
    return {}


def _properties_of(transaction: bytes) -> dict[str, str]:
    return {each.key: each.value for each in Transaction.parse(transaction, "transaction").properties}


def is_damaged(home: Home, number: int) -> bool:
    """Whether a manifest was cut off: it is empty or does not end with the mark of a Lance file."""
    return not has_mark(home.store().get(home.manifest_path(number)))


def replace_damaged(home: Home, number: int, shown: int) -> bool:
    """Replace an ordinary manifest that a power loss cut off; return whether there was one.

    Writers only link complete files, so no writer will finish it. It becomes a version without a change on the one
    before it, with the same bytes by any process, so that a concurrent writer that builds on it loses nothing. If the
    version before is missing or damaged, too, it shows the version `shown`.
    """
    # Not at the top, because it loads Lance, which is not needed to recognize our own versions.
    from anabranch.format.layout.next_manifest import settled_manifest

    store, path = home.store(), home.manifest_path(number)
    if has_mark(store.get(path)):
        return False
    before = None
    with suppress(DamagedFileError):
        before = find_manifest(home, number - 1)
    if before is None:
        before = get_manifest(home, shown)
        parts = replace(before.parts, message=copy.deepcopy(before.parts.message))
        parts.message.version = number - 1
    else:
        parts, shown = before.parts, before.shown or number - 1
    made = settled_manifest(
        parts,
        parts,
        parts,
        properties={SETTLED_FROM: str(shown)},
        # Derived from the manifest before it: all processes that repair the same file write the same bytes.
        uuid=str(uuid5(NAMESPACE_URL, sha256(before.data).hexdigest())),
        is_clean=False,
    )
    store.put(path, made.data)
    return True


def find_shown(home: Home, version: int) -> int | None:
    """Return the newest ordinary version that shows a staged one, if there is one."""
    numbers = range(newest_version(home), 0, -1)
    return next((number for number in numbers if restored_version(home, number) == version), None)


def rebuild_staged(home: Home, version: int) -> bool:
    """Write the manifest of a staged version again from an ordinary version that shows it."""
    number = find_shown(home, version)
    if number is None:
        return False
    name = home.manifest_path(number)
    home.store().put(home.manifest_path(version), with_version(home.store().get(name), version, name=name))
    # This process may have cached contents of the damaged file, and handles on it.
    home.forget()
    return True


def copy_ordinary(home: Home, number: int) -> int:
    """Put an ordinary version as a staged one and return its id: native cleanup removes only ordinary manifests.

    The id follows from the manifest, so that a second copy of the same version is the same version.
    """
    name = home.manifest_path(number)
    data = home.store().get(name)
    version = copy_id(data)
    put_once(home.store(), home.manifest_path(version), with_version(data, version, name=name))
    return version


def copy_id(data: bytes) -> int:
    """Return the id of the staged copy of an ordinary manifest."""
    # Lance takes ids from 2^63 on for detached versions.
    return 1 << 63 | int.from_bytes(sha256(data).digest()[:8]) >> 1


def restored_version(home: Home, version: int) -> int | None:
    """Return the version that an ordinary version shows; None if `settle` did not make it, or it cannot be read."""
    try:
        return get_manifest(home, version).shown
    except (NotFoundError, DamagedFileError):
        return None


def versions_shown_by(home: Home, number: int) -> tuple[int, ...]:
    """Return the ids under which the state of an ordinary version may have been published, best first."""
    data = home.store().find(home.manifest_path(number))
    if data is None:
        return ()
    shown = restored_version(home, number)
    # Rows without a key are matched along the staged line, so the staged version comes first while it is there.
    if shown is not None and home.store().find_info(home.manifest_path(shown)) is not None:
        return shown, number
    # A commit may name the ordinary version itself, or the staged copy that protects it from native cleanup.
    return number, copy_id(data), *([shown] if shown is not None else [])


def refuse_external(home: Home, *, since: int, until: int) -> None:
    """Raise ExternalWriteError if an external writer made a version after `since`."""
    if external := list_external_versions(home, since=since, until=until):
        versions = ", ".join(map(str, external))
        raise ExternalWriteError(
            f"an external writer changed {home.uri!r}: version {versions}", hint="adopt the change, or settle by force"
        )


def list_external_versions(home: Home, *, since: int, until: int | None = None) -> tuple[int, ...]:
    """Return the versions of external writers after `since` that were not adopted or set aside, oldest first."""
    found: set[int] = set()
    for version in range(since + 1, (newest_version(home) if until is None else until) + 1):
        try:
            stamp = get_manifest(home, version).stamp
        except NotFoundError:
            continue  # Collected. It was not the newest; if it was external, the next one is too.
        except DamagedFileError:
            continue  # It does not show its writer, and no reader can open it.
        if not stamp:
            found.add(version)
        else:
            # An adoption or a forced settle decided on external versions up to this number. Later ones are pending.
            decided = max(int(stamp.get(SET_ASIDE, 0)), int(stamp.get(ADOPTED, 0)))
            found = {external for external in found if external > decided}
            # The external version is the newest state again and still pending, although its number is lower.
            found |= {int(stamp[PUT_BACK])} if PUT_BACK in stamp else set()
    return tuple(sorted(found))


def alone(opened: "lance.LanceDataset") -> "lance.LanceDataset":
    """Return a handle of the same version that no other thread uses.

    Some methods lock their handle while they run: those that read a transaction or build an index. Every other call on
    that handle fails then. The handles of staged versions are shared by all threads, so these methods need their own.
    """
    return opened.checkout_version(opened.version)


def find_transaction(home: Home, opened: "lance.LanceDataset", version: int) -> "lance.Transaction | None":
    """Return the transaction that made a version. None if it has none, or if Lance cannot show it."""
    with home.errors():
        try:
            return alone(opened).read_transaction(version)
        except TypeError:
            return None  # a compaction that touched indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The version that was branched from. The branch None is main."""

    branch: str | None
    version: int


def find_origin(home: Home, opened: "lance.LanceDataset") -> Origin | None:
    """Return the origin of an opened version if it was made by branching, else None."""
    import lance  # `status` needs this module for external writes, and must not load Lance

    transaction = find_transaction(home, opened, opened.version)
    operation = None if transaction is None else transaction.operation
    # Lance creates a branch by a Clone, which names the version it was made from.
    if not isinstance(operation, lance.LanceOperation.Clone):
        return None
    return Origin(branch=operation.ref_name, version=operation.ref_version)


def create_empty(home: Home, schema: "pa.Schema") -> VersionRef:
    """Create a dataset without rows, for staging. Plain readers see only this before the first settle."""
    if home.branch is not None:
        raise InvalidInputError(
            f"a dataset cannot be created on the branch {home.branch!r}", hint="create it at the root, then fork"
        )
    import lance

    from anabranch.format.staging.fields import check_columns

    check_columns(schema)
    refuse_links(home.root, *home.folders)
    try:
        with home.errors():
            made = lance.write_dataset(
                schema.empty_table(),
                home.uri,
                mode="create",
                storage_options=home.lance_options(),
                # Lance cannot enable this later. Tables without a key are compared by the ids that updates then keep.
                enable_stable_row_ids=True,
                # Our own manifests are put under these names. Lance refuses a folder with two naming schemes.
                enable_v2_manifest_paths=True,
            )
    except DatasetExistsError:
        raise DatasetExistsError(
            f"there is a dataset at {home.uri!r} already", hint="open it, or choose another path"
        ) from None
    return VersionRef(home=home, version=made.version)


def stage(
    base: "lance.LanceDataset", version_ref: VersionRef, change: "lance.LanceOperation.BaseOperation"
) -> VersionRef:
    """Commit a change on top of a pinned version, outside the history."""
    import lance

    with version_ref.home.errors():
        # Only a detached commit is never rebased. Lance silently puts an ordinary one on top of concurrent commits.
        made = lance.LanceDataset.commit(base, change, read_version=version_ref.version, detached=True)
    version_ref.home.remember(made.version, made)
    return VersionRef(home=version_ref.home, version=made.version)


def stage_rows(base: "lance.LanceDataset", version_ref: VersionRef, change: "ChangedRows") -> VersionRef | None:
    """Put the manifest of a version with changed rows, outside the history; None if only Lance can write it."""
    # Not at the top, because it loads Lance, which is not needed to recognize our own versions.
    from anabranch.format.layout.next_manifest import staged_manifest

    home = version_ref.home
    before = find_manifest(home, version_ref.version)
    if before is None:
        return None  # Lance raises the error: the version is missing, or the manifests have the names of an old release
    # Like the ids that Lance gives: from the upper half of 64 bits, and never given again.
    version = 1 << 63 | secrets.randbits(63)
    made = staged_manifest(before.parts, change, read_version=version_ref.version, version=version, uuid=str(uuid4()))
    if made is None:
        return None
    path, data = home.manifest_path(version), join_manifest(made)
    # Publishing syncs it with the other new files of the commit.
    home.store().put(path, data, durable=False)
    MANIFESTS.keep((home, version), Manifest(version, data, made), weight=len(data))
    # Only rows change, so that the version has the columns of the one before.
    home.remember(version, base, columns_of=version_ref.version)
    return VersionRef(home=home, version=version)
