"""All pages of a lake."""

from anabranch.server.ui import (
    branches,
    commit,
    compare,
    graph,
    merge,
    overview,
    reflog,
    rows,
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
    *storage.PAGES,
    *reflog.PAGES,
    *tables.PAGES,
    *rows.PAGES,
    *compare.PAGES,
    *merge.PAGES,
    *sql.PAGES,
)
