"""Bring two lines of commits together: merge, cherry-pick, revert, rebase, publish a run whose target moved.

A merge first makes a plan (`plan`, `tables`, `rows`, `shapes`), then applies it (`applying`). Start with `merge`.
"""
