"""Combine the changes of two histories: merge, cherry-pick, revert, rebase, publish a run whose target moved.

A merge first plans its steps (`steps`; made by `combiner`, `matched_table` and `shape_merge`), which are values. Then
it applies them (`apply`, `rows`, `constraints`): it counts what they change, for a dry run, or stages it. Start with
`merge` and `combiner`.
Conflicts are decided by a strategy or by rules (`conflict_resolution`, with the rules of `cell_resolvers`), by
decisions on single conflicts (`decisions`), or by decisions of an earlier attempt (`kept_decisions`). A revert is in
`cherry_pick_and_rebase`.
"""
