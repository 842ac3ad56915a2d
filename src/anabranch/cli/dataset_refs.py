"""Branches and tags of a dataset: the metadata given for them, and ref files that could not be read."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from anabranch.cli.output import printable

if TYPE_CHECKING:
    from anabranch.format.refs.ref_files import RefList
from collections.abc import Mapping
from typing import Annotated

from anabranch.cli.output import Answer, Table, output_for

__all__ = [
    "ReplaceMetadata",
    "SetMetadata",
    "UnsetMetadata",
    "list_refs",
    "report_unreadable",
    "show_metadata",
    "unreadable_document",
]


SetMetadata = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set this key; repeatable.", show_default=False),
]
UnsetMetadata = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="KEY", help="Remove this key; repeatable.", show_default=False),
]
ReplaceMetadata = Annotated[bool, typer.Option("--replace", help="Remove all keys that --set does not give.")]


def show_metadata(kind: str, name: str, metadata: Mapping[str, str], *, as_json: bool) -> None:
    table = Table(columns=("key", "value"), rows=tuple(sorted(metadata.items())), empty="no metadata")
    document = {kind: name, "metadata": metadata}
    output_for(as_json=as_json).show(Answer(document=document, tables=[table]))


Refs = TypeVar("Refs", bound="RefList[Any]")


def list_refs(read: Callable[[], Refs]) -> Refs:
    """List branches or tags without Python's warning, which the command reports in its own way."""
    from anabranch.format.refs.ref_files import UnreadableRefWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreadableRefWarning)
        return read()


def unreadable_document(*lists: "RefList[Any]") -> list[dict[str, str]]:
    """Describe the files that could not be read, for programs."""
    return [{"path": ref.path, "name": ref.name, "problem": ref.problem} for refs in lists for ref in refs.unreadable]


def report_unreadable(*lists: "RefList[Any]", as_json: bool) -> None:
    """Name the files that could not be read, for people; programs find them in the document."""
    for ref in unreadable_document(*lists):
        if not as_json:
            text = (
                f"warning: {ref['path']} cannot be read: {ref['problem']}; run 'anabranch dataset doctor' with --repair"
            )
            typer.echo(printable(text), err=True)
