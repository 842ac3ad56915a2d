"""Ref files that could not be read while branches or tags were listed: named on stderr, and in the JSON document."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from anabranch.cli.output import printable

if TYPE_CHECKING:
    from anabranch.format.refs.ref_files import RefList

__all__ = ["list_refs", "report_unreadable", "unreadable_document"]

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
