"""`anabranch show`: one commit, and what it changed."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import AsJson, Repo, StorageOptions
from anabranch.cli.commits import commit_document, short_id
from anabranch.cli.output import Answer, Table, output_for
from anabranch.cli.session import open_session
from anabranch.ids import TableKey

if TYPE_CHECKING:
    from anabranch.repo.history.lineage.provenance import PipelineRecord
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.snapshot import Snapshot

__all__ = ["show"]

# Enough of the hash of a file to distinguish its versions.
_SHORT_HASH = 12


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
    """Show a commit, the tables it changed, and the pipeline that made it, if one did."""
    # Not at the top: a help text needs none of it.
    from anabranch.repo.history.lineage.provenance import PipelineRecord

    here = open_session(repo=repo, storage_options=storage_option)
    after = here.snapshot(ref)
    if after.main_commit_id is not None:
        # A live branch shows main as it is now; the commit is about what it was made on.
        after = here.repository.snapshot_of(after.id)
    parent = after.commit.parent_commit_id
    changes = _changes(after, None if parent is None else here.repository.snapshot_of(parent))
    made = PipelineRecord.find(after.commit.metadata)
    document = {**commit_document(after.commit), "changes": changes}
    if made is not None:
        document["pipeline"] = _pipeline_document(made)
    rows = tuple(tuple(change.values()) for change in changes)
    tables = [
        Table(columns=("", ""), rows=_facts(after.commit, made)),
        Table(
            title="changed tables",
            columns=("table", "change", "rows before", "rows"),
            rows=rows,
            empty="it changed no table",
        ),
        *([_outputs_table(made)] if made is not None and made.outputs else []),
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


def _facts(commit: "GraphCommit", made: "PipelineRecord | None") -> tuple[tuple[str, object], ...]:
    said = commit.metadata.items()
    return (
        ("commit", commit.graph_commit_id),
        ("parent", commit.parent_commit_id),
        *([("merged", commit.merged_parent_commit_id)] if commit.merged_parent_commit_id else []),
        ("branch", f"{commit.branch}@v{commit.manifest_version}"),
        ("by", commit.actor_id),
        ("time (UTC)", commit.created),
        ("kind", commit.kind.value),
        ("message", commit.message or None),
        *(_pipeline_facts(made) if made is not None else ()),
        *((f"metadata {key}", value) for key, value in said if made is None or not _is_of_pipelines(key)),
    )


def _is_of_pipelines(key: str) -> bool:
    return key.partition(".")[0] == "pipeline"


def _pipeline_facts(made: "PipelineRecord") -> tuple[tuple[str, object], ...]:
    source = " ".join(filter(None, (made.file, made.source_hash and f"({made.source_hash[:_SHORT_HASH]})")))
    return (
        ("pipeline", made.name),
        *([("source", source)] if source else []),
        *((f"parameter {name}", _shown(value)) for name, value in made.parameters.items()),
        *([("inputs read at", short_id(made.input))] if made.input is not None else []),
    )


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _outputs_table(made: "PipelineRecord") -> Table:
    rows = tuple(
        (key, output.write, output.kind, ", ".join(output.inputs) or None, output.rows, output.seconds)
        for key, output in made.outputs.items()
    )
    return Table(title="pipeline outputs", columns=("table", "write", "by", "from", "rows", "seconds"), rows=rows)


def _pipeline_document(made: "PipelineRecord") -> dict[str, object]:
    return {
        "name": made.name,
        "file": made.file,
        "source_hash": made.source_hash,
        "parameters": made.parameters,
        "input": made.input,
        "outputs": [{"table": key, **asdict(output)} for key, output in made.outputs.items()],
    }
