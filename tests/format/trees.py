"""Every object below an address, to compare what was there before and after."""

from anabranch.storage import open_store

__all__ = ["contents"]


def contents(uri: str, storage_options: dict[str, str] | None = None) -> dict[str, bytes]:
    """Return the bytes of each object below an address, by path."""
    store = open_store(uri, storage_options)
    return {info.path: store.get(info.path) for info in store.list()}
