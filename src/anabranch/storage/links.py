"""Symbolic links below a local root: never followed, so that no read, write or delete leaves the root.

The root itself may be a link: the user named it. Links below it may come from a copied or downloaded repository.
"""

import os
import re
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from anabranch.errors import LinkError
from anabranch.storage.local_files import is_temporary
from anabranch.storage.uris import is_local, join_uri

__all__ = ["FoundFile", "iter_files", "list_entries", "modified_at", "refuse_links"]

# Control characters, and bytes that are not UTF-8.
_UNUSABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Path below the root, size in bytes, time of the last write.
FoundFile = tuple[str, int, datetime]


def refuse_links(root: str, *paths: str) -> None:
    """Raise LinkError if a folder or file on one of the paths below a local root is a symbolic link."""
    if not is_local(root):
        return
    checked: set[str] = set()
    for path in paths:
        here = root.rstrip("/")
        for segment in path.split("/"):
            here = f"{here}/{segment}" if segment else here
            if segment and here not in checked:
                checked.add(here)
                if _is_link(here):
                    raise LinkError(
                        f"{here!r} is a symbolic link, and links below {root!r} are not followed",
                        hint="replace it with the files it points to; use a base path for files on another disk",
                    )


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False  # what does not exist is not a link


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
