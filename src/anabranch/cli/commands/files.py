"""`anabranch load` and `anabranch export`: rows from files, and to files."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.cli.command import COMMITS, Here, command, group
from anabranch.cli.options import (
    Columns,
    Message,
    RefOption,
    TableName,
    Where,
    argument,
    flag,
    option,
    parse_names,
    parse_pairs,
)
from anabranch.cli.output import Answer
from anabranch.cli.texts import Table, count
from anabranch.display import human_size, short_id
from anabranch.errors import InvalidInputError, KeyConflictError
from anabranch.files.formats import CsvOptions, format_of_name
from anabranch.hints import closest, shell_text

if TYPE_CHECKING:
    from anabranch.repo.io.prepared_table import LoadReport
    from anabranch.repo.repository import Repository

app = group()

# The columns of a new table that a load lists.
_COLUMNS_SHOWN = 8
# If the similarity of two names (0 to 1) is at least this, one is probably a mistyped form of the other.
_MISTYPED = 0.8
# The rows in which a delimiter is searched.
_ROWS_CHECKED = 20
_DIGITS = re.compile("[0-9]+")

Delimiter = Annotated[
    str | None,
    option(
        "--delimiter",
        "CHARACTER",
        "CSV: character between two values, or 'tab' (default: a comma; for .tsv files, a tab).",
    ),
]
Encoding = Annotated[str, option("--encoding", "NAME", "CSV: text encoding.")]


@dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """The options about the form of CSV files to load."""

    delimiter: Delimiter = None
    quote: str = option("--quote", "CHARACTER", "CSV: quote character. Pass '' if quotes are plain text.", default='"')
    escape: str | None = option(
        "--escape", "CHARACTER", "CSV: escape character (default: none; a quote inside a value is written twice)."
    )
    no_header: bool = flag(
        "--no-header",
        "CSV: the first line is a row, not a header. The columns are those of the table, or column_1, column_2 and so"
        " on if it is new.",
    )
    null: list[str] | None = option(
        "--null", "TEXT", "CSV: text that means null (default: an empty field, as in 1,,2). Repeatable."
    )
    encoding: Encoding = "utf-8"
    skip: int = option("--skip", "N", "CSV: number of lines before the header to skip.", default=0, min=0)

    def parsed(self) -> CsvOptions:
        return CsvOptions(
            delimiter=self.delimiter,
            quote=self.quote,
            escape=self.escape,
            header=not self.no_header,
            null=self.null or "",
            encoding=self.encoding,
            skip=self.skip,
        )


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The options about how rows of files become rows of a table."""

    format_: str | None = option(
        "--format", "NAME", "File format: csv, json, parquet, orc or lance (default: from the suffix of each file)."
    )
    mode: str = option(
        "--mode",
        "NAME",
        "append: add the rows. overwrite: replace all rows of the table. upsert: if the table already has a row with"
        " the same key, change that row; if not, add a new row.",
        default="append",
    )
    primary_key: str | None = option("--primary-key", "NAME,...", "Columns of the primary key, for a new table.")
    types: list[str] | None = option(
        "--type", "COLUMN=TYPE", "Type of a column, such as 'price=decimal(10, 2)' (default: inferred). Repeatable."
    )
    on_bad: str = option(
        "--on-bad",
        "NAME",
        "What to do with records that do not fit the columns: fail (load nothing), or reject (write them to the table"
        " TABLE_rejects).",
        default="fail",
    )
    on_duplicate: str = option(
        "--on-duplicate",
        "NAME",
        "What to do if rows of the files have the same primary key: refuse (load nothing), or last (keep the last of"
        " them).",
        default="refuse",
    )
    engine: str = option("--engine", "NAME", "Engine: local, spark, or auto (spark for large files).", default="auto")
    message: Message = None

    def parsed(self) -> dict[str, Any]:
        """Return the arguments of `load`."""
        arguments = dict(vars(self))
        types = parse_pairs(arguments.pop("types"), option="--type", form="COLUMN=TYPE", example="price=float64")
        arguments |= {"format": arguments.pop("format_"), "schema": types or None}
        return {**arguments, "primary_key": parse_names(self.primary_key)}


@command(
    app,
    "load",
    "load shop.orders orders.csv --primary-key id",
    "load shop.orders 's3://in/2026/*.csv' --mode upsert",
    on=COMMITS,
)
def load(
    here: Here,
    key: TableName,
    sources: list[str] = argument(
        "SOURCE...",
        "Files, folders, or patterns in quotes, such as '*.csv'. Local paths, or s3://, gs:// or az:// addresses.",
    ),
    *,
    how: LoadOptions,
    csv: CsvFormat,
) -> Answer:
    """Load rows from files into a table, as one commit. A missing table is created."""
    if format_of_name(key)[0] is not None and os.path.isfile(key):
        raise InvalidInputError(
            f"{key!r} is a file, and the table comes first", hint=f"use 'anabranch load {sources[0]} {key}'"
        )
    try:
        with here.output.progress(f"loading {key}", counts="bytes") as watch:
            done = here.repository.load(key, sources, csv=csv.parsed(), progress=watch, **how.parsed())
    except KeyConflictError as err:
        # The option of this command that upserts.
        raise KeyConflictError(err.problem, hint=err.hint.replace("`upsert()`", "--mode upsert")) from err
    return _loaded(here.repository, done, csv)


