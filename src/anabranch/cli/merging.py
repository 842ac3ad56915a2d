"""The options of the commands that merge, and the display of plans and conflicts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.cli.options import argument, flag, option, parse_pairs
from anabranch.cli.output import CONFLICTS, ErrorView
from anabranch.cli.texts import Table, text_or_none, text_value
from anabranch.display import short_id
from anabranch.errors import InvalidInputError, MergeConflictError

if TYPE_CHECKING:
    from anabranch.repo.merge.conflict_types import Conflict, StrategyGap
    from anabranch.repo.merge.plan import CommitPlan, MergePlan, TablePlan
    from anabranch.repo.repository import Repository

MergeSource = Annotated[str, argument("SOURCE", "Branch to merge. It can also be a tag or a commit.")]
Into = Annotated[str | None, option("--into", "BRANCH", "Branch to merge into (default: the current branch).")]
CheckFiles = Annotated[
    list[str] | None,
    option(
        "--check",
        "FILE",
        "SQL file with one SELECT that looks for bad rows in the result. If the SELECT finds a row, the operation"
        " fails and nothing changes. Repeatable.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Resolving:
    """The options that decide conflicts."""

    strategy: str = option(
        "--strategy -s",
        "fail|source|target",
        "How to decide conflicts that no other option decides: fail (do not decide them), or source or target (use the"
        " value of that side).",
        default="fail",
    )
    resolve: list[str] | None = option(
        "--resolve -r",
        "WHAT=HOW",
        "Rule for the conflicts of a column (price=max), a table (shop.orders=source) or a column of a table"
        " (shop.orders.price=min). Rules: source, target, max, min, sum_delta (the base value plus the change of each"
        " side), concat (join both texts), latest_by(COLUMN) (the side with the larger value in COLUMN). Repeatable.",
    )
    resolutions: Path | None = option(
        "--resolutions",
        "FILE",
        "JSON or CSV file with a decision for each conflict. To make a JSON file, save the output of 'anabranch"
        " conflicts SOURCE --json --limit N', where N is at least the number of conflicts. Then add one field to each"
        ' conflict: either "take" (source, target or base) or "value" (your own value). A CSV file has the columns'
        " table, key (in JSON, such as {\"id\": 1}), column, path, take and value. The column 'path' is empty, except"
        " for a conflict inside a struct or JSON column.",
    )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `conflicts`."""
        return {
            "strategy": self.strategy,
            "resolvers": parse_pairs(self.resolve, option="--resolve", form="WHAT=HOW", example="price=max"),
            "resolutions": _read_resolutions(self.resolutions),
        }


@dataclass(frozen=True, kw_only=True)
class MergeOptions(Resolving):
    """The options of all commands that merge rows."""

    check: CheckFiles = None
    expected_head: str | None = option(
        "--expected-head", "COMMIT", "Make the change only if COMMIT is still the newest commit of the target."
    )
    dry_run: bool = flag(
        "--dry-run",
        f"Report what would change, and change nothing. Checks do not run. The exit code is {CONFLICTS} if"
        " there are conflicts.",
    )

    def merge_arguments(self, repository: "Repository") -> dict[str, Any]:
        """Return the arguments of `merge`."""
        expected = None if self.expected_head is None else repository.snapshot_of(self.expected_head).id
        arguments = self.arguments()
        # Not in `arguments`, which `conflicts` uses: that command may read a file that has no decisions yet.
        found = arguments["resolutions"]
        if found and all(isinstance(entry, Mapping) and not {"take", "value"} & set(entry) for entry in found):
            raise InvalidInputError(
                f"no entry of the resolutions {str(self.resolutions)!r} has 'take' or 'value'",
                hint="add 'take' (source, target or base) or 'value' to each conflict that you decide",
            )
        return {**arguments, "checks": read_checks(self.check), "expected_head": expected, "dry_run": self.dry_run}


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(MergeOptions):
    """The options of rebase, cherry-pick and revert."""

    metadata: list[str] | None = option("--metadata", "KEY=VALUE", "Metadata of each new commit. Repeatable.")

    def replay_arguments(self, repository: "Repository") -> dict[str, Any]:
        """Return the arguments of `rebase`, `cherry_pick` and `revert`."""
        return {**self.merge_arguments(repository), "metadata": parse_pairs(self.metadata, option="--metadata")}


