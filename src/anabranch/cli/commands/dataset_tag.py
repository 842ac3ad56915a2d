"""`anabranch dataset tag`: names for versions of one dataset."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    AsJson,
    DatasetRef,
    StorageOptions,
    Uri,
    example,
    open_dataset,
    parse_pairs,
    parse_ref,
)
from anabranch.cli.dataset_refs import (
    ReplaceMetadata,
    SetMetadata,
    UnsetMetadata,
    list_refs,
    report_unreadable,
    show_metadata,
    unreadable_document,
)
from anabranch.cli.output import Answer, Table, output_for
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.format.refs.tags import TagInfo

__all__ = ["app", "tag_document", "tag_table"]

app = typer.Typer(help="List, create, move, describe and delete the tags of a dataset.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tag's name.", show_default=False)]


@app.command("create", epilog=example("dataset tag create lake/orders.lance v1.0 --ref dev"))
def create(
    uri: Uri, name: Name, ref: DatasetRef = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Give a version a name that does not move by itself."""
    tag = open_dataset(uri, storage_option).tag_create(name, parse_ref(ref))
    output_for(as_json=as_json).show(
        Answer(document=tag_document(tag), sentences=[f"created tag {tag.name} at {_position(tag)}"])
    )


@app.command("update", epilog=example("dataset tag update lake/orders.lance production --ref 12"))
def update(
    uri: Uri, name: Name, ref: DatasetRef = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Let an existing tag stand for another version."""
    tag = open_dataset(uri, storage_option).tag_update(name, parse_ref(ref))
    output_for(as_json=as_json).show(
        Answer(document=tag_document(tag), sentences=[f"moved tag {tag.name} to {_position(tag)}"])
    )


@app.command("list", epilog=example("dataset tag list lake/orders.lance --json"))
def list_(uri: Uri, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """List the tags, those on branches included.

    A tag that cannot be read is named on stderr, with --json under "unreadable".
    """
    tags = list_refs(open_dataset(uri, storage_option).tag_list)
    document = {"tags": [tag_document(tag) for tag in tags], "unreadable": unreadable_document(tags)}
    report_unreadable(tags, as_json=as_json)
    output_for(as_json=as_json).show(Answer(document=document, tables=[tag_table(tags)]))


@app.command("show", epilog=example("dataset tag show lake/orders.lance v1.0"))
def show(uri: Uri, name: Name, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Show what a tag stands for, and its rows."""
    dataset = open_dataset(uri, storage_option)
    tag = dataset.tag_get(name)
    count = dataset.tag_checkout(name).count_rows()
    rows = (
        ("tag", tag.name),
        ("branch", tag.branch or MAIN),
        ("version", tag.version),
        ("rows", count),
        ("created", tag.created_at),
        ("updated", tag.updated_at),
        *((f"metadata {key}", value) for key, value in tag.metadata.items()),
    )
    document = {**tag_document(tag), "rows": count}
    output_for(as_json=as_json).show(Answer(document=document, tables=[Table(columns=("", ""), rows=rows)]))


@app.command("delete", epilog=example("dataset tag delete lake/orders.lance v1.0"))
def delete(uri: Uri, name: Name, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Delete a tag; the version it stood for stays."""
    open_dataset(uri, storage_option).tag_delete(name)
    output_for(as_json=as_json).show(Answer(document={"deleted": name}, sentences=[f"deleted tag {name}"]))


@app.command("metadata", epilog=example("dataset tag metadata lake/orders.lance v1.0 --set approved=yes"))
def metadata(
    uri: Uri,
    name: Name,
    set_: SetMetadata = None,
    unset: UnsetMetadata = None,
    replace: ReplaceMetadata = False,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the metadata of a tag, or change it."""
    dataset = open_dataset(uri, storage_option)
    tag = dataset.tag_get(name)
    if set_ or unset or replace:
        pairs = parse_pairs(set_, option="--set")
        tag = dataset.tag_set_metadata(name, pairs, unset=unset or (), replace=replace)
    show_metadata("tag", name, tag.metadata, as_json=as_json)


def tag_document(tag: "TagInfo") -> dict[str, object]:
    return {
        "name": tag.name,
        "branch": tag.branch or MAIN,
        "version": tag.version,
        "manifest_size": tag.manifest_size,
        "created_at": tag.created_at,
        "updated_at": tag.updated_at,
        "metadata": tag.metadata,
    }


def tag_table(tags: Sequence["TagInfo"], *, title: str | None = None) -> Table:
    rows = tuple((tag.name, f"{tag.branch or MAIN}@v{tag.version}", tag.created_at, tag.updated_at) for tag in tags)
    columns = ("tag", "version", "created (UTC)", "updated (UTC)")
    return Table(title=title, columns=columns, rows=rows, empty="no tags")


def _position(tag: "TagInfo") -> str:
    return f"version {tag.version} of {tag.branch or MAIN}"
