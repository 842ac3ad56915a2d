"""Names and ids as types, and texts of a caller. Public methods check them once, at the entrance."""

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from anabranch.errors import InvalidInputError, InvalidNameError

MAIN = "main"
_RUN = "__run__"

# Folders of the Lance layout. A branch with one of these names as a segment would write into files of another branch.
LAYOUT_NAMES = frozenset({"_deletions", "_indices", "_mem_wal", "_refs", "_transactions", "_versions", "data", "tree"})

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_TABLE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
# Crockford's base 32: 48 bits of time and 80 random bits. 26 characters have 130 bits, so the first is at most 7.
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# A name becomes a file name, and most file systems limit those to 255 bytes. Lance adds 44 characters while it writes
# the file, and writes '/' as five characters. Names that are derived from a user's name, such as the home of a table,
# may be longer than the names that a user may choose.
_SLASH_LENGTH = 5
_MAX_NAME = 210
_MAX_NEW_NAME = 170
_PART = rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{_MAX_NEW_NAME - 1}}}+"
# Table keys, each with a line end. The quantifiers are possessive, so that a wrong key is found without backtracking.
_TABLE_KEYS = re.compile(rf"(?:{_PART}\.{_PART}\n)*+")
# Messages and metadata are repeated in the summaries of later commits, so that they must stay small.
MAX_TEXT = 10_000
_NO_TEXT = ("is not a string", "pass a string")


