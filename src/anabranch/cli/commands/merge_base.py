"""`anabranch merge-base`: where two refs parted."""

from typing import Annotated

import typer

from anabranch.cli.arguments import AsJson, Repo, StorageOptions
from anabranch.cli.commits import commit_document, short_id, subject
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import open_session

__all__ = ["merge_base"]


def merge_base(
    a: Annotated[str, typer.Argument(metavar="A", show_default=False, help="A branch, a tag, a commit or main~3.")],
    b: Annotated[
        str | None, typer.Argument(metavar="B", show_default=False, help="Another ref; by default the current branch.")
    ] = None,
    all_bases: Annotated[
        bool, typer.Option("--all", help="Show all of them, if each side was merged into the other.")
    ] = False,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest commit that two refs have in common."""
    here = open_session(repo=repo, storage_options=storage_option)
    with here.on_current_branch():
        found = here.repository.merge_bases(a, b or here.repository.branch)
    shown = found if all_bases else found[:1]
    document = {**commit_document(found[0]), "all": [commit.graph_commit_id for commit in found]}
    lines = [f"{short_id(commit.graph_commit_id)} {subject(commit)}".rstrip() for commit in shown]
    output_for(as_json=as_json).show(Answer(document=document, sentences=lines))
