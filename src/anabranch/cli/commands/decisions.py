"""`anabranch decisions`: the decisions on conflicts that are kept for the next merge of two branches."""

from typing import Annotated

import typer

from anabranch.cli.arguments import AsJson, Repo, StorageOptions
from anabranch.cli.merging import Into
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.rows import text_value
from anabranch.cli.session import open_session

__all__ = ["decisions"]

_COLUMNS = ("table", "key", "column", "path", "base", "source", "target", "take", "value")


def decisions(
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, help="The branch to merge.")],
    into: Into = None,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the decisions.")] = False,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the decisions that are kept for merges of a branch into another one, or delete them.

    'anabranch merge --keep-decisions' keeps them if nothing was merged. They apply while the base, the source and the
    target of a conflict have the values that were decided on.
    """
    here = open_session(repo=repo, storage_options=storage_option)
    target = into or here.current().name
    found = here.repository.decision_list(source, target)
    if clear:
        here.repository.decision_clear(source, target)
    rows = tuple(tuple(_text(entry.get(name)) for name in _COLUMNS) for entry in found)
    what = count(len(found), "decision")
    sentence = f"deleted {what}" if clear else f"{what} kept for merges of {source} into {target}"
    output_for(as_json=as_json).show(
        Answer(
            document={"source": source, "into": target, "decisions": found, "cleared": clear},
            sentences=[sentence],
            tables=[Table(columns=_COLUMNS, rows=rows)] if rows and not clear else [],
        )
    )


def _text(value: object) -> str | None:
    return None if value is None else text_value(value)
