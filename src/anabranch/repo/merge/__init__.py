"""Combine the changes of two histories: merge, cherry-pick, revert, rebase, publish a run whose target moved.

A merge first makes a plan (`plan`, `tables`, `rows`, `shapes`), then applies it (`apply`). Start with `merge`.
"""
