"""Compare two versions of a table."""
