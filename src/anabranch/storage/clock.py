"""The clock of a store, which is the same for all of its writers."""

from datetime import UTC, datetime

from anabranch.errors import StorageDeniedError
from anabranch.storage.objects import ObjectStore

__all__ = ["CLOCK", "store_time"]

CLOCK = "_clock"


def store_time(store: ObjectStore) -> datetime:
    """Return the time of the store: that of an object written now. Without write access, return the local time."""
    try:
        store.put(CLOCK, b"now\n", durable=False)
        return store.head(CLOCK).modified
    except StorageDeniedError:
        return datetime.now(UTC)
