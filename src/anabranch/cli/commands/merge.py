"""`anabranch merge`, `conflicts`, `decisions`, `rebase`, `cherry-pick` and `revert`: apply changes to a branch."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, assert_never

from anabranch.cli.command import COMMITS, WRITES, Here, command, group
from anabranch.cli.merging import (
    Into,
    MergeOptions,
    MergeSource,
    ReplayOptions,
    Resolving,
    Sides,
    conflict_table,
    gap_notes,
    merge_tables,
    naming,
    replay_tables,
)
from anabranch.cli.options import Engine, Limit, Message, argument, flag, option
from anabranch.cli.output import CONFLICTS, Answer, document_of
from anabranch.cli.texts import Table, commit_line, count, first_page, subject, text_or_none
from anabranch.display import short_id
from anabranch.errors import InvalidInputError, TableNotFoundError

if TYPE_CHECKING:
    from anabranch.repo.merge.conflict_types import Conflict
    from anabranch.repo.merge.plan import MergeResult, ReplayResult
    from anabranch.repo.repository import Repository

app = group()


@dataclass(frozen=True, kw_only=True)
class CommitOptions:
    """The options that only `merge` has: which commit it makes, and when."""

    keep_decisions: bool = flag(
        "--keep-decisions",
        "If this merge fails, save the decisions of the --resolutions file. The next merge of the same branches uses"
        " the saved decisions.",
    )
    message: Message = None
    squash: bool = flag(
        "--squash",
        "Make an ordinary commit with one parent. Then 'anabranch log --graph' does not connect the commit with the"
        " commits of SOURCE.",
    )
    ff_only: bool = flag(
        "--ff-only",
        "Merge only if SOURCE already has all commits of the target. The merge still makes a commit. (In git it does"
        " not.)",
    )
    no_ff: bool = flag("--no-ff", "No effect, because every merge makes a commit. The option exists for users of git.")
    expected_source: str | None = option(
        "--expected-source", "COMMIT", "Merge only if COMMIT is the newest commit of SOURCE."
    )
    engine: Engine = "auto"

    def parsed(self, repository: "Repository") -> dict[str, Any]:
        """Return the arguments of `merge`."""
        if self.ff_only and self.no_ff:
            raise InvalidInputError("--ff-only and --no-ff do not go together", hint="leave one out")
        expected = None if self.expected_source is None else repository.snapshot_of(self.expected_source).id
        arguments = {name: value for name, value in vars(self).items() if name != "no_ff"}
        return {**arguments, "expected_source": expected}


@command(
    app,
    "merge",
    "merge dev",
    "merge dev --into main --resolve 'shop.orders.state=latest_by(updated_at)'",
    "merge dev --check totals.sql",
    on=WRITES,
)
def merge(here: Here, source: MergeSource, into: Into = None, *, kind: CommitOptions, how: MergeOptions) -> Answer:
    """Merge the changes of SOURCE into a branch, as one commit.

    Changes are merged by table, row and cell. If both branches changed the same cell to different values, this is a
    conflict, and nothing is merged. 'anabranch conflicts' lists the conflicts. To decide them, use --strategy,
    --resolve or --resolutions.
    """
    target = into or here.current().name
    arguments = {**kind.parsed(here.repository), **how.merge_arguments(here.repository)}
    with here.output.progress("merging"), naming(Sides(source=source, target=target)):
        done = here.repository.merge(source, into=target, **arguments)
    checks = arguments["checks"]
    passed = list(checks) if done.commit is not None else []
    notes = [f"{count(len(passed), 'check')} passed"] if passed else []
    if checks and not passed:
        # Without a dry run, conflicts raise an error, so a merge with tables here is a dry run.
        reason = "there was nothing to merge" if not done.plan.tables and done.plan.is_clean else "this was a dry run"
        notes = [f"note: {reason}, so {count(len(checks), 'check')} did not run"]
    return Answer(
        {**document_of(done), "checks": passed, "dry_run": how.dry_run},
        _sentence(done, dry_run=how.dry_run),
        *gap_notes(done.plan.strategy_gaps),
        *notes,
        tables=list(merge_tables(done.plan)),
        exit_code=0 if done.plan.is_clean else CONFLICTS,
    )


def _sentence(done: "MergeResult", *, dry_run: bool) -> str:
    from anabranch.repo.merge.plan import MergeOutcome

    plan = done.plan
    match plan.outcome:
        case MergeOutcome.ALREADY_UP_TO_DATE:
            other = f"; for the other direction, use 'anabranch merge {plan.into} --into {plan.source}'"
            return f"{plan.into} is up to date with {plan.source}{other if plan.source != plan.into else ''}"
        case MergeOutcome.FAST_FORWARD:
            also = " (fast-forward)"
        case MergeOutcome.MERGED:
            also = ""
        case other:
            assert_never(other)
    if not plan.is_clean:
        return f"{plan.source} does not merge into {plan.into}: {count(plan.conflict_count, 'conflict')}"
    if dry_run:
        return f"{plan.source} merges into {plan.into}{also}; nothing was changed"
    made = "" if done.commit is None else f" as {short_id(done.commit.id)}"
    return f"merged {plan.source} into {plan.into}{made}{also}"


@command(
    app, "conflicts", "conflicts dev", "conflicts dev --into main --stat", "conflicts dev --limit 100 --offset 200"
)
def conflicts(
    here: Here,
    source: MergeSource,
    into: Into = None,
    limit: Limit = 20,
    offset: int = option("--offset", "N", "Number of conflicts to skip.", default=0, min=0),
    table: str | None = option("--table", "TABLE", "Only conflicts of this table."),
    stat: bool = flag("--stat", "Show only the number of conflicts, by table and kind."),
    by: str = option(
        "--by",
        "merge|cherry-pick|revert|rebase",
        "Operation whose conflicts are listed. With cherry-pick and revert, SOURCE is a commit or a range (main..dev)."
        " With rebase, SOURCE is the branch to rebase, and --into is the branch to rebase onto.",
        default="merge",
    ),
    include_decided: bool = flag(
        "--include-decided",
        "Also list conflicts that are decided by the --resolutions file, or by decisions that 'merge --keep-decisions'"
        " saved.",
    ),
    engine: Engine = "auto",
    *,
    how: Resolving,
) -> Answer:
    """List the conflicts that a merge would have. Nothing changes.

    Each conflict has three values: the value in the base (the last commit that both branches have), in the source, and
    in the target. The list leaves out conflicts that are already decided: by --strategy, --resolve or --resolutions, or
    by decisions that 'anabranch merge --keep-decisions' saved. With --by, list the conflicts of a cherry-pick, revert
    or rebase. These apply commits one after the other, so the list ends after the first commit with a conflict.
    """
    target = into or here.current().name
    found = here.repository.conflicts(
        source, into=target, by=by.replace("-", "_"), include_decided=include_decided, engine=engine, **how.arguments()
    )
    if by == "merge" and table is not None and not any(table in here.snapshot(ref) for ref in (source, target)):
        raise TableNotFoundError(
            f"neither {source} nor {target} has a table {table!r}", hint="list the tables with 'anabranch table list'"
        )
    wanted = (conflict for conflict in found if table in (None, conflict.table))
    of_what = {"source": source, "into": target}
    with here.output.progress("comparing"):
        if stat:
            return _counts(wanted, of_what)
        return _page(wanted, of_what, Sides.of(by, source, target), limit=limit, offset=offset)


def _page(
    found: Iterator["Conflict"], of_what: Mapping[str, object], sides: Sides, *, limit: int, offset: int
) -> Answer:
    # The iterator compares rows while it is read, so only what is shown is read.
    page, has_more, _ = first_page(islice(found, offset, None), limit, "first", "conflict")
    last = offset + len(page)
    sentences = [count(len(page), "conflict")] if page else []
    if page and (offset or has_more):
        which = f"conflict {last}" if len(page) == 1 else f"conflicts {offset + 1} to {last}"
        sentences = [f"{which}; --offset {last} shows more" if has_more else f"{which}; there are no more"]
    document = {**of_what, "offset": offset, "conflicts": page, "has_more": has_more}
    return Answer(document, *sentences, tables=[conflict_table(page, sides=sides)])


def _counts(found: Iterator["Conflict"], of_what: Mapping[str, object]) -> Answer:
    counted = Counter((conflict.table, conflict.kind.value) for conflict in found)
    rows = [(*what, number) for what, number in sorted(counted.items())]
    names = ("table", "kind", "conflicts")
    tables = [dict(zip(names, row, strict=True)) for row in rows]
    document = {**of_what, "conflict_count": counted.total(), "tables": tables}
    sentences = [count(counted.total(), "conflict")] if rows else []
    return Answer(document, *sentences, tables=[Table(names, rows, empty="no conflicts")])


_COLUMNS = ("table", "key", "column", "path", "base", "source", "target", "take", "value")


@command(app, "decisions", "decisions dev", "decisions dev --into main --clear")
def decisions(
    here: Here,
    source: str = argument("SOURCE", "Branch to merge."),
    into: Into = None,
    clear: bool = flag("--clear", "Delete the decisions."),
) -> Answer:
    """List or delete saved decisions about conflicts.

    'anabranch merge --keep-decisions' saves decisions if the merge fails. A saved decision is used as long as the base,
    the source and the target of its conflict keep their values.
    """
    target = into or here.current().name
    # Before they are deleted, so that the answer contains them.
    found = here.repository.decision_list(source, target)
    if clear:
        here.repository.decision_clear(source, target)
    rows = [[text_or_none(entry.get(name)) for name in _COLUMNS] for entry in found]
    what = count(len(found), "decision")
    return Answer(
        {"source": source, "into": target, "decisions": found, "cleared": clear},
        f"deleted {what}" if clear else f"{what} kept for merges of {source} into {target}",
        tables=[Table(_COLUMNS, rows)] if rows and not clear else [],
    )


CommitNames = Annotated[
    list[str],
    argument(
        "COMMIT...",
        "Commits, such as 01M7GMZB03Y0YA, main~2 or dev (the newest commit of dev). Or ranges: main..dev are the"
        " commits that dev has and main does not have.",
    ),
]


@command(app, "rebase", "rebase main", "rebase v1.0 --branch dev --strategy target", on=COMMITS)
def rebase(
    here: Here, onto: str = argument("REF", "New base of the commits, such as main."), *, how: ReplayOptions
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
    document = {"branch": name, "onto": onto}
    if how.dry_run:
        return _plan_answer(name, done, {**document, "head_commit_id": before}, sides)
    head = repository.branch_get(name).head_commit_id
    sentence = f"{name} is on top of {onto} already"
    if head != before:
        sentence = f"put {count(len(done.commits), 'commit')} of {name} on top of {onto}; it is at {short_id(head)}"
    rows = [
        (short_id(commit.id), short_id(commit.metadata["rebased_from"]), subject(commit)) for commit in done.commits
    ]
    tables = [Table(("commit", "from", "message"), rows)] if rows else []
    heads = {"previous_commit_id": before, "head_commit_id": head}
    return Answer({**document, **heads, "commits": done.commits}, sentence, tables=tables)


@command(app, "cherry-pick", "cherry-pick dev", "cherry-pick dev~2 -b fix", "cherry-pick main..dev", on=COMMITS)
def cherry_pick(here: Here, commits: CommitNames, message: Message = None, *, how: ReplayOptions) -> Answer:
    """Apply the changes of commits to the current branch.

    The changes are merged by row and cell. If there are conflicts that no option decides, nothing changes. Each commit
    becomes a new commit. The commits of a range are applied in order, oldest first. All new commits become visible at
    the same time.
    """
    return _replayed(here, "cherry-pick", commits, message, how=how)


@command(app, "revert", "revert 01M7GMZB03Y0YA", "revert main~3..main --dry-run", on=COMMITS)
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
        tables=list(replay_tables(done.plan, sides)),
        exit_code=0 if done.is_clean else CONFLICTS,
    )
