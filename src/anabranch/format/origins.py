"""Where a branch's first version came from, as the version itself tells."""

from dataclasses import dataclass

import lance

from anabranch.format.home import Home
from anabranch.format.transactions import find_transaction

__all__ = ["Origin", "find_origin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The version that was branched from. The branch None is main."""

    branch: str | None
    version: int


def find_origin(home: Home, opened: lance.LanceDataset) -> Origin | None:
    """Where an opened version came from if it was made by branching, else None."""
    transaction = find_transaction(home, opened, opened.version)
    operation = None if transaction is None else transaction.operation
    if not isinstance(operation, lance.LanceOperation.Clone):
        return None
    return Origin(branch=operation.ref_name, version=operation.ref_version)
