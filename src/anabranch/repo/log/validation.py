"""Checks of values before they are used as paths, names or numbers: of a repository, and of a caller.

A repository may be a copy from an untrusted source. Each `check_` function returns its argument, or raises ValueError
or InvalidNameError. The decoder converts that into a CorruptError that names the file.

Each `checked_` function converts an argument of a caller, or raises InvalidInputError.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from math import inf
from typing import Any, TypeVar

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_number
from anabranch.hints import suggest
from anabranch.ids import MAX_TEXT, BranchName, TableKey, are_table_keys, checked_text

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

# `{bucket}/{table}.lance` below `tables/`; a table that replaces another has a suffix, see `free_dataset`.
_DATASET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,254}/[A-Za-z0-9_][A-Za-z0-9_-]{0,254}\.lance")
_ID = re.compile(r"[0-9A-Za-z]{1,64}")
_MAX_NUMBER = 2**64 - 1
# The last time that `datetime` can represent, in microseconds.
_MAX_TIME = 253_402_300_799_999_999
# A URI that is longer than any file system or store accepts.
_LONGEST_ROOT = 8192
_MAX_EXPIRY = timedelta(days=36_525)


def check_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} {value!r:.100} is not a string")
    return value


def check_optional(check: Callable[[Any, str], T], value: Any, what: str) -> T | None:
    """Accept None, too."""
    return None if value is None else check(value, what)


def check_integer(value: Any, what: str, *, most: int = _MAX_NUMBER) -> int:
    # In Python, a bool is an int.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{what} {value!r:.100} is not an integer from 0 to {most}")
    return value


def check_time(value: Any, what: str) -> int:
    return check_integer(value, what, most=_MAX_TIME)


def check_commit_id(value: Any, what: str = "commit id") -> str:
    """Accept letters and digits only: an id becomes a file name."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError(f"{what} {value!r:.100} is not an id")
    return value


def check_root(value: Any, what: str) -> str:
    """Accept the URI of a repository. The caller decides whether to open it."""
    text = check_text(value, what)
    if not text or len(text) > _LONGEST_ROOT or not text.isprintable():
        raise ValueError(f"{what} {text!r:.100} is not a URI")
    return text


def check_tables(keys: Iterable[Any]) -> tuple[str, ...]:
    names = tuple(keys)
    # One pass over all names decides. The loop only finds the name for the error.
    if not are_table_keys(names):
        for key in names:
            TableKey.parse(key)
    return names


def check_metadata(metadata: Any) -> Mapping[str, str]:
    if not isinstance(metadata, Mapping):
        raise ValueError(f"metadata {metadata!r:.100} is not a mapping")
    for name, value in metadata.items():
        check_text(name, "metadata key")
        check_text(value, f"metadata {name!r:.100}")
    return metadata


def check_home(home: Any) -> str | None:
    """Accept None, or a branch name: the home of a table becomes a path below `tree/` of its dataset."""
    return None if home is None else BranchName.parse(home).value


def check_dataset(value: Any) -> str:
    if not _DATASET.fullmatch(check_text(value, "dataset")):
        raise ValueError(f"dataset {value!r:.200} is not of the form 'bucket/table.lance'")
    return str(value)


def check_collected(commits: Any) -> frozenset[str]:
    if not isinstance(commits, list):
        raise ValueError(f"commits {commits!r:.100} is not a list")
    return frozenset(check_commit_id(commit_id) for commit_id in commits)


def checked_choice(kind: type[E], text: str, what: str) -> E:
    """Return the member of an enum with this value. Raise InvalidInputError if there is none."""
    try:
        return kind(text)
    except ValueError:
        hint = suggest(str(text), list(kind), f"use one of {', '.join(repr(member.value) for member in kind)}")
        raise InvalidInputError(f"{what} is {text!r}, which is not known", hint=hint) from None


def checked_version(version: Any) -> int:
    return checked_number(version, "version", hint="pass the number of an entry in the branch's log, such as 7")


def checked_expiry(expires_in: object) -> int:
    """Return the time until a branch expires, in microseconds."""
    if not isinstance(expires_in, timedelta) or not timedelta(0) < expires_in <= _MAX_EXPIRY:
        shown = str(expires_in) if isinstance(expires_in, timedelta) else repr(expires_in)
        hint = "pass a timedelta above 0 and up to 100 years"
        raise InvalidInputError(f"the branch cannot expire in {shown}", hint=hint)
    return expires_in // timedelta(microseconds=1)


def checked_metadata(metadata: Any, *, longest: int = MAX_TEXT) -> dict[str, str]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInputError(f"metadata must be a mapping, got {metadata!r}", hint="pass a dict of str to str")
    checked = dict(metadata or {})
    for key, value in checked.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            hint = "use strings for keys and values"
            raise InvalidInputError(f"metadata {key!r}: {value!r} is not a string", hint=hint)
        checked_text(key + value, longest=inf)  # the sum is limited below
    if sum(len(key) + len(value) for key, value in checked.items()) > longest:
        raise InvalidInputError("the metadata is too large", hint=f"use at most {longest} characters in total")
    return checked
