"""Cleanup of one Lance dataset: remove versions that are not kept, and files that no kept version needs.

`cleanup.py` is the entry: it makes a plan and executes it. `retention.py` has the rules, the report and the choice of
the versions that stay. `shared_files.py` reads clones and sources that may share files, keeps a list of files in bases
that this dataset no longer names, and removes bases.
"""
