"""Changes staged on a pinned version: whole versions that only those see who know their id.

Every recipe takes a version ref and returns another one. The version, its siblings and the ordinary history of the
home stay as they are until `settle` makes a version the next ordinary one.

Each name is loaded when it is first used, so that a command that opens no table does not wait for Lance.
"""

from typing import TYPE_CHECKING, Any

from anabranch.lazy import load_name

if TYPE_CHECKING:
    from anabranch.format.staging.columns import (
        ColumnChange,
        add_columns,
        add_defaults,
        alter_columns,
        check_defaults,
        drop_columns,
        find_computable,
        find_wrong_default,
    )
    from anabranch.format.staging.compaction import (
        TARGET_ROWS,
        RewriteTask,
        RewrittenFragments,
        compact,
        plan_compaction,
        rewrite_fragments,
        stage_rewritten,
    )
    from anabranch.format.staging.expressions import (
        DEFAULT,
        default_expression,
    )
    from anabranch.format.staging.fragments import (
        Fingerprint,
        WrittenFragment,
        append,
        append_copied,
        append_fragments,
        copy_appended,
        find_appended,
        has_same_fields,
        overwrite,
        overwrite_fragments,
        require_files,
        write_fragments,
    )
    from anabranch.format.staging.indices import (
        METRICS,
        IndexInfo,
        IndexKind,
        IndexRecipe,
        VectorOptions,
        build_indices,
        drop_index,
        find_indexed_column,
        index,
        keep_indices,
        list_indices,
        read_recipes,
    )
    from anabranch.format.staging.key_hashes import (
        FoundKeys,
        KeyRows,
    )
    from anabranch.format.staging.keys import (
        are_surely_unique,
        copy_upserted,
        delete_keys,
        find_existing_keys,
        find_taken_keys,
        read_given_keys,
        refuse_repeated,
        upsert,
    )
    from anabranch.format.staging.manifests import (
        copy_ordinary,
        find_shown,
        is_damaged,
        is_our_restore,
        list_external_versions,
        newest_version,
        rebuild_staged,
        replace_damaged,
        restored_version,
        versions_shown_by,
    )
    from anabranch.format.staging.notes import (
        DESCRIPTION,
        Notes,
        annotate,
        keep_notes,
        notes_of,
        without_column_ids,
        without_own_notes,
    )
    from anabranch.format.staging.rows import (
        Addresses,
        RowBatch,
        RowsChanged,
        delete,
        delete_rows,
        find_rows,
        replace_rows,
        replace_written,
        require_rows,
        update,
        write_moved_rows,
    )
    from anabranch.format.staging.settling import (
        PreparedSettle,
        Settled,
        find_missing_files,
        fork,
        is_newest,
        link,
        list_created_files,
        prepare_settle,
        put_prepared,
        remember_settled,
        settle,
        settle_by_force,
        settled_head,
        staged_at,
    )
    from anabranch.format.staging.version_ref import (
        VersionRef,
        create_empty,
    )

# The names of each module, which type checkers find above.
_MODULES = {
    "columns": (
        "ColumnChange",
        "add_columns",
        "add_defaults",
        "alter_columns",
        "check_defaults",
        "drop_columns",
        "find_computable",
        "find_wrong_default",
    ),
    "compaction": (
        "TARGET_ROWS",
        "RewriteTask",
        "RewrittenFragments",
        "compact",
        "plan_compaction",
        "rewrite_fragments",
        "stage_rewritten",
    ),
    "expressions": ("DEFAULT", "default_expression"),
    "fragments": (
        "Fingerprint",
        "WrittenFragment",
        "append",
        "append_copied",
        "append_fragments",
        "copy_appended",
        "find_appended",
        "has_same_fields",
        "overwrite",
        "overwrite_fragments",
        "require_files",
        "write_fragments",
    ),
    "indices": (
        "METRICS",
        "IndexInfo",
        "IndexKind",
        "IndexRecipe",
        "VectorOptions",
        "build_indices",
        "drop_index",
        "find_indexed_column",
        "index",
        "keep_indices",
        "list_indices",
        "read_recipes",
    ),
    "key_hashes": ("FoundKeys", "KeyRows"),
    "keys": (
        "are_surely_unique",
        "copy_upserted",
        "delete_keys",
        "find_existing_keys",
        "find_taken_keys",
        "read_given_keys",
        "refuse_repeated",
        "upsert",
    ),
    "manifests": (
        "copy_ordinary",
        "find_shown",
        "is_damaged",
        "is_our_restore",
        "list_external_versions",
        "newest_version",
        "rebuild_staged",
        "replace_damaged",
        "restored_version",
        "versions_shown_by",
    ),
    "notes": ("DESCRIPTION", "Notes", "annotate", "keep_notes", "notes_of", "without_column_ids", "without_own_notes"),
    "rows": (
        "Addresses",
        "RowBatch",
        "RowsChanged",
        "delete",
        "delete_rows",
        "find_rows",
        "replace_rows",
        "replace_written",
        "require_rows",
        "update",
        "write_moved_rows",
    ),
    "settling": (
        "PreparedSettle",
        "Settled",
        "find_missing_files",
        "fork",
        "is_newest",
        "link",
        "list_created_files",
        "prepare_settle",
        "put_prepared",
        "remember_settled",
        "settle",
        "settle_by_force",
        "settled_head",
        "staged_at",
    ),
    "version_ref": ("VersionRef", "create_empty"),
}
_LOCATIONS = {name: (f"{__name__}.{module}", name) for module, names in _MODULES.items() for name in names}

__all__ = sorted(_LOCATIONS)


def __getattr__(name: str) -> Any:
    return load_name(__name__, _LOCATIONS, name)
