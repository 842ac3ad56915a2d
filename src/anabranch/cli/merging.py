"""The options of the commands that merge, and conflicts as people see them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.exit_codes import CONFLICTS
from anabranch.cli.options import parse_pairs
from anabranch.cli.output import ErrorView, Table
from anabranch.cli.rows import text_value
from anabranch.errors import InvalidInputError, MergeConflictError

if TYPE_CHECKING:
    from anabranch.repo.merge.conflicts import Conflict, StrategyGap
    from anabranch.repo.repository import Repository

__all__ = [
    "CheckFiles",
    "Into",
    "MergeOptions",
    "MergeSource",
    "NamedConflictError",
    "ReplayOptions",
    "Resolving",
    "conflict_table",
    "first_conflicts",
    "gap_notes",
    "read_checks",
    "with_conflicts",
]

MergeSource = Annotated[
    str,
    typer.Argument(metavar="SOURCE", show_default=False, help="Branch to merge, or another ref, such as a tag."),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into", metavar="BRANCH", show_default=False, help="Branch to merge into (default: the current branch)."
    ),
]
CheckFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="FILE",
        show_default=False,
        help="File with one SELECT that must find no rows in the new state. Otherwise nothing changes. Repeatable.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Resolving:
    """The options that decide conflicts."""

    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            "-s",
            metavar="fail|source|target",
            help="Side that wins if both changed the same cell and no --resolve applies.",
        ),
    ] = "fail"
    resolve: Annotated[
        list[str] | None,
        typer.Option(
            "--resolve",
            "-r",
            metavar="WHAT=HOW",
            show_default=False,
            help="Resolver for a column (price=max), a table (bucket.table=source) or a column of a table"
            " (bucket.table.price=min): source, target, max, min, sum_delta, concat or latest_by(COLUMN). Repeatable.",
        ),
    ] = None
    resolutions: Annotated[
        Path | None,
        typer.Option(
            "--resolutions",
            metavar="FILE",
            show_default=False,
            help="File with decisions on single conflicts. JSON: the output of 'anabranch conflicts --json', with"
            " 'take' (source, target or base) or 'value' added to each conflict. CSV: the columns table, key, column,"
            " path, take and value.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `conflicts`."""
        return {
            "strategy": self.strategy,
            "resolvers": parse_pairs(self.resolve, option="--resolve", example="price=max"),
            "resolutions": _read_resolutions(self.resolutions),
        }


@dataclass(frozen=True, kw_only=True)
class MergeOptions(Resolving):
    """The options of all commands that merge rows."""

    check: CheckFiles = None
    expected_head: Annotated[
        str | None,
        typer.Option(
            "--expected-head",
            metavar="COMMIT",
            show_default=False,
            help="Change nothing unless the branch is at this commit.",
        ),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help=f"Report what would change. The exit code is {CONFLICTS} if there are conflicts."
        ),
    ] = False

    def merge_arguments(self, repository: "Repository") -> dict[str, Any]:
        """Return the arguments of `merge`."""
        expected = None if self.expected_head is None else repository.snapshot_of(self.expected_head).id
        arguments = self.arguments()
        # Not in `arguments`, which `conflicts` uses: that command may read a file that has no decisions yet.
        _require_decision(arguments["resolutions"], self.resolutions)
        return {
            **arguments,
            "checks": read_checks(self.check),
            "expected_head": expected,
            "dry_run": self.dry_run,
        }


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(MergeOptions):
    """The options of rebase, cherry-pick and revert."""

    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata", metavar="KEY=VALUE", show_default=False, help="Metadata of each new commit. Repeatable."
        ),
    ] = None

    def replay_arguments(self, repository: "Repository") -> dict[str, Any]:
        """Return the arguments of `rebase`, `cherry_pick` and `revert`."""
        return {**self.merge_arguments(repository), "metadata": parse_pairs(self.metadata, option="--metadata")}


_MOST_SHOWN = 10
# The columns of a conflict's values, in the colours that a diff has for what went and what came.
_STYLES = (None, "red", None, None, "dim", "green", "yellow", None)


def _read_resolutions(path: Path | None) -> list[dict[str, Any]]:
    """Read the decisions on single conflicts. An entry of a JSON file without a decision is allowed."""
    if path is None:
        return []
    from anabranch.repo.merge.decisions import read_resolutions as parse

    return parse(_read_text(path, "the resolutions", hint="name a JSON or CSV file in UTF-8").encode(), name=str(path))


def _require_decision(resolutions: Sequence[Any], path: Path | None) -> None:
    """Refuse a file in which no entry has a decision: it is the list of conflicts as it was printed."""
    if resolutions and all(isinstance(entry, Mapping) and not {"take", "value"} & set(entry) for entry in resolutions):
        raise InvalidInputError(
            f"no entry of the resolutions {str(path)!r} has 'take' or 'value'",
            hint="add 'take' (source, target or base) or 'value' to each conflict that you decide",
        )


