"""Files and bytes, as commands show them."""

from typing import TYPE_CHECKING

from anabranch.cli.output import count, human_size

if TYPE_CHECKING:
    from anabranch.format.layout.listing import Total
    from anabranch.format.storage_report import Usage

__all__ = ["amount", "usage_text"]


def amount(usage: "Usage | Total") -> dict[str, int]:
    """For programs."""
    return {"files": usage.files, "bytes": usage.bytes}


def usage_text(usage: "Usage | Total") -> str:
    """For people."""
    return f"{count(usage.files, 'file')}, {human_size(usage.bytes)}" if usage.files else "-"
