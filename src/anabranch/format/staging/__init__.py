"""Changes staged on a pinned version: whole versions that only those see who know their id.

Every recipe takes a pin and returns another; the pinned version, its siblings and the home's ordinary history stay as
they are until `settle` makes a version the next ordinary one.
"""

from anabranch.format.staging.appended import find_appended
from anabranch.format.staging.columns import ColumnChange, add_columns, alter_columns, drop_columns, find_computable
from anabranch.format.staging.compaction import (
    TARGET_ROWS,
    RewriteTask,
    RewrittenFragments,
    compact,
    plan_compaction,
    rewrite_fragments,
    stage_rewritten,
)
from anabranch.format.staging.default_checks import find_wrong_default
from anabranch.format.staging.defaults import DEFAULT, default_expression
from anabranch.format.staging.forking import fork
from anabranch.format.staging.fragments import (
    Fingerprint,
    WrittenFragment,
    append,
    append_fragments,
    has_same_fields,
    overwrite,
    overwrite_fragments,
    require_files,
    write_fragments,
)
from anabranch.format.staging.indices import (
    IndexInfo,
    IndexKind,
    VectorOptions,
    drop_index,
    find_indexed_column,
    index,
    list_indices,
)
from anabranch.format.staging.keys import delete_keys, find_existing_keys, upsert
from anabranch.format.staging.notes import DESCRIPTION, Notes, annotate, keep_notes, notes_of
from anabranch.format.staging.pin import Pin, create_empty
from anabranch.format.staging.rows import RowBatch, RowsChanged, delete, replace_rows, update
from anabranch.format.staging.settling import (
    PreparedSettle,
    Settled,
    copy_ordinary,
    find_shown,
    foreign_versions,
    is_damaged,
    is_newest,
    is_our_restore,
    link,
    newest_version,
    prepare_settle,
    put_prepared,
    rebuild_staged,
    remember_settled,
    replace_damaged,
    restored_version,
    settle,
    settle_by_force,
    settled_head,
    versions_shown_by,
)
from anabranch.format.staging.uniqueness import are_surely_unique

__all__ = [
    "TARGET_ROWS",
    "ColumnChange",
    "DEFAULT",
    "DESCRIPTION",
    "Fingerprint",
    "IndexInfo",
    "IndexKind",
    "Notes",
    "Pin",
    "PreparedSettle",
    "RewriteTask",
    "RewrittenFragments",
    "RowBatch",
    "RowsChanged",
    "Settled",
    "VectorOptions",
    "WrittenFragment",
    "add_columns",
    "alter_columns",
    "annotate",
    "append",
    "append_fragments",
    "are_surely_unique",
    "compact",
    "create_empty",
    "default_expression",
    "copy_ordinary",
    "delete",
    "delete_keys",
    "drop_columns",
    "drop_index",
    "find_appended",
    "find_computable",
    "find_existing_keys",
    "find_wrong_default",
    "foreign_versions",
    "find_indexed_column",
    "find_shown",
    "fork",
    "has_same_fields",
    "index",
    "is_damaged",
    "is_newest",
    "is_our_restore",
    "keep_notes",
    "link",
    "list_indices",
    "newest_version",
    "notes_of",
    "overwrite",
    "overwrite_fragments",
    "replace_rows",
    "require_files",
    "prepare_settle",
    "put_prepared",
    "remember_settled",
    "rebuild_staged",
    "replace_damaged",
    "restored_version",
    "rewrite_fragments",
    "settle",
    "settle_by_force",
    "settled_head",
    "plan_compaction",
    "stage_rewritten",
    "update",
    "upsert",
    "versions_shown_by",
    "write_fragments",
]
