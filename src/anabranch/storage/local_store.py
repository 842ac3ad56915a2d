"""A store in a local folder: durable writes, with bytes before names, and names before the answer, and no links.

A file survives a power loss once its bytes and the folder that names it were synced. So an object is written under a
temporary name beside its final one, synced, linked or renamed to its final name, and the folder is synced. Many files
are synced in parallel: the file system then writes its journal once for all of them.

The temporary name ends in `#` and a number. obstore and Lance skip such names when they list a folder.

Symbolic links below a local root are never followed, so that no read, write or delete leaves the root. The root itself
may be a link: the user named it. Links below it may come from a copied or downloaded repository.

Only ranges are read with obstore. Whole objects and streams are read directly, which is faster than requests to
obstore's threads: a stream takes a thirtieth of the time.
"""

import io
import os
import re
import secrets
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path

from obstore.store import LocalStore
from obstore.store import ObjectStore as ObstoreStore

from anabranch.errors import AnabranchError, LinkError, ObjectExistsError, StorageError
from anabranch.storage.object_store import ObjectInfo, ObjectStore, PreparedObject
from anabranch.storage.options import Durability, durability_of
from anabranch.storage.requests import check_process
from anabranch.storage.uris import NO_NAMES, invalid_path, is_local
from anabranch.warnings import DurabilityWarning

# Threads that wait for the disk, so more than there are processors. The file system joins their syncs.
_THREADS = 16
_TEMPORARY = re.compile(r".+#[0-9]+")
# A bound on memory. A folder that is forgotten costs one more sync.
_MAX_KNOWN_FOLDERS = 10_000
# From this number on, one sync of the file system takes less time than a sync of each file and folder.
_MANY_FILES = 512
# Control characters, and bytes that are not UTF-8.
_UNUSABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK_BYTES = 4 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL

# Folders whose names are durable, each with its inode.
_KNOWN: dict[str, int] = {}


