"""Cleanup of one Lance dataset: remove versions that are not kept, and files that no kept version needs.

`sweep.py` is the entry: it makes a plan and executes it. `plan.py` decides, `versions.py` lists the versions that stay,
and `shared_files.py` reads clones and sources that may share files, and keeps a list of files in bases that this
dataset no longer names.
"""
