"""Data files."""

from collections.abc import Mapping

from anabranch.files.formats import CsvOptions
from anabranch.repo.history.comparer import Choice
from anabranch.spark.gateway.procedures.procedure import Call, Procedure, Rows, columns, optional, required

__all__ = ["DATA"]


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
