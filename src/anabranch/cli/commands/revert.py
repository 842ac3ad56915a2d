"""`anabranch revert`: revert one commit."""

from anabranch.cli.arguments import Actor, AsJson, BranchOption, CommitName, Message, Repo, StorageOptions
from anabranch.cli.commits import commit_document, short_id, subject
from anabranch.cli.merging import Resolve, Strategy, parse_resolvers
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import open_session

__all__ = ["revert"]


def revert(
    commit: CommitName,
    message: Message = None,
    branch: BranchOption = None,
    strategy: Strategy = "fail",
    resolve: Resolve = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Revert one commit by a new one.

    What was done to other rows and cells since is kept. Where the same ones were changed since, it is refused, unless a
    strategy or resolvers decide; the source is what was before the commit.
    """
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    target = here.current().name
    made = here.repository.revert(
        commit, branch=target, message=message, strategy=strategy, resolvers=parse_resolvers(resolve)
    )
    sentence = f"on {target}, {short_id(made.graph_commit_id)} {subject(made)}"
    output_for(as_json=as_json).show(Answer(document=commit_document(made), sentences=[sentence]))
