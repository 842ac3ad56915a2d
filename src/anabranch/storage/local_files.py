"""Files on a local disk: durable writes, with bytes before names, and names before the answer, and no links.

A file survives a power loss once its bytes and the folder that names it were synced. So an object is written under a
temporary name beside its final one, synced, linked or renamed to its final name, and the folder is synced. Many files
are synced in parallel: the file system then writes its journal once for all of them.

The temporary name ends in `#` and a number. obstore and Lance skip such names when they list a folder.

Symbolic links below a local root are never followed, so that no read, write or delete leaves the root. The root itself
may be a link: the user named it. Links below it may come from a copied or downloaded repository.
"""

import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from anabranch.errors import LinkError
from anabranch.storage.uris import is_local, join_uri

__all__ = [
    "FoundFile",
    "forget_folders",
    "is_temporary",
    "iter_files",
    "iter_leftovers",
    "link_aside",
    "list_entries",
    "modified_at",
    "refuse_links",
    "remove_empty_folders",
    "rename_aside",
    "sync_file_system",
    "sync_files",
    "sync_folders",
    "write_aside",
]

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

# Path below the root, size in bytes, time of the last write.
FoundFile = tuple[str, int, datetime]


def write_aside(path: str, data: bytes) -> str:
    """Write the bytes under a temporary name beside a path and return that name. Create missing folders."""
    # Unique for each attempt, because several writers may prepare the same object. In the same folder: a link cannot
    # cross file systems.
    aside = f"{path}#{secrets.randbits(62)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        file = os.open(aside, flags, 0o666)
    # Not checked before: the folder almost always exists, and a check would cost a call for each write.
    except FileNotFoundError:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        file = os.open(aside, flags, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
    except BaseException:
        os.remove(aside)
        raise
    finally:
        os.close(file)
    return aside


def link_aside(aside: str, path: str) -> None:
    """Give a file written aside its final name. Raise FileExistsError if the name is taken."""
    try:
        # A link fails if the name exists, and a rename would replace it. So this is the compare-and-set of a local
        # disk.
        os.link(aside, path)
    finally:
        with suppress(FileNotFoundError):
            os.remove(aside)


def rename_aside(aside: str, path: str, *, removes_first: bool = False) -> None:
    """Give a file written aside its final name, in place of the file that has it now."""
    try:
        if removes_first:
            with suppress(FileNotFoundError):
                os.remove(path)
        os.replace(aside, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.remove(aside)
        raise


def is_temporary(path: str) -> bool:
    """Return whether a path has a temporary name, which obstore and Lance do not list."""
    return "#" in path and any(_TEMPORARY.fullmatch(name) for name in path.split("/"))


def iter_leftovers(root: str) -> Iterator[str]:
    """Yield the temporary files below a folder, of writers at work and of those that were killed."""
    for folder, _, names in os.walk(root):
        for name in names:
            if is_temporary(name):
                yield os.path.join(folder, name)


def sync_files(paths: Iterable[str], *, in_order: bool = True) -> None:
    """Make files durable: their bytes in parallel, then the folders that name them.

    Without `in_order`, all in parallel: for files that no reader looks up by their names before this returns.
    Many files of one file system are synced by one call for the whole file system.
    """
    files = list(dict.fromkeys(paths))
    if len(files) >= _MANY_FILES and sys.platform == "linux":
        # Only on Linux does the call return after the files are written.
        folders = {os.stat(path).st_dev: os.path.dirname(path) for path in files}
        for folder in folders.values():
            sync_file_system(folder)
        return
    if in_order:
        _sync_all(files)
    sync_folders((os.path.dirname(path) for path in files), files=() if in_order else files)


def sync_folders(folders: Iterable[str], *, files: Iterable[str] = ()) -> None:
    """Make the names in folders durable, and the names of the folders themselves once per process, and files."""
    # A new folder is lost with its files if the folder above it was not synced, so the names up to a known folder
    # count too.
    inodes = {folder: os.stat(folder).st_ino for folder in dict.fromkeys(folders)}
    # A folder may have been removed and created again, so its inode counts. Above a known folder, all are known.
    waiting = [folder for folder, inode in inodes.items() if _KNOWN.get(folder) != inode]
    while waiting:
        parent = os.path.dirname(waiting.pop())
        if parent not in inodes:
            inodes[parent] = os.stat(parent).st_ino
            if _KNOWN.get(parent) != inodes[parent]:
                waiting.append(parent)
    # Before they are remembered as known: after an error the next write must sync them again.
    _sync_all([*files, *inodes])
    # Forgetting all is simpler than forgetting the oldest, and happens rarely.
    if len(_KNOWN) + len(inodes) > _MAX_KNOWN_FOLDERS:
        _KNOWN.clear()
    _KNOWN.update(inodes)
    if inodes and sys.platform == "darwin":
        _flush_drive(next(iter(inodes)))


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


def _sync_all(paths: Sequence[str]) -> None:
    """Sync files and folders in parallel. Wait for all of them, then raise the first error."""
    if len(paths) == 1:
        _sync(paths)
        return
    running = [_threads().submit(_sync, paths[number::_THREADS]) for number in range(min(_THREADS, len(paths)))]
    # Wait for all, also after an error: a sync that still runs would use files that the caller removes.
    errors = [error for error in (each.exception() for each in running) if error is not None]
    if errors:
        raise errors[0]


def _sync(paths: Sequence[str]) -> None:
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


def _flush_drive(path: str) -> None:
    """Write the drive's cache to the disk: on macOS, fsync leaves the bytes there. One call writes all of them."""
    import fcntl  # this module does not exist on every platform

    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(file, getattr(fcntl, "F_FULLFSYNC"))  # noqa: B009 - the type stubs know it on macOS only
    finally:
        os.close(file)


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


def modified_at(status: os.stat_result) -> datetime:
    """Return the time of the last write of a file."""
    return _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)


def list_entries(root: str, folder: str) -> tuple[list[str], list[FoundFile]]:
    """List the folders and files directly in a folder below a local root, without links and temporary files."""
    folders: list[str] = []
    files: list[FoundFile] = []
    try:
        with os.scandir(join_uri(root, folder) if folder else root) as entries:
            for entry in entries:
                if not _is_addressable(entry.name):
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # deleted since the folder was read
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif stat.S_ISREG(status.st_mode):
                    files.append((path, status.st_size, modified_at(status)))
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    return folders, files


def iter_files(root: str, folder: str) -> Iterator[FoundFile]:
    """List all files below a folder of a local root, without following links."""
    waiting = [folder]
    while waiting:
        folders, files = list_entries(root, waiting.pop())
        yield from files
        waiting.extend(folders)


def _is_addressable(name: str) -> bool:
    """Return whether an object can have this name: valid UTF-8, no control character, and not a temporary file."""
    if is_temporary(name):
        return False
    return name.isprintable() or _UNUSABLE.search(name) is None


# Folders whose names are durable, each with its inode.
_KNOWN: dict[str, int] = {}


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that wait for the disk. They start when first needed and stay until the process ends."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="anabranch-sync")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child does not have them
