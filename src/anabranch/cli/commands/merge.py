"""`anabranch merge`: bring what a branch did into another one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, assert_never

import typer

from anabranch.cli.arguments import Actor, AsJson, Engine, Message, Repo, StorageOptions
from anabranch.cli.commits import commit_document, short_id
from anabranch.cli.exit_codes import CONFLICTS
from anabranch.cli.merging import (
    CheckFiles,
    Into,
    MergeSource,
    ResolutionFile,
    Resolve,
    Strategy,
    conflict_document,
    first_conflicts,
    gap_documents,
    gap_notes,
    parse_resolvers,
    planned_table_document,
    read_checks,
    read_resolutions,
)
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.replay import DryRun, ExpectedHead, find_expected_head
from anabranch.cli.session import open_session
from anabranch.errors import InvalidInputError, MergeConflictError

if TYPE_CHECKING:
    from anabranch.repo.merge.plan import MergePlan, MergeResult, TablePlan

__all__ = ["merge"]


def merge(
    source: MergeSource,
    into: Into = None,
    strategy: Strategy = "fail",
    resolve: Resolve = None,
    resolutions: ResolutionFile = None,
    keep_decisions: Annotated[
        bool,
        typer.Option(
            "--keep-decisions",
            help="If nothing is merged, keep the decisions of --resolutions for the next merge of the same branches.",
        ),
    ] = False,
    check: CheckFiles = None,
    message: Message = None,
    squash: Annotated[
        bool, typer.Option("--squash", help="Leave the source's history out: the commit has one parent.")
    ] = False,
    ff_only: Annotated[
        bool,
        typer.Option("--ff-only", help="Refuse if the branch has commits that SOURCE does not have."),
    ] = False,
    no_ff: Annotated[
        bool, typer.Option("--no-ff", help="Make a merge commit. This is the default, also for a fast-forward.")
    ] = False,
    expected_head: ExpectedHead = None,
    dry_run: DryRun = False,
    engine: Engine = "auto",
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Bring what SOURCE did since the two parted into a branch, as one commit.

    Changes of both sides are merged by table, row and cell. If anything is left that both changed differently, nothing
    is merged.
    """
    if ff_only and no_ff:
        raise InvalidInputError("both --ff-only and --no-ff are given", hint="give one of them")
    resolvers, decided, checks = parse_resolvers(resolve), read_resolutions(resolutions), read_checks(check)
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    target = into or here.current().name
    with _explained():
        done = here.repository.merge(
            source,
            into=target,
            strategy=strategy,
            resolvers=resolvers,
            resolutions=decided,
            keep_decisions=keep_decisions,
            checks=checks,
            message=message,
            squash=squash,
            ff_only=ff_only,
            expected_head=find_expected_head(here.repository, expected_head),
            dry_run=dry_run,
            engine=engine,
        )
    passed = list(checks) if done.commit is not None else []
    output_for(as_json=as_json).show(
        Answer(
            document={**_document(done), "checks": passed, "dry_run": dry_run},
            sentences=[
                _sentence(done, dry_run=dry_run),
                *gap_notes(done.plan.strategy_gaps),
                *_notes(done, checks=len(checks), passed=len(passed)),
            ],
            tables=list(_tables(done.plan)),
        )
    )
    if not done.plan.is_clean:
        raise typer.Exit(CONFLICTS)


@contextmanager
def _explained() -> Iterator[None]:
    """Add what to do about conflicts that the strategy does not decide."""
    try:
        yield
    except MergeConflictError as err:
        gaps = dict.fromkeys(f"; {each.table}: {each.hint}" for each in err.conflicts if each.hint)
        raise MergeConflictError(
            err.problem, hint=err.hint + "".join(gaps), conflicts=err.conflicts, count=err.count
        ) from err


def _document(done: "MergeResult") -> dict[str, object]:
    plan = done.plan
    return {
        "outcome": plan.outcome,
        "source": plan.source,
        "into": plan.into,
        "source_commit_id": plan.source_commit_id,
        "target_commit_id": plan.target_commit_id,
        "base_commit_ids": plan.base_commit_ids,
        "commit": None if done.commit is None else commit_document(done.commit),
        "tables": [planned_table_document(table) for table in plan.tables],
        "conflict_count": plan.conflict_count,
        "conflicts": [conflict_document(conflict) for conflict in plan.conflicts],
        "strategy_gaps": gap_documents(plan.strategy_gaps),
    }


def _sentence(done: "MergeResult", *, dry_run: bool) -> str:
    from anabranch.repo.merge.plan import MergeOutcome

    plan = done.plan
    match plan.outcome:
        case MergeOutcome.ALREADY_UP_TO_DATE:
            return f"{plan.into} has all of {plan.source} already"
        case MergeOutcome.FAST_FORWARD:
            also = f"; {plan.into} had not moved since they parted"
        case MergeOutcome.MERGED:
            also = ""
        case other:
            assert_never(other)
    if not plan.is_clean:
        return f"{plan.source} does not merge into {plan.into}: {count(plan.conflict_count, 'conflict')}"
    if dry_run:
        return f"{plan.source} merges into {plan.into}{also}; nothing was changed"
    made = "" if done.commit is None else f" as {short_id(done.commit.graph_commit_id)}"
    return f"merged {plan.source} into {plan.into}{made}{also}"


def _notes(done: "MergeResult", *, checks: int, passed: int) -> list[str]:
    if passed:
        return [f"{count(passed, 'check')} passed"]
    if checks:
        reason = "nothing is new" if not done.plan.tables and done.plan.is_clean else "there is no merged state to see"
        return [f"note: {reason}, so {count(checks, 'check')} did not run"]
    return []


def _tables(plan: "MergePlan") -> Iterator[Table]:
    if plan.tables:
        columns = ("table", "action", "inserted", "updated", "deleted", "columns", "conflicts")
        yield Table(columns=columns, rows=tuple(_row(table) for table in plan.tables))
    if plan.conflicts:
        yield first_conflicts(plan.conflicts, of=plan.conflict_count)


def _row(table: "TablePlan") -> tuple[object, ...]:
    name = table.table if table.renamed_from is None else f"{table.renamed_from} → {table.table}"
    signs = (
        ("+", table.added_columns),
        ("-", table.dropped_columns),
        ("~", table.altered_columns),
        ("+index ", table.built_indices),
        ("-index ", table.dropped_indices),
    )
    columns = " ".join(f"{sign}{column}" for sign, names in signs for column in names)
    counts = table.counts
    return (name, table.action_text, counts.inserted, counts.updated, counts.deleted, columns or None, table.conflicts)
