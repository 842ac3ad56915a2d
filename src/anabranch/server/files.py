"""Files of projects, uploaded to be imported: written to disk while they arrive, and kept until they are deleted."""

import hashlib
import secrets
import shutil
from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

from fastapi import Path as PathParameter
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from anabranch.errors import FileMissingError, InvalidInputError, TooSlowError
from anabranch.files.formats import format_of_name
from anabranch.server.database import Database, Row, row_of
from anabranch.server.routing import ProjectToBranch, ProjectToRead, make_router
from anabranch.server.settings import Settings
from anabranch.storage.local_store import sync

# The OpenAPI description of the body of a route that accepts a file.
UPLOAD_BODY = {
    "requestBody": {
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "string", "format": "binary"}},
                    "required": ["file"],
                }
            }
        }
    }
}

_T = TypeVar("_T")
_ID_PREFIX = "file_"
_PART_NAME = "file"
_BYTES_AT_A_TIME = 1 << 20
_LONGEST_NAME = 255
# The first bytes of gzip and Zstandard files.
_ENDINGS = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A complete file in a folder of its own. `name` is the name that its sender gave it."""

    id: str
    name: str
    folder: Path
    stored_as: str
    size_bytes: int
    sha256: str

    @property
    def path(self) -> Path:
        return self.folder / self.stored_as

    @property
    def fingerprint(self) -> bytes:
        """Return a value that is equal for two uploads of the same file."""
        return f"{self.name}\n{self.sha256}".encode()

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def is_upload(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("multipart/")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile(Upload):
    """A file of a project. The table of files has its fields without `folder`."""

    project_id: str
    created_at: datetime
    created_by: str | None


class Files:
    """The files of all projects.

    A row is written after its file is complete, and deleted before its file. A crash may leave a folder without a row.
    """

    def __init__(self, settings: Settings, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._folder = settings.files_folder
        self._database = database
        self._clock = clock

    def new_folder(self, project_id: str) -> Path:
        """Return the folder for a new file. It does not exist yet."""
        return self.folder_of(project_id, _ID_PREFIX + secrets.token_hex(8))

    def folder_of(self, project_id: str, name: str) -> Path:
        return self._folder / project_id / name

    async def upload_of(self, request: Request) -> Upload:
        """Return the file of a request about a project. The body is read once."""
        found: Upload | None = getattr(request.state, "upload", None)
        if found is None:
            if not is_upload(request):
                raise InvalidInputError(
                    "the request has no file", hint="send it as the part 'file' of multipart/form-data"
                )
            service, project_id = request.app.state.service, request.path_params["project_id"]
            await run_in_threadpool(service.projects.get, project_id)
            found = request.state.upload = await _receive(request, self.new_folder(project_id))
        return found

    def discard_untaken(self, request: Request) -> None:
        """Delete the file of a request that failed."""
        upload = _take(request)
        if upload is not None:
            upload.discard()

    def keep(self, project_id: str, upload: Upload, *, actor: str | None) -> StagedFile:
        """Add the row of an upload, so that it can be imported."""
        file = StagedFile(**row_of(upload), project_id=project_id, created_at=self._clock(), created_by=actor)
        # The row will be on disk, so the file and the names of its folders have to be there first.
        sync([str(upload.path)])
        self._insert(file)
        return file

    def get(self, project_id: str, file_id: str) -> StagedFile:
        row = self._database.read_one("SELECT * FROM files WHERE project_id = ? AND id = ?", [project_id, file_id])
        if row is None:
            raise FileMissingError(
                f"project '{project_id}' has no file '{file_id}'", hint="list the files to see which exist"
            )
        return self._file(row)

    def list_all(self, project_id: str) -> list[StagedFile]:
        """Return the files of a project, newest first."""
        sql = "SELECT * FROM files WHERE project_id = ? ORDER BY created_at DESC, id"
        return [self._file(row) for row in self._database.read(sql, [project_id])]

    def delete(self, project_id: str, file_id: str) -> None:
        file = self.get(project_id, file_id)
        self._database.write("DELETE FROM files WHERE id = ?", [file_id])
        file.discard()

    def recover(self, *, others: Set[str]) -> None:
        """Delete the folders that belong neither to a row nor to `others`."""
        known = {row["id"] for row in self._database.read("SELECT id FROM files")} | others
        # Without a row no request can name the folder, so a crash during an upload would waste its space for good.
        for folder in self._folder.glob("*/*"):
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def _insert(self, file: StagedFile) -> None:
        """Add the row of a file, unless its project was deleted."""
        row = {name: value for name, value in row_of(file).items() if name != "folder"}
        # One statement, so that no deletion of the project comes between the check and the insert.
        self._database.write(
            f"INSERT INTO files ({', '.join(row)}) SELECT {', '.join('?' * len(row))} FROM projects WHERE id = ?",  # noqa: S608
            [*row.values(), file.project_id],
        )

    def _file(self, row: Row) -> StagedFile:
        return StagedFile(folder=self.folder_of(row["project_id"], row["id"]), **row)


def take_upload(request: Request, use: Callable[[], _T]) -> _T:
    """Call a function that uses the file of a request beyond its end. If it fails, delete the file.

    The request may time out while the function runs in its thread. So the file is taken before, and not after.
    """
    upload = _take(request)
    if upload is None:
        raise TooSlowError("the request timed out before its file was taken", hint="send it again")
    try:
        return use()
    except BaseException:
        upload.discard()
        raise


def _take(request: Request) -> Upload | None:
    """Return the file of a request once: to the thread that uses it, or to the thread that ends the request."""
    taken: Upload | None = request.scope["state"].pop("upload", None)  # only one thread gets it
    return taken


async def _receive(request: Request, folder: Path) -> Upload:
    """Write the file of a request to a new folder. If that fails, delete the folder."""
    receiver = await run_in_threadpool(_Receiver, request.headers.get("content-type", ""), folder)
    try:
        # Pieces have at most 64 KiB. A change of threads for each of them would take longer than writing it.
        waiting: list[bytes] = []
        async for piece in request.stream():
            waiting.append(piece)
            if sum(map(len, waiting)) >= _BYTES_AT_A_TIME:
                await run_in_threadpool(receiver.take, b"".join(waiting))
                waiting.clear()
        await run_in_threadpool(receiver.take, b"".join(waiting))
        return await run_in_threadpool(receiver.finish)
    except ClientDisconnect:
        raise InvalidInputError("the connection closed before the file was complete", hint="send it again") from None
    finally:
        await run_in_threadpool(receiver.close)


def keep_file(file: BinaryIO, name: str, folder: Path) -> Upload:
    """Copy a file that a form had to a new folder. If that fails, delete the folder."""
    incoming = _Incoming(folder)
    try:
        while piece := file.read(_BYTES_AT_A_TIME):
            incoming.write(piece)
        return incoming.complete(name)
    finally:
        incoming.close()


class _Incoming:
    """A file that is written to a new folder. Without `complete`, `close` deletes the folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._path = folder / "incoming"
        self._file: BinaryIO = self._path.open("wb")
        self._digest = hashlib.sha256()
        self._start = b""
        self._is_kept = False

    def write(self, piece: bytes) -> None:
        # The first piece may be shorter than the bytes that identify a compression.
        if len(self._start) < 4:
            self._start += piece[:4]
        self._digest.update(piece)
        self._file.write(piece)

    def complete(self, name: str) -> Upload:
        """Give the file the name under which it is read."""
        self._file.flush()
        shown = _plain_name(name)
        # The content decides about the compression, not the name.
        compression = next((ending for magic, ending in _ENDINGS.items() if self._start.startswith(magic)), "")
        upload = Upload(
            id=self._folder.name,
            name=shown,
            folder=self._folder,
            stored_as=f"data{_ending_of(shown)}{compression}",
            size_bytes=self._file.tell(),
            sha256=self._digest.hexdigest(),
        )
        self._path.rename(upload.path)
        self._is_kept = True
        return upload

    def close(self) -> None:
        self._file.close()
        if not self._is_kept:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Receiver:
    """Parses a multipart body piece by piece and writes the file in it to disk."""

    def __init__(self, content_type: str, folder: Path) -> None:
        _, options = parse_options_header(content_type)
        if b"boundary" not in options:
            raise InvalidInputError("the body has no boundary", hint="send it as multipart/form-data")
        callbacks: dict[str, Callable[..., None]] = {
            "on_part_begin": self._on_part_begin,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_part_data,
            "on_end": self._on_end,
        }
        try:
            self._parser = MultipartParser(options[b"boundary"], callbacks)  # type: ignore[arg-type]
        except FormParserError as err:
            raise _malformed(err) from None
        self._incoming = _Incoming(folder)
        self.close = self._incoming.close
        self._headers: dict[bytes, bytes] = {}
        self._header = self._value = b""
        self._name: str | None = None
        self._is_whole = False

    def take(self, data: bytes) -> None:
        try:
            self._parser.write(data)
        except FormParserError as err:
            raise _malformed(err) from None

    def finish(self) -> Upload:
        if not self._is_whole:
            raise InvalidInputError("the connection closed before the file was complete", hint="send it again")
        if self._name is None:
            hint = f"send it as the part '{_PART_NAME}' of multipart/form-data"
            raise InvalidInputError("the body has no file", hint=hint)
        return self._incoming.complete(self._name)

    def _on_part_begin(self) -> None:
        self._headers = {}

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        # The parser reports a name in two parts if it spans two pieces of the body.
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        part = options.get(b"name", b"").decode(errors="replace")
        # Refused and not ignored: a client may send options as parts, which would have no effect.
        if part != _PART_NAME or b"filename" not in options:
            raise InvalidInputError(
                f"the part {part!r} of the body is not a file",
                hint=f"send the file as '{_PART_NAME}', and options in the query",
            )
        if self._name is not None:
            raise InvalidInputError("the body has more than one file", hint="send one at a time")
        self._name = options[b"filename"].decode(errors="replace")

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._incoming.write(data[start:end])

    def _on_end(self) -> None:
        self._is_whole = True


