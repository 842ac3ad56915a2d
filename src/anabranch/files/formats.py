"""The file formats and compressions, and their suffixes."""

from enum import StrEnum

from anabranch.errors import InvalidInputError

__all__ = ["Compression", "FileFormat", "checked_format", "format_of_name"]


class FileFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ORC = "orc"
    LANCE = "lance"

    @property
    def is_text(self) -> bool:
        """Whether rows have lines, so that a single one can be bad."""
        return self in (FileFormat.CSV, FileFormat.JSON)


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


_FORMATS = {
    "csv": FileFormat.CSV,
    "tsv": FileFormat.CSV,
    "json": FileFormat.JSON,
    "jsonl": FileFormat.JSON,
    "ndjson": FileFormat.JSON,
    "parquet": FileFormat.PARQUET,
    "pq": FileFormat.PARQUET,
    "orc": FileFormat.ORC,
    "lance": FileFormat.LANCE,
}
_COMPRESSIONS = {"gz": Compression.GZIP, "gzip": Compression.GZIP, "zst": Compression.ZSTD, "zstd": Compression.ZSTD}


def format_of_name(name: str) -> tuple[FileFormat | None, Compression]:
    """Return the format and compression by the suffix of a file. The format is None if the suffix is unknown."""
    stem, _, last = name.lower().rpartition(".")
    compression = _COMPRESSIONS.get(last, Compression.NONE) if stem else Compression.NONE
    if compression is not Compression.NONE:
        last = stem.rpartition(".")[2] if "." in stem else ""
    elif not stem:
        last = ""
    return _FORMATS.get(last), compression


def checked_format(text: str) -> FileFormat:
    try:
        return FileFormat(text)
    except ValueError:
        known = ", ".join(kind.value for kind in FileFormat)
        raise InvalidInputError(f"the format {text!r} is not known", hint=f"use one of {known}") from None
