"""All pages of a lake."""

from anabranch.server.ui import branches, commit, graph, overview

__all__ = ["PAGES"]

PAGES = (
    *overview.PAGES,
    *branches.PAGES,
    *graph.PAGES,
    *commit.PAGES,
)
