"""Whether deletion files are complete. Manifests record no size of them, only the number of rows they delete."""

from collections.abc import Mapping

from anabranch.errors import DamagedFileError, ObjectNotFoundError
from anabranch.format.layout.deletions import read_deletion_file
from anabranch.storage import in_parallel, open_store

__all__ = ["find_damaged_deletions"]


def find_damaged_deletions(rows: Mapping[str, int], storage_options: Mapping[str, str]) -> dict[str, str]:
    """Read deletion files, by URI with the number of rows each deletes; return what is wrong with those damaged."""

    def check(uri: str) -> str | None:
        folder, _, name = uri.rpartition("/")
        try:
            found = len(read_deletion_file(open_store(folder, storage_options).get(name), name=name))
        except DamagedFileError as err:
            return err.problem
        except ObjectNotFoundError:
            return None  # a missing file is another finding
        return None if found == rows[uri] else f"it deletes {found} rows, and the manifest says {rows[uri]}"

    uris = sorted(rows)
    return {uri: problem for uri, problem in zip(uris, in_parallel(check, uris), strict=True) if problem is not None}
