"""Pieces of text as Markdown wants them."""

import html
import inspect

__all__ = ["BEGIN", "END", "cell", "code", "first_paragraph", "listed", "paragraphs"]

BEGIN, END = "<!-- from the code: begin -->", "<!-- from the code: end -->"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Code in a cell of a table, where a line between alternatives would end the cell."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def first_paragraph(text: str) -> str:
    return text.split("\n\n")[0]


def paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
