"""`anabranch run FILE`: a pipeline, built on Spark and published as one commit."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, BranchOption, Message, Repo, StorageOptions, parse_pairs
from anabranch.cli.exit_codes import DIFFERENT
from anabranch.cli.output import output_for
from anabranch.cli.pipeline_answers import plan_answer, reproduction_answer, run_answer
from anabranch.cli.session import open_session
from anabranch.cli.step_progress import watched_steps
from anabranch.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_pipeline"]


def run_pipeline(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="A Python file that declares one pipeline; with --at, instead of the one that was recorded.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="COMMIT",
            show_default=False,
            help="Run again what made this commit, on the inputs and with the parameters of then, onto a new branch"
            " (--branch names it), and say whether the outputs are the same; exits with 8 if they are not.",
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", metavar="NAME=VALUE", show_default=False, help="A parameter's value; repeat it for more."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="KEY",
            show_default=False,
            help="Build this output and no other, from its inputs as they are on the branch; repeat it for more.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all of it and say what would be done; start no Spark.")
    ] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=1, help="Build at most so many outputs at the same time.")
    ] = 2,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            show_default=False,
            help="Where Spark is: local[4], spark://host:7077, sc://host:15002 for Spark Connect; by default here.",
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", show_default=False, help="A setting of Spark's; repeat it."),
    ] = None,
    message: Message = None,
    branch: BranchOption = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline file: build its outputs on Spark and publish all of them as one commit, or nothing."""
    from anabranch import Pipeline

    output = output_for(as_json=as_json)
    if at is not None:
        _refuse_with_at({"--param": param, "--only": only, "--dry-run": dry_run, "--message": message})
        here = open_session(repo=repo, storage_options=storage_option, actor=actor)
        pipeline = Pipeline.recorded(here.repository, at) if file is None else Pipeline.load(file)
        with watched_steps(as_json=as_json) as watch:
            again = pipeline.reproduce(
                here.repository, at, branch=branch, jobs=jobs, spark=lambda: _session(master, conf), on_step=watch
            )
        output.show(reproduction_answer(again))
        raise typer.Exit(0 if again.is_same else DIFFERENT)
    if file is None:
        raise InvalidInputError("no pipeline is named", hint="name its file, or a commit with --at")
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    parameters, pipeline = parse_pairs(param, option="--param"), Pipeline.load(file)
    with here.on_current_branch():
        if dry_run:
            output.show(plan_answer(pipeline.plan(here.repository, parameters=parameters, only=only or ())))
            return
        with watched_steps(as_json=as_json) as watch:
            done = pipeline.run(
                here.repository,
                parameters=parameters,
                only=only or (),
                jobs=jobs,
                message=message,
                spark=lambda: _session(master, conf),
                on_step=watch,
            )
    output.show(run_answer(done))


def _refuse_with_at(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            raise InvalidInputError(
                f"{option} is given with --at, which does again what was recorded", hint="leave one of them out"
            )


def _session(master: str | None, conf: Sequence[str] | None) -> "SparkSession":
    import anabranch

    return anabranch.spark_session(master=master, config=parse_pairs(conf, option="--conf"))
