"""Names and ids as types, parsed once where they enter."""

import re
import secrets
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from anabranch.errors import InvalidNameError

__all__ = ["LAYOUT_NAMES", "MAIN", "BranchName", "CommitId", "Ref", "TableKey", "TagName", "new_ulid"]

MAIN = "main"
_RUN = "__run__"

# A branch whose path had one of these as a segment would write into the files of another branch.
LAYOUT_NAMES = frozenset({"_deletions", "_indices", "_mem_wal", "_refs", "_transactions", "_versions", "data", "tree"})

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_TABLE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
# Crockford's base 32 with 48 bits of time and 80 of chance; 26 characters hold 130 bits, so the first is at most 7.
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# A name becomes a file name, which most disks limit to 255 bytes: Lance adds 44 characters while it writes the file and
# spells '/' with five. What is made from a user's name, such as the home of a table, may exceed what a user may choose.
_SLASH_LENGTH = 5
_MAX_NAME = 210
_MAX_NEW_NAME = 170
_NO_TEXT = ("is not text", "give it as a string")


def new_ulid() -> str:
    """Return a new id: 48 bits of milliseconds, then 80 random bits, in Crockford's base 32."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


@dataclass(frozen=True, slots=True, order=True)
class BranchName:
    """A branch name by the rules of the branch and tag specification, and only those that are safe on every store."""

    value: str

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, text: str) -> Self:
        """Accept any well-formed name, `main` and internal ones included."""
        if problem := _branch_problem(text):
            raise InvalidNameError(f"branch name {text!r} {problem[0]}", hint=problem[1])
        return cls(text)

    @classmethod
    def parse_new(cls, text: str) -> Self:
        """Accept what a user may create."""
        name = cls.parse(text)
        problem = _length_problem(text, most=_MAX_NEW_NAME) or _digits_problem(text) or _new_branch_problem(text)
        if problem:
            raise InvalidNameError(f"branch name {text!r} {problem[0]}", hint=problem[1])
        return name

    @classmethod
    def parse_public(cls, text: str) -> Self:
        """Accept what a user may name: any branch but the hidden ones of runs and locks."""
        name = cls.parse(text)
        if name.is_internal:
            raise InvalidNameError(
                f"branch {text!r} is internal", hint="name another branch; a run is read through run_get"
            )
        return name

    @classmethod
    def of_run(cls, run_id: str) -> Self:
        """The hidden branch of a run."""
        return cls(f"{_RUN}{run_id}")

    @property
    def segment(self) -> str:
        """The name as one folder of a path."""
        return self.value.replace("/", "%2F")

    @property
    def is_internal(self) -> bool:
        return self.value.startswith("__")

    @property
    def run_id(self) -> str | None:
        """The id of the run whose hidden branch this is."""
        return self.value.removeprefix(_RUN) if self.value.startswith(_RUN) else None


def _new_branch_problem(text: str) -> tuple[str, str] | None:
    """What keeps a well-formed name from being given to a new branch, and what to do about it."""
    if _is_ulid(text):
        return "reads like a commit id", "choose another name"
    if text == MAIN:
        return "is reserved for the main branch", "choose another name"
    if text.startswith(f"{MAIN}/"):
        # Lance takes `main` for the dataset root, and removes that with the last branch below it.
        return "lies below 'main/', which Lance takes for the dataset itself", f"use {text.replace('/', '-')!r}"
    if text.startswith("__"):
        return "starts with '__', which is reserved", "drop the leading underscores"
    return None


def _digits_problem(text: str) -> tuple[str, str] | None:
    """A number in the place of a ref is a version of a dataset, the start of a commit id, or a date."""
    if text.isascii() and text.isdigit():
        return "is a number, which refs use for versions", f"use {'v' + text!r}"
    return None


def _branch_problem(text: object) -> tuple[str, str] | None:
    """What is wrong with a branch name, and what to do about it."""
    if not isinstance(text, str):
        return _NO_TEXT
    if not text:
        return "is empty", "give it at least one character"
    if "\\" in text:
        return "contains a backslash", _suggestion(text.replace("\\", "/"), otherwise="leave it out")
    if text.startswith("/") or text.endswith("/"):
        return "starts or ends with '/'", _suggestion(text.strip("/"), otherwise="put '/' only between segments")
    if "//" in text:
        return "has an empty segment", _suggestion(re.sub("/+", "/", text), otherwise="use single slashes")
    if ".." in text:
        return "contains '..'", "use single dots"
    if text.endswith(".lock"):
        return "ends with '.lock'", "choose another ending"
    return _segments_problem(text) or _length_problem(text, most=_MAX_NAME)


def _suggestion(name: str, *, otherwise: str) -> str:
    """Offer a name only if it is a good one."""
    return otherwise if _branch_problem(name) else f"use {name!r}"


def _segments_problem(text: str) -> tuple[str, str] | None:
    for segment in text.split("/"):
        if not _SEGMENT.fullmatch(segment):
            strangers = "".join(sorted({c for c in segment if not _SEGMENT.fullmatch(c)}))
            return f"contains {strangers!r}", "use only ASCII letters, digits, '.', '-', '_', and '/' between segments"
        if segment == ".":
            return "has the segment '.', which stands for the folder itself", "leave it out"
        if segment in LAYOUT_NAMES:
            other = segment.strip("_") + "-1"
            return f"has the segment {segment!r}, a folder of the Lance layout", f"call it {other!r}"
    return None


def _length_problem(text: str, *, most: int) -> tuple[str, str] | None:
    length = len(text) + (_SLASH_LENGTH - 1) * text.count("/")
    if length > most:
        return f"has {length} characters, each '/' counted as {_SLASH_LENGTH}", f"use at most {most}"
    return None


@dataclass(frozen=True, slots=True, order=True)
class TagName:
    """A tag name by the rules of the branch and tag specification; `/` is not allowed."""

    value: str

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, text: str) -> Self:
        """Accept any well-formed name."""
        if problem := _tag_problem(text):
            raise InvalidNameError(f"tag name {text!r} {problem[0]}", hint=problem[1])
        return cls(text)

    @classmethod
    def parse_new(cls, text: str) -> Self:
        """Accept what a user may create."""
        name = cls.parse(text)
        if problem := _digits_problem(text):
            raise InvalidNameError(f"tag name {text!r} {problem[0]}", hint=problem[1])
        return name


def _tag_problem(text: object) -> tuple[str, str] | None:
    if not isinstance(text, str):
        return _NO_TEXT
    if not text:
        return "is empty", "give it at least one character"
    if "/" in text:
        return "contains '/'", f"use {text.replace('/', '-')!r}: tags have no folders"
    if not _SEGMENT.fullmatch(text):
        strangers = "".join(sorted({c for c in text if not _SEGMENT.fullmatch(c)}))
        return f"contains {strangers!r}", "use only ASCII letters, digits, '.', '-' and '_'"
    if text.startswith(".") or text.endswith("."):
        return "starts or ends with '.'", "start and end it with another character"
    if text.endswith(".lock"):
        return "ends with '.lock'", "choose another ending"
    if ".." in text:
        return "contains '..'", "use single dots"
    return _length_problem(text, most=_MAX_NEW_NAME)


@dataclass(frozen=True, slots=True, order=True)
class TableKey:
    """A table's full name, `bucket.table`."""

    bucket: str
    table: str

    def __str__(self) -> str:
        return f"{self.bucket}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> Self:
        parts = text.split(".") if _is_text(text) else []
        if len(parts) != 2:
            raise InvalidNameError(
                f"table key {text!r} is not of the form 'bucket.table'", hint="name it like 'in_c_sales.orders'"
            )
        for part in parts:
            if not _TABLE_PART.fullmatch(part) or len(part) > _MAX_NEW_NAME:
                raise InvalidNameError(
                    f"table key {text!r} has the part {part!r}",
                    hint=f"use ASCII letters, digits, '_' and '-', not '-' first, at most {_MAX_NEW_NAME} characters",
                )
        return cls(parts[0], parts[1])


