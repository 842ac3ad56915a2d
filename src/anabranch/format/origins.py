"""Where a branch's first version came from, as the version itself tells."""

from dataclasses import dataclass

import lance

from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors

__all__ = ["Origin", "find_origin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The version that was branched from. The branch None is main."""

    branch: str | None
    version: int


def find_origin(home: Home, opened: lance.LanceDataset) -> Origin | None:
    """Where an opened version came from if it was made by branching, else None."""
    try:
        with lance_errors(home.uri, home.storage_options):
            transaction = opened.read_transaction(opened.version)
    except TypeError:
        return None  # Lance cannot show a compaction that touched indices
    operation = None if transaction is None else transaction.operation
    if not isinstance(operation, lance.LanceOperation.Clone):
        return None
    return Origin(branch=operation.ref_name, version=operation.ref_version)
