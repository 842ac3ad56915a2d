"""What a client of the service knows: each thing is for certain one way, or, while an answer is missing, one of two."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Fact", "Knowledge", "NotAnsweredError", "Value"]

# Such as ("row", branch, table, id) or ("branch", name); the value None means that it does not exist.
Fact = tuple[str, ...]
Value = str | None


class NotAnsweredError(Exception):
    """The service went away before it answered a request."""


@dataclass
class Knowledge:
    """What was acknowledged; and what was asked for without an answer, of which all is done or nothing."""

    certain: dict[Fact, Value] = field(default_factory=dict)
    in_doubt: list[dict[Fact, Value]] = field(default_factory=list)

    @contextmanager
    def changing(self, changes: Mapping[Fact, Value]) -> Iterator[None]:
        """Ask for something that makes these facts true."""
        try:
            yield
        except NotAnsweredError:
            self.in_doubt.append(dict(changes))
            raise
        self.certain.update(changes)

    def rows(self, branch: str, table: str) -> dict[Fact, Value]:
        return {fact: value for fact, value in self.certain.items() if fact[:3] == ("row", branch, table)}

    def without_rows(self, *location: str) -> dict[Fact, Value]:
        """That no row is at a location any more: a branch, or a table of it."""
        return {fact: None for fact in self.certain if fact[: len(location) + 1] == ("row", *location)}

    def settle(self, seen: Mapping[Fact, Value]) -> None:
        """Compare with what is there, of which no fact may be missing; from now on that is what is known."""
        for doubt in self.in_doubt:
            outcomes = {
                "done": all(seen.get(fact) == value for fact, value in doubt.items()),
                "not done": all(seen.get(fact) == self.certain.get(fact) for fact in doubt),
            }
            assert any(outcomes.values()), f"half of {doubt} is done: {[seen.get(fact) for fact in doubt]}"
        doubtful = {fact for doubt in self.in_doubt for fact in doubt}
        known = {fact: value for fact, value in self.certain.items() if fact not in doubtful}
        wrong = {fact: (value, seen.get(fact)) for fact, value in known.items() if seen.get(fact) != value}
        assert not wrong, f"known, and seen: {wrong}"
        strange = {fact: value for fact, value in seen.items() if fact not in self.certain and fact not in doubtful}
        assert not strange, f"nobody asked for {strange}"
        self.certain = {fact: seen.get(fact) for fact in self.certain.keys() | doubtful}
        self.in_doubt = []
