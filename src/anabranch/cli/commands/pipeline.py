"""`anabranch pipeline`: a pipeline file or a project, planned, built and published as one commit."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    Actor,
    AsJson,
    BranchOption,
    Message,
    RefOption,
    Repo,
    StorageOptions,
    example,
    parse_pairs,
)
from anabranch.cli.commands.lineage import write_drawing
from anabranch.cli.commits import short_id
from anabranch.cli.exit_codes import DIFFERENT
from anabranch.cli.groups import ListGroup
from anabranch.cli.output import Answer, Table, output_for
from anabranch.cli.pipeline_answers import backfill_answer, plan_answer, reproduction_answer, run_answer
from anabranch.cli.session import open_session
from anabranch.cli.step_progress import watched_steps, watched_values
from anabranch.errors import InvalidInputError

if TYPE_CHECKING:
    from anabranch.spark.session import SparkSession

__all__ = ["app"]


class _Pipelines(ListGroup):
    otherwise = "anabranch pipeline run"


app = typer.Typer(cls=_Pipelines, help="Run pipelines, show their plans, and list those that built tables.")

File = Annotated[
    str, typer.Argument(metavar="FILE", show_default=False, help="A pipeline file, or the folder of a project.")
]
Param = Annotated[
    list[str] | None,
    typer.Option(
        "--param", "-p", metavar="NAME=VALUE", show_default=False, help="Value of a parameter; repeat it for more."
    ),
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        "-s",
        metavar="NAME",
        show_default=False,
        help="Build these outputs: orders, mart.*, +orders (and what it reads), orders+ (and what reads it), "
        "state:changed; repeat it for more.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="NAME", show_default=False, help="Leave these outputs out, written as for --select."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="REF",
        show_default=False,
        help="State that state:changed compares with (default: the branch).",
    ),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", metavar="N", min=1, help="Maximum number of outputs built at the same time.")
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        show_default=False,
        help="Where Spark is: local[4], spark://host:7077, sc://host:15002 for Spark Connect; by default here.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", show_default=False, help="A setting of Spark; repeat it for more."),
]


@app.command(
    "run",
    epilog=example(
        "pipeline run shop.py --branch dev --param since=2026-01-01",
        "pipeline run shop.py --only gold.revenue --dry-run",
        "pipeline run shop.py --master spark://host:7077",
        "pipeline run shop --select state:changed+ --since main",
        "pipeline run --reproduce main",
    ),
)
def run(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="A Python file that declares one pipeline, or the folder of a project; with --reproduce, instead of"
            " the one that was recorded.",
        ),
    ] = None,
    reproduce: Annotated[
        str | None,
        typer.Option(
            "--reproduce",
            metavar="COMMIT",
            show_default=False,
            help="Run again what made this commit, on the inputs and with the parameters of then, onto a new branch"
            " (--branch names it), and report whether the outputs are the same; exits with 8 if they are not.",
        ),
    ] = None,
    param: Param = None,
    select: Select = None,
    exclude: Exclude = None,
    since: Since = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="TABLE",
            show_default=False,
            help="Build this output and no other, from its inputs as they are on the branch; repeat it for more.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and show what would be done; start no Spark.")
    ] = False,
    jobs: Jobs = 2,
    master: Master = None,
    conf: Conf = None,
    message: Message = None,
    branch: BranchOption = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline: build its outputs and publish all of them as one commit, or nothing."""
    from anabranch import Pipeline

    output = output_for(as_json=as_json)
    if reproduce is not None:
        _refuse_with_reproduce(
            {
                "--param": param,
                "--only": only,
                "--select": select,
                "--exclude": exclude,
                "--since": since,
                "--dry-run": dry_run,
                "--message": message,
            }
        )
        here = open_session(repo=repo, storage_options=storage_option, actor=actor)
        pipeline = Pipeline.recorded(here.repository, reproduce) if file is None else Pipeline.load(file)
        with watched_steps(as_json=as_json) as watch:
            again = pipeline.reproduce(
                here.repository,
                reproduce,
                branch=branch,
                jobs=jobs,
                spark=lambda: _session(master, conf),
                progress=watch,
            )
        output.show(reproduction_answer(again))
        raise typer.Exit(0 if again.is_same else DIFFERENT)
    if file is None:
        raise InvalidInputError("no pipeline is named", hint="name its file, or a commit with --reproduce")
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    parameters, pipeline = parse_pairs(param, option="--param"), Pipeline.load(file)
    with here.on_current_branch():
        if dry_run:
            found = pipeline.plan(
                here.repository,
                parameters=parameters,
                only=only or (),
                select=select or (),
                exclude=exclude or (),
                since=since,
            )
            output.show(plan_answer(found))
            return
        with watched_steps(as_json=as_json) as watch:
            done = pipeline.run(
                here.repository,
                parameters=parameters,
                only=only or (),
                select=select or (),
                exclude=exclude or (),
                since=since,
                jobs=jobs,
                message=message,
                spark=lambda: _session(master, conf),
                progress=watch,
            )
    output.show(run_answer(done))


