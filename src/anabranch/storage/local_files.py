"""Durable writes on a local disk: bytes before names, and names before the answer.

A file survives a power loss once its bytes and the folder that names it were synced. So an object is written under a
temporary name beside its final one, synced, linked or renamed to its final name, and the folder is synced. Many files
are synced in parallel: the file system then writes its journal once for all of them.

The temporary name ends in `#` and a number. obstore and Lance skip such names when they list a folder.
"""

import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from anabranch.storage.uris import is_local

__all__ = [
    "forget_folders",
    "is_temporary",
    "iter_leftovers",
    "link_aside",
    "remove_empty_folders",
    "rename_aside",
    "sync_file_system",
    "sync_files",
    "sync_folders",
    "write_aside",
]

_THREADS = 16
_TEMPORARY = re.compile(r".+#[0-9]+")
_MAX_KNOWN_FOLDERS = 10_000
# From this number on, one sync of the file system takes less time than a sync of each file and folder.
_MANY_FILES = 512


def write_aside(path: str, data: bytes) -> str:
    """Write the bytes under a temporary name beside a path and return that name. Create missing folders."""
    aside = f"{path}#{secrets.randbits(62)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        file = os.open(aside, flags, 0o666)
    except FileNotFoundError:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        file = os.open(aside, flags, 0o666)
    try:
        with os.fdopen(file, "wb", buffering=0) as out:
            _write_all(out.fileno(), data)
    except BaseException:
        _remove(aside)
        raise
    return aside


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def link_aside(aside: str, path: str) -> None:
    """Give a file written aside its final name. Raise FileExistsError if the name is taken."""
    try:
        os.link(aside, path)
    finally:
        _remove(aside)


def rename_aside(aside: str, path: str, *, removes_first: bool = False) -> None:
    """Give a file written aside its final name, in place of the file that has it now."""
    try:
        if removes_first:
            _remove(path)
        os.replace(aside, path)
    except BaseException:
        _remove(aside)
        raise


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)


def is_temporary(path: str) -> bool:
    """Return whether a path has a temporary name, which obstore and Lance do not list."""
    return "#" in path and any(_TEMPORARY.fullmatch(name) for name in path.split("/"))


def iter_leftovers(root: str) -> Iterator[str]:
    """Yield the temporary files below a folder, of writers at work and of those that were killed."""
    for folder, _, names in os.walk(root):
        for name in names:
            if is_temporary(name):
                yield os.path.join(folder, name)


def sync_files(paths: Iterable[str]) -> None:
    """Make files durable: their bytes in parallel, then the folders that name them.

    Many files of one file system are synced by one call for the whole file system.
    """
    files = list(dict.fromkeys(paths))
    if len(files) >= _MANY_FILES and sys.platform == "linux":
        # Only on Linux does the call return after the files are written.
        folders = {os.stat(path).st_dev: os.path.dirname(path) for path in files}
        for folder in folders.values():
            sync_file_system(folder)
        return
    _POOL.run(_sync_file, files)
    sync_folders({os.path.dirname(path) for path in files})


def sync_folders(folders: Iterable[str]) -> None:
    """Make the names in folders durable, and the names of the folders themselves once per process."""
    wanted = list(dict.fromkeys(folders))
    above = [parent for folder in wanted for parent in _iter_unknown_parents(folder)]
    _POOL.run(_sync_folder, list(dict.fromkeys([*wanted, *above])))
    for folder in (*wanted, *above):
        _KNOWN.add(folder)
    if wanted and sys.platform == "darwin":
        _flush_drive(wanted[0])


def forget_folders() -> None:
    """Forget which folders were synced, after folders were removed: a new one may have the same name and inode."""
    _KNOWN.clear()


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


def _sync_file(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _sync_folder(folder: str) -> None:
    try:
        _sync_file(folder)
    except PermissionError:
        # A folder above the store that this user may not open. Its name was made by another user, and is not new.
        return


def _flush_drive(path: str) -> None:
    """Write the drive's cache to the disk: on macOS, fsync leaves the bytes there. One call writes all of them."""
    import fcntl  # this module does not exist on every platform

    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(file, getattr(fcntl, "F_FULLFSYNC"))  # noqa: B009 - the type stubs know it on macOS only
    finally:
        os.close(file)


def _iter_unknown_parents(folder: str) -> Iterator[str]:
    """Yield the folders above one that this process has not synced yet. Above a known folder, all are known."""
    while not _KNOWN.has(folder):
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        yield parent
        folder = parent


class _KnownFolders:
    """Folders whose name is durable, by path and inode: a folder may be removed and created again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[tuple[str, int]] = set()

    def has(self, folder: str) -> bool:
        return (folder, os.stat(folder).st_ino) in self._known

    def add(self, folder: str) -> None:
        key = (folder, os.stat(folder).st_ino)
        with self._lock:
            if len(self._known) >= _MAX_KNOWN_FOLDERS:
                self._known.clear()
            self._known.add(key)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()


class _SyncPool:
    """Threads that wait for the disk. They start when first needed and stay until the process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def run(self, sync: Callable[[str], None], paths: list[str]) -> None:
        """Sync each path. Wait for all of them, then raise the first error."""
        if len(paths) == 1:
            sync(paths[0])
            return
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="anabranch-sync")
        running = [self._threads.submit(sync, path) for path in paths]
        errors = [error for error in (each.exception() for each in running) if error is not None]
        if errors:
            raise errors[0]

    def restart(self) -> None:
        """Drop the threads in a forked child, which does not have them."""
        self._threads = None


_KNOWN = _KnownFolders()
_POOL = _SyncPool()
os.register_at_fork(after_in_child=_POOL.restart)
