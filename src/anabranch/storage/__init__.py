"""Object store access: the only importer of obstore.

An `ObjectStore` (`object_store`) is one root and the objects below it: a bucket, or a local folder with durable writes
(`local_store`). `documents` encodes the JSON objects, `uris` normalises locations, `options` reads the storage options,
`store` opens stores, `requests` sends requests in parallel. Imports only `ids` and `errors`. Start at `object_store`.
"""

from anabranch.storage.local_store import remove_empty_folders
from anabranch.storage.object_store import ObjectInfo, ObjectStore, PreparedObject
from anabranch.storage.requests import at_once, in_parallel, iter_in_parallel, put_once
from anabranch.storage.store import copy_between, copy_verified, is_below_file, open_files, open_parent, open_store

__all__ = [
    "ObjectInfo",
    "ObjectStore",
    "PreparedObject",
    "at_once",
    "copy_between",
    "copy_verified",
    "in_parallel",
    "is_below_file",
    "iter_in_parallel",
    "open_files",
    "open_parent",
    "open_store",
    "put_once",
    "remove_empty_folders",
]
