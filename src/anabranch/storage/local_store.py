"""A store in a local folder. Only ranges are read with obstore.

Whole objects and streams are read directly, which is faster than requests to obstore's threads: a stream takes a
thirtieth of the time. Writes do not use it either, so that they survive a power loss.
"""

import io
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from obstore.store import LocalStore
from obstore.store import ObjectStore as ObstoreStore

from anabranch.errors import ObjectExistsError, StorageError
from anabranch.storage import local_files
from anabranch.storage.local_files import iter_files, list_entries, modified_at
from anabranch.storage.objects import ObjectInfo, PreparedObject
from anabranch.storage.obstore_store import ObstoreBackedStore
from anabranch.storage.options import Durability, durability_of
from anabranch.storage.parallel import check_process
from anabranch.storage.uris import check_path
from anabranch.warnings import DurabilityWarning

__all__ = ["LocalFolderStore"]

_CHUNK_BYTES = 4 << 20


class LocalFolderStore(ObstoreBackedStore):
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

    def get(self, path: str) -> bytes:
        data = self.find(path)
        if data is None:
            raise self._translate(FileNotFoundError(path), path)
        return data

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
        except IsADirectoryError:
            raise FileNotFoundError(path) from None  # a folder is not an object
        except NotADirectoryError:
            if self._is_missing_folder:
                raise FileNotFoundError(path) from None  # the root of the store is a file
            raise

    def _read_info(self, path: str) -> ObjectInfo:
        status = os.stat(self._file(path))
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(path)  # a folder is not an object
        return ObjectInfo(path=path, size=status.st_size, modified=modified_at(status))

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        try:
            file = self._file(path)
            aside = local_files.write_aside(file, data)
            try:
                if durable and self._is_durable:
                    # The bytes before the name: a reader must never find a name whose bytes a power loss removed.
                    local_files.sync_files([aside])
            except BaseException:
                os.remove(aside)
                raise
            local_files.rename_aside(aside, file)
        except (OSError, ValueError) as err:
            raise self._translate(err, path) from None
        if durable and self._is_durable:
            self._sync_name(file)

    def put_hint(self, path: str, data: bytes) -> None:
        try:
            file = self._file(path)
            aside = local_files.write_aside(file, data)
            # File systems write a file to the disk at once if it replaces another one. So remove that one first: this
            # takes a fifth of the time. Do not write in place: a backup may share the file by a hard link.
            local_files.rename_aside(aside, file, removes_first=True)
        except (OSError, ValueError) as err:
            raise self._translate(err, path) from None

    def put_stream(self, path: str, chunks: Iterator[bytes]) -> None:
        self._make_root()
        super().put_stream(path, chunks)

    def put_if_absent(self, path: str, data: bytes, *, durable: bool = True, after: Sequence[str] = ()) -> None:
        prepared = self.prepare(path, data)
        # `after` is synced even if the object itself need not be: what it refers to must not be lost before it.
        if self._is_durable and (durable or after):
            try:
                # The new files of a commit are not looked up before its log entry has its name.
                self._sync([*after, prepared.file or ""] if durable else after, in_order=False)
            # The commit fails, so the temporary file has no use. A failed sync is not tried again: the kernel may have
            # dropped the pages.
            except BaseException:
                self.discard(prepared)
                raise
        self.put_prepared(prepared)
        if self._is_durable and durable:
            self._sync_name(os.path.join(self.uri, path))

    def prepare(self, path: str, data: bytes) -> PreparedObject:
        try:
            return PreparedObject(path=path, data=data, file=local_files.write_aside(self._file(path), data))
        except (OSError, ValueError) as err:
            raise self._translate(err, path) from None

    def put_prepared(self, prepared: PreparedObject) -> None:
        file = self._file(prepared.path)
        try:
            local_files.link_aside(prepared.file or "", file)
        except FileExistsError:
            raise ObjectExistsError(f"the object {file!r} exists already", hint="choose another path") from None
        except OSError as err:
            raise self._translate(err, prepared.path) from None

    def discard(self, prepared: PreparedObject) -> None:
        with suppress(OSError):
            os.remove(prepared.file or "")

    def sync(self, paths: Sequence[str]) -> None:
        if self._is_durable:
            self._sync(paths)

    def _sync(self, paths: Sequence[str], *, in_order: bool = True) -> None:
        try:
            local_files.sync_files(paths, in_order=in_order)
        # Garbage collection or native cleanup removed a new file before the commit was published.
        except FileNotFoundError as err:
            raise StorageError(
                f"the file {err.filename!r} was removed before it was durable", hint="run the operation again"
            ) from err
        except OSError as err:
            raise self._translate(err, "") from None

    def sync_folders(self, prefixes: Sequence[str]) -> None:
        if not self._is_durable:
            return
        folders = [os.path.join(self.uri, prefix) for prefix in prefixes]
        with self._errors("", folder=True):
            # A folder may have been removed with its last file.
            local_files.sync_folders(folder for folder in folders if os.path.isdir(folder))

    def sync_all(self) -> None:
        if self._is_durable and not self._is_missing_folder:
            with self._errors("", folder=True):
                local_files.sync_file_system(self.uri)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        if self._is_missing_folder:
            return
        if not self._refuses_links:
            yield from super().list(prefix)
            return
        with self._errors(prefix, folder=True):
            # Do not list with obstore: it follows links that point outside the root.
            yield from (ObjectInfo(*found) for found in iter_files(self.uri, prefix.removesuffix("/")))

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        if self._is_missing_folder:
            return ()
        if not self._refuses_links:
            return super().list_folders(prefix)
        with self._errors(prefix, folder=True):
            return tuple(sorted(list_entries(self.uri, prefix.removesuffix("/"))[0]))

    def list_files(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        if self._is_missing_folder:
            return ()
        if not self._refuses_links:
            return super().list_files(prefix)
        with self._errors(prefix, folder=True):
            return tuple(ObjectInfo(*found) for found in list_entries(self.uri, prefix.removesuffix("/"))[1])

    def list_leftovers(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for file in local_files.iter_leftovers(os.path.join(self.uri, prefix)):
            with suppress(FileNotFoundError):  # its writer has just finished
                status = os.stat(file, follow_symlinks=False)
                yield ObjectInfo(
                    path=os.path.relpath(file, self.uri), size=status.st_size, modified=modified_at(status)
                )

    def delete(self, path: str) -> None:
        if not local_files.is_temporary(path):
            super().delete(path)
            return
        with self._errors(path), suppress(FileNotFoundError):
            os.remove(os.path.join(self.uri, path))  # obstore refuses temporary names

    def _file(self, path: str) -> str:
        """Return the file of an object, after the checks of its path."""
        check_process()
        check_path(path, root=self.uri)
        if self._refuses_links:
            local_files.refuse_links(self.uri, path)
        # Such an object would be missing from every listing, and collected as a leftover.
        if "#" in path and local_files.is_temporary(path):
            message = "names that end in '#' and a number are temporary files"
            raise self._translate(ValueError(message), path)
        return os.path.join(self.uri, path)

    def _sync_name(self, file: str) -> None:
        """Make the name of a linked file durable. The object is visible already, so a failure cannot fail the put."""
        try:
            local_files.sync_folders([os.path.dirname(file)])
        except OSError as err:
            warnings.warn(
                f"{file!r} was written, but may not survive a power loss: {err}", DurabilityWarning, stacklevel=2
            )

    @property
    def _is_missing_folder(self) -> bool:
        return not Path(self.uri).is_dir()

    def _make_root(self) -> None:
        with self._errors("", folder=True):
            Path(self.uri).mkdir(parents=True, exist_ok=True)

    @cached_property
    def _backend(self) -> ObstoreStore:
        if self._is_missing_folder:
            raise FileNotFoundError(self.uri)  # obstore would raise a generic error
        return LocalStore(prefix=self.uri)
