"""`anabranch load`: rows from files into a table."""

from dataclasses import asdict
from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, BranchOption, Message, Repo, StorageOptions, TableName, parse_pairs
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import open_session
from anabranch.cli.step_progress import rows_bar
from anabranch.files.formats import CsvOptions

__all__ = ["Delimiter", "Format", "load"]

Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        show_default=False,
        help="csv, json, parquet, orc or lance; by default, the suffix of each file.",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", metavar="CHARACTER", show_default=False, help="Separator of CSV values (or 'tab')."),
]


def load(
    key: TableName,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            show_default=False,
            help="Files, folders or quoted patterns, local or s3://, gs://, az://.",
        ),
    ],
    format_: Format = None,
    mode: Annotated[str, typer.Option("--mode", metavar="NAME", help="append, overwrite or upsert.")] = "append",
    primary_key: Annotated[
        str | None,
        typer.Option("--primary-key", metavar="NAME,...", show_default=False, help="The key of a table that is made."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="COLUMN=TYPE",
            show_default=False,
            help="A column's type, such as 'price=decimal(10, 2)', instead of the one found; repeat it for more.",
        ),
    ] = None,
    delimiter: Delimiter = None,
    quote: Annotated[
        str, typer.Option("--quote", metavar="CHARACTER", help="Quote character of CSV values. Empty: no quoting.")
    ] = '"',
    escape: Annotated[
        str | None,
        typer.Option(
            "--escape",
            metavar="CHARACTER",
            show_default=False,
            help="Escape character. By default, quotes are escaped by doubling.",
        ),
    ] = None,
    no_header: Annotated[bool, typer.Option("--no-header", help="The first line of a CSV file is a row.")] = False,
    null: Annotated[
        list[str] | None,
        typer.Option(
            "--null",
            metavar="TEXT",
            show_default=False,
            help="What stands for no value in CSV, if not nothing; repeat it for more.",
        ),
    ] = None,
    encoding: Annotated[str, typer.Option("--encoding", metavar="NAME", help="Of CSV text.")] = "utf-8",
    skip: Annotated[int, typer.Option("--skip", metavar="N", min=0, help="Leave out lines before the header.")] = 0,
    on_bad: Annotated[
        str,
        typer.Option(
            "--on-bad", metavar="NAME", help="What to do about bad records: fail, or reject to a table beside."
        ),
    ] = "fail",
    on_duplicate: Annotated[
        str,
        typer.Option(
            "--on-duplicate", metavar="NAME", help="What to do about repeated keys: refuse, or let the last win."
        ),
    ] = "refuse",
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="auto, local, or spark for many machines.")
    ] = "auto",
    message: Message = None,
    branch: BranchOption = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Load rows from files into a table, as one commit; the table is made if it is not there."""
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    with rows_bar(f"loading {key}", as_json=as_json, in_bytes=True) as watch, here.on_current_branch():
        done = here.repository.load(
            key,
            sources,
            format=format_,
            mode=mode,
            schema=parse_pairs(types, option="--type") or None,
            primary_key=None if primary_key is None else [name.strip() for name in primary_key.split(",")],
            csv=CsvOptions(
                delimiter=delimiter,
                quote=quote,
                escape=escape,
                header=not no_header,
                null=null or "",
                encoding=encoding,
                skip=skip,
            ),
            on_bad=on_bad,
            on_duplicate=on_duplicate,
            engine=engine,
            message=message,
            progress=watch,
        )
    facts = [
        ("rows read", f"{done.rows_read:,}"),
        ("rows loaded", f"{done.rows_loaded:,}"),
        ("rows rejected", f"{done.rows_rejected:,} to {done.reject_table}" if done.reject_table else "0"),
        ("rows replaced by a later one", f"{done.rows_repeated:,}"),
        ("engine", done.engine.value),
    ]
    sentence = f"nothing to load into {done.table}"
    if done.commit_id is not None:
        where = f"{done.branch} at {short_id(done.commit_id)}"
        sentence = f"loaded {count(len(done.files), 'file')} into {done.table} on {where}"
    output_for(as_json=as_json).show(
        Answer(document=asdict(done), sentences=[sentence], tables=[Table(columns=("", ""), rows=tuple(facts))])
    )
