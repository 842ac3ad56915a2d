"""`anabranch log`: the commits that led to a ref."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import REF_FORMS, AsJson, Limit, NamePrefix, Repo, StorageOptions
from anabranch.cli.commits import commit_document, short_id, subject
from anabranch.cli.graph import draw
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import Session, open_session
from anabranch.drawing.lanes import Node, newest_first
from anabranch.errors import InvalidInputError

if TYPE_CHECKING:
    from anabranch.repo.log.entries import GraphCommit

__all__ = ["log"]


def log(
    ref: Annotated[
        str | None,
        typer.Argument(metavar="REF", show_default=False, help=REF_FORMS),
    ] = None,
    graph: Annotated[
        bool, typer.Option("--graph", help="Draw the lines of history; without REF those of all branches.")
    ] = False,
    limit: Limit = 20,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="REF", show_default=False, help="Continue after this commit, the last of another page."
        ),
    ] = None,
    prefix: NamePrefix = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", show_default=False, help="Only commits that changed this table."),
    ] = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List commits, newest first."""
    selection = {"table": table, "after": after, "prefix": prefix}
    for name, value in selection.items():
        if graph and value is not None:
            raise InvalidInputError(f"--graph and --{name} do not go together", hint="leave one out")
    here = open_session(repo=repo, storage_options=storage_option)
    answer = _graph(here, ref, limit=limit) if graph else _list(here, ref, limit=limit, **selection)
    output_for(as_json=as_json).show(answer)


def _list(here: Session, ref: str | None, *, limit: int, **selection: str | None) -> Answer:
    found = here.commits(ref, limit=limit + 1, **selection)
    commits, has_more = found[:limit], len(found) > limit
    rows = tuple(
        (
            short_id(commit.graph_commit_id),
            commit.created,
            commit.actor_id,
            commit.kind.value,
            subject(commit),
            ", ".join(commit.tables),
        )
        for commit in commits
    )
    columns = ("commit", "time (UTC)", "by", "kind", "message", "tables")
    document = {
        "ref": ref or here.repository.branch,
        "commits": [commit_document(commit) for commit in commits],
        "has_more": has_more,
    }
    sentences = [f"the newest {count(limit, 'commit')}; --limit shows more"] if has_more else []
    shown = Table(columns=columns, rows=rows, empty="no commits")
    return Answer(document=document, sentences=sentences, tables=[shown])


def _graph(here: Session, ref: str | None, *, limit: int) -> Answer:
    heads = {branch.name: branch.head_commit_id for branch in here.repository.branch_list()}
    found = list(islice(here.repository.iter_graph(ref), limit + 1))
    by_id = {commit.graph_commit_id: commit for commit in found[:limit]}
    nodes = newest_first({commit_id: _node(commit) for commit_id, commit in by_id.items()})
    labels = {commit_id: _label(commit, heads) for commit_id, commit in by_id.items()}
    document = {
        "ref": ref or here.repository.branch,
        "commits": [commit_document(by_id[node.id]) for node in nodes],
        "heads": heads,
        "has_more": len(found) > limit,
    }
    return Answer(document=document, sentences=list(draw(nodes, labels)))


def _node(commit: "GraphCommit") -> Node:
    parents = (commit.parent_commit_id, commit.merged_parent_commit_id)
    return Node(
        id=commit.graph_commit_id,
        parents=tuple(parent for parent in parents if parent is not None),
        created_at=commit.created_at,
    )


def _label(commit: "GraphCommit", heads: dict[str, str]) -> str:
    here = [name for name, head in heads.items() if head == commit.graph_commit_id]
    names = f"({', '.join(here)})" if here else ""
    return " ".join(part for part in (short_id(commit.graph_commit_id), names, subject(commit)) if part)
