"""What the commands cherry-pick, revert and rebase share: their options, and their results as they are shown."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.commits import commit_document, short_id, subject
from anabranch.cli.exit_codes import CONFLICTS
from anabranch.cli.merging import conflict_document, first_conflicts, gap_documents, gap_notes, planned_table_document
from anabranch.cli.output import Answer, Table, count, output_for

if TYPE_CHECKING:
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.merge.plan import CommitPlan, ReplayResult
    from anabranch.repo.repository import Repository

__all__ = [
    "CommitNames",
    "ExpectedHead",
    "MetadataPairs",
    "DryRun",
    "find_expected_head",
    "show_picked",
    "show_plan",
]

CommitNames = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMIT...",
        show_default=False,
        help="Commits: ids, beginnings of ids or any other REF, where a branch stands for its newest commit; or ranges"
        " A..B: the commits of B that A does not have.",
    ),
]
MetadataPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata",
        metavar="KEY=VALUE",
        show_default=False,
        help="Metadata to add to each new commit; repeat it for more.",
    ),
]
ExpectedHead = Annotated[
    str | None,
    typer.Option(
        "--expected-head",
        metavar="COMMIT",
        show_default=False,
        help="Refuse if the branch is not on this commit any more.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help=f"Report what would change; exits with {CONFLICTS} if there are conflicts."),
]


def find_expected_head(repository: "Repository", ref: str | None) -> str | None:
    return None if ref is None else repository.snapshot_of(ref).id


def show_picked(branch: str, done: "ReplayResult", *, dry_run: bool, as_json: bool) -> None:
    """Show the commits that a cherry-pick or a revert has made, or would make."""
    if dry_run:
        show_plan(branch, done, {"branch": branch}, as_json=as_json)
        return
    document = {
        **({} if done.commit is None else commit_document(done.commit)),
        "commits": [commit_document(commit) for commit in done.commits],
        "dry_run": False,
    }
    sentences = [f"on {branch}, {_line(commit)}" for commit in done.commits]
    output_for(as_json=as_json).show(Answer(document=document, sentences=sentences))


def show_plan(branch: str, done: "ReplayResult", document: dict[str, Any], *, as_json: bool) -> None:
    """Show what a dry run has planned, and exit with a code of its own if there are conflicts."""
    plan = [_plan_document(each) for each in done.plan]
    last = done.plan[-1] if done.plan else None
    sentence = f"{count(len(done.plan), 'commit')} would go to {branch}; nothing was changed"
    if last is not None and not last.is_clean:
        sentence = f"{short_id(last.commit_id)} has {count(last.conflict_count, 'conflict')} on {branch}"
    output_for(as_json=as_json).show(
        Answer(
            document={**document, "commits": [], "dry_run": True, "plan": plan},
            sentences=[sentence, *(note for each in done.plan for note in gap_notes(each.strategy_gaps))],
            tables=list(_plan_tables(done.plan)),
        )
    )
    if not done.is_clean:
        raise typer.Exit(CONFLICTS)


def _line(commit: "GraphCommit") -> str:
    return f"{short_id(commit.graph_commit_id)} {subject(commit)}".rstrip()


def _plan_document(plan: "CommitPlan") -> dict[str, object]:
    return {
        "commit_id": plan.commit_id,
        "message": plan.message,
        "tables": [planned_table_document(table) for table in plan.tables],
        "conflict_count": plan.conflict_count,
        "conflicts": [conflict_document(conflict) for conflict in plan.conflicts],
        "strategy_gaps": gap_documents(plan.strategy_gaps),
    }


def _plan_tables(plan: "Sequence[CommitPlan]") -> Iterator[Table]:
    rows = tuple(
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
    )
    if rows:
        columns = ("commit", "table", "action", "inserted", "updated", "deleted", "conflicts")
        yield Table(columns=columns, rows=rows)
    for each in plan:
        if each.conflicts:
            yield first_conflicts(each.conflicts, of=each.conflict_count)
