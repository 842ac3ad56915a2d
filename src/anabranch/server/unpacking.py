"""The size that a compressed upload unpacks to."""

import pyarrow as pa

from anabranch.errors import TooLargeError
from anabranch.server.settings import Limits
from anabranch.server.uploading import Upload

__all__ = ["check_unpacked_size"]

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
