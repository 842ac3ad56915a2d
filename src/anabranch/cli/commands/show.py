"""`anabranch show`: one commit, and what it changed."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import AsJson, Repo, StorageOptions
from anabranch.cli.commits import commit_document, moment
from anabranch.cli.output import Answer, Table, output_for
from anabranch.cli.session import open_session
from anabranch.ids import TableKey

if TYPE_CHECKING:
    from anabranch.repo.models import GraphCommit
    from anabranch.repo.snapshots import Snapshot

__all__ = ["show"]


def show(
    ref: Annotated[
        str | None,
        typer.Argument(
            metavar="REF",
            show_default=False,
            help="A commit id or the beginning of one, a branch, a tag, main~3, main@v7; by default the newest.",
        ),
    ] = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show a commit and the tables it changed."""
    here = open_session(repo=repo, storage_options=storage_option)
    after = here.snapshot(ref)
    if after.main_commit_id is not None:
        # A live branch shows main as it is now; the commit is about what it was made on.
        after = here.repository.snapshot_of(after.id)
    parent = after.commit.parent_commit_id
    changes = _changes(after, None if parent is None else here.repository.snapshot_of(parent))
    document = {**commit_document(after.commit), "changes": changes}
    rows = tuple(tuple(change.values()) for change in changes)
    tables = [
        Table(columns=("", ""), rows=_facts(after.commit)),
        Table(
            title="changed tables",
            columns=("table", "change", "rows before", "rows"),
            rows=rows,
            empty="it changed no table",
        ),
    ]
    output_for(as_json=as_json).show(Answer(document=document, tables=tables))


def _changes(after: "Snapshot", before: "Snapshot | None") -> list[dict[str, object]]:
    changes: list[dict[str, object]] = []
    for name in after.commit.tables:
        key = TableKey.parse(name)
        old = None if before is None else before.entries.get(key)
        new = after.entries.get(key)
        kind = "dropped" if new is None else "created" if old is None else "changed"
        changes.append(
            {
                "table": name,
                "change": kind,
                "rows_before": None if old is None else old.rows,
                "rows": None if new is None else new.rows,
            }
        )
    return changes


def _facts(commit: "GraphCommit") -> tuple[tuple[str, object], ...]:
    return (
        ("commit", commit.graph_commit_id),
        ("parent", commit.parent_commit_id),
        *([("merged", commit.merged_parent_commit_id)] if commit.merged_parent_commit_id else []),
        ("branch", f"{commit.branch}@v{commit.manifest_version}"),
        ("by", commit.actor_id),
        ("time (UTC)", moment(commit.created_at)),
        ("kind", commit.kind.value),
        ("message", commit.message or None),
        *((f"metadata {key}", value) for key, value in commit.metadata.items()),
    )