class LocalFolderStore(ObjectStore):
    """A local folder. With full durability, a write syncs the bytes, then the name, and then returns.

    Symbolic links below the folder are neither listed nor followed: a repository may come from an untrusted source.
    """

    lists_sorted = False

    def __init__(self, *, uri: str, storage_options: dict[str, str]) -> None:
        super().__init__(uri=uri, storage_options=storage_options)
        self._is_durable = durability_of(storage_options) is Durability.FULL
        self._refuses_links = True

    def following_links(self) -> "LocalFolderStore":
        """Return a store of the same folder that follows links, for files that a user named."""
        store = LocalFolderStore(uri=self.uri, storage_options=self._options)
        store._refuses_links = False
        return store

    def find(self, path: str) -> bytes | None:
        try:
            with open(self._file(path), "rb", buffering=0) as file:
                return file.read()
        except (FileNotFoundError, IsADirectoryError):
            return None  # a folder is not an object
        except (OSError, ValueError) as err:
            # Below the root, a file in the middle of a path is an error of the caller.
            if isinstance(err, NotADirectoryError) and self._is_missing_folder:
                return None  # the root of the store is a file
            raise self._translate(err, path) from None

    def stream(self, path: str) -> Iterator[bytes]:
        with self._errors(path), self._open(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    def _open(self, path: str) -> io.FileIO:
        try:
            return open(self._file(path), "rb", buffering=0)
        except (IsADirectoryError, NotADirectoryError) as err:
            # A folder is not an object, nor is anything below a root that is a file. Below the root, a file in the
            # middle of a path is an error of the caller.
            if isinstance(err, NotADirectoryError) and not self._is_missing_folder:
                raise
            raise FileNotFoundError(path) from None

    def _read_info(self, path: str) -> ObjectInfo:
        status = os.stat(self._file(path))
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(path)  # a folder is not an object
        return _info_of(path, status)

    def put(self, path: str, data: bytes, *, durable: bool = True, is_hint: bool = False) -> None:
        prepared = self.prepare(path, data)
        if is_hint:
            # File systems write a file to the disk at once if it replaces another one. So remove that one first: this
            # takes a fifth of the time. Do not write in place: a backup may share the file by a hard link.
            with suppress(OSError):  # the rename reports what is wrong
                os.remove(os.path.join(self.uri, path))
        self.put_prepared(prepared, replaces=True, durable=durable and not is_hint)

    def put_stream(self, path: str, chunks: Iterator[bytes]) -> None:
        with self._errors("", folder=True):
            Path(self.uri).mkdir(parents=True, exist_ok=True)
        super().put_stream(path, chunks)

    def put_if_absent(self, path: str, data: bytes, *, durable: bool = True, after: Sequence[str] = ()) -> None:
        self.put_prepared(self.prepare(path, data), durable=durable, after=after)

    def prepare(self, path: str, data: bytes) -> PreparedObject:
        file = self._file(path)
        # Unique, because several writers may prepare the same object. In its folder: a link cannot leave a file system.
        aside = f"{file}#{secrets.randbits(62)}"
        try:
            try:
                opened = os.open(aside, _NEW_FILE, 0o666)
            # Not checked before: the folder almost always exists, and a check would cost a call for each write.
            except FileNotFoundError:
                os.makedirs(os.path.dirname(file), exist_ok=True)
                opened = os.open(aside, _NEW_FILE, 0o666)
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(opened, left) :]
            except BaseException:
                os.remove(aside)
                raise
            finally:
                os.close(opened)
        except (OSError, ValueError) as err:
            raise self._translate(err, path) from None
        return PreparedObject(path=path, data=data, file=aside)

    def put_prepared(
        self, prepared: PreparedObject, *, replaces: bool = False, durable: bool = False, after: Sequence[str] = ()
    ) -> None:
        """Give a prepared object its name. Bytes before the name: no reader may find a name whose bytes can be lost.

        A link fails if the name exists, and a rename replaces it. So the link is the compare-and-set of a local disk.
        """
        file, aside = os.path.join(self.uri, prepared.path), prepared.file or ""
        give_name = os.replace if replaces else os.link
        try:
            # A failed sync is not tried again: the kernel may have dropped the pages.
            try:
                if self._is_durable and after:
                    # Even if the object itself need not be durable: what it refers to must not be lost before it. The
                    # new files of a commit are not looked up before its log entry has its name.
                    sync([*after, aside] if durable else after, in_order=False)
                elif self._is_durable and durable:
                    # Only the bytes: the temporary name need not be durable. The final one is synced after the link.
                    _sync_bytes([aside])
            except OSError as err:
                raise self._translate_sync(err) from err
            give_name(aside, file)
        except FileExistsError:
            raise ObjectExistsError(f"the object {file!r} exists already", hint="choose another path") from None
        except OSError as err:
            raise self._translate(err, prepared.path) from None
        finally:
            # After a link the object has two names, and after an error the temporary file has no use. That it cannot
            # be removed, as on a disk that became read-only, must not hide the error. gc removes it later.
            with suppress(OSError):
                os.remove(aside)
        if self._is_durable and durable:
            # The object is visible already, so a failed sync of its name cannot fail the put.
            try:
                sync(folders=[os.path.dirname(file)])
            except OSError as err:
                warnings.warn(
                    f"{file!r} was written, but may not survive a power loss: {err}", DurabilityWarning, stacklevel=3
                )

    def discard(self, prepared: PreparedObject) -> None:
        with suppress(OSError):
            os.remove(prepared.file or "")

    def sync(self, paths: Sequence[str], *, names: bool = True) -> None:
        try:
            if self._is_durable and names:
                sync(paths)
            elif self._is_durable:
                _sync_bytes(paths)
        except OSError as err:
            raise self._translate_sync(err) from err

    def _translate_sync(self, err: OSError) -> AnabranchError:
        if isinstance(err, FileNotFoundError):
            # Garbage collection or native cleanup removed a new file before the commit was published.
            message = f"the file {err.filename!r} was removed before it was durable"
            return StorageError(message, hint="run the operation again")
        return self._translate(err, "")

    def sync_folders(self, prefixes: Sequence[str]) -> None:
        if not self._is_durable:
            return
        folders = [os.path.join(self.uri, prefix) for prefix in prefixes]
        with self._errors("", folder=True):
            # A folder may have been removed with its last file.
            sync(folders=filter(os.path.isdir, folders))

    def sync_all(self) -> None:
        if self._is_durable and not self._is_missing_folder:
            with self._errors("", folder=True):
                sync_file_system(self.uri)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        if self._refuses_links:
            waiting = [prefix.removesuffix("/")]
            with self._errors(prefix, folder=True):
                while waiting:
                    folders, files = self._list_folder(waiting.pop())
                    yield from files
                    waiting.extend(folders)
        elif not self._is_missing_folder:
            yield from super().list(prefix)  # which detects links that lead in a circle

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        with self._errors(prefix, folder=True):
            return tuple(sorted(self._list_folder(prefix.removesuffix("/"))[0]))

    def list_files(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        with self._errors(prefix, folder=True):
            return tuple(self._list_folder(prefix.removesuffix("/"))[1])

    def _list_folder(self, folder: str) -> tuple[Sequence[str], Sequence[ObjectInfo]]:
        """Return the folders and files directly in a folder, without temporary files, and without refused links."""
        folders: list[str] = []
        files: list[ObjectInfo] = []
        # Do not list with obstore: it follows links that point outside the root.
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(os.path.join(self.uri, folder)) as entries:
            for entry in entries:
                # The name of an object is valid UTF-8, without control characters.
                if is_temporary(entry.name) or not (entry.name.isprintable() or _UNUSABLE.search(entry.name) is None):
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                try:
                    status = entry.stat(follow_symlinks=not self._refuses_links)
                except FileNotFoundError:
                    continue  # deleted since the folder was read, or a link to nothing
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif stat.S_ISREG(status.st_mode):
                    files.append(_info_of(path, status))
        return folders, files

    def list_leftovers(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for folder, _, names in os.walk(os.path.join(self.uri, prefix)):
            for name in filter(is_temporary, names):
                file = os.path.join(folder, name)
                with suppress(FileNotFoundError):  # its writer has just finished
                    yield _info_of(os.path.relpath(file, self.uri), os.stat(file, follow_symlinks=False))

    def delete(self, path: str) -> None:
        if not is_temporary(path):
            super().delete(path)
            return
        with self._errors(path), suppress(FileNotFoundError):
            os.remove(os.path.join(self.uri, path))  # obstore refuses temporary names

    def _file(self, path: str) -> str:
        """Return the file of an object, after the checks of its path."""
        check_process()
        if not NO_NAMES.isdisjoint(path.split("/")):
            raise invalid_path(path, root=self.uri)
        if self._refuses_links:
            refuse_links(self.uri, path)
        # Such an object would be missing from every listing, and collected as a leftover.
        if "#" in path and is_temporary(path):
            raise self._translate(ValueError("names that end in '#' and a number are temporary files"), path)
        return os.path.join(self.uri, path)

    def _check(self, path: str, *, folder: bool = False) -> None:
        super()._check(path, folder=folder)
        if self._refuses_links:
            refuse_links(self.uri, path)

    @property
    def _is_missing_folder(self) -> bool:
        return not Path(self.uri).is_dir()

    @cached_property
    def _backend(self) -> ObstoreStore:
        if self._is_missing_folder:
            raise FileNotFoundError(self.uri)  # obstore would raise a generic error
        return LocalStore(prefix=self.uri)


def sync(files: Iterable[str] = (), *, folders: Iterable[str] = (), in_order: bool = True) -> None:
    """Make files durable: their bytes in parallel, then the folders that name them. Also make other folders durable.

    Without `in_order`, all in parallel: for files that no reader looks up by their names before this returns.
    Many files of one file system are synced by one call for the whole file system.
    """
    # Files of a base path in an object store are durable already.
    files = [file for file in dict.fromkeys(files) if file.startswith("/")]
    # Only on Linux does the call return after the files are written.
    if len(files) >= _MANY_FILES and sys.platform == "linux":
        for folder in {os.stat(path).st_dev: os.path.dirname(path) for path in files}.values():
            sync_file_system(folder)
        return
    if in_order:
        _sync(files)
    # A new folder is lost if the folder above it was not synced, so the names up to a known folder count too.
    inodes: dict[str, int] = {}
    waiting = [*map(os.path.dirname, files), *folders]
    while waiting:
        folder = waiting.pop()
        if folder not in inodes:
            inodes[folder] = os.stat(folder).st_ino
            # A folder may have been removed and created again, so its inode counts. All above a known one are known.
            if _KNOWN.get(folder) != inodes[folder]:
                waiting.append(os.path.dirname(folder))
    # Before they are remembered as known: after an error the next write must sync them again.
    _sync([*inodes] if in_order else [*files, *inodes])
    # Forgetting all is simpler than forgetting the oldest, and happens rarely.
    if len(_KNOWN) + len(inodes) > _MAX_KNOWN_FOLDERS:
        _KNOWN.clear()
    _KNOWN.update(inodes)
    if inodes and sys.platform == "darwin":
        _flush_drive(next(iter(inodes)))


def _sync(paths: Sequence[str], *, in_threads: bool = True) -> None:
    """Sync files and folders in parallel. Wait for all of them, then raise the first error."""
    if in_threads and len(paths) > 1:
        shares = [paths[number::_THREADS] for number in range(min(_THREADS, len(paths)))]
        running = [_threads().submit(_sync, share, in_threads=False) for share in shares]
        # Wait for all, also after an error: a sync that still runs would use files that the caller removes.
        for error in [each.exception() for each in running]:
            if error is not None:
                raise error
        return
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY)
        except PermissionError:
            if not os.path.isdir(path):
                raise
            # A folder above the store that this user may not open. Its name was made by another user, and is not new.
            continue
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _sync_bytes(files: Sequence[str]) -> None:
    _sync(files)
    if files and sys.platform == "darwin":
        _flush_drive(files[0])


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that wait for the disk. They start when first needed and stay until the process ends."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="anabranch-sync")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child does not have them


def forget_folders() -> None:
    """Forget which folders were synced, after folders were removed: a new one may have the same name and inode."""
    _KNOWN.clear()


def sync_file_system(folder: str) -> None:
    """Make everything on the file system of a folder durable. For large copies, where one call replaces thousands."""
    if sys.platform != "linux":
        os.sync()
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    file = os.open(folder, os.O_RDONLY)
    try:
        if libc.syncfs(file) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(file)


def _flush_drive(path: str) -> None:
    """Write the drive's cache to the disk: on macOS, fsync leaves the bytes there. One call writes all of them."""
    import fcntl  # this module does not exist on every platform

    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(file, getattr(fcntl, "F_FULLFSYNC"))  # noqa: B009 - the type stubs know it on macOS only
    finally:
        os.close(file)


def remove_empty_folders(root: str, folder: str) -> None:
    """Remove the empty folders in and above a local folder, up to the root, which stays.

    Object stores have no folders, so this does nothing there. Folders with files stay, and links are not followed:
    `rmdir` refuses both.
    """
    if not is_local(root):
        return
    base = Path(root)
    # Innermost first, so that a folder that held only empty folders is empty itself.
    inside = [Path(path) for path, _, _ in os.walk(base / folder, topdown=False)]
    above = [base.joinpath(*Path(folder).parts[:depth]) for depth in range(len(Path(folder).parts) - 1, 0, -1)]
    for path in [*inside, *above]:
        with suppress(OSError):
            path.rmdir()
    forget_folders()


def refuse_links(root: str, *paths: str) -> None:
    """Raise LinkError if a folder or file on one of the paths below a local root is a symbolic link."""
    if not root.startswith("/"):
        return
    checked: set[str] = set()
    for path in paths:
        here = root.rstrip("/")
        for segment in path.split("/"):
            # Each folder on the way is checked, because a link in the middle of a path leads out of the root as well.
            here = f"{here}/{segment}" if segment else here
            if segment and here not in checked:
                checked.add(here)
                if os.path.islink(here):
                    raise LinkError(
                        f"{here!r} is a symbolic link, and links below {root!r} are not followed",
                        hint="replace it with the files it points to; use a base path for files on another disk",
                    )


def is_temporary(path: str) -> bool:
    """Return whether a path has a temporary name, which obstore and Lance do not list."""
    return "#" in path and any(_TEMPORARY.fullmatch(name) for name in path.split("/"))


def _info_of(path: str, status: os.stat_result) -> ObjectInfo:
    modified = _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)
    return ObjectInfo(path=path, size=status.st_size, modified=modified)
