"""`anabranch pipeline` and `anabranch run`: many steps, such as those of a pipeline, published as one commit."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from anabranch.cli.command import COMMITS, READS_BRANCH, WRITES, Here, add_group, command, group
from anabranch.cli.options import Limit, ListPage, Message, RefOption, argument, flag, option, parse_pairs
from anabranch.cli.output import DIFFERENT, Answer, Line, document_of
from anabranch.cli.texts import Table, count
from anabranch.display import short_id
from anabranch.errors import InvalidInputError

if TYPE_CHECKING:
    from anabranch.pipelines.plan import Plan, Step
    from anabranch.pipelines.reproduction import ComparedOutput
    from anabranch.pipelines.run import PipelineRun, StepProgress
    from anabranch.spark.session import SparkSession
    from anabranch.storage.requests import OnProgress, Progress

app = group()
pipelines = add_group(
    app,
    "pipeline",
    help="Plan, run and list pipelines. A pipeline builds tables from other tables.",
    otherwise="anabranch pipeline run",
)
runs = add_group(
    app,
    "run",
    help="List, show and abort runs. A run makes one commit of many steps.",
    otherwise="anabranch pipeline run",
)

File = Annotated[str, argument("FILE", "Pipeline file, or folder of a project.")]
RunId = Annotated[str, argument("RUN", "Id of the run.")]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The options about what to build, with which parameters."""

    param: list[str] | None = option("--param -p", "NAME=VALUE", "Value of a parameter. Repeatable.")
    select: list[str] | None = option(
        "--select -s",
        "NAME",
        "Build only these outputs: orders, mart.*, +orders (with its inputs), orders+ (with its readers) or"
        " state:changed. Repeatable.",
    )
    exclude: list[str] | None = option(
        "--exclude", "NAME", "Leave out these outputs, in the syntax of --select. Repeatable."
    )

    def parsed(self) -> dict[str, Any]:
        """Return the arguments of `Pipeline.run`, `plan` and `backfill`."""
        return {
            "parameters": parse_pairs(self.param, option="--param"),
            "select": self.select or (),
            "exclude": self.exclude or (),
        }


@dataclass(frozen=True, kw_only=True)
class ComparedSelection(Selection):
    """The same, with the ref that changes are compared with."""

    since: str | None = option("--since", "REF", "Ref that state:changed compares with (default: the branch).")

    def parsed(self) -> dict[str, Any]:
        return {**super().parsed(), "since": self.since}


@dataclass(frozen=True, kw_only=True)
class Building:
    """The options about how to build."""

    jobs: int = option("--jobs -j", "N", "Maximum number of outputs to build at the same time.", default=2, min=1)
    master: str | None = option(
        "--master",
        "URL",
        "Spark master: local[4], spark://host:7077, or sc://host:15002 for Spark Connect (default: local).",
    )
    conf: list[str] | None = option("--conf", "NAME=VALUE", "Spark setting. Repeatable.")

    def parsed(self) -> dict[str, Any]:
        """Return the arguments of `Pipeline.run`, `reproduce` and `backfill`."""

        def start_spark() -> "SparkSession":
            import anabranch

            return anabranch.spark_session(master=self.master, config=parse_pairs(self.conf, option="--conf"))

        return {"jobs": self.jobs, "spark": start_spark}


