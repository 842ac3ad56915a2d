"""How a version was made, by its transaction."""

from dataclasses import dataclass

import lance

from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors

__all__ = ["Origin", "alone", "find_origin", "find_transaction"]


def alone(opened: lance.LanceDataset) -> lance.LanceDataset:
    """Return a handle of the same version that no other thread uses.

    Some methods lock their handle while they run: those that read a transaction or build an index. Every other call on
    that handle fails then. The handles of staged versions are shared by all threads, so these methods need their own.
    """
    return opened.checkout_version(opened.version)


def find_transaction(home: Home, opened: lance.LanceDataset, version: int) -> lance.Transaction | None:
    """Return the transaction that made a version; None if it has none, or one that Lance cannot show."""
    with lance_errors(home.uri, home.storage_options):
        try:
            return alone(opened).read_transaction(version)
        except TypeError:
            return None  # a compaction that touched indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The version that was branched from. The branch None is main."""

    branch: str | None
    version: int


def find_origin(home: Home, opened: lance.LanceDataset) -> Origin | None:
    """Where an opened version came from if it was made by branching, else None."""
    transaction = find_transaction(home, opened, opened.version)
    operation = None if transaction is None else transaction.operation
    # Lance creates a branch by a Clone, which names the version it was made from.
    if not isinstance(operation, lance.LanceOperation.Clone):
        return None
    return Origin(branch=operation.ref_name, version=operation.ref_version)
