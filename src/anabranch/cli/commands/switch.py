"""`anabranch switch`: choose the current branch of a folder."""

from typing import Annotated

import typer

from anabranch.cli.arguments import AsJson, Repo, StorageOptions
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import notes_on, open_session
from anabranch.config import remember

__all__ = ["switch"]


def switch(
    branch: Annotated[str, typer.Argument(metavar="BRANCH", help="The branch to work on.", show_default=False)],
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Choose the branch that this folder works on.

    With --repo the folder remembers that repository too. No table is touched.
    """
    here = open_session(repo=repo, storage_options=storage_option)
    info = here.repository.branch_get(branch)
    memory = remember(repository=here.repository.uri, branch=info.name, memory=here.settings.memory)
    document = {
        "repository": here.repository.uri,
        "branch": info.name,
        "head_commit_id": info.head_commit_id,
        "remembered_in": str(memory.file),
    }
    sentence = f"on branch {info.name} at {short_id(info.head_commit_id)}, in {here.repository.uri}"
    notes = notes_on(memory, before=here.settings.memory)
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence, *notes]))
