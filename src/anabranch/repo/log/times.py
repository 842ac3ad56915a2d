"""Times: stored as microseconds since 1970, shown as datetimes in UTC.

A field that ends in `_at` is such a number. The property of the same name without `_at` is its datetime.
"""

from datetime import UTC, datetime, timedelta

__all__ = ["to_datetime", "to_microseconds", "to_text"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(microseconds: int) -> datetime:
    """Return a time as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """Return an aware datetime as microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_text(moment: datetime) -> str:
    """Return a time in UTC to the second, as lists show it."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"