_MOST_SHOWN = 10
# The columns of a conflict's values, in the colours of a diff for old and new values.
_STYLES = (None, "red", None, None, "dim", "green", "yellow", None)


def _read_resolutions(path: Path | None) -> list[dict[str, Any]]:
    """Read the decisions on single conflicts. An entry of a JSON file without a decision is allowed."""
    if path is None:
        return []
    from anabranch.repo.merge.decisions import read_resolutions as parse

    return parse(_read_text(path, "the resolutions", hint="name a JSON or CSV file in UTF-8").encode(), name=str(path))


def read_checks(files: Sequence[str] | None) -> dict[str, str]:
    """Read checks from files, by the names of the files, or by their paths if two files have one name."""
    paths = [Path(file) for file in dict.fromkeys(files or ())]
    names = [path.name for path in paths]
    texts = [_read_text(path, "the check", hint="name a file with one SELECT in UTF-8") for path in paths]
    unique = [str(path) if names.count(path.name) > 1 else path.name for path in paths]
    return dict(zip(unique, texts, strict=True))


def _read_text(path: Path, what: str, *, hint: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise InvalidInputError(f"{what} {str(path)!r} cannot be read: {err}", hint=hint) from err


def gap_notes(gaps: "Sequence[StrategyGap]") -> list[str]:
    """Return a line for each table with conflicts that the strategy does not decide, and the next step."""
    from anabranch.repo.merge.plan import gap_text

    return [f"note: {gap_text(gap)}" for gap in gaps]


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The names of the source and the target of a conflict, for the headers of a table."""

    source: str
    target: str

    @classmethod
    def of(cls, operation: str, source: str, target: str) -> "Sides":
        """Return the sides of an operation. Only those of a merge are two branches.

        The target is the branch that gets the changes. A rebase applies them to the new base.
        """
        names = {"cherry-pick": "picked commit", "revert": "before the commit", "rebase": f"commit of {source}"}
        return cls(source=names.get(operation, source), target=target)


class NamedConflictError(MergeConflictError):
    """The conflicts of an operation, with the names of its sides."""

    def __init__(self, error: MergeConflictError, *, hint: str, sides: Sides) -> None:
        super().__init__(error.problem, hint=hint, conflicts=error.conflicts, count=error.count)
        self.sides = sides


@contextmanager
def naming(sides: Sides) -> Iterator[None]:
    """Add the names of the sides, and hints for conflicts that the strategy does not decide."""
    try:
        yield
    except MergeConflictError as err:
        gaps = dict.fromkeys(f"; {each.table}: {each.hint}" for each in err.conflicts if each.hint)
        raise NamedConflictError(err, hint=err.hint + "".join(gaps), sides=sides) from err


def with_conflicts(view: ErrorView, error: MergeConflictError) -> ErrorView:
    details = {"conflict_count": error.count, "conflicts": error.conflicts}
    sides = error.sides if isinstance(error, NamedConflictError) else None
    return replace(view, details=details, tables=[first_conflicts(error.conflicts, of=error.count, sides=sides)])


def first_conflicts(conflicts: "Sequence[Conflict]", *, of: int, sides: Sides | None = None) -> Table:
    """Return a table of the first of `of` conflicts."""
    shown = conflicts[:_MOST_SHOWN]
    title = f"the first {len(shown)} of {of} conflicts" if of > len(shown) else "conflicts"
    return conflict_table(shown, title=title, sides=sides)


def conflict_table(conflicts: "Sequence[Conflict]", *, title: str | None = None, sides: Sides | None = None) -> Table:
    """Return a table of conflicts, with the problem in words if the values do not show it."""
    has_problems = any(conflict.key is None or conflict.hint for conflict in conflicts)
    has_decisions = any(conflict.decision for conflict in conflicts)
    named = ("source", "target") if sides is None else (f"source ({sides.source})", f"target ({sides.target})")
    columns = ("table", "kind", "key", "column", "base", *named, *(["problem"] if has_problems else []))
    rows = [_cells(conflict)[: len(columns)] for conflict in conflicts]
    styles = _STYLES[: len(columns)]
    if has_decisions:
        columns, styles = (*columns, "decided"), (*styles, None)
        rows = [(*row, _decision(conflict.decision)) for row, conflict in zip(rows, conflicts, strict=True)]
    return Table(columns, rows, styles=styles, title=title, empty="no conflicts")


def _decision(decision: Mapping[str, Any] | None) -> str | None:
    if decision is None:
        return None
    return f"take {decision['take']}" if "take" in decision else text_value(decision["value"])


def _cells(conflict: "Conflict") -> tuple[object, ...]:
    column = conflict.column if conflict.path is None else f"{conflict.column}.{conflict.path}"
    sides = (conflict.base, conflict.source, conflict.target)
    if conflict.key is None:
        return (conflict.table, conflict.kind.value, None, column, *map(text_or_none, sides), conflict.problem)
    texts = _row_texts(sides) if conflict.column is None else map(text_value, sides)
    problem = conflict.problem if conflict.hint else ""
    return (conflict.table, conflict.kind.value, _row(conflict.key), column, *texts, problem)


def _row_texts(sides: Sequence[Mapping[str, Any] | None]) -> tuple[str, ...]:
    rows = [row for row in sides if row is not None]
    # The cells that are not the same on all sides, or all cells where a column is on one side only.
    changed = [name for name in rows[0] if any(row.get(name) != rows[0][name] for row in rows)]
    return tuple("deleted" if row is None else _row(_only(changed, row) or row) for row in sides)


def _only(names: Sequence[str], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in names if name in row}


def _row(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={text_value(value)}" for name, value in values.items())


def merge_tables(plan: "MergePlan") -> Iterator[Table]:
    """Yield a list of the tables that a merge changes, and its first conflicts."""
    if plan.tables:
        rows = []
        for table in plan.tables:
            name = table.table if table.renamed_from is None else f"{table.renamed_from} → {table.table}"
            *counts, conflicts = _counts(table)
            rows.append((name, table.action_text, *counts, _column_changes(table), conflicts))
        yield Table(("table", "action", "inserted", "updated", "deleted", "columns", "conflicts"), rows)
    if plan.conflicts:
        yield first_conflicts(plan.conflicts, of=plan.conflict_count, sides=Sides(source=plan.source, target=plan.into))


def _counts(table: "TablePlan") -> tuple[int, int, int, int]:
    return (table.counts.inserted, table.counts.updated, table.counts.deleted, table.conflicts)


def _column_changes(table: "TablePlan") -> str | None:
    marks = (
        ("+", table.added_columns),
        ("-", table.dropped_columns),
        ("~", table.altered_columns),
        ("+index ", table.built_indices),
        ("-index ", table.dropped_indices),
        ("?index ", table.wanted_indices),
    )
    return " ".join(f"{mark}{column}" for mark, names in marks for column in names) or None


def replay_tables(plan: "Sequence[CommitPlan]", sides: Sides) -> Iterator[Table]:
    """Yield a list of the tables that each commit changes, and the first conflicts of each."""
    rows = [
        (short_id(each.commit_id), table.table, table.action_text, *_counts(table))
        for each in plan
        for table in each.tables
    ]
    if rows:
        yield Table(("commit", "table", "action", "inserted", "updated", "deleted", "conflicts"), rows)
    for each in plan:
        if each.conflicts:
            yield first_conflicts(each.conflicts, of=each.conflict_count, sides=sides)
