"""Load rows from files and frames in one commit, and export rows of one snapshot to files."""
