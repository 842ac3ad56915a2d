"""The options of a CSV file, and their validation."""

import codecs
from dataclasses import dataclass

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_number

__all__ = ["CsvOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """The options of a CSV file, shared by load and export.

    Without a quote character, quotes are text. Without an escape character, a quote is escaped by doubling. `null`
    has the texts that stand for null if they are not quoted. `skip` lines before the header are ignored.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null: tuple[str, ...] = ("",)
    encoding: str = "utf-8"
    skip: int = 0

    def __post_init__(self) -> None:
        _require_character("delimiter", self.delimiter)
        for name, character in (("quote", self.quote), ("escape", self.escape)):
            if character is not None:
                _require_character(name, character)
        if self.quote == self.escape and self.quote is not None:
            object.__setattr__(self, "escape", None)  # a doubled quote is the default
        used = [character for character in (self.delimiter, self.quote, self.escape) if character is not None]
        if len(set(used)) < len(used):
            raise InvalidInputError(f"one character has two meanings among {used}", hint="choose different characters")
        for text in self.null:
            _require_text(text)
        if checked_number(self.skip, "number of lines to skip", hint="give a whole number") < 0:
            raise InvalidInputError(f"the number of lines to skip is {self.skip}", hint="give 0 or more")
        try:
            is_known = codecs.lookup(self.encoding)._is_text_encoding  # not hex, for example
        except (LookupError, TypeError, ValueError):
            is_known = False
        if not is_known:
            raise InvalidInputError(
                f"the encoding {self.encoding!r} is not known", hint="name one such as utf-8, utf-16 or latin-1"
            )

    @property
    def is_utf8(self) -> bool:
        return codecs.lookup(self.encoding).name in {"utf-8", "utf-8-sig", "ascii"}


def _require_text(text: object) -> None:
    if not isinstance(text, str):
        raise InvalidInputError(f"null is given as {text!r}", hint="give text, or a list of texts")


def _require_character(name: str, character: object) -> None:
    if not (isinstance(character, str) and len(character) == 1 and character.isascii() and character not in "\r\n\0"):
        raise InvalidInputError(f"the {name} is {character!r}", hint="give one ASCII character")
