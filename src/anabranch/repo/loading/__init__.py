"""Rows that come from files and go to files, as one commit and from one snapshot."""
