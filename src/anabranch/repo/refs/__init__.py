"""Branches, tags and what a ref names. Imports `log` and `leases` only. Start with `resolve`.

`branches` creates, lists and deletes branches, `reset` moves them. A branch is renamed in `write/branch_rename`.
"""