def _loaded(repository: "Repository", done: "LoadReport", csv: CsvFormat) -> Answer:
    facts = [
        ("rows read", f"{done.rows_read:,}"),
        ("rows loaded", f"{done.rows_loaded:,}"),
        ("rows rejected", f"{done.rows_rejected:,} to {done.reject_table}" if done.reject_table else "0"),
        ("duplicates left out", f"{done.rows_repeated:,}"),
        ("engine", done.engine),
    ]
    sentence, notes = f"nothing to load into {done.table}", []
    if done.commit_id is not None:
        where = f"{done.branch} at {short_id(done.commit_id)}"
        sentence = f"loaded {count(len(done.files), 'file')} into {done.table} on {where}"
        notes = _notes_of_new(repository, done, done.commit_id, csv) if done.created else []
    return Answer(done, sentence, *notes, tables=[Table(("", ""), tuple(facts))])


def _notes_of_new(repository: "Repository", done: "LoadReport", commit_id: str, csv: CsvFormat) -> list[str]:
    # Not at the top: a help text needs none of it.
    from anabranch.column_types import show_type

    snapshot = repository.snapshot_of(commit_id)
    table = snapshot[done.table]
    columns = [f"{field.name} {show_type(field.type)}" for field in table.schema]
    more = len(columns) - _COLUMNS_SHOWN
    shown = ", ".join(columns[:_COLUMNS_SHOWN]) + (f" and {count(more, 'more column')}" if more > 0 else "")
    notes = [f"created the table {done.table}: {shown}"]
    # A mistyped name creates a table, too.
    if similar := _similar_table(done, snapshot):
        notes.append(
            f"note: there is also a table {similar}. If you meant it, undo this load with 'anabranch undo"
            f" {done.branch}' and load again"
        )
    # A load with a header refuses such a file, because the header shows the wrong delimiter.
    values = table.to_arrow(limit=_ROWS_CHECKED).column(0).to_pylist() if csv.no_header and len(columns) == 1 else []
    if name := _likely_delimiter(values, csv.delimiter or ","):
        notes.append(
            f"note: each line is one value. If {name} separates values, undo this load with 'anabranch undo"
            f" {done.branch}' and load again with --delimiter {name}"
        )
    if not table.primary_key:
        notes.append(
            f"note: {done.table} has no primary key, so its rows are not matched by key. To upsert rows, and to merge"
            " by row and cell, create it with --primary-key COLUMN"
        )
    return notes


def _likely_delimiter(values: Sequence[object], used: str) -> str | None:
    """Return the usual delimiter, as an option has it, that is in each of these values, and equally often."""
    from anabranch.files.csv_reader import USUAL_DELIMITERS  # a help text needs none of it

    for delimiter, name in USUAL_DELIMITERS.items():
        counts = {str(value).count(delimiter) for value in values}
        if len(counts) == 1 and any(counts) and used not in (delimiter, name):
            return shell_text(name)
    return None


def _similar_table(done: "LoadReport", known: Iterable[str]) -> str | None:
    """Return an existing table with a similar name, which the user may have meant."""
    own = (done.table, done.reject_table)
    # Tables of other years or parts have similar names on purpose.
    others = [key for key in known if key not in own and _DIGITS.sub("", key) != _DIGITS.sub("", done.table)]
    found = closest(done.table, others, n=1, by_parts=True, cutoff=_MISTYPED)
    return found[0] if found else None


@command(app, "export", "export shop.orders orders.parquet", "export shop.orders out --format csv --ref v1.0")
def export(
    here: Here,
    key: TableName,
    target: str = argument(
        "TARGET", "File whose suffix gives the format, such as orders.csv, or folder for several files (with --format)."
    ),
    format_: str | None = option(
        "--format", "NAME", "File format: csv, json, parquet, orc or lance (default: from the suffix of TARGET)."
    ),
    columns: Columns = None,
    where: Where = None,
    limit: int | None = option("--limit -n", "N", "Maximum number of rows to export (default: all).", min=1),
    single_file: bool = flag("--single-file", "Write one file, also if TARGET has no suffix."),
    overwrite: bool = flag("--overwrite", "Replace existing files."),
    delimiter: Delimiter = None,
    no_header: bool = flag("--no-header", "CSV: write no header."),
    encoding: Encoding = "utf-8",
    ref: RefOption = None,
) -> Answer:
    """Export rows of a table to files. A file appears when it is complete."""
    if format_of_name(key)[0] is not None and target in here.snapshot(ref):
        raise InvalidInputError(
            f"{target!r} is a table, and the table comes first", hint=f"use 'anabranch export {target} {key}'"
        )
    with here.output.progress(f"exporting {key}", counts="rows") as watch:
        done = here.repository.export(
            key,
            target,
            format=format_,
            ref=ref,
            columns=parse_names(columns),
            where=where,
            limit=limit,
            single_file=single_file,
            overwrite=overwrite,
            csv=CsvOptions(delimiter=delimiter, header=not no_header, encoding=encoding),
            progress=watch,
        )
    size = f" ({human_size(done.bytes_written)})" if done.bytes_written else ""
    written = done.files[0] if len(done.files) == 1 else f"{count(len(done.files), 'file')} in {target}"
    sentence = f"exported {count(done.rows, 'row')} of {done.table} at {short_id(done.commit_id)} to {written}{size}"
    return Answer(done, sentence)
