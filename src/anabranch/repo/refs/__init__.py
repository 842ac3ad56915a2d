"""Branches, tags and what a ref names. Imports `log` and `leases` only. Start with `resolve`."""
