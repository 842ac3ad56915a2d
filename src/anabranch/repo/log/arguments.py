"""What users say about branches and commits, checked before anything is done with it."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_limit, checked_number, require_names
from anabranch.repo.log.entries import BranchMode, CommitKind

__all__ = [
    "checked_choice",
    "checked_expiry",
    "checked_kind",
    "checked_limit",
    "checked_metadata",
    "checked_mode",
    "checked_text",
    "checked_version",
    "require_names",
]

_MAX_LENGTH = 10_000
_LONGEST_LIFE = timedelta(days=36_525)


E = TypeVar("E", bound=StrEnum)


def checked_choice(kind: type[E], text: str, what: str) -> E:
    """Return the member of an enum that a text names."""
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        raise InvalidInputError(f"{what} is {text!r}", hint=f"use one of {known}") from None


def checked_kind(kind: str) -> CommitKind:
    try:
        return CommitKind(kind)
    except ValueError:
        raise InvalidInputError(f"the commit kind {kind!r} is not known", hint=f"use {', '.join(CommitKind)}") from None


def checked_mode(mode: str) -> BranchMode:
    try:
        return BranchMode(mode)
    except ValueError:
        raise InvalidInputError(f"branch mode {mode!r} is not known", hint="use 'pinned' or 'live'") from None


def checked_version(version: Any) -> int:
    return checked_number(version, "version", hint="give the number of an entry in the branch's log, like 7")


def checked_text(message: str, what: str = "message") -> str:
    _require_text(message)
    if len(message) > _MAX_LENGTH:
        raise InvalidInputError(f"the {what} has {len(message)} characters", hint=f"use at most {_MAX_LENGTH}")
    return message


def checked_expiry(expires_in: object) -> int:
    """A time to live in microseconds."""
    if not isinstance(expires_in, timedelta) or not timedelta(0) < expires_in <= _LONGEST_LIFE:
        raise InvalidInputError(
            f"the branch cannot expire in {expires_in!r}", hint="give a timedelta above 0, at most 100 years"
        )
    return expires_in // timedelta(microseconds=1)


def checked_metadata(metadata: Any, *, longest: int = _MAX_LENGTH) -> dict[str, str]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInputError(f"the metadata {metadata!r} is no mapping", hint="give a dict of text to text")
    checked = dict(metadata or {})
    for key, value in checked.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise InvalidInputError(f"metadata {key!r}: {value!r} is not text", hint="use text for keys and values")
        _require_text(key + value)
    if sum(len(key) + len(value) for key, value in checked.items()) > longest:
        raise InvalidInputError("the metadata is too large", hint=f"use at most {longest} characters in all")
    return checked


def _require_text(text: str) -> None:
    if not isinstance(text, str):
        raise InvalidInputError(f"{text!r} is not text", hint="give text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{text!r} cannot be stored as UTF-8", hint="remove the broken characters") from None
