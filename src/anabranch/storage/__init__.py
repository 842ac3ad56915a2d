"""Object store access: the only importer of obstore."""

from anabranch.storage.folders import remove_empty_folders
from anabranch.storage.objects import ObjectInfo, ObjectStore, PreparedObject
from anabranch.storage.once import put_once
from anabranch.storage.parallel import in_parallel, iter_in_parallel
from anabranch.storage.store import (
    copy_between,
    copy_verified,
    find_object,
    is_below_file,
    open_files,
    open_store,
)

__all__ = [
    "ObjectInfo",
    "ObjectStore",
    "PreparedObject",
    "copy_between",
    "copy_verified",
    "find_object",
    "in_parallel",
    "is_below_file",
    "iter_in_parallel",
    "open_files",
    "open_store",
    "put_once",
    "remove_empty_folders",
]
