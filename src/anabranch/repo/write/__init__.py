"""One commit over many tables: stage the tables, publish the commit, settle it for plain Lance readers.

Start with `publish`. Imports `refs` and `log`.
"""
