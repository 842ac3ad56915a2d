"""`anabranch revert`: revert commits."""

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

__all__ = ["revert"]


def revert(
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
    """Revert commits by new ones: ranges newest first.

    What was done to other rows and cells since is kept. If the same ones were changed since, nothing is reverted,
    unless a strategy or resolvers decide; the source is what was before the commit. All commits are published at once,
    or none.
    """
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    target = here.current().name
    done = here.repository.revert(
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