@dataclass(frozen=True, slots=True, order=True)
class CommitId:
    """A ULID: 26 characters that sort by time of birth."""

    value: str

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, text: str) -> Self:
        if not _is_ulid(text):
            raise InvalidNameError(
                f"commit id {text!r} is not a ULID", hint="copy the 26 characters that the log shows"
            )
        return cls(text.upper())


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_ulid(text: str) -> bool:
    # Some letters of other scripts become ASCII in upper case.
    return _is_text(text) and text.isascii() and _ULID.fullmatch(text.upper()) is not None


@dataclass(frozen=True, slots=True)
class Ref:
    """A place in history as a user writes it: `dev`, `v1.0`, a commit id, `main~3`, `main@v7`, `main@{2026-11-15}`.

    What `name` stands for (branch, tag, commit) is decided where it is looked up.
    """

    name: str
    back: int = 0
    version: int | None = None
    at: str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.name}@v{self.version}"
        if self.at is not None:
            return f"{self.name}@{{{self.at}}}"
        return f"{self.name}~{self.back}" if self.back else self.name

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _REF.fullmatch(text) if _is_text(text) else None
        if match is None:
            raise InvalidNameError(
                f"ref {text!r} is not understood",
                hint="use a branch, a tag, a commit id, 'main~3', 'main@v7' or 'main@{2026-11-15T10:00:00Z}'",
            )
        name, back, version, at = match.group("name", "back", "version", "at")
        if (problem := _branch_problem(name)) and _tag_problem(name):
            raise InvalidNameError(f"ref {text!r} names {name!r}, which {problem[0]}", hint=problem[1])
        if back is not None:
            return cls(name, back=int(back or "1"))
        if at is not None and not _is_moment(at):
            raise InvalidNameError(
                f"ref {text!r} names the time {at!r}", hint="write it like '2026-11-15' or '2026-11-15T10:00:00Z'"
            )
        return cls(name, version=int(version) if version is not None else None, at=at)


_REF = re.compile(r"(?P<name>[^~@{}]+)(?:~(?P<back>[0-9]{0,9})|@v(?P<version>[0-9]{1,20})|@\{(?P<at>[^{}]+)\})?")


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
