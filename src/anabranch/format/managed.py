"""Whether a dataset is a table of a repository, whose versions belong to commits."""

from anabranch.errors import InvalidInputError, StorageDeniedError
from anabranch.format.home import Home
from anabranch.storage import open_store
from anabranch.storage.uris import follow_links, is_local, split_uri

__all__ = ["find_repository", "refuse_managed"]

_REPOSITORY_MARK = "_repo.json"
# `{repository}/tables/{bucket}/{table}.lance` is the deepest path that a repository gives to a dataset.
_DEPTH = 3


def find_repository(root: Home) -> str | None:
    """Return the repository that a dataset is part of, by its path; None if there is none above it.

    A repository keeps its tables below `tables/` and its history tables directly in its root. A dataset in another
    folder is not part of it.
    """
    # A link may lead to a table of a repository from any folder.
    for start in dict.fromkeys([root.root, follow_links(root.root)]):
        folder = start
        for _ in range(_DEPTH):
            folder = folder.rpartition("/")[0]
            if not folder or (not is_local(folder) and not _has_bucket(folder)):
                break
            relative = start.removeprefix(f"{folder}/")
            # The folder may be a repository, but the dataset is not where its tables are.
            if "/" in relative and not relative.startswith("tables/"):
                continue
            try:
                if open_store(folder, root.storage_options).find_info(_REPOSITORY_MARK) is not None:
                    return folder
            except StorageDeniedError:
                break  # the credentials do not reach further than the dataset
    return None


def _has_bucket(uri: str) -> bool:
    return "://" in uri and bool(split_uri(uri)[1])


def refuse_managed(root: Home, doing: str, *, instead: str) -> None:
    """Raise InvalidInputError for a table of a repository; `instead` is the method for it."""
    repository = find_repository(root)
    if repository is not None:
        raise InvalidInputError(
            f"dataset {root.root!r} is a table of the repository {repository!r}, whose versions belong to commits:"
            f" {doing} is refused",
            hint=f"open the repository and use `{instead}()`, which knows the commits",
        )