@command(
    pipelines,
    "run",
    "pipeline run shop.py --branch dev --param since=2026-01-01",
    "pipeline run shop.py --only gold.revenue --dry-run",
    "pipeline run shop.py --master spark://host:7077",
    "pipeline run shop --select state:changed+ --since main",
    "pipeline run --reproduce main",
    on=COMMITS,
)
def run(
    here: Here,
    file: str | None = argument(
        "FILE",
        "Pipeline file, or folder of a project. With --reproduce: used instead of the recorded source.",
        default=None,
    ),
    reproduce: str | None = option(
        "--reproduce",
        "COMMIT",
        "Run the pipeline of this commit again, with its inputs and parameters, on a new branch (--branch),"
        f" and compare the outputs. The exit code is {DIFFERENT} if they differ.",
    ),
    only: list[str] | None = option(
        "--only", "TABLE", "Build only this output, from its inputs on the branch. Repeatable."
    ),
    dry_run: bool = flag("--dry-run", "Check the pipeline and show its steps. Change nothing, and do not start Spark."),
    message: Message = None,
    *,
    what: ComparedSelection,
    how: Building,
) -> Answer:
    """Run a pipeline and publish all its outputs as one commit.

    If an output or a check fails, nothing is published.
    """
    from anabranch import Pipeline

    if reproduce is not None:
        for name, value in {**vars(what), "only": only, "dry-run": dry_run, "message": message}.items():
            if value:
                raise InvalidInputError(f"--{name} and --reproduce do not go together", hint="leave one out")
        return _reproduce(here, file, reproduce, how)
    if file is None:
        raise InvalidInputError("no pipeline is given", hint="pass a pipeline file, or a commit with --reproduce")
    arguments, pipeline = {**what.parsed(), "only": only or ()}, Pipeline.load(file)
    if dry_run:
        return plan_answer(pipeline.plan(here.repository, **arguments))
    with _watching(here) as watch:
        done = pipeline.run(here.repository, message=message, progress=watch, **arguments, **how.parsed())
    return run_answer(done)


def _reproduce(here: Here, file: str | None, commit: str, how: Building) -> Answer:
    from anabranch import Pipeline

    pipeline = Pipeline.recorded(here.repository, commit) if file is None else Pipeline.load(file)
    with _watching(here) as watch:
        again = pipeline.reproduce(here.repository, commit, branch=here.branch, progress=watch, **how.parsed())
    different = [output for output in again.outputs if not output.is_same]
    source = "with the same source" if again.has_same_source else "with another source"
    found = "all outputs are the same"
    if different:
        found = f"{len(different)} of {count(len(again.outputs), 'output')} differ"
    rows = [(output.key, _verdict(output), output.inserted, output.updated, output.deleted) for output in again.outputs]
    return Answer(
        again,
        f"ran {short_id(again.commit_id)} again on {again.branch}, {source}: {found}",
        tables=[Table(("output", "", "inserted", "updated", "deleted"), rows)],
        exit_code=0 if again.is_same else DIFFERENT,
    )


@command(pipelines, "plan", "pipeline plan shop", "pipeline plan shop --select mart.* --svg graph.svg", on=READS_BRANCH)
def plan(
    here: Here,
    file: File,
    svg: str | None = option("--svg", "FILE", "Write a drawing of the graph to this SVG file."),
    *,
    what: ComparedSelection,
) -> Answer:
    """Show the steps of a pipeline and the graph of its tables. Nothing changes."""
    from anabranch import Pipeline

    arguments, pipeline = what.parsed(), Pipeline.load(file)
    found = pipeline.plan(here.repository, **arguments)
    if svg is not None:
        here.write_file(svg, found.to_svg())
    return plan_answer(found, draws=True, svg=svg)


@command(pipelines, "list", "pipeline list", "pipeline list --ref dev --json")
def list_pipelines(
    here: Here,
    ref: RefOption = None,
    limit: int = option("--limit -n", "N", "Maximum number of commits to search.", default=1000, min=1),
) -> Answer:
    """List the pipelines that built tables."""
    # Not at the top: a help text needs none of it.
    from anabranch.repo.history.lineage import PipelineRecord

    found: dict[str, dict[str, Any]] = {}
    for commit in here.repository.list_commits(ref, limit=limit):
        record = PipelineRecord.find(commit.metadata)
        # Commits come newest first, so the first one of a pipeline is its last run.
        if record is not None and record.name not in found:
            found[record.name] = {
                "pipeline": record.name,
                "file": record.file,
                "commit_id": commit.id,
                "created_at": commit.created,
                "actor": commit.actor_id,
                "outputs": list(record.outputs),
            }
    rows = [
        (name, one["file"], short_id(one["commit_id"]), one["created_at"], one["actor"], ", ".join(one["outputs"]))
        for name, one in found.items()
    ]
    shown = Table(("pipeline", "file", "last commit", "time (UTC)", "by", "outputs"), rows, empty="no pipelines")
    return Answer({"ref": ref or here.repository.branch, "pipelines": list(found.values())}, tables=[shown])


