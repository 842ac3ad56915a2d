"""`anabranch load` and `anabranch export`: rows from files, and to files."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.command import BRANCH, WRITES, Here, command, group
from anabranch.cli.commits import short_id
from anabranch.cli.options import Columns, Message, RefOption, TableName, Where, parse_names, parse_pairs
from anabranch.cli.output import Answer, Table, count, human_size
from anabranch.cli.progress import watch_rows
from anabranch.errors import KeyConflictError
from anabranch.files.formats import CsvOptions

if TYPE_CHECKING:
    from anabranch.repo.io.values import LoadReport
    from anabranch.repo.repository import Repository

__all__ = ["app"]

app = group()

Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        show_default=False,
        help="File format: csv, json, parquet, orc or lance (default: from the suffix of each file).",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHARACTER",
        show_default=False,
        help="CSV: character between two values, or 'tab' (default: a comma; for .tsv files, a tab).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """The options about the form of CSV files to load."""

    delimiter: Delimiter = None
    quote: Annotated[
        str, typer.Option("--quote", metavar="CHARACTER", help="CSV: quote character. Empty: no quoting.")
    ] = '"'
    escape: Annotated[
        str | None,
        typer.Option(
            "--escape",
            metavar="CHARACTER",
            show_default=False,
            help="CSV: escape character (default: none; a quote inside a value is written twice).",
        ),
    ] = None
    no_header: Annotated[bool, typer.Option("--no-header", help="CSV: the first line is a row, not a header.")] = False
    null: Annotated[
        list[str] | None,
        typer.Option(
            "--null",
            metavar="TEXT",
            show_default=False,
            help="CSV: text that means null (default: an empty field, as in 1,,2). Repeatable.",
        ),
    ] = None
    encoding: Annotated[str, typer.Option("--encoding", metavar="NAME", help="CSV: text encoding.")] = "utf-8"
    skip: Annotated[
        int, typer.Option("--skip", metavar="N", min=0, help="CSV: number of lines to skip before the header.")
    ] = 0

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


@command(
    app,
    "load",
    "load shop.orders orders.csv --primary-key id",
    "load shop.orders 's3://in/2026/*.csv' --mode upsert",
    on=(*BRANCH, *WRITES),
)
def load(
    here: Here,
    key: TableName,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            show_default=False,
            help="Files, folders or patterns such as '*.csv' (in quotes). Local paths, s3://, gs:// or az://.",
        ),
    ],
    format_: Format = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="NAME",
            help="append: add the rows. overwrite: replace all rows of the table. upsert: if the table already"
            " has a row with the same key, change that row; if not, add a new row.",
        ),
    ] = "append",
    primary_key: Annotated[
        str | None,
        typer.Option("--primary-key", metavar="NAME,...", show_default=False, help="Primary key of a new table."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="COLUMN=TYPE",
            show_default=False,
            help="Type of a column, such as 'price=decimal(10, 2)' (default: inferred). Repeatable.",
        ),
    ] = None,
    on_bad: Annotated[
        str,
        typer.Option(
            "--on-bad",
            metavar="NAME",
            help="What to do with records that do not fit the columns: fail (load nothing), or reject (write them to"
            " the table TABLE_rejects).",
        ),
    ] = "fail",
    on_duplicate: Annotated[
        str,
        typer.Option(
            "--on-duplicate",
            metavar="NAME",
            help="What to do if the files have a key twice: refuse (load nothing), or last (keep the last row).",
        ),
    ] = "refuse",
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="Engine: local, spark, or auto (spark for large files).")
    ] = "auto",
    message: Message = None,
    *,
    csv: CsvFormat,
) -> Answer:
    """Load rows from files into a table, as one commit. A missing table is created."""
    with (
        watch_rows(f"loading {key}", as_json=here.as_json, in_bytes=True) as watch,
        _upsert_by_mode(),
        here.on_current_branch(),
    ):
        # Read before the load: after it the table exists in any case.
        is_new = primary_key is None and key not in here.snapshot(None)
        done = here.repository.load(
            key,
            sources,
            format=format_,
            mode=mode,
            schema=parse_pairs(types, option="--type") or None,
            primary_key=parse_names(primary_key),
            csv=csv.parsed(),
            on_bad=on_bad,
            on_duplicate=on_duplicate,
            engine=engine,
            message=message,
            progress=watch,
        )
    return _loaded(here.repository, done, is_new=is_new)


def _loaded(repository: "Repository", done: "LoadReport", *, is_new: bool) -> Answer:
    facts = [
        ("rows read", f"{done.rows_read:,}"),
        ("rows loaded", f"{done.rows_loaded:,}"),
        ("rows rejected", f"{done.rows_rejected:,} to {done.reject_table}" if done.reject_table else "0"),
        ("duplicates left out", f"{done.rows_repeated:,}"),
        ("engine", done.engine.value),
    ]
    sentence, notes = f"nothing to load into {done.table}", []
    if done.commit_id is not None:
        where = f"{done.branch} at {short_id(done.commit_id)}"
        sentence = f"loaded {count(len(done.files), 'file')} into {done.table} on {where}"
        notes = _key_notes(repository, done.table, done.commit_id) if is_new else []
    return Answer(document=done, sentences=[sentence, *notes], tables=[Table(columns=("", ""), rows=tuple(facts))])


@contextmanager
def _upsert_by_mode() -> Iterator[None]:
    """Name the option of load in hints to upsert."""
    try:
        yield
    except KeyConflictError as err:
        raise KeyConflictError(err.problem, hint=err.hint.replace("`upsert()`", "--mode upsert")) from err


def _key_notes(repository: "Repository", table: str, commit_id: str) -> list[str]:
    """Return a note about a new table that has no primary key."""
    if repository.snapshot_of(commit_id)[table].primary_key:
        return []
    return [
        f"note: {table} has no primary key, so its rows are not matched by key. To upsert rows, and to merge by row and"
        " cell, create it with --primary-key COLUMN"
    ]


@command(app, "export", "export shop.orders orders.parquet", "export shop.orders out --format csv --ref v1.0")
def export(
    here: Here,
    key: TableName,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            show_default=False,
            help="File, whose suffix gives the format, or folder for several files.",
        ),
    ],
    format_: Format = None,
    columns: Columns = None,
    where: Where = None,
    single_file: Annotated[
        bool, typer.Option("--single-file", help="Write one file, also if TARGET has no suffix.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    delimiter: Delimiter = None,
    no_header: Annotated[bool, typer.Option("--no-header", help="CSV: write no header.")] = False,
    ref: RefOption = None,
) -> Answer:
    """Export rows of a table to files. A file appears when it is complete."""
    with watch_rows(f"exporting {key}", as_json=here.as_json, in_bytes=False) as watch, here.on_current_branch():
        done = here.repository.export(
            key,
            target,
            format=format_,
            ref=ref,
            columns=parse_names(columns),
            where=where,
            single_file=single_file,
            overwrite=overwrite,
            csv=CsvOptions(delimiter=delimiter, header=not no_header),
            progress=watch,
        )
    size = f" ({human_size(done.bytes_written)})" if done.bytes_written else ""
    written = done.files[0] if len(done.files) == 1 else f"{count(len(done.files), 'file')} in {target}"
    sentence = f"exported {count(done.rows, 'row')} of {done.table} at {short_id(done.commit_id)} to {written}{size}"
    return Answer(document=done, sentences=[sentence])
