"""Load rows from files and frames as one commit, and export the rows of one snapshot to files.

Start with `load.load` and `export.export`: `Repository.load` and `Repository.export` only call them. `files` stages the
rows of files in a transaction, `target` prepares the table, and `values` has the requests and the reports.
"""
