"""`anabranch export`: rows of a table as files."""

from dataclasses import asdict
from typing import Annotated

import typer

from anabranch.cli.arguments import AsJson, RefOption, Repo, StorageOptions, TableName
from anabranch.cli.commands.load import Delimiter, Format
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, count, human_size, output_for
from anabranch.cli.session import open_session
from anabranch.cli.step_progress import rows_bar
from anabranch.files.formats import CsvOptions

__all__ = ["export"]


def export(
    key: TableName,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            show_default=False,
            help="A file whose suffix gives the format, or a folder for several files.",
        ),
    ],
    format_: Format = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="NAME,...", show_default=False, help="Only these columns, in this order."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", show_default=False, help="Only rows for which this is true."),
    ] = None,
    single_file: Annotated[bool, typer.Option("--single-file", help="One file, whatever it is called.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write over what is there.")] = False,
    delimiter: Delimiter = None,
    no_header: Annotated[bool, typer.Option("--no-header", help="Write no header into CSV files.")] = False,
    ref: RefOption = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Write rows of a table to files, each of which appears when it is whole."""
    here = open_session(repo=repo, storage_options=storage_option)
    with rows_bar(f"exporting {key}", as_json=as_json, in_bytes=False) as watch, here.on_current_branch():
        done = here.repository.export(
            key,
            target,
            format=format_,
            ref=ref,
            columns=None if columns is None else [name.strip() for name in columns.split(",")],
            where=where,
            single_file=single_file,
            overwrite=overwrite,
            csv=CsvOptions(delimiter=delimiter, header=not no_header),
            progress=watch,
        )
    size = f" ({human_size(done.bytes_written)})" if done.bytes_written else ""
    written = done.files[0] if len(done.files) == 1 else f"{count(len(done.files), 'file')} in {target}"
    sentence = f"exported {count(done.rows, 'row')} of {done.table} at {short_id(done.commit_id)} to {written}{size}"
    output_for(as_json=as_json).show(Answer(document=asdict(done), sentences=[sentence]))
