"""The metadata of a branch or tag of one dataset, as commands take and show it."""

from collections.abc import Mapping
from typing import Annotated

import typer

from anabranch.cli.output import Answer, Table, output_for

__all__ = ["ReplaceMetadata", "SetMetadata", "UnsetMetadata", "show_metadata"]

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
