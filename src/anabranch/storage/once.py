"""Put an object that nobody may have put before, and know who did."""

from anabranch.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from anabranch.storage.store import ObjectStore

__all__ = ["put_once"]


def put_once(store: ObjectStore, path: str, data: bytes) -> bool:
    """Put an object if there is none; whether it is there as given, False if somebody else put another one.

    An answer can get lost after the object was put, and a retried put then meets its own first try; so whatever goes
    wrong, what lies there decides.
    """
    try:
        store.put_if_absent(path, data)
    except (ObjectExistsError, StorageError) as err:
        try:
            return store.get(path) == data
        except ObjectNotFoundError:
            raise err from None
    return True
