"""How a CSV file is written."""

import codecs
from dataclasses import dataclass

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_number

__all__ = ["CsvOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """The signs of a CSV file. Without a quote, quotes are text; without an escape, a doubled quote stands for one.

    `null` are the texts that stand for no value, where they are not quoted. As many lines as `skip` says are left out
    at the beginning, before the header.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null: tuple[str, ...] = ("",)
    encoding: str = "utf-8"
    skip: int = 0

    def __post_init__(self) -> None:
        _require_sign("delimiter", self.delimiter)
        for name, sign in (("quote", self.quote), ("escape", self.escape)):
            if sign is not None:
                _require_sign(name, sign)
        if self.quote == self.escape and self.quote is not None:
            object.__setattr__(self, "escape", None)  # a doubled quote is what goes without saying
        signs = [sign for sign in (self.delimiter, self.quote, self.escape) if sign is not None]
        if len(set(signs)) < len(signs):
            raise InvalidInputError(f"one sign has two meanings among {signs}", hint="choose different signs")
        for text in self.null:
            _require_text(text)
        if checked_number(self.skip, "number of lines to skip", hint="give a whole number") < 0:
            raise InvalidInputError(f"the number of lines to skip is {self.skip}", hint="give 0 or more")
        try:
            is_known = codecs.lookup(self.encoding)._is_text_encoding  # hex and the like are none
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


def _require_sign(name: str, sign: object) -> None:
    if not (isinstance(sign, str) and len(sign) == 1 and sign.isascii() and sign not in "\r\n\0"):
        raise InvalidInputError(f"the {name} is {sign!r}", hint="give one ASCII character")
