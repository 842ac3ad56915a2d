"""One page of a list of names: those with a prefix, after a name, up to a maximum number."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from anabranch.errors import InvalidInputError
from anabranch.repo.log.arguments import checked_limit

__all__ = ["ALL", "NamePage"]

T = TypeVar("T")

# The number of entries to read in parallel where no limit is given.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePage:
    """Which names to list. `after` need not exist: a page continues also after a name that was deleted."""

    prefix: str = ""
    after: str | None = None
    limit: int | None = None

    @classmethod
    def of(cls, prefix: str | None, after: str | None, limit: int | None, things: str) -> "NamePage":
        """Check the arguments of a caller."""
        for name, value in (("prefix", prefix), ("after", after)):
            if value is not None and not isinstance(value, str):
                raise InvalidInputError(f"{name} must be a string, got {value!r}", hint=f"pass the name of {things}")
        return cls(prefix=prefix or "", after=after, limit=checked_limit(limit, things))

    def select(self, names: Iterable[str], *, newest_first: bool = False) -> list[str]:
        """Return the names of the page in order. There may be more than the limit, because some may be deleted."""
        found = sorted((name for name in names if name.startswith(self.prefix)), reverse=newest_first)
        after = self.after
        if after is None:
            return found
        return [name for name in found if (name < after if newest_first else name > after)]

    def cut(self, found: Iterable[T]) -> Iterator[T]:
        """Yield at most the limit."""
        return islice(found, self.limit)

    def read(self, names: Sequence[str], read_all: Callable[[Sequence[str]], Iterable[T]]) -> Iterator[T]:
        """Yield what `read_all` returns for the names, in batches as large as the page."""
        size = _AT_ONCE if self.limit is None else max(1, self.limit)
        for start in range(0, len(names), size):
            yield from read_all(names[start : start + size])


ALL = NamePage()
