"""What happened before: ancestry, diffs, changes by commit, rows through time, lineage. Reads only."""
