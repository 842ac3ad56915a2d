"""`anabranch index`: find rows without reading all of them."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, BranchOption, Repo, StorageOptions, TableName
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, Table, output_for
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.format.staging import VectorOptions

__all__ = ["index"]


def index(
    key: TableName,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="The column to index.", show_default=False)],
    type_: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="btree, bitmap, label_list, ngram, zonemap, bloomfilter, inverted; for vectors ivf_flat, ivf_pq,"
            " ivf_sq, ivf_hnsw_flat, ivf_hnsw_pq, ivf_hnsw_sq.",
        ),
    ] = "btree",
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", show_default=False, help="By default COLUMN_idx.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", show_default=False, help="Of vectors: l2, cosine or dot."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--num-partitions", metavar="N", min=1, show_default=False, help="Of a vector index.")
    ] = None,
    sub_vectors: Annotated[
        int | None, typer.Option("--num-sub-vectors", metavar="N", min=1, show_default=False, help="Of a vector index.")
    ] = None,
    branch: BranchOption = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Build an index on a column of a table, as one commit."""
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    output = output_for(as_json=as_json)
    with output.progress("indexing"), here.on_current_branch():
        vector = _vector_options(metric, partitions, sub_vectors)
        commit = here.repository.index(key, column, type=type_, name=name, branch=branch, vector=vector)
    indices = here.repository.snapshot_of(branch or here.repository.branch)[key].indices
    rows = [
        {"name": found.name, "columns": found.columns, "type": found.kind, "covered_rows": found.covered_rows}
        for found in indices
    ]
    commit_id = None if commit is None else commit.graph_commit_id
    sentences = [] if commit_id is None else [f"indexed {column} of {key} by commit {short_id(commit_id)}"]
    shown = Table(
        columns=("index", "columns", "type", "covered rows"),
        rows=tuple((found.name, ", ".join(found.columns), found.kind, found.covered_rows) for found in indices),
    )
    document = {"commit_id": commit_id, "indices": rows}
    output.show(Answer(document=document, sentences=sentences, tables=[shown]))


def _vector_options(metric: str | None, partitions: int | None, sub_vectors: int | None) -> "VectorOptions | None":
    from anabranch.format.staging import VectorOptions  # takes a while to load

    if metric is None and partitions is None and sub_vectors is None:
        return None
    return VectorOptions(metric=metric or "l2", num_partitions=partitions, num_sub_vectors=sub_vectors)
