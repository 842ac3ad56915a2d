"""`anabranch run`: work that is published as one commit, or not at all."""

from typing import Annotated

from anabranch.cli.command import WRITES, Here, add_group, command, group
from anabranch.cli.documents import document_of
from anabranch.cli.options import AfterName, Limit, NamePrefix, argument, option
from anabranch.cli.output import Answer
from anabranch.cli.texts import Table
from anabranch.display import short_id

app = group()
runs = add_group(
    app,
    "run",
    help="List, show and abort runs. A run makes one commit of many steps.",
    otherwise="anabranch pipeline run",
)

RunId = Annotated[str, argument("RUN", "Id of the run.")]


@command(runs, "list", "run list", "run list --branch main --limit 5 --json")
def list_(
    here: Here,
    branch: Annotated[str | None, option("--branch -b", "NAME", "Only runs on this branch.")] = None,
    prefix: NamePrefix = None,
    after: AfterName = None,
    limit: Limit = 50,
) -> Answer:
    """List runs, newest first."""
    found = here.repository.run_list(branch=branch, prefix=prefix, after=after, limit=limit)
    rows = [
        (
            run.id,
            run.state.value,
            run.target,
            run.begun,
            run.begun_by,
            len(run.tables),
            None if run.commit_id is None else short_id(run.commit_id),
            run.message or None,
        )
        for run in found
    ]
    columns = ("run", "state", "branch", "begun (UTC)", "by", "tables", "commit", "message")
    return Answer({"runs": found}, tables=[Table(columns, rows, empty="no runs")])


@command(runs, "show", "run show 01KA4T3JB6W9TTVN2MVF2FZ9AA")
def show(here: Here, run_id: RunId) -> Answer:
    """Show the state, message, logs and tables of a run."""
    # It takes a while to load, and only this command of the module needs it.
    from anabranch.pipelines.run import list_logs

    repository = here.repository
    run = repository.run_get(run_id).info()
    logs = list_logs(repository, run.id)
    rows = (
        ("run", run.id),
        ("state", run.state.value),
        ("branch", run.target),
        ("message", run.message or None),
        ("begun (UTC)", run.begun),
        ("by", run.begun_by),
        ("last change (UTC)", run.changed),
        ("commit", run.commit_id),
        *([("error", run.error)] if run.error else []),
        *((f"log of {log.output}", log.uri) for log in logs),
        *((f"metadata {key}", value) for key, value in run.metadata.items()),
    )
    changed = Table(("table",), [(key,) for key in run.tables], title="changed tables", empty="no tables")
    checks = Table(
        ("check", "result", "problem"),
        [(check.name, check.result.value.replace("_", " "), check.problem or None) for check in run.checks],
        title="checks",
        empty="no checks",
    )
    document = {**document_of(run), "logs": {log.output: log.uri for log in logs}}
    return Answer(document, tables=[Table(("", ""), rows), changed, checks])


@command(runs, "abort", "run abort 01KA4T3JB6W9TTVN2MVF2FZ9AA", on=WRITES)
def abort(
    here: Here,
    run_id: RunId,
) -> Answer:
    """Abort a run. Nothing of it is published, and its writers are refused."""
    run = here.repository.run_get(run_id)
    run.abort()
    info = run.info()
    return Answer(info, f"aborted run {info.id} on {info.target}; nothing of it was published")
