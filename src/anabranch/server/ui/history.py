"""The history of a lake: the commit graph, one commit, runs, the lineage of a table, and the movements of a branch."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from anabranch.errors import AnabranchError, BusyError, NotFoundError, WriteConflictError
from anabranch.hints import suggest
from anabranch.ids import MAIN
from anabranch.repo.history.commit_graph import GraphTarget
from anabranch.repo.history.diff_drawing import draw_tables
from anabranch.repo.history.lineage import Lineage, LineageNode, NodeKind, PipelineRecord, made_by
from anabranch.repo.log.entries import CheckResult, CommitKind, GraphCommit
from anabranch.repo.refs.reset_and_undo import Movement
from anabranch.repo.runs.runs import RUN_ID, RunInfo
from anabranch.server.ui.compare import with_counts
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.responses import Paged, address, page_of
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, parse_number, post

_COMMITS = 100
_TABLES = 25
_INPUTS = 20
_RUNS = 50
_CHECKS = 100
# A larger graph is only listed: a picture of it would be neither readable nor small.
_MOST_NODES = 300
_MOVEMENTS = 100


def show_graph(visit: Visit) -> Shown:
    """Show the commits of all branches, newest first. With a table or an actor, only theirs."""
    lake, number = visit.lake, visit.number("page")
    ref, table, actor = visit.query("ref"), visit.query("table"), visit.query("actor")
    graph = lake.repository.graph(
        ref or None, limit=_COMMITS, offset=(number - 1) * _COMMITS, table=table or None, actor=actor or None
    )
    if not graph.commits:
        given = {"ref": ref, "table": table, "actor": actor, "page": number if number > 1 else ""}
        wanted = ", ".join(f"{name} '{value}'" for name, value in given.items() if value)
        known = lake.repository.tables()
        hint = suggest(table, () if table in known else known, "change or clear a field of the form", by_parts=True)
        raise NotFoundError(f"there are no commits for {wanted}", hint=hint)
    html = graph.to_html(link=lambda target, name: _link(lake, target, name), names=lake.names)
    view = {
        "ref": ref,
        "table": table,
        "actor": actor,
        "choices": lake.list_choices(),
        "commits": Paged(items=graph.commits, number=number, size=_COMMITS, has_more=graph.has_more),
        "picture": Markup(html),  # noqa: S704 - the drawing escapes all texts
    }
    return Shown("graph.html", view)


def _link(lake: Lake, target: GraphTarget, name: str) -> str:
    match target:
        case GraphTarget.COMMIT:
            return address(f"{lake.path}/commits/{name}")
        case GraphTarget.BRANCH:
            return address(f"{lake.path}/graph", ref=name)
        case GraphTarget.TAG:
            return address(f"{lake.path}/", ref=name)


def show_commit(visit: Visit) -> Shown:
    """Show a commit, its origin, and the tables that it changed, compared with its first parent."""
    lake = visit.lake
    commit = lake.repository.get_commit(_commit_id(visit))
    parent = commit.parent_commit_id
    changed = () if parent is None else lake.repository.diff(parent, commit.id, engine="local").tables
    page = page_of(changed, number=visit.number("page"), size=_TABLES)
    drawn = draw_tables(
        with_counts(page.items, asked_for=visit.query("count")),
        link=lambda one: address(f"{lake.path}/compare/rows", before=parent, after=commit.id, table=one.key),
        count_link=lambda one: address(f"{lake.path}/commits/{commit.id}", count=one.key, page=page.number),
    )
    # Any writer can set the metadata of its own commits. But only runs make commits of their kind.
    pipeline = PipelineRecord.find(commit.metadata)
    is_pick = commit.kind in (CommitKind.CHERRY_PICK, CommitKind.REVERT)
    view = {
        "commit": commit,
        "choices": lake.list_choices(),
        "tables": page,
        "picture": Markup(drawn),  # noqa: S704 - the drawing escapes all texts
        "made_by": made_by(commit),
        "run_id": commit.metadata.get(RUN_ID) if commit.kind is CommitKind.PUBLISH_RUN else None,
        "pipeline": pipeline,
        "input_versions": _input_versions(visit, pipeline),
        "most_inputs": _INPUTS,
        "taken_from": commit.metadata.get("commit") if is_pick else commit.merged_parent_commit_id,
        "target": visit.query("branch") or MAIN,
    }
    return Shown("commit.html", view)


def _input_versions(visit: Visit, pipeline: PipelineRecord | None) -> Mapping[str, int]:
    """Return the Lance versions of all tables at a pipeline's input commit. They are empty if that is missing."""
    if pipeline is None or pipeline.input is None:
        return {}
    try:
        entries = visit.repository.snapshot_of(pipeline.input).entries
    except NotFoundError:
        return {}
    return {str(key): entry.version for key, entry in entries.items()}