@command(
    pipelines,
    "backfill",
    "pipeline backfill shop day --start 2026-01-01 --end 2026-01-31",
    "pipeline backfill shop month --start 2025-01-01 --end 2025-12-01 --step 1m",
    on=COMMITS,
)
def backfill(
    here: Here,
    file: File,
    parameter: str = argument("PARAMETER", "Parameter of the type date or int."),
    start: str = option("--start", "VALUE", "First value.", default=...),
    end: str = option("--end", "VALUE", "Last value.", default=...),
    step: str | None = option("--step", "STEP", "Distance between values: 10, 7d, 2w or 1m (default: 1)."),
    again: bool = flag("--again", "Build all values again, also those that were built before."),
    *,
    what: Selection,
    how: Building,
) -> Answer:
    """Run a pipeline for each value of a parameter.

    Each value becomes one commit. After a failure, run the same command again: it continues with the values that are
    missing.
    """
    from anabranch import Pipeline

    arguments, pipeline = what.parsed(), Pipeline.load(file)
    done = pipeline.backfill(
        here.repository,
        parameter,
        start=start,
        end=end,
        step=step,
        again=again,
        progress=None if here.as_json else _show_value,
        **arguments,
        **how.parsed(),
    )
    sentence = f"ran {done.pipeline} on {done.branch} for {count(len(done.runs), 'value')} of {done.parameter}"
    if done.skipped:
        sentence += f"; {count(len(done.skipped), 'value')} had been built before (--again builds them again)"
    return Answer(done, sentence)


@contextmanager
def _watching(here: Here) -> "Iterator[OnProgress | None]":
    """Yield a callback that prints a line for each output that ended, and on a terminal which are being built."""
    if here.as_json:
        yield None
        return
    if not sys.stderr.isatty():
        yield lambda step: _show_step(cast("StepProgress", step), lambda line: typer.echo(line, err=True))
        return
    from rich.console import Console

    console, working = Console(stderr=True, highlight=False), dict[str, None]()
    with console.status("starting") as status:

        def watch(progress: "Progress") -> None:
            step = cast("StepProgress", progress)  # a run reports only its outputs
            # Without markup: a line starts with text such as [1/3], and rich reads brackets as styles.
            _show_step(step, lambda line: console.print(line, markup=False))
            if step.state == "started":
                working[step.table] = None
            else:
                working.pop(step.table, None)
            status.update(f"building {', '.join(working)}" if working else "publishing")

        yield watch


def _show_step(step: "StepProgress", show: Callable[[str], None]) -> None:
    if step.built is not None:
        show(f"[{step.done}/{step.total}] {step.table}: {step.built.rows:,} rows in {step.built.seconds:.1f} s")
    elif step.state != "started":
        show(f"{step.table}: failed")


def _show_value(progress: "Progress") -> None:
    from anabranch.pipelines.backfill import BackfillProgress  # takes a while to load

    if not isinstance(progress, BackfillProgress):
        return  # an output of the value that is being built
    commit = None if progress.run is None else progress.run.commit_id
    result = "done before" if progress.run is None else "nothing changed" if commit is None else short_id(commit)
    typer.echo(f"[{progress.done}/{progress.total}] {progress.value}: {result}", err=True)


def plan_answer(plan: "Plan", *, draws: bool = False, svg: str | None = None) -> Answer:
    """Show a plan, as a graph with `draws`. `svg` is a file with a drawing of the graph."""
    sentences = [f"{plan.pipeline} on {plan.branch}: {count(len(plan.steps), 'step')}; nothing was done"]
    document = document_of(plan)
    if svg is not None:
        sentences.append(f"drew the graph into {svg}")
        document["svg"] = svg
    lines: list[Line] = []
    if draws and plan.steps:
        # Two empty lines keep the drawing apart.
        lines = [Line(""), *map(Line, plan.to_text().splitlines()), Line("")]
    rows = [(number, *_step_row(step)) for number, step in enumerate(plan.steps, start=1)]
    tables = [Table(("step", "output", "kind", "write", "reads"), rows, empty="no output is selected")]
    if plan.parameters:
        values = [(name, str(value)) for name, value in plan.parameters.items()]
        tables.append(Table(("", ""), values, title="parameters"))
    if plan.checks:
        tables.append(Table(("",), [(check.name,) for check in plan.checks], title="checks"))
    return Answer(document, *sentences, lines=lines, tables=tables)


