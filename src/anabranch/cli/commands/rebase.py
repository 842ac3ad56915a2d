"""`anabranch rebase`: apply the commits of a branch again on top of another commit."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, BranchOption, Repo, StorageOptions, parse_pairs
from anabranch.cli.commits import commit_document, short_id, subject
from anabranch.cli.merging import (
    CheckFiles,
    ResolutionFile,
    Resolve,
    Strategy,
    parse_resolvers,
    read_checks,
    read_resolutions,
)
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.replay import DryRun, ExpectedHead, MetadataPairs, find_expected_head, show_plan
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.log.entries import GraphCommit

__all__ = ["rebase"]


def rebase(
    onto: Annotated[
        str, typer.Argument(metavar="REF", show_default=False, help="New base of the commits, such as main.")
    ],
    branch: BranchOption = None,
    strategy: Strategy = "fail",
    resolve: Resolve = None,
    resolutions: ResolutionFile = None,
    check: CheckFiles = None,
    metadata: MetadataPairs = None,
    expected_head: ExpectedHead = None,
    dry_run: DryRun = False,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Apply the commits of the current branch again on top of REF.

    The branch moves once, with all of its commits or not at all: if one has conflicts, nothing changes. The old
    position stays in the reflog, and 'anabranch undo' moves the branch back.
    """
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    repository, target = here.repository, here.current()
    name, before = target.name, target.head_commit_id
    done = repository.rebase(
        name,
        onto=onto,
        metadata=parse_pairs(metadata, option="--metadata"),
        strategy=strategy,
        resolvers=parse_resolvers(resolve),
        resolutions=read_resolutions(resolutions),
        checks=read_checks(check),
        expected_head=find_expected_head(repository, expected_head),
        dry_run=dry_run,
    )
    if dry_run:
        show_plan(name, done, {"branch": name, "onto": onto, "head_commit_id": before}, as_json=as_json)
        return
    made = done.commits
    head = repository.branch_get(name).head_commit_id
    document = {
        "branch": name,
        "onto": onto,
        "previous_commit_id": before,
        "head_commit_id": head,
        "commits": [commit_document(commit) for commit in made],
    }
    sentence = f"{name} is on top of {onto} already"
    if head != before:
        sentence = f"put {count(len(made), 'commit')} of {name} on top of {onto}; it is at {short_id(head)}"
    tables = [Table(columns=("commit", "from", "message"), rows=tuple(map(_row, made)))] if made else []
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence], tables=tables))


def _row(commit: "GraphCommit") -> tuple[object, ...]:
    return short_id(commit.graph_commit_id), short_id(commit.metadata["rebased_from"]), subject(commit)
