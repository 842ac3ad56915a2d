"""What users say about branches and commits, checked before anything is done with it."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.repo.models import CommitKind

__all__ = ["checked_expiry", "checked_kind", "checked_metadata", "checked_text", "require_names"]

_MAX_LENGTH = 10_000
_LONGEST_LIFE = timedelta(days=36_525)


def checked_kind(kind: str) -> CommitKind:
    try:
        return CommitKind(kind)
    except ValueError:
        raise InvalidInputError(f"the commit kind {kind!r} is not known", hint=f"use {', '.join(CommitKind)}") from None


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


def checked_metadata(metadata: Any) -> dict[str, str]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInputError(f"the metadata {metadata!r} is no mapping", hint="give a dict of text to text")
    checked = dict(metadata or {})
    for key, value in checked.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise InvalidInputError(f"metadata {key!r}: {value!r} is not text", hint="use text for keys and values")
        _require_text(key + value)
    if sum(len(key) + len(value) for key, value in checked.items()) > _MAX_LENGTH:
        raise InvalidInputError("the metadata is too large", hint=f"use at most {_MAX_LENGTH} characters in all")
    return checked


def require_names(columns: Any) -> None:
    """Refuse what is no list of column names; a lone string would be taken for its letters."""
    if isinstance(columns, str):
        raise InvalidInputError(f"{columns!r} is no list of columns", hint=f"give [{columns!r}]")
    if not isinstance(columns, Collection) or not all(isinstance(name, str) for name in columns):
        raise InvalidInputError(f"{columns!r} is no list of columns", hint="give a list of their names")


def _require_text(text: str) -> None:
    if not isinstance(text, str):
        raise InvalidInputError(f"{text!r} is not text", hint="give text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{text!r} cannot be stored as UTF-8", hint="remove the broken characters") from None
