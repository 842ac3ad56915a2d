"""Files of projects: uploaded to be imported later."""

import secrets
import shutil
from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import Path as PathParameter
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict

from anabranch.errors import FileMissingError
from anabranch.server.database import Database
from anabranch.server.routing import ProjectToBranch, ProjectToRead, make_router
from anabranch.server.settings import Settings
from anabranch.server.uploads import UPLOAD_BODY, Upload, take_upload, upload_of
from anabranch.storage.local_store import sync


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file of a project. `stored_as` is its name in its folder."""

    id: str
    project_id: str
    name: str
    stored_as: str
    size_bytes: int
    sha256: str
    created_at: datetime
    created_by: str | None


class FileRows:
    def __init__(self, database: Database) -> None:
        self._database = database

    def insert(self, file: StagedFile) -> None:
        """Add a file, unless its project was deleted."""
        # One statement, so that no deletion of the project comes between the check and the insert.
        self._database.write(
            "INSERT INTO files (id, project_id, name, stored_as, size_bytes, sha256, created_at, created_by)"
            " SELECT ?, projects.id, ?, ?, ?, ?, ?, ? FROM projects WHERE projects.id = ?",
            [
                file.id,
                file.name,
                file.stored_as,
                file.size_bytes,
                file.sha256,
                file.created_at,
                file.created_by,
                file.project_id,
            ],
        )

    def find(self, project_id: str, file_id: str) -> StagedFile | None:
        row = self._database.read_one("SELECT * FROM files WHERE project_id = ? AND id = ?", [project_id, file_id])
        return None if row is None else StagedFile(**row)

    def list_all(self, project_id: str | None = None) -> list[StagedFile]:
        """Return the files of a project, or of all projects, newest first."""
        rows = self._database.read(
            "SELECT * FROM files WHERE ($1::VARCHAR IS NULL OR project_id = $1) ORDER BY created_at DESC, id",
            [project_id],
        )
        return [StagedFile(**row) for row in rows]

    def delete(self, file_id: str) -> None:
        self._database.write("DELETE FROM files WHERE id = ?", [file_id])


_ID_PREFIX = "file_"


class Files:
    """The files of all projects.

    A row is written after its file is complete, and deleted before its file. A crash may leave a folder without a row.
    """

    def __init__(self, settings: Settings, rows: FileRows, *, clock: Callable[[], datetime]) -> None:
        self._folder = settings.files_folder
        self._rows = rows
        self._clock = clock

    def new_folder(self, project_id: str) -> Path:
        """Return the folder for a new file. It does not exist yet."""
        return self.folder_of(project_id, _ID_PREFIX + secrets.token_hex(8))

    def folder_of(self, project_id: str, name: str) -> Path:
        return self._folder / project_id / name

    def keep(self, project_id: str, upload: Upload, *, actor: str | None) -> StagedFile:
        """Add the row of an upload, so that it can be imported."""
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
        # The row will be on disk, so the file and the names of its folders have to be there first.
        sync([str(upload.path)])
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
        """Delete the files of a deleted project. Its rows are deleted with the others of the project."""
        shutil.rmtree(self._folder / project_id, ignore_errors=True)

    def recover(self, *, others: Set[str]) -> None:
        """Delete the folders that belong neither to a row nor to `others`."""
        known = {file.id for file in self._rows.list_all()} | others
        # Without a row no request can name the folder, so a crash during an upload would waste its space for good.
        for folder in self._folder.glob("*/*"):
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)


router = make_router("files", prefix="/projects/{project_id}/files")

FILE_ID = r"^[A-Za-z0-9_]+$"
FileId = Annotated[str, PathParameter(pattern=FILE_ID, max_length=64, examples=["file_0123456789abcdef"])]


class FileInfo(BaseModel):
    """A file. `name` is the name that its sender gave it."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    project_id: str
    name: str
    size_bytes: int
    sha256: str
    created_at: datetime
    created_by: str | None


class FileList(BaseModel):
    files: list[FileInfo]


@router.post("", status_code=201, openapi_extra=UPLOAD_BODY)
async def upload_file(call: ProjectToBranch, request: Request) -> FileInfo:
    """Upload a file as the part `file` of a form. It is kept until it is deleted."""
    upload = await upload_of(request)
    keep = partial(call.part(Files).keep, call.project_id, upload, actor=call.token.name)
    kept = await run_in_threadpool(take_upload, request, keep)
    return FileInfo.model_validate(kept)


@router.get("")
def list_files(call: ProjectToRead) -> FileList:
    """List the uploaded files, newest first."""
    call.service.projects.get(call.project_id)
    return FileList(files=[FileInfo.model_validate(file) for file in call.part(Files).list_all(call.project_id)])


@router.get("/{file_id}")
def get_file(call: ProjectToRead, file_id: FileId) -> FileInfo:
    """Return an uploaded file."""
    return FileInfo.model_validate(call.part(Files).get(call.project_id, file_id))


@router.delete("/{file_id}", status_code=204)
def delete_file(call: ProjectToBranch, file_id: FileId) -> None:
    """Delete a file. An import that is reading it fails."""
    call.part(Files).delete(call.project_id, file_id)