def _malformed(error: FormParserError) -> InvalidInputError:
    return InvalidInputError(
        f"the body is not valid multipart/form-data: {error}", hint="use an HTTP library to encode it"
    )


def _plain_name(name: str) -> str:
    """Return the last part of a path without control characters."""
    # Some clients send a whole path, also one of Windows. The name is only shown: the file is stored as `data`.
    last = name.replace("\\", "/").rpartition("/")[2]
    shown = "".join(character for character in last if character.isprintable()).strip()
    return shown[:_LONGEST_NAME] or "file"


def _ending_of(name: str) -> str:
    """Return the extension of a name if it is that of a supported format, without a compression."""
    stem, _, last = name.lower().rpartition(".")
    if last in {"gz", "gzip", "zst", "zstd"}:
        last = stem.rpartition(".")[2]
    return f".{last}" if format_of_name(f"data.{last}")[0] is not None else ""


router = make_router("files", prefix="/projects/{project_id}/files")

FILE_ID = r"^[A-Za-z0-9_]+$"
FileId = Annotated[str, PathParameter(pattern=FILE_ID, max_length=64, examples=["file_0123456789abcdef"])]


class FileInfo(BaseModel, from_attributes=True):
    """A file. `name` is the name that its sender gave it."""

    id: str
    project_id: str
    name: str
    size_bytes: int
    sha256: str
    created_at: datetime
    created_by: str | None


class FileList(BaseModel):
    files: list[FileInfo]


@router.post("", status_code=201, response_model=FileInfo, openapi_extra=UPLOAD_BODY)
async def upload_file(call: ProjectToBranch, request: Request) -> StagedFile:
    """Upload a file as the part `file` of a form. It is kept until it is deleted."""
    upload = await call.part(Files).upload_of(request)
    keep = partial(call.part(Files).keep, call.project_id, upload, actor=call.token.name)
    return await run_in_threadpool(take_upload, request, keep)


@router.get("")
def list_files(call: ProjectToRead) -> FileList:
    """List the uploaded files, newest first."""
    call.service.projects.get(call.project_id)
    return FileList(files=[FileInfo.model_validate(file) for file in call.part(Files).list_all(call.project_id)])


@router.get("/{file_id}", response_model=FileInfo)
def get_file(call: ProjectToRead, file_id: FileId) -> StagedFile:
    """Return an uploaded file."""
    return call.part(Files).get(call.project_id, file_id)


@router.delete("/{file_id}", status_code=204)
def delete_file(call: ProjectToBranch, file_id: FileId) -> None:
    """Delete a file. An import that is reading it fails."""
    call.part(Files).delete(call.project_id, file_id)
