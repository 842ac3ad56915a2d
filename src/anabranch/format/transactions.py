"""How a version was made, as its transaction says."""

import lance

from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors

__all__ = ["alone", "find_transaction"]


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