def _step_row(step: "Step") -> tuple[object, ...]:
    output = step.output
    write = f"{output.write}{' (new table)' if step.creates else ''}"
    reads = [f"{name} (what is new)" if name in output.incremental else name for name in output.inputs]
    return step.key, output.kind, write, ", ".join(reads) or None


def run_answer(done: "PipelineRun") -> Answer:
    rows = [
        (output.key, output.write, f"{output.rows:,}", f"{output.seconds:.1f}", ", ".join(output.inputs) or None)
        for output in done.outputs
    ]
    sentence = f"ran {done.pipeline} on {done.branch}: nothing changed"
    if done.commit_id is not None:
        checked = f", {count(len(done.checks), 'check')} passed" if done.checks else ""
        sentence = f"ran {done.pipeline} on {done.branch} at {short_id(done.commit_id)}{checked}"
    return Answer(done, sentence, tables=[Table(("output", "write", "rows", "seconds", "reads"), rows)])


def _verdict(output: "ComparedOutput") -> str:
    if output.is_same:
        return "same"
    if output.is_missing:
        return "no longer declared"
    changed = output.inserted + output.updated + output.deleted
    columns = "other columns" if output.has_other_columns else ""
    return " and ".join(part for part in (f"differs in {count(changed, 'row')}" if changed else "", columns) if part)


@dataclass(frozen=True, kw_only=True)
class RunPage(ListPage):
    """The same as for other lists, with a limit: there may be many runs."""

    limit: Limit = 50


@command(runs, "list", "run list", "run list --branch main --limit 5 --json")
def list_runs(
    here: Here, branch: str | None = option("--branch -b", "NAME", "Only runs on this branch."), *, page: RunPage
) -> Answer:
    """List runs, newest first."""
    found = here.repository.run_list(branch=branch, **vars(page))
    rows = []
    for run in found:
        commit = None if run.commit_id is None else short_id(run.commit_id)
        rows.append(
            (run.id, run.state, run.target, run.begun, run.begun_by, len(run.tables), commit, run.message or None)
        )
    columns = ("run", "state", "branch", "begun (UTC)", "by", "tables", "commit", "message")
    return Answer({"runs": found}, tables=[Table(columns, rows, empty="no runs")])


@command(runs, "show", "run show 01KA4T3JB6W9TTVN2MVF2FZ9AA")
def show_run(here: Here, run_id: RunId) -> Answer:
    """Show the state, message, logs and tables of a run."""
    # It takes a while to load, and only this command of the module needs it.
    from anabranch.pipelines.run import list_logs

    run = here.repository.run_get(run_id).info()
    logs = list_logs(here.repository, run.id)
    rows = (
        ("run", run.id),
        ("state", run.state),
        ("branch", run.target),
        ("message", run.message or None),
        ("begun (UTC)", run.begun),
        ("by", run.begun_by),
        ("last change (UTC)", run.changed),
        ("commit", run.commit_id),
        *([("error", run.error)] if run.error else []),
        *((f"log of {output}", uri) for output, uri in logs.items()),
        *((f"metadata {key}", value) for key, value in run.metadata.items()),
    )
    changed = Table(("table",), [(key,) for key in run.tables], title="changed tables", empty="no tables")
    results = [(check.name, check.result.replace("_", " "), check.problem or None) for check in run.checks]
    checks = Table(("check", "result", "problem"), results, title="checks", empty="no checks")
    return Answer({**document_of(run), "logs": logs}, tables=[Table(("", ""), rows), changed, checks])


@command(runs, "abort", "run abort 01KA4T3JB6W9TTVN2MVF2FZ9AA", on=WRITES)
def abort_run(here: Here, run_id: RunId) -> Answer:
    """Abort a run. Nothing of it is published, and its writers are refused."""
    run = here.repository.run_get(run_id)
    run.abort()
    info = run.info()
    return Answer(info, f"aborted run {info.id} on {info.target}; nothing of it was published")