def new_ulid() -> str:
    """Return a new id: 48 bits of milliseconds, then 80 random bits, in Crockford's base 32."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


def _refuse(what: str, text: object, problem: tuple[str, str] | None) -> None:
    """Raise InvalidNameError for a text with a problem, which is what is wrong with it and a hint."""
    if problem is not None:
        raise InvalidNameError(f"{what} {text!r} {problem[0]}", hint=problem[1])


@dataclass(frozen=True, slots=True, order=True)
class BranchName:
    """A branch name: valid by the branch and tag specification, and safe on every store."""

    value: str

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, text: str) -> Self:
        """Accept any well-formed name, including `main` and internal names."""
        _refuse("branch name", text, _branch_problem(text))
        return cls(text)

    @classmethod
    def parse_new(cls, text: str) -> Self:
        """Accept a name that a user may give to a new branch."""
        name = cls.parse(text)
        problem = _length_problem(text, most=_MAX_NEW_NAME) or _digits_problem(text) or _new_branch_problem(text)
        _refuse("branch name", text, problem)
        return name

    @classmethod
    def parse_public(cls, text: str) -> Self:
        """Accept any branch except the hidden ones of runs and locks."""
        name = cls.parse(text)
        if name.is_internal:
            raise InvalidNameError(f"branch {text!r} is internal", hint="name another branch; `run_get()` reads a run")
        return name

    @classmethod
    def of_run(cls, run_id: str) -> Self:
        """Return the hidden branch of a run."""
        return cls(f"{_RUN}{run_id}")

    @property
    def segment(self) -> str:
        """The name as a single path segment."""
        return self.value.replace("/", "%2F")

    @property
    def is_internal(self) -> bool:
        return self.value.startswith("__")

    @property
    def run_id(self) -> str | None:
        """The id of the run whose hidden branch this is, or None."""
        return self.value.removeprefix(_RUN) if self.value.startswith(_RUN) else None

    @property
    def label(self) -> str:
        """The name for reports: 'run ...' for the hidden branch of a run."""
        return self.value if self.run_id is None else f"run {self.run_id}"


def _new_branch_problem(text: str) -> tuple[str, str] | None:
    """Return why a well-formed name cannot be given to a new branch, and a hint, or None."""
    if _is_ulid(text):
        return "looks like a commit id", "choose another name"
    if text == MAIN:
        return "is reserved for the main branch", "choose another name"
    if text.startswith(f"{MAIN}/"):
        # Lance treats `main` as the dataset root, and deletes the root together with the last branch below it.
        return "starts with 'main/', which Lance treats as the dataset itself", f"use {text.replace('/', '-')!r}"
    if text.startswith("__"):
        return "starts with '__', which is reserved", "drop the leading underscores"
    return None


def _digits_problem(text: str) -> tuple[str, str] | None:
    """Refuse names of digits only: as a ref, a number is a version, the start of a commit id, or a date."""
    if text.isascii() and text.isdigit():
        return "is a number, which refs use for versions", f"use {'v' + text!r}"
    return None


def _branch_problem(text: object) -> tuple[str, str] | None:
    """Return what is wrong with a branch name, and a hint, or None."""
    if not isinstance(text, str):
        return _NO_TEXT
    if not text:
        return "is empty", "use at least one character"
    if "\\" in text:
        return "contains a backslash", _suggestion(text.replace("\\", "/"), otherwise="remove it")
    if text.strip("/") != text:
        return "starts or ends with '/'", _suggestion(text.strip("/"), otherwise="put '/' only between segments")
    if "//" in text:
        return "has an empty segment", _suggestion(re.sub("/+", "/", text), otherwise="use single slashes")
    return _dots_problem(text) or _segments_problem(text) or _length_problem(text, most=_MAX_NAME)


def _dots_problem(text: str) -> tuple[str, str] | None:
    if text.endswith(".lock"):
        return "ends with '.lock'", "use another ending"
    if ".." in text:
        return "contains '..'", "use single dots"
    return None


def _suggestion(name: str, *, otherwise: str) -> str:
    """Return a hint to use a name, or `otherwise` if the name is invalid itself."""
    return otherwise if _branch_problem(name) else f"use {name!r}"


def _segments_problem(text: str) -> tuple[str, str] | None:
    for segment in text.split("/"):
        if not _SEGMENT.fullmatch(segment):
            hint = "use only ASCII letters, digits, '.', '-', '_', and '/' between segments"
            return f"contains {_invalid_characters(segment)!r}", hint
        if segment == ".":
            return "has the segment '.', which means the folder itself", "remove it"
        if segment in LAYOUT_NAMES:
            other = segment.strip("_") + "-1"
            return f"has the segment {segment!r}, which is a folder of the Lance layout", f"use {other!r}"
    return None


def _invalid_characters(text: str) -> str:
    return "".join(sorted({character for character in text if not _SEGMENT.fullmatch(character)}))


def _length_problem(text: str, *, most: int) -> tuple[str, str] | None:
    length = len(text) + (_SLASH_LENGTH - 1) * text.count("/")
    if length > most:
        return f"has {length} characters, counting each '/' as {_SLASH_LENGTH}", f"use at most {most}"
    return None


@dataclass(frozen=True, slots=True, order=True)
class TagName:
    """A tag name: valid by the branch and tag specification, and without `/`."""

    value: str

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, text: str) -> Self:
        """Accept any well-formed name."""
        _refuse("tag name", text, _tag_problem(text))
        return cls(text)

    @classmethod
    def parse_new(cls, text: str) -> Self:
        """Accept a name that a user may give to a new tag."""
        name = cls.parse(text)
        _refuse("tag name", text, _digits_problem(text))
        return name


def _tag_problem(text: object) -> tuple[str, str] | None:
    if not isinstance(text, str):
        return _NO_TEXT
    if not text:
        return "is empty", "use at least one character"
    if "/" in text:
        return "contains '/'", f"use {text.replace('/', '-')!r}: tags have no folders"
    if not _SEGMENT.fullmatch(text):
        return f"contains {_invalid_characters(text)!r}", "use only ASCII letters, digits, '.', '-' and '_'"
    if text.strip(".") != text:
        return "starts or ends with '.'", "use another character at the start and the end"
    return _dots_problem(text) or _length_problem(text, most=_MAX_NEW_NAME)


@dataclass(frozen=True, slots=True, order=True)
class TableKey:
    """The full name of a table, `bucket.table`."""

    bucket: str
    table: str

    def __str__(self) -> str:
        return f"{self.bucket}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> Self:
        try:
            parts = str.split(text, ".")
        except TypeError:
            parts = []  # not a string
        if len(parts) == 1 and _TABLE_PART.fullmatch(text):
            raise InvalidNameError(f"table name {text!r} has no bucket", hint=f"write it like {f'shop.{text}'!r}")
        if len(parts) != 2:
            raise InvalidNameError(
                f"table name {text!r} does not have the form 'bucket.table'",
                hint="write the bucket and the table with one dot between them, such as 'shop.orders'",
            )
        for part in parts:
            if not _TABLE_PART.fullmatch(part) or len(part) > _MAX_NEW_NAME:
                raise InvalidNameError(
                    f"table name {text!r} has the invalid part {part!r}",
                    hint=f"use at most {_MAX_NEW_NAME} ASCII letters, digits, '_' and '-', and do not start with '-'",
                )
        return cls(parts[0], parts[1])


def are_table_keys(names: Sequence[object]) -> bool:
    """Return whether all names are table keys. They are checked together: a commit may name thousands of tables."""
    try:
        text = "\n".join([*names, ""])  # type: ignore[list-item]
    except TypeError:
        return False  # one of them is not a string
    # Counted, because a name that contains a line end would pass as two keys.
    return text.count("\n") == len(names) and _TABLE_KEYS.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, order=True)
class CommitId:
    """A ULID: 26 characters that sort by creation time."""

    value: str

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, text: str) -> Self:
        if not _is_ulid(text):
            raise InvalidNameError(f"commit id {text!r} is not a ULID", hint="copy the 26 characters from the log")
        return cls(text.upper())


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_ulid(text: str) -> bool:
    # Check before upper(): some letters of other scripts become ASCII letters in upper case.
    return _is_text(text) and text.isascii() and _ULID.fullmatch(text.upper()) is not None


@dataclass(frozen=True, slots=True)
class Step:
    """A step from a commit to an ancestor: `~3` is three first parents back, `^2` is the second parent."""

    mark: str
    count: int

    def __str__(self) -> str:
        return f"{self.mark}{self.count}"


@dataclass(frozen=True, slots=True)
class Ref:
    """A ref as a user writes it: `dev`, `v1.0`, a commit id, `main~3`, `main^2`, `main@v7`, `main@{2026-11-15}`.

    Whether `name` is a branch, a tag or a commit is decided when the ref is resolved. The steps lead from there to an
    ancestor.
    """

    name: str
    steps: tuple[Step, ...] = ()
    version: int | None = None
    at: str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.name}@v{self.version}"
        if self.at is not None:
            return f"{self.name}@{{{self.at}}}"
        return self.name + "".join(map(str, self.steps))

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _REF.fullmatch(text) if _is_text(text) else None
        if match is None:
            raise InvalidNameError(
                f"ref {text!r} is not valid",
                hint="use a branch, a tag, a commit id, 'main~3', 'main^2', 'main@v7' or 'main@{2026-11-15T10:00:00Z}'",
            )
        name, steps, version, at = match.group("name", "steps", "version", "at")
        # Refused only if it can be neither: a ref is resolved later, and only then it is known which of the two it
        # names.
        if (problem := _branch_problem(name)) and _tag_problem(name):
            hint = hint_for_ref(name, otherwise=problem[1])
            raise InvalidNameError(f"ref {text!r} contains the name {name!r}, which {problem[0]}", hint=hint)
        if steps:
            return cls(name, steps=_parse_steps(text, steps))
        if at is not None and not _is_moment(at):
            raise InvalidNameError(
                f"ref {text!r} contains the invalid time {at!r}",
                hint="write it like '2026-11-15' or '2026-11-15T10:00:00Z'",
            )
        return cls(name, version=int(version) if version is not None else None, at=at)


# The numbers have a maximum length, because int() raises for texts of more than 4300 digits.
_REF = re.compile(
    r"(?P<name>[^~^@{}]+)(?:(?P<steps>(?:[~^][0-9]{0,9})+)|@v(?P<version>[0-9]{1,20})|@\{(?P<at>[^{}]+)\})?"
)
_STEP = re.compile(r"([~^])([0-9]*)")
_MAX_PARENTS = 2


def _parse_steps(text: str, steps: str) -> tuple[Step, ...]:
    """Parse the part of a ref after its name. `^1` is the same as `~1`, and a step of 0 leads nowhere."""
    found = [Step(mark, int(number or "1")) for mark, number in _STEP.findall(steps)]
    if any(step.mark == "^" and step.count > _MAX_PARENTS for step in found):
        raise InvalidNameError(
            f"ref {text!r} names a parent that no commit has", hint="use '^1' or '^2': a merge has two parents"
        )
    return tuple(Step("~", step.count) if step.count == 1 else step for step in found if step.count)


@dataclass(frozen=True, slots=True)
class RefRange:
    """Two refs as a user writes them: `a..b`, or `a...b` for b since the merge base of both.

    A side that is left out is None and means the current branch.
    """

    before: str | None
    after: str | None
    is_since_base: bool = False

    def __str__(self) -> str:
        return f"{self.before or ''}{'...' if self.is_since_base else '..'}{self.after or ''}"

    @classmethod
    def find(cls, text: str) -> Self | None:
        """Parse a range, or return None if the text is not one. No name of a branch or tag contains '..'."""
        if not _is_text(text) or ".." not in text:
            return None
        # The longer one first, because it contains the shorter one.
        separator = "..." if "..." in text else ".."
        sides = tuple(side or None for side in text.split(separator, 1))
        if sides == (None, None):
            raise InvalidNameError(f"range {text!r} names no ref", hint="write it like 'main..dev' or 'main...dev'")
        before, after = (None if side is None else str(Ref.parse(side)) for side in sides)
        return cls(before, after, is_since_base=separator == "...")


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def time_ref(text: str) -> str | None:
    """Return the ref to main at a time, or None if the text is not a time."""
    return f"{MAIN}@{{{text}}}" if _is_moment(text) else None


def hint_for_ref(text: str, *, otherwise: str) -> str:
    """Return the hint for a ref that names nothing. It may be a time without a branch."""
    return f"for the state of a branch at a time, write {found!r}" if (found := time_ref(text)) else otherwise


def checked_text(text: str, what: str = "message", *, longest: float = MAX_TEXT) -> str:
    if not isinstance(text, str):
        raise InvalidInputError(f"{text!r} is not a string", hint="pass a string")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{text!r} cannot be stored as UTF-8", hint="remove the invalid characters") from None
    if len(text) > longest:
        raise InvalidInputError(f"the {what} has {len(text)} characters", hint=f"use at most {longest}")
    return text
