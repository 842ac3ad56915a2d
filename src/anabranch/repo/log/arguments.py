"""Checks of the arguments that users pass for branches and commits."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_limit, checked_number, require_names
from anabranch.hints import suggest
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

# Messages and metadata are repeated in the summaries of later commits, so that they must stay small.
_MAX_LENGTH = 10_000
_MAX_EXPIRY = timedelta(days=36_525)

E = TypeVar("E", bound=StrEnum)


def checked_choice(kind: type[E], text: str, what: str) -> E:
    """Return the member of an enum with this value. Raise InvalidInputError if there is none."""
    try:
        return kind(text)
    except ValueError:
        hint = suggest(str(text), list(kind), f"use one of {', '.join(repr(member.value) for member in kind)}")
        raise InvalidInputError(f"{what} is {text!r}, which is not known", hint=hint) from None


def checked_kind(kind: str) -> CommitKind:
    try:
        return CommitKind(kind)
    except ValueError:
        known = ", ".join(CommitKind)
        raise InvalidInputError(f"the commit kind {kind!r} is not known", hint=f"use one of {known}") from None


def checked_mode(mode: str) -> BranchMode:
    try:
        return BranchMode(mode)
    except ValueError:
        raise InvalidInputError(f"branch mode {mode!r} is not known", hint="use 'pinned' or 'live'") from None


def checked_version(version: Any) -> int:
    return checked_number(version, "version", hint="pass the number of an entry in the branch's log, such as 7")


def checked_text(message: str, what: str = "message") -> str:
    _require_text(message)
    if len(message) > _MAX_LENGTH:
        raise InvalidInputError(f"the {what} has {len(message)} characters", hint=f"use at most {_MAX_LENGTH}")
    return message


def _show(span: object) -> str:
    return str(span) if isinstance(span, timedelta) else repr(span)


def checked_expiry(expires_in: object) -> int:
    """Return the time until a branch expires, in microseconds."""
    if not isinstance(expires_in, timedelta) or not timedelta(0) < expires_in <= _MAX_EXPIRY:
        raise InvalidInputError(
            f"the branch cannot expire in {_show(expires_in)}", hint="pass a timedelta above 0 and up to 100 years"
        )
    return expires_in // timedelta(microseconds=1)


def checked_metadata(metadata: Any, *, longest: int = _MAX_LENGTH) -> dict[str, str]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInputError(f"metadata must be a mapping, got {metadata!r}", hint="pass a dict of str to str")
    checked = dict(metadata or {})
    for key, value in checked.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise InvalidInputError(
                f"metadata {key!r}: {value!r} is not a string", hint="use strings for keys and values"
            )
        _require_text(key + value)
    if sum(len(key) + len(value) for key, value in checked.items()) > longest:
        raise InvalidInputError("the metadata is too large", hint=f"use at most {longest} characters in total")
    return checked


def _require_text(text: str) -> None:
    if not isinstance(text, str):
        raise InvalidInputError(f"{text!r} is not a string", hint="pass a string")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{text!r} cannot be stored as UTF-8", hint="remove the invalid characters") from None
