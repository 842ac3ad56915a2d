"""`anabranch cherry-pick`: apply the changes of commits to another branch."""

from anabranch.cli.arguments import Actor, AsJson, BranchOption, Message, Repo, StorageOptions, parse_pairs
from anabranch.cli.merging import CheckFiles, Resolve, Strategy, parse_resolvers, read_checks
from anabranch.cli.replay import (
    CommitNames,
    DryRun,
    ExpectedHead,
    MetadataPairs,
    find_expected_head,
    show_picked,
)
from anabranch.cli.session import open_session

__all__ = ["cherry_pick"]


def cherry_pick(
    commits: CommitNames,
    message: Message = None,
    branch: BranchOption = None,
    strategy: Strategy = "fail",
    resolve: Resolve = None,
    check: CheckFiles = None,
    metadata: MetadataPairs = None,
    expected_head: ExpectedHead = None,
    dry_run: DryRun = False,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Apply the changes of commits to the current branch, too: ranges oldest first.

    They are merged by row and cell with what is here. If both changed the same, nothing is applied, unless a strategy
    or resolvers decide. Each commit becomes a commit, and all of them are published at once, or none.
    """
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    target = here.current().name
    done = here.repository.cherry_pick(
        commits,
        branch=target,
        message=message,
        metadata=parse_pairs(metadata, option="--metadata"),
        strategy=strategy,
        resolvers=parse_resolvers(resolve),
        checks=read_checks(check),
        expected_head=find_expected_head(here.repository, expected_head),
        dry_run=dry_run,
    )
    show_picked(target, done, dry_run=dry_run, as_json=as_json)
