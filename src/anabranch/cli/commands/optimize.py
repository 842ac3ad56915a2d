"""`anabranch compact` and `anabranch index`: make tables faster to read."""

from typing import TYPE_CHECKING, Annotated

from anabranch.cli.command import BRANCH, WRITES, Here, command, group
from anabranch.cli.options import TableName, argument, option
from anabranch.cli.output import Answer
from anabranch.cli.tables import Table
from anabranch.display import short_id

if TYPE_CHECKING:
    from anabranch.format.staging import VectorOptions

app = group()


@command(app, "compact", "compact", "compact shop.orders --branch dev", "compact --engine spark", on=(*BRANCH, *WRITES))
def compact(
    here: Here,
    keys: Annotated[
        list[str] | None, argument("[TABLE]...", "Tables to compact (default: all tables changed on the branch).")
    ] = None,
    engine: Annotated[str, option("--engine", "NAME", "Engine: local, or spark on a cluster.")] = "local",
) -> Answer:
    """Rewrite small files of tables as larger ones.

    Deleted rows are removed from the files, and no row changes. The result is one commit.
    """
    with here.output.progress("compacting") as report, here.on_current_branch():
        done = here.repository.compact(keys or None, engine=engine, progress=report)
    commit_id = None if done.commit is None else done.commit.graph_commit_id
    sentence = "nothing to compact" if commit_id is None else f"compacted by commit {short_id(commit_id)}"
    shown = Table(
        ("table", "rows", "fragments before", "fragments"),
        [(each.table, each.rows, each.fragments_before, each.fragments_after) for each in done.tables],
        empty="no tables",
    )
    return Answer({"commit_id": commit_id, "tables": done.tables}, sentence, tables=[shown])


@command(
    app,
    "index",
    "index shop.orders id",
    "index shop.events embedding --type ivf_pq --metric cosine",
    on=(*BRANCH, *WRITES),
)
def index(
    here: Here,
    key: TableName,
    column: Annotated[str, argument("COLUMN", "Column to index.")],
    type_: Annotated[
        str,
        option(
            "--type",
            "TYPE",
            "Kind of index: btree, bitmap, label_list, ngram, zonemap, bloomfilter or inverted; for vectors"
            " ivf_flat, ivf_pq, ivf_sq, ivf_hnsw_flat, ivf_hnsw_pq or ivf_hnsw_sq.",
        ),
    ] = "btree",
    name: Annotated[str | None, option("--name", "NAME", "Name of the index (default: COLUMN_idx).")] = None,
    metric: Annotated[str | None, option("--metric", "NAME", "Vectors: l2 (the default), cosine or dot.")] = None,
    partitions: Annotated[int | None, option("--num-partitions", "N", "Vectors: number of partitions.", min=1)] = None,
    sub_vectors: Annotated[
        int | None, option("--num-sub-vectors", "N", "Vectors: number of sub-vectors.", min=1)
    ] = None,
) -> Answer:
    """Build an index on a column of a table, as one commit."""
    with here.output.progress("indexing"), here.on_current_branch():
        vector = _vector_options(metric, partitions, sub_vectors)
        commit = here.repository.index(key, column, type=type_, name=name, vector=vector)
    indices = here.repository.snapshot_of(here.repository.branch)[key].indices
    rows = [
        {"name": found.name, "columns": found.columns, "type": found.kind, "covered_rows": found.covered_rows}
        for found in indices
    ]
    commit_id = None if commit is None else commit.graph_commit_id
    sentences = [] if commit_id is None else [f"indexed {column} of {key} by commit {short_id(commit_id)}"]
    shown = Table(
        ("index", "columns", "type", "covered rows"),
        [(found.name, ", ".join(found.columns), found.kind, found.covered_rows) for found in indices],
    )
    return Answer({"commit_id": commit_id, "indices": rows}, *sentences, tables=[shown])


def _vector_options(metric: str | None, partitions: int | None, sub_vectors: int | None) -> "VectorOptions | None":
    from anabranch.format.staging import VectorOptions  # takes a while to load

    if metric is None and partitions is None and sub_vectors is None:
        return None
    return VectorOptions(metric=metric or "l2", num_partitions=partitions, num_sub_vectors=sub_vectors)
