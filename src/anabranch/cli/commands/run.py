"""`anabranch pipeline run`: work that is published as one commit, or not at all."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    Actor,
    AfterName,
    AsJson,
    BranchOption,
    Limit,
    NamePrefix,
    Repo,
    StorageOptions,
    example,
)
from anabranch.cli.commits import short_id
from anabranch.cli.groups import ListGroup
from anabranch.cli.output import Answer, Table, output_for
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.runs.runs import RunInfo

__all__ = ["app"]


class _Runs(ListGroup):
    otherwise = "anabranch pipeline run"


app = typer.Typer(cls=_Runs, help="List, show and abort runs: work that is published as one commit, or not at all.")

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)]


@app.command("list", epilog=example("run list", "run list --branch main --limit 5 --json"))
def list_(
    branch: BranchOption = None,
    prefix: NamePrefix = None,
    after: AfterName = None,
    limit: Limit = 50,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first; of all branches, unless one is named."""
    repository = open_session(repo=repo, storage_options=storage_option).repository
    runs = repository.run_list(branch=branch, prefix=prefix, after=after, limit=limit)
    rows = tuple(
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
        for run in runs
    )
    columns = ("run", "state", "branch", "begun (UTC)", "by", "tables", "commit", "message")
    document = {"runs": [_document(run) for run in runs]}
    shown = Table(columns=columns, rows=rows, empty="no runs")
    output_for(as_json=as_json).show(Answer(document=document, tables=[shown]))


@app.command("show", epilog=example("run show 01KA4T3JB6W9TTVN2MVF2FZ9AA"))
def show(run_id: RunId, repo: Repo = None, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Show a run: what it is about, how far it is, and the tables it has touched."""
    from anabranch.pipelines.run import list_logs

    repository = open_session(repo=repo, storage_options=storage_option).repository
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
    touched = Table(
        title="touched tables", columns=("table",), rows=tuple((key,) for key in run.tables), empty="it touched none"
    )
    document = {**_document(run), "logs": {log.output: log.uri for log in logs}}
    answer = Answer(document=document, tables=[Table(columns=("", ""), rows=rows), touched])
    output_for(as_json=as_json).show(answer)


@app.command("abort", epilog=example("run abort 01KA4T3JB6W9TTVN2MVF2FZ9AA"))
def abort(
    run_id: RunId,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Abandon a run. Writers that still work on it are refused from then on."""
    run = open_session(repo=repo, storage_options=storage_option, actor=actor).repository.run_get(run_id)
    run.abort()
    info = run.info()
    sentence = f"aborted run {info.id} on {info.target}; nothing of it was published"
    output_for(as_json=as_json).show(Answer(document=_document(info), sentences=[sentence]))


def _document(run: "RunInfo") -> dict[str, object]:
    return {
        "id": run.id,
        "branch": run.target,
        "state": run.state,
        "message": run.message,
        "metadata": run.metadata,
        "tables": run.tables,
        "begun_at": run.begun,
        "begun_by": run.begun_by,
        "changed_at": run.changed,
        "commit_id": run.commit_id,
        "error": run.error,
    }
