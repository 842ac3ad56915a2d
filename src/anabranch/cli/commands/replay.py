"""`anabranch rebase`, `cherry-pick` and `revert`: apply commits again, or revert them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.cli.command import BRANCH, WRITES, Here, command, group
from anabranch.cli.documents import document_of
from anabranch.cli.merging import ReplayOptions, Sides, first_conflicts, gap_notes, naming
from anabranch.cli.options import Message, argument
from anabranch.cli.output import CONFLICTS, Answer
from anabranch.cli.texts import Table, commit_line, count, subject
from anabranch.display import short_id

if TYPE_CHECKING:
    from anabranch.repo.merge.plan import CommitPlan, ReplayResult

app = group()

CommitNames = Annotated[
    list[str],
    argument(
        "COMMIT...",
        "Commits, such as 01M7GMZB03Y0YA, main~2 or dev (the newest commit of dev). Or ranges: main..dev are the"
        " commits that dev has and main does not have.",
    ),
]


@command(app, "rebase", "rebase main", "rebase v1.0 --branch dev --strategy target", on=(*BRANCH, *WRITES))
def rebase(
    here: Here,
    onto: Annotated[str, argument("REF", "New base of the commits, such as main.")],
    *,
    how: ReplayOptions,
) -> Answer:
    """Apply the commits of the current branch again on top of REF.

    If one of the commits has conflicts that no option decides, nothing changes. The old position of the branch stays in
    the reflog. 'anabranch undo' moves the branch back.
    """
    repository, target = here.repository, here.current()
    name, before = target.name, target.head_commit_id
    sides = Sides.of("rebase", name, onto)
    with here.output.progress("rebasing"), naming(sides):
        done = repository.rebase(name, onto=onto, **how.replay_arguments(repository))
    if how.dry_run:
        return _plan_answer(name, done, {"branch": name, "onto": onto, "head_commit_id": before}, sides)
    head = repository.branch_get(name).head_commit_id
    document = {
        "branch": name,
        "onto": onto,
        "previous_commit_id": before,
        "head_commit_id": head,
        "commits": done.commits,
    }
    sentence = f"{name} is on top of {onto} already"
    if head != before:
        sentence = f"put {count(len(done.commits), 'commit')} of {name} on top of {onto}; it is at {short_id(head)}"
    rows = [
        (short_id(commit.graph_commit_id), short_id(commit.metadata["rebased_from"]), subject(commit))
        for commit in done.commits
    ]
    return Answer(document, sentence, tables=[Table(("commit", "from", "message"), rows)] if rows else [])


@command(
    app, "cherry-pick", "cherry-pick dev", "cherry-pick dev~2 -b fix", "cherry-pick main..dev", on=(*BRANCH, *WRITES)
)
def cherry_pick(here: Here, commits: CommitNames, message: Message = None, *, how: ReplayOptions) -> Answer:
    """Apply the changes of commits to the current branch.

    The changes are merged by row and cell. If there are conflicts that no option decides, nothing changes. Each commit
    becomes a new commit. The commits of a range are applied in order, oldest first. All new commits become visible at
    the same time.
    """
    return _replayed(here, "cherry-pick", commits, message, how=how)


@command(app, "revert", "revert 01M7GMZB03Y0YA", "revert main~3..main --dry-run", on=(*BRANCH, *WRITES))
def revert(here: Here, commits: CommitNames, message: Message = None, *, how: ReplayOptions) -> Answer:
    """Make new commits that undo older commits.

    Later changes of other rows and cells are kept. If a later commit changed the same cell, this is a conflict. In a
    conflict, the source is the value before the reverted commit, and the target is the current value. If no option
    decides the conflict, nothing changes. The commits of a range are reverted in order, newest first. All new commits
    become visible at the same time.
    """
    return _replayed(here, "revert", commits, message, how=how)


def _replayed(here: Here, operation: str, commits: Sequence[str], message: str | None, *, how: ReplayOptions) -> Answer:
    branch = here.current().name
    act = here.repository.revert if operation == "revert" else here.repository.cherry_pick
    sides = Sides.of(operation, branch, branch)
    with here.output.progress("applying commits"), naming(sides):
        done = act(commits, branch=branch, message=message, **how.replay_arguments(here.repository))
    if how.dry_run:
        return _plan_answer(branch, done, {"branch": branch}, sides)
    newest = {} if done.commit is None else document_of(done.commit)
    sentences = [f"on {branch}, {commit_line(commit)}" for commit in done.commits]
    return Answer({**newest, "commits": done.commits, "dry_run": False}, *sentences)


def _plan_answer(branch: str, done: "ReplayResult", document: dict[str, Any], sides: Sides) -> Answer:
    """Show the plan of a dry run. The exit code reports conflicts."""
    last = done.plan[-1] if done.plan else None
    sentence = f"{count(len(done.plan), 'commit')} would go to {branch}; nothing was changed"
    if last is not None and not last.is_clean:
        sentence = f"{short_id(last.commit_id)} has {count(last.conflict_count, 'conflict')} on {branch}"
    return Answer(
        {**document, "commits": [], "dry_run": True, "plan": done.plan},
        sentence,
        *(note for each in done.plan for note in gap_notes(each.strategy_gaps)),
        tables=list(_plan_tables(done.plan, sides)),
        exit_code=0 if done.is_clean else CONFLICTS,
    )


def _plan_tables(plan: "Sequence[CommitPlan]", sides: Sides) -> Iterator[Table]:
    rows = [
        (
            short_id(each.commit_id),
            table.table,
            table.action_text,
            table.counts.inserted,
            table.counts.updated,
            table.counts.deleted,
            table.conflicts,
        )
        for each in plan
        for table in each.tables
    ]
    if rows:
        columns = ("commit", "table", "action", "inserted", "updated", "deleted", "conflicts")
        yield Table(columns, rows)
    for each in plan:
        if each.conflicts:
            yield first_conflicts(each.conflicts, of=each.conflict_count, sides=sides)
