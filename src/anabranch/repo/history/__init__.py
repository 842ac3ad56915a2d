"""Read the history: ancestry, diffs, changes by commit, rows over time, lineage. Nothing here writes.

Start with `diff` for two states and with `changes` for a table commit by commit.
"""
