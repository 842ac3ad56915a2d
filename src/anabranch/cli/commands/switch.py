"""`anabranch switch`: choose the current branch of a folder."""

from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions
from anabranch.cli.commands.branch import create_branch
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import notes_on, open_session
from anabranch.config import remember
from anabranch.errors import InvalidInputError

__all__ = ["switch"]


def switch(
    branch: Annotated[str, typer.Argument(metavar="BRANCH", help="The branch to work on.", show_default=False)],
    create: Annotated[bool, typer.Option("--create", "-c", help="Create the branch first.")] = False,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="REF", show_default=False, help="With --create: where the branch starts."),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="With --create: follow main.")] = False,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Change the current branch of this folder.

    With --repo the folder also remembers that repository. No table changes.
    """
    if not create and (source is not None or live):
        option = "--live" if source is None else "--from"
        raise InvalidInputError(f"{option} is for a new branch", hint="add --create, or leave it out")
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    if create:
        create_branch(here, branch, source=source, live=live)
    info = here.repository.branch_get(branch)
    memory = remember(repository=here.repository.uri, branch=info.name, memory=here.settings.memory)
    document = {
        "repository": here.repository.uri,
        "branch": info.name,
        "head_commit_id": info.head_commit_id,
        "remembered_in": str(memory.file),
    }
    new = "new branch" if create else "branch"
    sentence = f"on {new} {info.name} at {short_id(info.head_commit_id)}, in {here.repository.uri}"
    notes = notes_on(memory, before=here.settings.memory)
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence, *notes]))
