"""Runs and the pipelines that made them, and the lineage of a table: what it was made from."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from anabranch.errors import AnabranchError
from anabranch.repo.history.lineage import Lineage, LineageNode, NodeKind, PipelineRecord
from anabranch.repo.log.run_state import CheckOutcome, CheckResult
from anabranch.repo.runs.runs import RunInfo
from anabranch.server.ui.lake import Lake, RefChoices
from anabranch.server.ui.site import Page, Shown, Visit, get

_SIZE = 50
# A larger graph is only listed: a picture of it would be neither readable nor small.
_MOST_NODES = 300
_CHECKS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run, and what its pipeline recorded. The record is None if it was not a pipeline's."""

    info: RunInfo
    target: str
    pipeline: PipelineRecord | None

    @property
    def seconds(self) -> float:
        """The time from its beginning to its last change."""
        return (self.info.changed - self.info.begun).total_seconds()

    @property
    def results(self) -> Mapping[CheckResult, int]:
        """The number of checks by their result, the failed ones first."""
        found = Counter(check.result for check in self.info.checks)
        order = (CheckResult.FAILED, CheckResult.PASSED, CheckResult.NOT_RUN, CheckResult.UNKNOWN)
        return {result: found[result] for result in order if found[result]}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """A check of a run, and the tables that its SQL reads."""

    outcome: CheckOutcome
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with its first checks. `ref` is where its tables can be read: its commit, or its branch."""

    run: RunRow
    checks: tuple[CheckRow, ...]
    ref: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsView:
    branch: str
    runs: tuple[RunRow, ...]
    next_run: str | None


def show_runs(visit: Visit) -> Shown:
    """List the runs, newest first, of all branches or of one."""
    branch = visit.query("branch")
    found = visit.lake.repository.run_list(branch=branch or None, after=visit.query("after") or None, limit=_SIZE + 1)
    view = RunsView(
        branch=branch,
        runs=tuple(_row(visit, info) for info in found[:_SIZE]),
        next_run=found[_SIZE - 1].id if len(found) > _SIZE else None,
    )
    return Shown("runs/list.html", view)


def show_run(visit: Visit) -> Shown:
    """Show a run: its state, the steps of its pipeline, its checks, and why it failed."""
    info = visit.lake.repository.run_get(visit.request.path_params["run_id"]).info()
    view = RunView(run=_row(visit, info), checks=_check_rows(info), ref=info.commit_id or info.target)
    return Shown("runs/run.html", view)


def _check_rows(info: RunInfo) -> tuple[CheckRow, ...]:
    # Failed checks first, so that they are on the page if there are many.
    shown = sorted(info.checks, key=lambda check: check.result is not CheckResult.FAILED)[:_CHECKS]
    return tuple(CheckRow(outcome=one, tables=_tables_of(one.sql)) for one in shown)


def _tables_of(sql: str) -> tuple[str, ...]:
    from anabranch.duck.engine import default_engine

    try:
        return default_engine().tables_of(sql) if sql else ()
    # The SQL of a check that could not be run may not be valid.
    except AnabranchError:
        return ()


def _row(visit: Visit, info: RunInfo) -> RunRow:
    repository, names = visit.lake.repository, visit.lake.host.branch_names()
    # A run records its steps when it is published, in the commit.
    metadata = info.metadata if info.commit_id is None else repository.get_commit(info.commit_id).metadata
    return RunRow(info=info, target=names.get(info.target, info.target), pipeline=PipelineRecord.find(metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageView:
    """A lineage, and its picture with links. The picture is None if there are too many nodes."""

    ref: str
    choices: RefChoices
    lineage: Lineage
    picture: Markup | None
    most_nodes: int = _MOST_NODES


def show_lineage(visit: Visit) -> Shown:
    """Show what a table at a ref was made from."""
    ref, lake = visit.ref(), visit.lake
    table, snapshot = visit.request.path_params["table"], lake.repository.snapshot_of(ref)
    # The path of the lake is part of the key, because the picture contains links.
    lineage, picture = visit.cached(
        lambda: _draw_lineage(lake, table, ref), "lineage", lake.path, table, snapshot.id, snapshot.main_commit_id
    )
    return Shown("lineage.html", LineageView(ref=ref, choices=lake.list_choices(), lineage=lineage, picture=picture))


def _draw_lineage(lake: Lake, table: str, ref: str) -> tuple[Lineage, Markup | None]:
    lineage = lake.repository.lineage(table, ref)
    if len(lineage.nodes) > _MOST_NODES:
        return lineage, None
    svg = lineage.to_svg(link=lambda node: _link(lake, node), with_style=False)
    return lineage, Markup(svg)  # noqa: S704 - the drawing escapes all texts


def _link(lake: Lake, node: LineageNode) -> str:
    """Return the page of a node: the table as it was read, or the newest commit that made it."""
    if node.kind is NodeKind.TABLE:
        return f"{lake.path}/tables/{node.table}?ref={node.commit_id}"
    return f"{lake.path}/commits/{node.commit_id}"


PAGES: tuple[Page, ...] = (
    get("/runs", show_runs),
    get("/runs/{run_id}", show_run),
    get("/lineage/{table}", show_lineage),
)
