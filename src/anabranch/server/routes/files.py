"""Files of a project, sent once to be imported later."""

from datetime import datetime
from typing import Annotated

from fastapi import Path, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from anabranch.server.metadata.files import StagedFile
from anabranch.server.routing import ProjectToBranch, ProjectToRead, make_router
from anabranch.server.uploading import UPLOAD_BODY, mark_taken, upload_of

__all__ = ["FILE_ID", "router"]

router = make_router("files", prefix="/projects/{project_id}/files")

FILE_ID = r"^[A-Za-z0-9_]+$"
FileId = Annotated[str, Path(pattern=FILE_ID, max_length=64, examples=["file_0123456789abcdef"])]


class FileInfo(BaseModel):
    """A file; `name` is what its sender called it."""

    id: str
    project_id: str
    name: str
    size_bytes: int
    sha256: str
    created_at: datetime
    created_by: str | None

    @classmethod
    def of(cls, file: StagedFile) -> "FileInfo":
        return cls(**{name: getattr(file, name) for name in cls.model_fields})


class FileList(BaseModel):
    files: list[FileInfo]


@router.post("", status_code=201, openapi_extra=UPLOAD_BODY)
async def upload_file(call: ProjectToBranch, request: Request) -> FileInfo:
    """Send a file, as the part `file` of a form; it stays until it is deleted."""
    upload = await upload_of(request)
    kept = await run_in_threadpool(call.service.files.keep, call.project_id, upload, actor=call.token.name)
    mark_taken(request)
    return FileInfo.of(kept)


@router.get("")
def list_files(call: ProjectToRead) -> FileList:
    """The files that wait to be imported, the newest first."""
    call.service.projects.get(call.project_id)
    return FileList(files=[FileInfo.of(file) for file in call.service.files.list_all(call.project_id)])


@router.get("/{file_id}")
def get_file(call: ProjectToRead, file_id: FileId) -> FileInfo:
    """A file that waits to be imported."""
    return FileInfo.of(call.service.files.get(call.project_id, file_id))


@router.delete("/{file_id}", status_code=204)
def delete_file(call: ProjectToBranch, file_id: FileId) -> None:
    """Delete a file; an import that reads it at this moment fails."""
    call.service.files.delete(call.project_id, file_id)
