"""Uploads: files of requests, written to disk while they arrive."""

import hashlib
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import pyarrow as pa
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from anabranch.errors import InvalidInputError, TooLargeError, TooSlowError
from anabranch.files.formats import format_of_name
from anabranch.server.settings import Limits

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

T = TypeVar("T")

_TAKING = threading.Lock()
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
        """Equal for two uploads of the same file."""
        return f"{self.name}\n{self.sha256}".encode()

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def is_upload(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("multipart/")


async def upload_of(request: Request) -> Upload:
    """Return the file of a request about a project. The body is read once."""
    found: Upload | None = getattr(request.state, "upload", None)
    if found is None:
        if not is_upload(request):
            raise InvalidInputError("the request has no file", hint="send it as the part 'file' of multipart/form-data")
        service, project_id = request.app.state.service, request.path_params["project_id"]
        await run_in_threadpool(service.projects.get, project_id)
        found = request.state.upload = await receive(request, service.files.new_folder(project_id))
    return found


def take_upload(request: Request, use: Callable[[], T]) -> T:
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


def has_upload(request: Request) -> bool:
    """Return whether the file of a request is still to be taken or deleted."""
    return getattr(request.state, "upload", None) is not None


def discard_untaken(request: Request) -> None:
    """Delete the file of a request that failed."""
    upload = _take(request)
    if upload is not None:
        upload.discard()


def _take(request: Request) -> Upload | None:
    """Return the file of a request to one of two threads: the one that uses it, or the one that ends the request."""
    with _TAKING:
        upload: Upload | None = getattr(request.state, "upload", None)
        request.state.upload = None
    return upload


async def receive(request: Request, folder: Path) -> Upload:
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
    folder.mkdir(parents=True)
    try:
        digest, start = hashlib.sha256(), b""
        with (folder / "incoming").open("wb") as copy:
            while piece := file.read(_BYTES_AT_A_TIME):
                start = start or piece[:4]
                digest.update(piece)
                copy.write(piece)
            size = copy.tell()
        return _complete(folder, _plain_name(name), start=start, size=size, sha256=digest.hexdigest())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


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
        folder.mkdir(parents=True)
        self._folder = folder
        self._file: BinaryIO = (folder / "incoming").open("wb")
        self._digest = hashlib.sha256()
        self._headers: dict[str, str] = {}
        self._header = (b"", b"")
        self._name: str | None = None
        self._start = b""
        self._is_whole = False
        self._is_kept = False

    def take(self, data: bytes) -> None:
        try:
            self._parser.write(data)
        except FormParserError as err:
            raise _malformed(err) from None

    def finish(self) -> Upload:
        if not self._is_whole:
            raise InvalidInputError("the connection closed before the file was complete", hint="send it again")
        if self._name is None:
            raise InvalidInputError(
                "the body has no file", hint=f"send it as the part '{_PART_NAME}' of multipart/form-data"
            )
        self._file.flush()
        upload = _complete(
            self._folder, self._name, start=self._start, size=self._file.tell(), sha256=self._digest.hexdigest()
        )
        self._is_kept = True
        return upload

    def close(self) -> None:
        self._file.close()
        if not self._is_kept:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _on_part_begin(self) -> None:
        self._headers = {}

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        # The parser reports a name in two parts if it spans two pieces of the body.
        self._header = (self._header[0] + data[start:end], self._header[1])

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header = (self._header[0], self._header[1] + data[start:end])

    def _on_header_end(self) -> None:
        name, value = self._header
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        self._header = (b"", b"")

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", "").encode("latin-1"))
        part = options.get(b"name", b"").decode(errors="replace")
        # Refused and not ignored: a client may send options as parts, which would have no effect.
        if part != _PART_NAME or b"filename" not in options:
            raise InvalidInputError(
                f"the part {part!r} of the body is not a file",
                hint=f"send the file as '{_PART_NAME}', and options in the query",
            )
        if self._name is not None:
            raise InvalidInputError("the body has more than one file", hint="send one at a time")
        self._name = _plain_name(options[b"filename"].decode(errors="replace"))

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        piece = data[start:end]
        # The first piece may be shorter than the bytes that identify a compression.
        if len(self._start) < 4:
            self._start += piece[:4]
        self._digest.update(piece)
        self._file.write(piece)

    def _on_end(self) -> None:
        self._is_whole = True


def _complete(folder: Path, name: str, *, start: bytes, size: int, sha256: str) -> Upload:
    """Give the file `incoming` of a folder the name under which it is read. Its first bytes are `start`."""
    stored_as = f"data{_ending_of(name)}{_compression_of(start)}"
    upload = Upload(id=folder.name, name=name, folder=folder, stored_as=stored_as, size_bytes=size, sha256=sha256)
    (folder / "incoming").rename(upload.path)
    return upload


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


def _compression_of(start: bytes) -> str:
    """Return the extension of the compression of a file. The content decides, not the name."""
    return next((ending for magic, ending in _ENDINGS.items() if start.startswith(magic)), "")


_CODECS = {".gz": "gzip", ".zst": "zstd"}
_CHUNK_BYTES = 1 << 20


def check_unpacked_size(upload: Upload, limits: Limits) -> None:
    """Raise TooLargeError if a compressed upload unpacks to more than the limits allow.

    The file is unpacked chunk by chunk and the chunks are dropped, so that memory and disk stay small. Damaged files
    pass: the load reports them with their line.
    """
    codec = _CODECS.get(upload.path.suffix)
    if codec is None:
        return
    # Repetitive text compresses well, so the ratio matters only beyond a free size.
    most = min(limits.unpacked_bytes, max(limits.unpacked_free_bytes, limits.unpacked_ratio * upload.size_bytes))
    unpacked = 0
    try:
        with pa.CompressedInputStream(pa.OSFile(str(upload.path)), codec) as stream:
            while unpacked <= most and (chunk := stream.read(_CHUNK_BYTES)):
                unpacked += len(chunk)
    except OSError:
        return
    if unpacked > most:
        raise TooLargeError(
            f"'{upload.name}' has {upload.size_bytes} bytes and unpacks to more than {most}",
            hint="send it in smaller parts, or without compression",
        )
