"""The commit graph of all branches or of one ref, one commit, and the movements of a branch with undo and redo."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from anabranch.drawing.commit_graph import GraphTarget
from anabranch.drawing.html import draw_tables
from anabranch.errors import BusyError, InvalidInputError, NotFoundError, WriteConflictError
from anabranch.ids import MAIN
from anabranch.repo.history.diff import TableDiff
from anabranch.repo.history.lineage import OutputRecord, PipelineRecord, made_by
from anabranch.repo.log.entries import CommitKind, GraphCommit
from anabranch.repo.refs.reflog import Movement
from anabranch.repo.runs.runs import RUN_ID
from anabranch.server.ui.compare import outlines_of
from anabranch.server.ui.lake import Lake, RefChoices
from anabranch.server.ui.responses import Paged, address, page_of
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

_GRAPH_SIZE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """A page of the graph, and the content of its table. Its head is the commit that follows a page above it."""

    ref: str
    table: str
    actor: str
    choices: RefChoices
    commits: Paged[str]
    picture: Markup


def show_graph(visit: Visit) -> Shown:
    """Show the commits of all branches, newest first. With a table or an actor, only theirs."""
    lake, number = visit.lake, visit.number("page")
    ref, table, actor = visit.query("ref"), visit.query("table"), visit.query("actor")
    graph = lake.repository.graph(
        ref or None, limit=_GRAPH_SIZE, offset=(number - 1) * _GRAPH_SIZE, table=table or None, actor=actor or None
    )
    html = graph.to_html(link=lambda target, name: _link(lake, target, name), names=lake.host.branch_names())
    view = GraphView(
        ref=ref,
        table=table,
        actor=actor,
        choices=lake.list_choices(),
        commits=Paged(items=[one.id for one in graph], number=number, size=_GRAPH_SIZE, has_more=graph.has_more),
        picture=Markup(html),  # noqa: S704 - the drawing escapes all texts
    )
    return Shown("graph.html", view)


def _link(lake: Lake, target: GraphTarget, name: str) -> str:
    match target:
        case GraphTarget.COMMIT:
            return address(f"{lake.path}/commits/{name}")
        case GraphTarget.BRANCH:
            return address(f"{lake.path}/graph", ref=name)
        case GraphTarget.TAG:
            return address(f"{lake.path}/", ref=name)


_TABLES = 25
_INPUTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InputView:
    """A table that a step read. The version is that of its Lance dataset, None if the table is not there any more."""

    table: str
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOrigin:
    """Where a table of a commit came from: the step of the pipeline that made it, if the commit names one."""

    table: str
    has_rows: bool
    step: OutputRecord | None
    inputs: tuple[InputView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What made a commit. `taken_from` is the commit whose changes a merge, cherry-pick or revert took."""

    made_by: str
    run_id: str | None
    pipeline: PipelineRecord | None
    taken_from: str | None
    tables: tuple[TableOrigin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitView:
    """`branch` is the name that people gave to the branch of the commit. `target` is where actions write by default."""

    commit: GraphCommit
    branch: str
    choices: RefChoices
    tables: Paged[TableDiff]
    picture: Markup
    provenance: Provenance
    target: str


def show_commit(visit: Visit) -> Shown:
    """Show a commit and the tables that it changed, compared with its first parent."""
    lake = visit.lake
    commit = lake.repository.get_commit(visit.request.path_params["commit_id"])
    parent = commit.parent_commit_id
    changed = () if parent is None else lake.repository.diff(parent, commit.id, engine="local").tables
    page = page_of(changed, number=visit.number("page"), size=_TABLES)
    drawn = draw_tables(
        outlines_of(page.items, counted=visit.query("count")),
        link=lambda one: address(f"{lake.path}/compare/rows", before=parent, after=commit.id, table=one.key),
        count_link=lambda one: address(f"{lake.path}/commits/{commit.id}", count=one.key, page=page.number),
    )
    view = CommitView(
        commit=commit,
        branch=lake.host.branch_names().get(commit.branch, commit.branch),
        choices=lake.list_choices(),
        tables=page,
        picture=Markup(drawn),  # noqa: S704 - the drawing escapes all texts
        provenance=_provenance(visit, commit, page.items),
        target=visit.query("branch") or MAIN,
    )
    return Shown("commit.html", view)


def _provenance(visit: Visit, commit: GraphCommit, changed: Sequence[TableDiff]) -> Provenance:
    """Return what made a commit, and each table of a page. It follows from the metadata, which any writer can set."""
    pipeline = PipelineRecord.find(commit.metadata)
    is_pick = commit.kind in (CommitKind.CHERRY_PICK, CommitKind.REVERT)
    versions = {} if pipeline is None else _input_versions(visit, pipeline)
    tables = []
    for one in changed:
        step = None if pipeline is None else pipeline.outputs.get(one.key)
        inputs = () if step is None else step.inputs
        tables.append(
            TableOrigin(
                table=one.key,
                has_rows=one.after is not None,
                step=step,
                inputs=tuple(InputView(table=key, version=versions.get(key)) for key in inputs[:_INPUTS]),
            )
        )
    return Provenance(
        made_by=made_by(commit),
        # Any client may write this metadata to its own commits, but only runs make commits of this kind.
        run_id=commit.metadata.get(RUN_ID) if commit.kind is CommitKind.PUBLISH_RUN else None,
        pipeline=pipeline,
        taken_from=commit.metadata.get("commit") if is_pick else commit.merged_parent_commit_id,
        tables=tuple(tables),
    )


def _input_versions(visit: Visit, pipeline: PipelineRecord) -> Mapping[str, int]:
    """Return the versions of all tables at the commit at which a pipeline read its inputs."""
    if pipeline.input is None:
        return {}
    try:
        entries = visit.lake.repository.snapshot_of(pipeline.input).entries
    except NotFoundError:
        return {}
    return {str(key): entry.version for key, entry in entries.items()}


def revert_commit(visit: Visit) -> Redirect:
    """Revert the commit on a branch by a new commit."""
    branch = visit.field("branch") or MAIN
    visit.lake.host.check_revert(_commit_id(visit), branch)
    done = visit.lake.repository.revert(_commit_id(visit), branch=branch)
    return _done(done.commit, f"Reverted on {branch}.", f"There was nothing to revert on {branch}.")


def cherry_pick_commit(visit: Visit) -> Redirect:
    """Apply the changes of the commit to a branch."""
    branch = visit.field("branch") or MAIN
    # A cherry-pick is a merge of one commit, so that the same rule applies.
    visit.lake.host.check_merge(_commit_id(visit), branch)
    done = visit.lake.repository.cherry_pick(_commit_id(visit), branch=branch)
    return _done(done.commit, f"Applied to {branch}.", f"There was nothing to apply to {branch}.")


def _commit_id(visit: Visit) -> str:
    return str(visit.request.path_params["commit_id"])


def _done(commit: GraphCommit | None, success: str, nothing: str) -> Redirect:
    return Redirect("/graph", nothing) if commit is None else Redirect(f"/commits/{commit.id}", success)


_REFLOG_SIZE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflogView:
    """`version` is the newest movement: undo is refused after a later one. `next` is where the next page begins.

    `former` is the name that the branch had before the oldest movement of the page, if it was renamed there.
    """

    branch: str
    name: str
    choices: RefChoices
    movements: tuple[Movement, ...]
    version: int
    is_first: bool
    next: int | None
    former: str | None


def show_reflog(visit: Visit) -> Shown:
    """List the movements of a branch."""
    branch, is_first = visit.query("branch") or MAIN, not visit.query("after")
    after = None if is_first else visit.number("after")
    found = visit.lake.repository.reflog(branch, limit=_REFLOG_SIZE + 1, after=after)
    shown = tuple(found[:_REFLOG_SIZE])
    view = ReflogView(
        branch=branch,
        name=visit.lake.host.branch_names().get(branch, branch),
        choices=visit.lake.list_choices(),
        movements=shown,
        version=found[0].number if is_first else 0,
        is_first=is_first,
        next=found[_REFLOG_SIZE - 1].number if len(found) > _REFLOG_SIZE else None,
        former=next((one.renamed_from for one in reversed(shown) if one.renamed_from), None),
    )
    return Shown("reflog.html", view)


def undo(visit: Visit) -> Redirect:
    """Undo the last movement of a branch."""
    return _move(visit, visit.lake.repository.undo, "Undone")


def redo(visit: Visit) -> Redirect:
    """Redo the movement that was undone last."""
    return _move(visit, visit.lake.repository.redo, "Redone")


def _move(visit: Visit, move: Callable[..., Movement], word: str) -> Redirect:
    branch = visit.field("branch") or MAIN
    version = visit.field("version")
    if not (version.isascii() and version.isdigit() and len(version) <= 18):
        raise InvalidInputError("the form does not state which movement it is about", hint="open the page again")
    try:
        # The visitor decided by the movements on the page. After a later movement, another change would be undone.
        movement = move(branch, expected_version=int(version))
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
    get("/reflog", show_reflog),
    post("/reflog/undo", undo, writes="branch"),
    post("/reflog/redo", redo, writes="branch"),
)
