"""Files of projects: sent to be imported, or made by an export; each in a folder of its own."""

import secrets
import shutil
from collections.abc import Callable, Set
from datetime import datetime
from pathlib import Path

from anabranch.errors import FileMissingError
from anabranch.server.metadata.files import FileRows, StagedFile
from anabranch.server.settings import Settings
from anabranch.server.uploading import Upload

__all__ = ["Files"]

_ID_PREFIX = "file_"


class Files:
    """A row comes after the whole file, and goes before it: a folder without a row is what a crash left."""

    def __init__(self, settings: Settings, rows: FileRows, *, clock: Callable[[], datetime]) -> None:
        self._folder = settings.files_folder
        self._rows = rows
        self._clock = clock

    def new_folder(self, project_id: str) -> Path:
        """Where a file may go that comes in; it is not made."""
        return self.folder_of(project_id, _ID_PREFIX + secrets.token_hex(8))

    def folder_of(self, project_id: str, name: str) -> Path:
        return self._folder / project_id / name

    def keep(self, project_id: str, upload: Upload, *, actor: str | None) -> StagedFile:
        """Give an upload a row, so that it can be imported."""
        file = StagedFile(
            id=upload.id,
            project_id=project_id,
            name=upload.name,
            stored_as=upload.stored_as,
            size_bytes=upload.size_bytes,
            sha256=upload.sha256,
            created_at=self._clock(),
            created_by=actor,
        )
        self._rows.insert(file)
        return file

    def get(self, project_id: str, file_id: str) -> StagedFile:
        file = self._rows.find(project_id, file_id)
        if file is None:
            raise FileMissingError(
                f"project '{project_id}' has no file '{file_id}'", hint="list the files to see which exist"
            )
        return file

    def find_upload(self, project_id: str, file_id: str) -> Upload:
        file = self.get(project_id, file_id)
        return Upload(
            id=file.id,
            name=file.name,
            folder=self.folder_of(project_id, file.id),
            stored_as=file.stored_as,
            size_bytes=file.size_bytes,
            sha256=file.sha256,
        )

    def list_all(self, project_id: str) -> list[StagedFile]:
        return self._rows.list_all(project_id)

    def delete(self, project_id: str, file_id: str) -> None:
        upload = self.find_upload(project_id, file_id)
        self._rows.delete(file_id)
        upload.discard()

    def delete_all(self, project_id: str) -> None:
        """Delete the files of a project that goes away; its rows go with its other rows."""
        shutil.rmtree(self._folder / project_id, ignore_errors=True)

    def recover(self, *, others: Set[str]) -> None:
        """Delete the folders that belong to no row and are none of the others that somebody has a use for."""
        known = {file.id for file in self._rows.list_all()} | others
        for folder in self._folder.glob("*/*"):
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)
