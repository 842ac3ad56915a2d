"""Put an object once, and find out which writer did it."""

from collections.abc import Sequence

from anabranch.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from anabranch.storage.objects import ObjectStore

__all__ = ["put_once"]


def put_once(store: ObjectStore, path: str, data: bytes, *, durable: bool = True, after: Sequence[str] = ()) -> bool:
    """Put an object if there is none. Return whether it is there as given; False if another writer put another one.

    An answer can get lost after the object was put, and a retried put then meets its own first try. So after any
    failure the object that is there decides. `durable` and `after` are those of `put_if_absent`.
    """
    try:
        store.put_if_absent(path, data, durable=durable, after=after)
    except (ObjectExistsError, StorageError) as err:
        try:
            return store.get(path) == data
        except ObjectNotFoundError:
            raise err from None
    return True