@app.command("plan", epilog=example("pipeline plan shop", "pipeline plan shop --select mart.* --svg graph.svg"))
def plan(
    file: File,
    param: Param = None,
    select: Select = None,
    exclude: Exclude = None,
    since: Since = None,
    svg: Annotated[
        str | None,
        typer.Option("--svg", metavar="FILE", show_default=False, help="Draw the graph into this file, too, as SVG."),
    ] = None,
    branch: BranchOption = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show what a run would do, and draw the graph of its tables; change nothing."""
    from anabranch import Pipeline

    here = open_session(repo=repo, storage_options=storage_option, branch=branch)
    parameters, pipeline = parse_pairs(param, option="--param"), Pipeline.load(file)
    with here.on_current_branch():
        found = pipeline.plan(
            here.repository, parameters=parameters, select=select or (), exclude=exclude or (), since=since
        )
    if svg is not None:
        write_drawing(svg, found.to_svg(), here.repository.storage_options)
    output_for(as_json=as_json).show(plan_answer(found, draws=True, svg=svg))


@app.command("list", epilog=example("pipeline list", "pipeline list --ref dev --json"))
def list_(
    ref: RefOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Number of commits to search, newest first.")
    ] = 1000,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the pipelines that built tables, with the newest commit of each."""
    # Not at the top: a help text needs none of it.
    from anabranch.repo.history.lineage.provenance import PipelineRecord

    here = open_session(repo=repo, storage_options=storage_option)
    found: dict[str, dict[str, object]] = {}
    for commit in here.commits(ref, limit=limit):
        record = PipelineRecord.find(commit.metadata)
        if record is not None and record.name not in found:
            found[record.name] = {
                "pipeline": record.name,
                "file": record.file,
                "commit_id": commit.graph_commit_id,
                "created_at": commit.created,
                "actor": commit.actor_id,
                "outputs": list(record.outputs),
            }
    rows = tuple(
        (
            each["pipeline"],
            each["file"],
            short_id(str(each["commit_id"])),
            each["created_at"],
            each["actor"],
            ", ".join(map(str, each["outputs"])) if isinstance(each["outputs"], list) else None,
        )
        for each in found.values()
    )
    shown = Table(
        columns=("pipeline", "file", "last commit", "time (UTC)", "by", "outputs"), rows=rows, empty="no pipelines"
    )
    document = {"ref": ref or here.repository.branch, "pipelines": list(found.values())}
    output_for(as_json=as_json).show(Answer(document=document, tables=[shown]))


@app.command(
    "backfill",
    epilog=example(
        "pipeline backfill shop day --start 2026-01-01 --end 2026-01-31",
        "pipeline backfill shop month --start 2025-01-01 --end 2025-12-01 --step 1m --select revenue",
    ),
)
def backfill(
    file: File,
    parameter: Annotated[
        str, typer.Argument(metavar="PARAMETER", show_default=False, help="A parameter that is a date or an int.")
    ],
    start: Annotated[str, typer.Option("--start", metavar="VALUE", show_default=False, help="First value.")],
    end: Annotated[str, typer.Option("--end", metavar="VALUE", show_default=False, help="Last value.")],
    step: Annotated[
        str | None,
        typer.Option(
            "--step",
            metavar="STEP",
            show_default=False,
            help="From one value to the next: 10, 7d, 2w, 1m (default: 1).",
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Build all values again, also those that are done.")] = False,
    param: Param = None,
    select: Select = None,
    exclude: Exclude = None,
    jobs: Jobs = 2,
    master: Master = None,
    conf: Conf = None,
    branch: BranchOption = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline for each value of a parameter; each is one commit. The same command continues after a failure."""
    from anabranch import Pipeline

    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    parameters, pipeline = parse_pairs(param, option="--param"), Pipeline.load(file)
    with here.on_current_branch():
        done = pipeline.backfill(
            here.repository,
            parameter,
            start=start,
            end=end,
            step=step,
            again=again,
            parameters=parameters,
            select=select or (),
            exclude=exclude or (),
            jobs=jobs,
            spark=lambda: _session(master, conf),
            progress=watched_values(as_json=as_json),
        )
    output_for(as_json=as_json).show(backfill_answer(done))


def _refuse_with_reproduce(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            raise InvalidInputError(
                f"{option} is given with --reproduce, which does again what was recorded", hint="leave one of them out"
            )


def _session(master: str | None, conf: Sequence[str] | None) -> "SparkSession":
    import anabranch

    return anabranch.spark_session(master=master, config=parse_pairs(conf, option="--conf"))