def revert_commit(visit: Visit) -> Redirect:
    """Revert the commit on a branch by a new commit."""
    branch = visit.field("branch") or MAIN
    visit.lake.check_revert(_commit_id(visit), branch)
    done = visit.repository.revert(_commit_id(visit), branch=branch)
    return _done(done.commit, f"Reverted on {branch}.", f"There was nothing to revert on {branch}.")


def cherry_pick_commit(visit: Visit) -> Redirect:
    """Apply the changes of the commit to a branch."""
    branch = visit.field("branch") or MAIN
    # A cherry-pick is a merge of one commit, so that the same rule applies.
    visit.lake.check_merge(_commit_id(visit), branch)
    done = visit.repository.cherry_pick(_commit_id(visit), branch=branch)
    return _done(done.commit, f"Applied to {branch}.", f"There was nothing to apply to {branch}.")


def _commit_id(visit: Visit) -> str:
    return str(visit.request.path_params["commit_id"])


def _done(commit: GraphCommit | None, success: str, nothing: str) -> Redirect:
    return Redirect("/graph", nothing) if commit is None else Redirect(f"/commits/{commit.id}", success)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run, and the record of its pipeline, which is None if no pipeline made the run."""

    info: RunInfo
    pipeline: PipelineRecord | None

    @classmethod
    def of(cls, visit: Visit, info: RunInfo) -> "RunRow":
        # A run records its steps when it is published, in the commit.
        commit_id = info.commit_id
        metadata = info.metadata if commit_id is None else visit.repository.get_commit(commit_id).metadata
        return cls(info=info, pipeline=PipelineRecord.find(metadata))

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


def show_runs(visit: Visit) -> Shown:
    """List the runs, newest first, of all branches or of one."""
    branch = visit.query("branch")
    found = visit.repository.run_list(branch=branch or None, after=visit.query("after") or None, limit=_RUNS + 1)
    if branch and not found:
        visit.repository.branch_get(branch)  # raises for a wrong name
    view = {
        "branch": branch,
        "runs": [RunRow.of(visit, info) for info in found[:_RUNS]],
        "next_run": found[_RUNS - 1].id if len(found) > _RUNS else None,
    }
    return Shown("runs/list.html", view)


def show_run(visit: Visit) -> Shown:
    """Show a run: its state, the steps of its pipeline, its checks, and why it failed."""
    info = visit.repository.run_get(visit.request.path_params["run_id"]).info()
    # Failed checks first, so that they are on the page if there are many.
    checks = sorted(info.checks, key=lambda check: check.result is not CheckResult.FAILED)[:_CHECKS]
    view = {
        "run": RunRow.of(visit, info),
        "checks": [(check, _tables_of(check.sql)) for check in checks],
        # The ref at which the tables of the run can be read.
        "ref": info.commit_id or info.target,
    }
    return Shown("runs/run.html", view)


def _tables_of(sql: str) -> tuple[str, ...]:
    from anabranch.duck.engine import default_engine

    try:
        return default_engine().tables_of(sql) if sql else ()
    # The SQL of a check that could not be run may not be valid.
    except AnabranchError:
        return ()


def show_lineage(visit: Visit) -> Shown:
    """Show the inputs from which a table at a ref was made."""
    ref, lake = visit.ref(), visit.lake
    table, snapshot = visit.request.path_params["table"], lake.repository.snapshot_of(ref)
    # The path of the lake is part of the key, because the picture contains links.
    lineage, picture = visit.cached(
        lambda: _draw_lineage(lake, table, ref), "lineage", lake.path, table, snapshot.id, snapshot.main_commit_id
    )
    view = {
        "ref": ref,
        "choices": lake.list_choices(),
        "lineage": lineage,
        "picture": picture,
        "most_nodes": _MOST_NODES,
    }
    return Shown("lineage.html", view)


def _draw_lineage(lake: Lake, table: str, ref: str) -> tuple[Lineage, Markup | None]:
    lineage = lake.repository.lineage(table, ref)
    if len(lineage.nodes) > _MOST_NODES:
        return lineage, None
    svg = lineage.to_svg(link=lambda node: _node_link(lake, node), with_style=False)
    return lineage, Markup(svg)  # noqa: S704 - the drawing escapes all texts


def _node_link(lake: Lake, node: LineageNode) -> str:
    """Return the page of a node: the table as it was read, or the newest commit that made it."""
    if node.kind is NodeKind.TABLE:
        return f"{lake.path}/tables/{node.table}?ref={node.commit_id}"
    return f"{lake.path}/commits/{node.commit_id}"


def show_reflog(visit: Visit) -> Shown:
    """List the movements of a branch."""
    branch, is_first = visit.query("branch") or MAIN, not visit.query("after")
    after = None if is_first else visit.number("after")
    found = visit.repository.reflog(branch, limit=_MOVEMENTS + 1, after=after)
    shown = found[:_MOVEMENTS]
    view = {
        "branch": branch,
        "choices": visit.lake.list_choices(),
        "movements": shown,
        "is_first": is_first,
        # Where the next page begins.
        "next": shown[-1].number if len(found) > _MOVEMENTS else None,
        # The name of the branch before the oldest movement of the page, if it was renamed there.
        "former": next((one.renamed_from for one in reversed(shown) if one.renamed_from), None),
    }
    return Shown("reflog.html", view)


def undo(visit: Visit) -> Redirect:
    return _move(visit, visit.repository.undo, "Undone")


def redo(visit: Visit) -> Redirect:
    return _move(visit, visit.repository.redo, "Redone")


def _move(visit: Visit, move: Callable[..., Movement], word: str) -> Redirect:
    branch = visit.field("branch") or MAIN
    # The visitor decided by the movements on the page. After a later movement, another change would be undone.
    version = parse_number(
        visit.field("version"), "number of the movement", least=0, most=10**18, hint="open the page again"
    )
    try:
        movement = move(branch, expected_version=version)
    except BusyError as err:
        raise WriteConflictError(
            f"branch '{branch}' moved since the page was opened", hint="open the page again and read the new movements"
        ) from err
    return Redirect("/reflog", f"{word}: {movement.event} {movement.message}", {"branch": branch})


PAGES: tuple[Page, ...] = (
    get("/graph", show_graph),
    get("/commits/{commit_id}", show_commit),
    post("/commits/{commit_id}/revert", revert_commit, writes="branch"),
    post("/commits/{commit_id}/cherry-pick", cherry_pick_commit, writes="branch"),
    get("/runs", show_runs),
    get("/runs/{run_id}", show_run),
    get("/lineage/{table}", show_lineage),
    get("/reflog", show_reflog),
    post("/reflog/undo", undo, writes="branch"),
    post("/reflog/redo", redo, writes="branch"),
)
