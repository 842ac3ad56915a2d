"""`anabranch tag`: names for commits that do not move."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    Actor,
    AfterName,
    AsJson,
    MaxListed,
    NamePrefix,
    RefOption,
    Repo,
    StorageOptions,
    example,
)
from anabranch.cli.commits import short_id, subject
from anabranch.cli.groups import ListGroup
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.refs.tags import TagInfo

__all__ = ["app"]


class _Tags(ListGroup):
    otherwise = "anabranch tag create"


app = typer.Typer(cls=_Tags, help="List, create, show and delete tags.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tag's name.", show_default=False)]


@app.command("create", epilog=example("tag create v1.0", "tag create before-cleanup --ref main~1"))
def create(
    name: Name,
    ref: RefOption = None,
    description: Annotated[
        str, typer.Option("--description", metavar="TEXT", show_default=False, help="What it is for.")
    ] = "",
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Give a commit a name that does not move."""
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    tag = here.repository.tag_create(name, ref=ref or here.current().name, description=description)
    sentence = f"created tag {tag.name} at {short_id(tag.commit_id)}"
    output_for(as_json=as_json).show(Answer(document=_document(tag), sentences=[sentence]))


@app.command("list", epilog=example("tag list", "tag list --prefix v1. --json"))
def list_(
    prefix: NamePrefix = None,
    after: AfterName = None,
    limit: MaxListed = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the tags."""
    repository = open_session(repo=repo, storage_options=storage_option).repository
    tags = repository.tag_list(prefix=prefix, after=after, limit=limit)
    rows = tuple((tag.name, short_id(tag.commit_id), tag.created, tag.created_by, tag.description) for tag in tags)
    shown = Table(columns=("tag", "commit", "created (UTC)", "by", "description"), rows=rows, empty="no tags")
    document = {"tags": [_document(tag) for tag in tags]}
    output_for(as_json=as_json).show(Answer(document=document, tables=[shown]))


@app.command("show", epilog=example("tag show v1.0"))
def show(name: Name, repo: Repo = None, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Show a tag: its commit and the tables there."""
    repository = open_session(repo=repo, storage_options=storage_option).repository
    tag = repository.tag_get(name)
    snapshot = repository.snapshot_of(tag.commit_id)
    count_of_rows = sum(entry.rows for entry in snapshot.entries.values())
    rows = (
        ("tag", tag.name),
        ("description", tag.description or None),
        ("commit", f"{short_id(tag.commit_id)} {subject(snapshot.commit)}".rstrip()),
        ("created (UTC)", tag.created),
        ("by", tag.created_by),
        ("tables", f"{count(len(snapshot), 'table')}, {count(count_of_rows, 'row')}"),
    )
    document = {**_document(tag), "tables": len(snapshot), "rows": count_of_rows}
    output_for(as_json=as_json).show(Answer(document=document, tables=[Table(columns=("", ""), rows=rows)]))


@app.command("delete", epilog=example("tag delete v1.0"))
def delete(
    name: Name, repo: Repo = None, actor: Actor = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Delete a tag; the commit stays."""
    repository = open_session(repo=repo, storage_options=storage_option, actor=actor).repository
    tag = repository.tag_get(name)
    repository.tag_delete(name)
    document = {"deleted": name, "commit_id": tag.commit_id}
    sentence = f"deleted tag {name}, which stood for {short_id(tag.commit_id)}"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))


def _document(tag: "TagInfo") -> dict[str, object]:
    return {
        "name": tag.name,
        "commit_id": tag.commit_id,
        "created_at": tag.created,
        "created_by": tag.created_by,
        "description": tag.description,
    }
