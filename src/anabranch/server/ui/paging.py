"""Pages of a long list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Paged", "page_of"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged(Generic[T]):
    """The items of one page. `total` is None if they were not counted."""

    items: Sequence[T]
    number: int
    size: int
    has_more: bool
    total: int | None = None

    @property
    def first(self) -> int:
        """The position of the first item, from 1 on."""
        return (self.number - 1) * self.size + 1

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1


def page_of(items: Sequence[T], *, number: int, size: int) -> Paged[T]:
    """Return one page of a list, the first page is number 1."""
    start = (number - 1) * size
    return Paged(
        items=items[start : start + size],
        number=number,
        size=size,
        has_more=start + size < len(items),
        total=len(items),
    )
