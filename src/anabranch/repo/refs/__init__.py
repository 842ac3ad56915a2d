"""Branches, tags and what a ref names. Imports `log` only. Start with `resolve`.

`branches` creates, lists and deletes branches, `reflog` moves them. A branch is renamed in `write/branch_changes`.
"""
