"""All pages of a lake."""

from anabranch.server.ui import (
    branches,
    commit,
    compare,
    graph,
    lineage,
    loads,
    merge,
    overview,
    reflog,
    runs,
    sql,
    storage,
    tables,
)

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
    *tables.PAGES,
    *loads.PAGES,
    *compare.PAGES,
    *merge.PAGES,
    *sql.PAGES,
)
