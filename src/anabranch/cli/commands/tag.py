"""`anabranch tag`: names for commits that do not move."""

from typing import Annotated

from anabranch.cli.command import WRITES, Here, add_group, command, group
from anabranch.cli.documents import document_of
from anabranch.cli.options import AfterName, MaxListed, NamePrefix, RefOption, argument, option
from anabranch.cli.output import Answer, count
from anabranch.cli.tables import Table
from anabranch.cli.texts import commit_line
from anabranch.display import short_id

app = group()
tags = add_group(app, "tag", help="List, create, show and delete tags.", otherwise="anabranch tag create")

Name = Annotated[str, argument("TAG", "Name of the tag.")]


@command(tags, "create", "tag create v1.0", "tag create before-cleanup --ref main~1", on=WRITES)
def create(
    here: Here,
    name: Name,
    ref: RefOption = None,
    description: Annotated[str, option("--description", "TEXT", "Description of the tag.", show_default=False)] = "",
) -> Answer:
    """Create a tag: a fixed name for a commit."""
    tag = here.repository.tag_create(name, ref=ref or here.current().name, description=description)
    return Answer(tag, f"created tag {tag.name} at {short_id(tag.commit_id)}")


@command(tags, "list", "tag list", "tag list --prefix v1. --json")
def list_(
    here: Here,
    prefix: NamePrefix = None,
    after: AfterName = None,
    limit: MaxListed = None,
) -> Answer:
    """List tags."""
    found = here.repository.tag_list(prefix=prefix, after=after, limit=limit)
    rows = [(tag.name, short_id(tag.commit_id), tag.created, tag.created_by, tag.description) for tag in found]
    shown = Table(("tag", "commit", "created (UTC)", "by", "description"), rows, empty="no tags")
    return Answer({"tags": found}, tables=[shown])


@command(tags, "show", "tag show v1.0")
def show(here: Here, name: Name) -> Answer:
    """Show the commit of a tag, and its number of tables and rows."""
    repository = here.repository
    tag = repository.tag_get(name)
    snapshot = repository.snapshot_of(tag.commit_id)
    count_of_rows = sum(entry.rows for entry in snapshot.entries.values())
    rows = (
        ("tag", tag.name),
        ("description", tag.description or None),
        ("commit", commit_line(snapshot.commit)),
        ("created (UTC)", tag.created),
        ("by", tag.created_by),
        ("tables", f"{count(len(snapshot), 'table')}, {count(count_of_rows, 'row')}"),
    )
    return Answer({**document_of(tag), "tables": len(snapshot), "rows": count_of_rows}, tables=[Table(("", ""), rows)])


@command(tags, "delete", "tag delete v1.0", on=WRITES)
def delete(here: Here, name: Name) -> Answer:
    """Delete a tag. The commit of the tag is not deleted."""
    repository = here.repository
    tag = repository.tag_get(name)
    repository.tag_delete(name)
    document = {"deleted": name, "commit_id": tag.commit_id}
    return Answer(document, f"deleted tag {name}, which named {short_id(tag.commit_id)}")
