"""Load rows from files and frames as one commit, and export the rows of one snapshot to files.

Start with `load.load` and `export.export_table`, which `Repository.load` and `Repository.export` call. `load_steps`
prepares the table and stages the rows of files in a transaction. `values` has the requests and the reports.
"""
