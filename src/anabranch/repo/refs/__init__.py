"""Branches, tags and what a ref stands for. Imports `log` and `leases` only. Start with `resolve`."""
