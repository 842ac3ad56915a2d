"""Move data into a repository and out of it: load, export, clone, and relocation after a move.

Start with `load.load` and `export.export_table`, which `Repository.load` and `Repository.export` call. `prepared_table`
has the requests and reports of loads, and the steps that Spark and pipelines share with them. `clone` makes a
repository from one commit of another.
"""
