"""Garbage collection: find the files that no retained commit needs, and delete them.

`collection` is the entry point: it finds the retained commits (`roots`), marks the others as collected and deletes
their files (`sweep_and_purge`; a purge frees the space of one deleted branch at once). Which files of a table are dead
is decided in `format/dead_files`. `storage_report` reports the same as numbers and deletes nothing.
`collection` also has compaction, which rewrites small files of a table. See `docs/adr/0011`.
"""
