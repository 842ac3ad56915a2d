"""All pages of a lake."""

from anabranch.server.ui import branches, overview

__all__ = ["PAGES"]

PAGES = (
    *overview.PAGES,
    *branches.PAGES,
)
