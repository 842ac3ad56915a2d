"""Branches, tags and what a ref names. Imports `log` only. Start with `resolve`.

`branches` creates, lists and deletes branches, `reset_and_undo` moves them to other commits. A branch is renamed in
`write/branch_rename_pull_freeze`.
"""
