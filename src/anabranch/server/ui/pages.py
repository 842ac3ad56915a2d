"""All pages of a lake."""

from anabranch.server.ui import branches, commit, graph, lineage, overview, reflog, runs, storage

__all__ = ["PAGES"]

PAGES = (
    *overview.PAGES,
    *branches.PAGES,
    *graph.PAGES,
    *commit.PAGES,
    *runs.PAGES,
    *lineage.PAGES,
    *storage.PAGES,
    *reflog.PAGES,
)
