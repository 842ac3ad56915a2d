"""Object store access: the only importer of obstore."""

from anabranch.storage.store import ObjectInfo, ObjectStore, copy_between, open_store

__all__ = ["ObjectInfo", "ObjectStore", "copy_between", "open_store"]
