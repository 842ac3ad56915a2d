"""The output of commands: tables for people or one JSON document for programs on stdout, everything else on stderr.

Progress is a bar. It appears only on a terminal, and only if the command takes a while. The members of a JSON document
are the fields of a value, or those that the table at the end lists for its class.
"""

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import typer

from anabranch.cli.texts import Table, iter_lines
from anabranch.display import printable, to_datetime
from anabranch.errors import (
    AnabranchError,
    BusyError,
    CheckFailedError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    MergeConflictError,
    NotFoundError,
    StorageError,
)
from anabranch.hints import Door, words_at
from anabranch.ids import MAIN
from anabranch.json_values import json_value

if TYPE_CHECKING:
    from anabranch.storage.requests import OnProgress

# The progress of a bar: steps of a command, or rows of a load or an export, with the bytes of read files.
Counted = Literal["steps", "rows", "bytes"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line for people, coloured in a terminal; `more` are further pieces, each with its own colour."""

    text: str
    colour: str | None = None
    more: Sequence[tuple[str, str | None]] = ()


class Answer:
    """The answer of a command in both forms: a document for programs; sentences, lines and tables for people.

    The document is a value of the library, or a mapping of such values. `exit_code` is that of the process.
    """

    def __init__(
        self,
        document: object,
        *sentences: str,
        lines: Sequence[Line] = (),
        tables: Sequence[Table] = (),
        exit_code: int = 0,
    ) -> None:
        self.document = document
        self.sentences = sentences
        self.lines = lines
        self.tables = tables
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorView:
    """The display of an error: additional `details` for programs, and `tables` for people."""

    code: str
    message: str
    hint: str
    retryable: bool
    details: Mapping[str, object] = field(default_factory=dict)
    tables: Sequence[Table] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """Where the answers, errors and progress of a command go: as JSON documents, or as tables and sentences."""

    as_json: bool

    def show(self, answer: Answer) -> None:
        if self.as_json:
            typer.echo(json.dumps(document_of(answer.document), indent=2))
            return
        for sentence in answer.sentences:
            typer.echo(printable(sentence))
        for line in answer.lines:
            pieces = [(line.text, line.colour), *line.more]
            typer.echo("".join(_painted(printable(text), colour) for text, colour in pieces))
        for table in answer.tables:
            _print_table(table)

    def fail(self, error: ErrorView) -> None:
        if self.as_json:
            fields = {"code": error.code, "message": error.message, "hint": error.hint, "retryable": error.retryable}
            typer.echo(json.dumps({"error": fields | document_of(error.details)}, indent=2), err=True)
            return
        typer.echo(f"error: {printable(error.message)}", err=True)
        for table in error.tables:
            _print_table(table, err=True)
        typer.echo(f"hint: {printable(error.hint)}", err=True)

    def stop(self, message: str) -> None:
        """Report that a command was interrupted."""
        if self.as_json:
            self.fail(ErrorView(code="interrupted", message=message, hint="run the command again", retryable=True))
        else:
            typer.echo(message, err=True)

    @contextmanager
    def progress(self, what: str, *, counts: Counted = "steps") -> "Iterator[OnProgress]":
        """Yield a callback that shows the progress of a command in a bar, but not to a program that reads JSON."""
        if self.as_json:
            yield lambda _: None
            return
        with _LateBar(what, counts) as bar:
            yield lambda step: bar.update(completed=step.done, total=step.total, rows=step.rows)


def print_stream(output: Output, what: str, texts: Iterator[str]) -> None:
    """Print text that may be larger than the memory, piece by piece."""
    with output.progress(what):
        whole = chain([next(texts, "")], texts)
        # Output to a file does not mix with the bar, which can stay until the end. In a terminal the bar ends first.
        if not sys.stdout.isatty():
            for text in whole:
                typer.echo(text, nl=False)
            return
    for text in whole:
        typer.echo(text, nl=False)


def _print_table(table: Table, *, err: bool = False) -> None:
    if table.title:
        typer.echo(f"\n{printable(table.title)}", err=err)
    if not table.rows:
        typer.echo(table.empty, err=err)
        return
    file = sys.stderr if err else sys.stdout
    # A table in a pipe is as wide as its content: text that is cut off cannot be searched for.
    width = shutil.get_terminal_size().columns if file.isatty() else None
    for line in iter_lines(table, width=width, paint=_painted):
        typer.echo(line, err=err)


def _painted(text: str, style: str | None) -> str:
    if style is None:
        return text
    return typer.style(text, dim=True) if style == "dim" else typer.style(text, fg=style)


GENERAL = 1
USAGE = 2
# Not an error: a reproduced commit has other outputs, or a schema plan with --exit-code has changes.
DIFFERENT = 8
# Also of a dry run that found conflicts, which is not an error.
CONFLICTS = 9
# Ctrl-C, as shells report it: 128 and the number of SIGINT.
INTERRUPTED = 130

EXIT_CODES: dict[type[AnabranchError], int] = {
    MergeConflictError: CONFLICTS,
    CheckFailedError: 10,
    InvalidInputError: USAGE,
    NotFoundError: 3,
    ConflictError: 4,
    BusyError: 5,
    StorageError: 6,
    CorruptError: 7,
    AnabranchError: GENERAL,
}


# The text of `anabranch help exit-codes`.
MEANINGS: dict[int, str] = {
    0: "success",
    GENERAL: "another error, or a negative result: diff --exit-code found differences, doctor found problems",
    USAGE: "wrong command line or input",
    3: "a repository, branch, tag, commit, table or file was not found",
    4: "a conflict: the name exists, the branch is protected, or another writer was faster",
    5: "busy: try again",
    6: "the storage failed",
    7: "damaged data",
    DIFFERENT: "different: a reproduced commit has other outputs, or a schema plan has changes",
    CONFLICTS: "merge conflicts",
    10: "a check failed",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def exit_code(error: type[AnabranchError]) -> int:
    """Return the code of the nearest group that an error belongs to."""
    return next(EXIT_CODES[group] for group in error.__mro__ if group in EXIT_CODES)


# A command that ends sooner shows no bar: it would only flicker.
SECONDS_WITHOUT_BAR = 1.5


class _LateBar:
    """A bar that appears after a while. Without a terminal it never does: a log would get control characters."""

    def __init__(self, what: str, counts: Counted) -> None:
        self._what = what
        self._counts = counts
        self._state: dict[str, Any] = {"total": None, "rows": 0}
        self._bar: Any = None
        self._task: Any = None
        self._has_ended = False
        self._changing = threading.Lock()
        self._timer = threading.Timer(SECONDS_WITHOUT_BAR, self._show)
        self._timer.daemon = True  # the command must not wait for it after an error

    def __enter__(self) -> "_LateBar":
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        # The timer may be showing the bar right now, which is then removed here.
        with self._changing:
            self._has_ended = True
            if self._bar is not None:
                self._bar.stop()

    def update(self, **state: Any) -> None:
        with self._changing:
            self._state |= state
            if self._bar is not None:
                self._bar.update(self._task, **state)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        size = [DownloadColumn()] if self._counts == "bytes" else []
        rows = [TextColumn("{task.description}"), BarColumn(), *size, TextColumn("{task.fields[rows]:,} rows")]
        columns = [] if self._counts == "steps" else [*rows, TimeRemainingColumn()]
        with self._changing:
            if not self._has_ended:
                self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
                self._task = self._bar.add_task(self._what, **self._state)
                self._bar.start()


# The members of a document, separated by spaces: NAME, NAME=ATTRIBUTE, NAME=* for one of COMPUTED, **ATTRIBUTE for all
# members of a mapping, or ?NAME for one that is left out if it is empty. A class is named by its package. One that is
# not listed has a member for each field. The names are those in docs/cli.md: they stay the same if a field is renamed.
MEMBERS: dict[str, str] = {
    "format.CleanupReport": "dry_run files=* bytes by_reason=* versions=* removed=files"
    " kept_versions=kept too_young unused_in_bases damaged",
    "format.CloneInfo": "uri source_branch=* source_version tag created_at exists",
    "format.DoctorReport": "root clean=is_clean findings",
    "format.Finding": "severity kind subject explanation remedy=* tables refs commits paths needed_by"
    " repairable repaired",
    "format.Layout": "root total by_kind by_branch=* unreferenced_trees unknown_files=* files",
    "format.IndexInfo": "name columns type=kind covered_rows",
    "format.LayoutFile": "path kind branch=* has_ref size modified",
    "format.BasePath": "id name is_dataset_root path",
    "format.BranchInfo": "name parent_branch=* parent_version created_at manifest_size metadata",
    "format.TagInfo": "name branch=* version manifest_size created_at updated_at metadata",
    "format.BaseUsage": "id=* name path data deletion index total",
    "format.StorageReport": "uri version bases total missing",
    "pipelines.Backfill": "pipeline branch parameter values=* skipped=* commits=* runs",
    "pipelines.Plan": "pipeline branch source_hash=source.hash parameters=* steps checks=* edges=*",
    "pipelines.Step": "output=key kind=output.kind engine=output.engine write=output.write creates"
    " inputs=output.inputs incremental=output.incremental after primary_key=output.primary_key"
    " description=output.description",
    "pipelines.ComparedOutput": "key inserted updated deleted has_other_columns is_missing is_same",
    "pipelines.Reproduction": "commit_id branch same=is_same same_source=has_same_source"
    " recorded_source_hash=recorded_hash source_hash outputs run",
    "repo.GcReport": "dry_run files=* bytes by_reason=* objects commits branches runs damaged"
    " retained_commits tables waiting_since=*",
    "repo.Relocation": "root former_root datasets rewritten is_complete unexplained",
    "repo.HolderStorage": "kind name own shared head history total",
    "repo.RepositoryStorage": "root total needed freeable freeable_by_reason metadata holders tables damaged",
    "repo.TableStorage": "table own shared head history total",
    "repo.TableDiff": "change renamed_from inserted=counts.inserted updated=counts.updated"
    " deleted=counts.deleted columns",
    "repo.PipelineRecord": "name file source_hash parameters input outputs=*",
    "repo.CloneInfo": "id target kind commit_id tables created_at=created created_by state",
    "repo.GraphCommit": "id=graph_commit_id branch version=manifest_version parent_id=parent_commit_id"
    " merged_parent_id=merged_parent_commit_id actor=actor_id created_at=created kind message metadata tables",
    "repo.Conflict": "table kind key column path base source target problem ?hint **decision",
    "repo.MergeResult": "outcome=plan.outcome source=plan.source into=plan.into"
    " source_commit_id=plan.source_commit_id target_commit_id=plan.target_commit_id"
    " base_commit_ids=plan.base_commit_ids commit tables=plan.tables conflict_count=plan.conflict_count"
    " conflicts=plan.conflicts strategy_gaps=plan.strategy_gaps",
    "repo.TablePlan": "table action renamed_from taken_from inserted=counts.inserted updated=counts.updated"
    " deleted=counts.deleted added_columns dropped_columns altered_columns built_indices dropped_indices"
    " wanted_indices conflicts",
    "repo.BranchInfo": "name mode parent parent_commit_id head_commit_id version created_at=created"
    " created_by description expires_at=expires own_tables is_protected checks=*",
    "repo.Movement": "version=number event at=moved actor commit_id message is_deleted restores"
    " renamed_from renamed_to",
    "repo.TagInfo": "name commit_id created_at=created created_by description",
    "repo.RunInfo": "id branch=target state message metadata tables begun_at=begun begun_by"
    " changed_at=changed commit_id error checks",
    "repo.Table": "table=key rows=* primary_key dataset=entry.dataset home=entry.home version=*",
    "repo.TableDrift": "table has_drifted branch_rows main_rows forked_version=* main_version=*",
}


def _by_reason(report: Any) -> dict[str, object]:
    return {reason: {"files": files, "bytes": size} for reason, (files, size) in report.by_reason.items()}


COMPUTED: dict[str, Mapping[str, Callable[[Any], object]]] = {
    "format.CleanupReport": {
        "files": lambda report: len(report.files),
        "by_reason": _by_reason,
        "versions": lambda report: [{"branch": branch, "version": number} for branch, number in report.versions],
    },
    "format.CloneInfo": {"source_branch": lambda clone: clone.branch or MAIN},
    "format.Finding": {"remedy": lambda finding: words_at(Door.COMMAND_LINE, finding.remedy)},
    "format.Layout": {
        "by_branch": lambda layout: {name or MAIN: total for name, total in layout.by_branch.items()},
        "unknown_files": lambda layout: [file.path for file in layout.unknown_files],
    },
    "format.LayoutFile": {"branch": lambda file: file.branch or MAIN},
    "format.BranchInfo": {"parent_branch": lambda branch: branch.parent_branch or MAIN},
    "format.TagInfo": {"branch": lambda tag: tag.branch or MAIN},
    "format.BaseUsage": {"id": lambda usage: None if usage.base is None else usage.base.id},
    "pipelines.Backfill": {
        "values": lambda done: list(map(str, done.values)),
        "skipped": lambda done: list(map(str, done.skipped)),
        "commits": lambda done: [run.commit_id for run in done.runs if run.commit_id is not None],
    },
    "pipelines.Plan": {
        "parameters": lambda plan: {name: str(value) for name, value in plan.parameters.items()},
        "checks": lambda plan: [check.name for check in plan.checks],
        "edges": lambda plan: [{"from": key, "to": step.key} for step in plan.steps for key in step.output.inputs],
    },
    "repo.GcReport": {
        "files": lambda report: len(report.objects),
        "by_reason": _by_reason,
        "waiting_since": lambda report: None if report.waiting_since is None else to_datetime(report.waiting_since),
    },
    "repo.PipelineRecord": {
        "outputs": lambda record: [{"table": key, **document_of(output)} for key, output in record.outputs.items()]
    },
    "repo.BranchInfo": {"checks": lambda branch: [{"name": name, "sql": sql} for name, sql in branch.checks]},
    "repo.Table": {"rows": lambda table: table.count_rows(), "version": lambda table: str(table.entry.version)},
    "repo.TableDrift": {
        "forked_version": lambda drift: None if drift.forked_version is None else str(drift.forked_version),
        "main_version": lambda drift: None if drift.main_version is None else str(drift.main_version),
    },
}


def document_of(value: Any) -> Any:
    """Return a value of the library, or a container of such values, in JSON form."""
    if isinstance(value, Mapping):
        return {str(key.value if isinstance(key, Enum) else key): document_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [document_of(item) for item in value]
    kind: Any = type(value)
    read = _reader(kind)
    return json_value(value) if read is None else {name: document_of(item) for name, item in read(value).items()}


# Cached by class, because a document may list thousands of values of one class.
@cache
def _reader(kind: Any) -> Callable[[Any], dict[str, Any]] | None:
    """Return a function that reads the members of a value, or None for plain values."""
    # By package, and not by module: a class keeps its document if it moves to another file.
    name = f"{kind.__module__.removeprefix('anabranch.').partition('.')[0]}.{kind.__qualname__}"
    if name in MEMBERS:
        return lambda value: _read_members(value, MEMBERS[name].split(), COMPUTED.get(name, {}))
    if is_dataclass(kind):
        return lambda value: {each.name: getattr(value, each.name) for each in fields(kind)}
    return None


def _read_members(value: Any, members: list[str], computed: Mapping[str, Callable[[Any], object]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for member in members:
        name, _, attribute = member.partition("=")
        if name.startswith("**"):
            found |= getattr(value, name[2:]) or {}
        elif name.startswith("?"):
            given = getattr(value, name[1:])
            found |= {name[1:]: given} if given else {}
        elif attribute == "*":
            found[name] = computed[name](value)
        else:
            found[name] = attrgetter(attribute or name)(value)
    return found
