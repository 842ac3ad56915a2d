"""`anabranch run FILE`: a pipeline, built on Spark and published as one commit."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, BranchOption, Message, Repo, StorageOptions, parse_pairs
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import open_session
from anabranch.cli.step_progress import watched_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.pipelines.planning import Plan
    from anabranch.pipelines.running import PipelineRun

__all__ = ["run_pipeline"]


def run_pipeline(
    file: Annotated[
        str, typer.Argument(metavar="FILE", show_default=False, help="A Python file that declares one pipeline.")
    ],
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

    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    parameters = parse_pairs(param, option="--param")
    pipeline = Pipeline.load(file)
    with here.on_current_branch():
        plan = pipeline.plan(here.repository, parameters=parameters, only=only or ())
        if dry_run:
            output_for(as_json=as_json).show(_plan_answer(plan))
            return
        with watched_steps(as_json=as_json) as watch:
            done = pipeline.run(
                here.repository,
                parameters=parameters,
                only=only or (),
                jobs=jobs,
                message=message,
                spark=_session(master, conf),
                on_step=watch,
            )
    output_for(as_json=as_json).show(_run_answer(done))


def _session(master: str | None, conf: Sequence[str] | None) -> "SparkSession | None":
    settings = parse_pairs(conf, option="--conf")
    if master is None and not settings:
        return None
    import anabranch

    return anabranch.spark_session(master=master, config=settings)


def _plan_answer(plan: "Plan") -> Answer:
    steps = [
        {
            "output": step.key,
            "kind": step.output.kind,
            "write": step.output.write.value,
            "creates": step.creates,
            "inputs": list(step.output.inputs),
            "incremental": list(step.output.incremental),
            "after": list(step.after),
            "primary_key": list(step.output.primary_key),
            "description": step.output.description,
        }
        for step in plan.steps
    ]
    document = {
        "pipeline": plan.pipeline,
        "branch": plan.branch,
        "source_hash": plan.source.hash,
        "parameters": {name: str(value) for name, value in plan.parameters.items()},
        "steps": steps,
        "checks": [check.name for check in plan.checks],
    }
    rows = tuple(
        (
            number,
            step.key,
            step.output.kind,
            f"{step.output.write.value}{', creates it' if step.creates else ''}",
            ", ".join(
                f"{name} (what is new)" if name in step.output.incremental else name for name in step.output.inputs
            )
            or None,
        )
        for number, step in enumerate(plan.steps, start=1)
    )
    tables = [Table(columns=("step", "output", "kind", "write", "reads"), rows=rows)]
    if plan.parameters:
        values = tuple((name, str(value)) for name, value in plan.parameters.items())
        tables.append(Table(title="parameters", columns=("", ""), rows=values))
    if plan.checks:
        tables.append(Table(title="checks", columns=("",), rows=tuple((check.name,) for check in plan.checks)))
    sentence = f"{plan.pipeline} on {plan.branch}: {count(len(plan.steps), 'step')}; nothing was done"
    return Answer(document=document, sentences=[sentence], tables=tables)


def _run_answer(done: "PipelineRun") -> Answer:
    rows = tuple(
        (output.key, output.write, f"{output.rows:,}", f"{output.seconds:.1f}", ", ".join(output.inputs) or None)
        for output in done.outputs
    )
    sentence = f"ran {done.pipeline} on {done.branch}: nothing changed"
    if done.commit_id is not None:
        checked = f", {count(len(done.checks), 'check')} passed" if done.checks else ""
        sentence = f"ran {done.pipeline} on {done.branch} at {short_id(done.commit_id)}{checked}"
    shown = Table(columns=("output", "write", "rows", "seconds", "reads"), rows=rows)
    return Answer(document=asdict(done), sentences=[sentence], tables=[shown])
