"""Load rows from files and frames as one commit, and export the rows of one snapshot to files.

Start with `load.load` and `export.export`: `Repository.load` and `Repository.export` only call them. `files` and
`frames` stage the rows of the two kinds of sources in a transaction, `values` has the requests and the reports.
"""
