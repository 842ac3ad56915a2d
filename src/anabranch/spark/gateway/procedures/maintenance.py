"""Data files in and out, compaction, indices and garbage collection."""

from collections.abc import Mapping
from datetime import timedelta

from anabranch.files.formats import CsvOptions
from anabranch.format.staging import IndexKind, VectorOptions
from anabranch.repo.history.comparer import Choice
from anabranch.spark.gateway.procedures.procedure import Call, Procedure, Rows, columns, optional, required


def _compact(call: Call) -> Rows:
    # Procedures run in the gateway, which has no Spark session. The engine `spark` would start a second JVM.
    done = call.repository.compact(call.get("tables"), branch=call.get("branch", call.branch), engine=Choice.LOCAL)
    commit = None if done.commit is None else done.commit.graph_commit_id
    return [
        {
            "table": table.table,
            "rows": table.rows,
            "fragments_before": table.fragments_before,
            "fragments_after": table.fragments_after,
            "commit": commit,
        }
        for table in done.tables
    ]


def _index(call: Call) -> Rows:
    metric = call.get("metric")
    commit = call.repository.index(
        call["table"],
        call["column"],
        type=call.get("type", IndexKind.BTREE),
        name=call.get("name"),
        branch=call.get("branch", call.branch),
        vector=None if metric is None else VectorOptions(metric=metric),
    )
    name = call.get("name", f"{call['column']}_idx")
    return [{"table": call["table"], "index": name, "commit": None if commit is None else commit.graph_commit_id}]


def _gc(call: Call) -> Rows:
    days = call.get("keep_days")
    report = call.repository.gc(
        keep_newer_than=None if days is None else timedelta(days=days),
        keep_last=call.get("keep_last"),
        dry_run=call.get("dry_run", False),
    )
    return [
        {
            "dry_run": report.dry_run,
            "objects": len(report.objects),
            "bytes": report.bytes,
            "commits": len(report.commits),
            "branches": len(report.branches),
            "runs": len(report.runs),
            "retained_commits": report.retained_commits,
            "damaged": len(report.damaged),
        }
    ]


MAINTENANCE: Mapping[str, Procedure] = {
    "compact": Procedure(
        description="Rewrite small and half-deleted files of tables as larger ones.",
        parameters=optional("branch", tables="ARRAY<STRING>"),
        columns=columns(["table", "commit"], longs=["rows", "fragments_before", "fragments_after"]),
        run=_compact,
    ),
    "index": Procedure(
        description="Build an index on a column.",
        parameters=(*required("table", "column"), *optional("type", "name", "branch", "metric")),
        columns=columns(["table", "index", "commit"]),
        run=_index,
    ),
    "gc": Procedure(
        description="Free the space of what nothing can reach any more.",
        parameters=optional(keep_days="DOUBLE", keep_last="BIGINT", dry_run="BOOLEAN"),
        columns=columns(
            [],
            longs=["objects", "bytes", "commits", "branches", "runs", "retained_commits", "damaged"],
            flags=["dry_run"],
        ),
        run=_gc,
    ),
}


def _csv_options(call: Call) -> CsvOptions:
    return CsvOptions(delimiter=call.get("delimiter"), header=call.get("header", True))


def _load(call: Call) -> Rows:
    options = ("format", "on_bad", "on_duplicate", "message", "primary_key")
    report = call.repository.load(
        call["table"],
        call["source"],
        mode=call.get("mode", "append"),
        branch=call.get("branch", call.branch),
        engine=Choice.LOCAL,
        csv=_csv_options(call),
        **{name: call[name] for name in options if name in call.arguments},
    )
    return [
        {
            "table": report.table,
            "branch": report.branch,
            "files": len(report.files),
            "rows_read": report.rows_read,
            "rows_loaded": report.rows_loaded,
            "rows_rejected": report.rows_rejected,
            "commit": report.commit_id,
        }
    ]


def _export(call: Call) -> Rows:
    options = ("format", "columns", "limit", "overwrite")
    report = call.repository.export(
        call["table"],
        call["target"],
        ref=call.get("ref", call.branch),
        where=call.get("where"),
        csv=_csv_options(call),
        **{name: call[name] for name in options if name in call.arguments},
    )
    return [
        {
            "table": report.table,
            "commit": report.commit_id,
            "format": report.format,
            "files": len(report.files),
            "rows": report.rows,
            "bytes": report.bytes_written,
        }
    ]


DATA: Mapping[str, Procedure] = {
    "export": Procedure(
        description="Write rows of a table to a file, or to the files of a folder.",
        parameters=(
            *required("table", "target"),
            *optional(
                "ref",
                "format",
                "where",
                "delimiter",
                columns="ARRAY<STRING>",
                limit="BIGINT",
                header="BOOLEAN",
                overwrite="BOOLEAN",
            ),
        ),
        columns=columns(["table", "commit", "format"], longs=["files", "rows", "bytes"]),
        run=_export,
    ),
    "load": Procedure(
        description="Load files into a table.",
        parameters=(
            *required("table", "source"),
            *optional(
                "format",
                "mode",
                "branch",
                "delimiter",
                "on_bad",
                "on_duplicate",
                "message",
                header="BOOLEAN",
                primary_key="ARRAY<STRING>",
            ),
        ),
        columns=columns(["table", "branch", "commit"], longs=["files", "rows_read", "rows_loaded", "rows_rejected"]),
        run=_load,
    ),
}