def read_checks(files: Sequence[str] | None) -> dict[str, str]:
    """Read checks from files, by the names of the files, or by their paths if two files have one name."""
    paths = [Path(file) for file in dict.fromkeys(files or ())]
    names = [path.name for path in paths]
    return {str(path) if names.count(path.name) > 1 else path.name: _read(path) for path in paths}


def _read(path: Path) -> str:
    return _read_text(path, "the check", hint="name a file with one SELECT in UTF-8")


def _read_text(path: Path, what: str, *, hint: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise InvalidInputError(f"{what} {str(path)!r} cannot be read: {err}", hint=hint) from err


def gap_notes(gaps: "Sequence[StrategyGap]") -> list[str]:
    """Return what a strategy does not decide, and what to do instead, a line for each table."""
    from anabranch.repo.merge.plan import gap_text

    return [f"note: {gap_text(gap)}" for gap in gaps]


class NamedConflictError(MergeConflictError):
    """The conflicts of a merge, with the names of its sides."""

    def __init__(self, error: MergeConflictError, *, hint: str, source: str, target: str) -> None:
        super().__init__(error.problem, hint=hint, conflicts=error.conflicts, count=error.count)
        self.source = source
        self.target = target


def with_conflicts(view: ErrorView, error: MergeConflictError) -> ErrorView:
    """The view of an error with the conflicts that it is about."""
    details = {"conflict_count": error.count, "conflicts": error.conflicts}
    source, target = (error.source, error.target) if isinstance(error, NamedConflictError) else (None, None)
    table = first_conflicts(error.conflicts, of=error.count, source=source, target=target)
    return replace(view, details=details, tables=[table])


def first_conflicts(
    conflicts: "Sequence[Conflict]", *, of: int, source: str | None = None, target: str | None = None
) -> Table:
    """Return a table of the first of `of` conflicts."""
    shown = conflicts[:_MOST_SHOWN]
    title = f"the first {len(shown)} of {of} conflicts" if of > len(shown) else "conflicts"
    return conflict_table(shown, title=title, source=source, target=target)


def conflict_table(
    conflicts: "Sequence[Conflict]", *, title: str | None = None, source: str | None = None, target: str | None = None
) -> Table:
    """The conflicts for people, with the problem in words where the values do not show it.

    `source` and `target` are the names of the sides, for the headers.
    """
    has_problems = any(conflict.key is None or conflict.hint for conflict in conflicts)
    has_decisions = any(conflict.decision for conflict in conflicts)
    sides = (f"source ({source})" if source else "source", f"target ({target})" if target else "target")
    columns = ("table", "kind", "key", "column", "base", *sides, *(["problem"] if has_problems else []))
    rows = tuple(_cells(conflict)[: len(columns)] for conflict in conflicts)
    styles = _STYLES[: len(columns)]
    if has_decisions:
        columns, styles = (*columns, "decided"), (*styles, None)
        rows = tuple((*row, _decision(conflict)) for row, conflict in zip(rows, conflicts, strict=True))
    return Table(columns=columns, rows=rows, styles=styles, title=title, empty="no conflicts")


def _decision(conflict: "Conflict") -> str | None:
    decision = conflict.decision
    if decision is None:
        return None
    return f"take {decision['take']}" if "take" in decision else text_value(decision["value"])


def _cells(conflict: "Conflict") -> tuple[object, ...]:
    key = None if conflict.key is None else _row(conflict.key)
    problem = conflict.problem if conflict.key is None or conflict.hint else ""
    column = conflict.column if conflict.path is None else f"{conflict.column}.{conflict.path}"
    return (conflict.table, conflict.kind.value, key, column, *_values(conflict), problem)


def _values(conflict: "Conflict") -> tuple[str | None, ...]:
    values = (conflict.base, conflict.source, conflict.target)
    if conflict.key is None:
        return tuple(None if value is None else text_value(value) for value in values)
    if conflict.column is not None:
        return tuple(map(text_value, values))
    rows = [value for value in values if value is not None]
    changed = [name for name in rows[0] if any(row.get(name) != rows[0][name] for row in rows)]
    return tuple("deleted" if value is None else _changed_cells(value, changed) for value in values)


def _changed_cells(row: Mapping[str, Any], changed: Sequence[str]) -> str:
    """The cells of a row that are not the same on all sides, or all of them where a column is on one side only."""
    return _row({name: row[name] for name in changed if name in row} or row)


def _row(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={text_value(value)}" for name, value in values.items())
