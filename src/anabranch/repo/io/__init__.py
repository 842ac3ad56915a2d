"""Load rows from files and frames as one commit, and export the rows of one snapshot to files.

Start with `load.load` and `export.export_table`, which `Repository.load` and `Repository.export` call. `prepared_table`
has the requests and reports of loads, and the steps that Spark and pipelines share with them.
"""
