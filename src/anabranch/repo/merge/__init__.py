"""Combine the changes of two histories: merge, cherry-pick, revert, rebase, publish a run whose target moved.

A merge first plans its steps (`steps`; made by `tables`, `matched_table` and `shapes`), which are values. Then it
applies them (`apply`, `rows`): it counts what they change, for a dry run, or stages it. Start with `merge`, `combiner`.
"""
