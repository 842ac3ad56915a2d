"""`anabranch cherry-pick` and `anabranch revert`: apply the changes of commits to a branch, or revert them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import Actor, AsJson, BranchOption, Message, Repo, StorageOptions, parse_pairs
from anabranch.cli.merging import (
    CheckFiles,
    ResolutionFile,
    Resolve,
    Strategy,
    parse_resolvers,
    read_checks,
    read_resolutions,
)
from anabranch.cli.replay import (
    CommitNames,
    DryRun,
    ExpectedHead,
    MetadataPairs,
    find_expected_head,
    show_picked,
)
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.merge.plan import ReplayResult
    from anabranch.repo.repository import Repository

__all__ = ["cherry_pick", "revert"]


def _command(act: "Callable[[Repository], Callable[..., ReplayResult]]", text: str) -> Callable[..., Any]:
    """Return a command that applies or reverts commits. The two differ in their text and in what they call."""

    def command(
        commits: CommitNames,
        message: Message = None,
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
        here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
        target = here.current().name
        done = act(here.repository)(
            commits,
            branch=target,
            message=message,
            metadata=parse_pairs(metadata, option="--metadata"),
            strategy=strategy,
            resolvers=parse_resolvers(resolve),
            resolutions=read_resolutions(resolutions),
            checks=read_checks(check),
            expected_head=find_expected_head(here.repository, expected_head),
            dry_run=dry_run,
        )
        show_picked(target, done, dry_run=dry_run, as_json=as_json)

    command.__doc__ = text
    return command


cherry_pick = _command(
    lambda repository: repository.cherry_pick,
    """Apply the changes of commits to the current branch, too: ranges oldest first.

    They are merged by row and cell with what is here. If both changed the same, nothing is applied, unless a strategy
    or resolvers decide. Each commit becomes a commit, and all of them are published at once, or none.
    """,
)
revert = _command(
    lambda repository: repository.revert,
    """Revert commits by new ones: ranges newest first.

    What was done to other rows and cells since is kept. If the same ones were changed since, nothing is reverted,
    unless a strategy or resolvers decide; the source is what was before the commit. All commits are published at once,
    or none.
    """,
)
