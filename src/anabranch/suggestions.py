"""Hints that name the known name that is most like a mistyped one."""

import difflib
from collections.abc import Iterable
from itertools import islice

__all__ = ["closest", "suggest"]

# Comparing a name with this many others takes a few tenths of a second.
_MAX_COMPARED = 10_000


def suggest(name: str, known: Iterable[str], hint: str) -> str:
    """Return a hint that first asks "did you mean 'x'?" if one of the known names is like this one."""
    found = closest(name, known, n=1)
    return f"did you mean {found[0]!r}? {hint}" if found else hint


def closest(name: str, known: Iterable[str], *, n: int) -> list[str]:
    """Return the known names that are most like a name, whatever their case, the most similar first."""
    by_folded = {other.casefold(): str(other) for other in islice(known, _MAX_COMPARED)}
    return [by_folded[found] for found in difflib.get_close_matches(name.casefold(), by_folded, n=n)]
