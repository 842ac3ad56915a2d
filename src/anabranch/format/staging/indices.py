"""Indices built on a pinned version and staged with it."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isqrt
from typing import Any

import lance
import pyarrow as pa
from lance.dataset import Index

from anabranch.errors import AnabranchError, InvalidInputError, SchemaMismatchError, StorageError
from anabranch.format.arguments import check_columns
from anabranch.format.home import VersionRef
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.manifests import alone, stage
from anabranch.format.staging.wanted_indices import WantedIndex, read_wanted, set_wanted
from anabranch.hints import suggest

METRICS = ("l2", "cosine", "dot", "hamming")


class IndexKind(StrEnum):
    """The kind of an index: of values, of words or of vectors. Arguments may be in any case."""

    BTREE = "btree"
    BITMAP = "bitmap"
    LABEL_LIST = "label_list"
    NGRAM = "ngram"
    ZONEMAP = "zonemap"
    BLOOMFILTER = "bloomfilter"
    INVERTED = "inverted"
    IVF_FLAT = "ivf_flat"
    IVF_PQ = "ivf_pq"
    IVF_SQ = "ivf_sq"
    IVF_HNSW_FLAT = "ivf_hnsw_flat"
    IVF_HNSW_PQ = "ivf_hnsw_pq"
    IVF_HNSW_SQ = "ivf_hnsw_sq"

    @classmethod
    def _missing_(cls, value: object) -> "IndexKind | None":
        """Find a kind in any case, also as Lance writes it, such as `BTREE` and `LabelList`."""
        if not isinstance(value, str):
            return None
        return next((kind for kind in cls if _letters(kind) == _letters(value)), None)

    @classmethod
    def parse(cls, text: str) -> "IndexKind":
        try:
            return cls(text)
        except ValueError:
            raise InvalidInputError(
                f"unknown index type {text!r}", hint=suggest(text, list(cls), f"use {', '.join(cls)}")
            ) from None

    @property
    def is_vector(self) -> bool:
        """Whether it is an index of vectors."""
        return self.value.startswith("ivf_")


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions:
    """The options of a vector index. A number that is None is chosen by the size of the table and its vectors.

    `metric` is 'l2', 'cosine', 'dot' or 'hamming', in any case.
    """

    metric: str = "l2"
    num_partitions: int | None = None
    num_sub_vectors: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", checked_metric(self.metric))


def checked_metric(metric: Any) -> str:
    """Return a metric in lower case; raise InvalidInputError if it is unknown."""
    name = metric.lower() if isinstance(metric, str) else metric
    name = "l2" if name == "euclidean" else name  # Lance's other word for it
    if name not in METRICS:
        raise InvalidInputError(f"unknown metric {metric!r}", hint=f"use {', '.join(METRICS)}")
    return str(name)


def index(
    version_ref: VersionRef,
    column: str,
    kind: IndexKind,
    *,
    name: str | None = None,
    vector: VectorOptions | None = None,
) -> VersionRef:
    """Stage an index over all rows, instead of one of the same name (`{column}_idx` by default)."""
    dataset = version_ref.open()
    if vector is not None and not kind.is_vector:
        raise InvalidInputError(f"an index of kind {kind.value} has no vector options", hint="leave them out")
    check_columns([column], dataset.schema.names)
    if not dataset.count_rows():
        # Lance takes some kinds of empty index, and they cover no row that comes later.
        raise InvalidInputError(f"{version_ref.home.uri!r} holds no rows to index", hint="add rows first")
    options = vector or VectorOptions()
    arguments = _new_vector_arguments(dataset, column, kind, options) if kind.is_vector else {}
    chosen = name or f"{column}_idx"
    # Refused before the index is built, which may take long.
    for other in list_indices(version_ref):
        if other.name == chosen and other.columns != (column,):
            raise InvalidInputError(
                f"the name {chosen!r} belongs to an index on {', '.join(other.columns)}",
                hint="drop that index, or choose another name",
            )
    built = _build(version_ref, dataset, column, kind, name=chosen, arguments=arguments)
    staged = stage(dataset, version_ref, lance.LanceOperation.CreateIndex([built], _segments(dataset, [chosen])))
    return _without_wanted(staged, {chosen})


def _new_vector_arguments(
    dataset: lance.LanceDataset, column: str, kind: IndexKind, options: VectorOptions
) -> dict[str, Any]:
    partitions, sub_vectors = options.num_partitions, options.num_sub_vectors
    if kind in (IndexKind.IVF_PQ, IndexKind.IVF_HNSW_PQ):
        # Lance requires both numbers for product quantization, and chooses them for the other kinds. It trains a
        # partition on at least 256 vectors.
        rows = dataset.count_rows()
        partitions = partitions or max(1, min(isqrt(rows), rows // 256))
        sub_vectors = sub_vectors or _count_sub_vectors(dataset.schema.field(column).type)
    return {"metric": options.metric, "num_partitions": partitions, "num_sub_vectors": sub_vectors}


def _count_sub_vectors(kind: pa.DataType) -> int:
    """Return the number of parts that vectors are compressed in. Their length must be a multiple of it."""
    length = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
    return next((length // size for size in (16, 8) if length % size == 0), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInfo:
    """One index of a version. Rows it does not cover are found all the same, by reading them.

    `kind` is an `IndexKind`, or Lance's name in lower case if the kind is unknown; `metric` is of vector indices only.
    """

    name: str
    columns: tuple[str, ...]
    kind: str
    covered_rows: int
    metric: str | None = None


def list_indices(version_ref: VersionRef) -> list[IndexInfo]:
    """Return the indices of a version, also those that are wanted. These cover no rows."""
    built = [
        IndexInfo(
            name=found.name,
            columns=tuple(found.field_names),
            kind=_KINDS.get(_letters(found.index_type), found.index_type.lower()),
            covered_rows=found.num_rows_indexed,
            metric=_metric_of(found.details),
        )
        for found in version_ref.open().describe_indices()
    ]
    known = {index.name for index in built}
    wanted = [
        IndexInfo(
            name=index.name,
            columns=(index.column,),
            kind=_KINDS.get(_letters(index.kind), index.kind),
            covered_rows=0,
            metric=_metric_of({"metric_type": index.arguments.get("metric")}),
        )
        for index in read_wanted(version_ref.schema)
        if index.name not in known
    ]
    return [*built, *wanted]


def _metric_of(details: Mapping[str, Any] | None) -> str | None:
    metric = (details or {}).get("metric_type")
    return None if metric is None else str(metric).lower()


def find_indexed_column(version_ref: VersionRef, uuid: str) -> str | None:
    """Return the column of an index by the name of one of its folders; None if the version has no such index."""
    for found in version_ref.open().describe_indices():
        if any(segment.uuid == uuid for segment in found.segments) and found.field_names:
            return str(found.field_names[0])
    return None


def drop_index(version_ref: VersionRef, name: str) -> VersionRef:
    """Stage the table without an index, which may be built or wanted."""
    dataset = version_ref.open()
    found = _segments(dataset, [name])
    wanted = [index.name for index in read_wanted(version_ref.schema)]
    if not found and name not in wanted:
        known = [description.name for description in dataset.describe_indices()] + wanted
        names = ", ".join(map(repr, known)) or "none"
        raise InvalidInputError(f"there is no index {name!r}", hint=f"the indices are: {names}")
    staged = stage(dataset, version_ref, lance.LanceOperation.CreateIndex([], found)) if found else version_ref
    return _without_wanted(staged, {name})


def rebuild_indices(version_ref: VersionRef) -> VersionRef:
    """Stage every index again, as it was made, over all rows, and build those that are wanted.

    One that needs rows to learn from, and finds none, is dropped.
    """
    dataset = version_ref.open()
    described = [IndexRecipe.read(dataset, description) for description in dataset.describe_indices()]
    if not described:
        return build_wanted(version_ref)
    built = [made for recipe in described if (made := recipe.build(version_ref, dataset)) is not None]
    # An index that finds no vectors is in `old` and not in `built`: it is dropped.
    old = _segments(dataset, [recipe.name for recipe in described])
    return build_wanted(stage(dataset, version_ref, lance.LanceOperation.CreateIndex(built, old)))


def read_recipes(version_ref: VersionRef) -> "dict[str, IndexRecipe]":
    """Return how the indices of a version were built, or are to be built, by their names.

    Kinds that we cannot build are left out.
    """
    dataset = version_ref.open_to_read()
    found: dict[str, IndexRecipe] = {}
    for description in dataset.describe_indices():
        with suppress(InvalidInputError):
            found[description.name] = IndexRecipe.read(dataset, description)
    return {**_wanted_recipes(version_ref), **found}


def _wanted_recipes(version_ref: VersionRef) -> "dict[str, IndexRecipe]":
    return {
        index.name: IndexRecipe(
            name=index.name,
            column=index.column,
            kind=_KINDS[_letters(index.kind)],
            arguments=index.arguments,
            segments=(index.text,),
        )
        for index in read_wanted(version_ref.schema)
        if _letters(index.kind) in _KINDS
    }


def _without_wanted(version_ref: VersionRef, names: Collection[str]) -> VersionRef:
    wanted = read_wanted(version_ref.schema)
    return set_wanted(version_ref, [index for index in wanted if index.name not in names]) if wanted else version_ref


def build_indices(version_ref: VersionRef, recipes: "Sequence[IndexRecipe]") -> VersionRef:
    """Stage indices over all rows, instead of those of the same names. Without rows, they are noted as wanted."""
    if not recipes:
        return version_ref
    existing = read_recipes(version_ref)
    for recipe in recipes:
        # Lance refuses a name that belongs to an index of another column.
        if recipe.name in existing and existing[recipe.name].column != recipe.column:
            version_ref = drop_index(version_ref, recipe.name)
    dataset = version_ref.open()
    if not dataset.count_rows():
        return _want(version_ref, recipes)
    built = [made for recipe in recipes if (made := recipe.build(version_ref, dataset)) is not None]
    old = _segments(dataset, [recipe.name for recipe in recipes])
    if built or old:
        version_ref = stage(dataset, version_ref, lance.LanceOperation.CreateIndex(built, old))
    return _without_wanted(version_ref, {index.name for index in built})


def _want(version_ref: VersionRef, recipes: "Sequence[IndexRecipe]") -> VersionRef:
    """Stage the notes of indices of a version without rows, instead of indices of the same names."""
    dataset = version_ref.open()
    names = {recipe.name for recipe in recipes}
    if old := _segments(dataset, sorted(names)):
        version_ref = stage(dataset, version_ref, lance.LanceOperation.CreateIndex([], old))
    others = [index for index in read_wanted(version_ref.schema) if index.name not in names]
    wanted = [
        WantedIndex(name=recipe.name, column=recipe.column, kind=recipe.kind.value, arguments=recipe.arguments)
        for recipe in recipes
    ]
    return set_wanted(version_ref, [*others, *wanted])


def build_wanted(version_ref: VersionRef) -> VersionRef:
    """Stage the wanted indices, if the version has rows to build them from. The other ones stay wanted."""
    wanted = _wanted_recipes(version_ref)
    if not wanted or not version_ref.open().count_rows():
        return version_ref
    for recipe in wanted.values():
        # Lance cannot train an index on few vectors: it raises, or makes one that covers no rows and cannot be read.
        # The commit that brings the rows must not fail because of it.
        with suppress(AnabranchError):
            built = build_indices(version_ref, [recipe])
            if any(index.name == recipe.name and index.covered_rows for index in list_indices(built)):
                version_ref = built
    return version_ref


def keep_indices(staged: VersionRef, *, of: VersionRef, names: Mapping[str, str] | None = None) -> VersionRef:
    """Stage the indices of an older version that the new rows or types of a column removed.

    `names` are the new names of columns. An index is not kept if its column is gone, or if its kind does not fit the
    new type of the column.
    """
    before = read_recipes(of)
    if not before:
        return staged
    after, columns = read_recipes(staged), staged.schema.names
    for name, recipe in before.items():
        column = (names or {}).get(recipe.column, recipe.column)
        if name not in after and column in columns:
            with suppress(SchemaMismatchError):
                staged = build_indices(staged, [replace(recipe, column=column)])
    return staged


def require_rebuildable(dataset: lance.LanceDataset) -> None:
    """Refuse a version with an index that we could not make again."""
    for description in dataset.describe_indices():
        IndexRecipe.read(dataset, description)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRecipe:
    """How an index was built. `segments` are the ids of its parts: the same parts are the same index."""

    name: str
    column: str
    kind: IndexKind
    arguments: Mapping[str, Any]
    segments: tuple[str, ...] = field(default=(), compare=False)

    @property
    def metric(self) -> str | None:
        """The metric of a vector index, in lower case."""
        return _metric_of({"metric_type": self.arguments.get("metric")})

    @classmethod
    def read(cls, dataset: lance.LanceDataset, description: Any) -> "IndexRecipe":
        """Read how an index was built. Raise InvalidInputError if we cannot build it again."""
        kind = _KINDS.get(_letters(description.index_type))
        # An external writer may have built a kind that this release does not know.
        if kind is None or len(description.field_names) != 1:
            raise InvalidInputError(
                f"the index {description.name!r} of kind {description.index_type!r} cannot be built again",
                hint="drop it first",
            )
        arguments: dict[str, Any] = {}
        if kind.is_vector:
            arguments = _vector_arguments(dataset.stats.index_stats(description.name), description.details)
        elif kind is IndexKind.INVERTED:
            arguments = {name: value for name, value in description.details.items() if value is not None}
        (column,) = description.field_names
        segments = tuple(sorted(segment.uuid for segment in description.segments))
        return cls(name=description.name, column=column, kind=kind, arguments=arguments, segments=segments)

    def build(self, version_ref: VersionRef, dataset: lance.LanceDataset) -> Index | None:
        try:
            return _build(version_ref, dataset, self.column, self.kind, name=self.name, arguments=self.arguments)
        except _NothingToLearnError:
            return None


def _letters(kind: str) -> str:
    """Return the name of a kind as it compares: Lance spells some of them without `_`."""
    return kind.lower().replace("_", "")


_KINDS = {_letters(kind): kind for kind in IndexKind}


class _NothingToLearnError(InvalidInputError):
    """There is no vector to train a vector index on."""


def _vector_arguments(statistics: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
    first = statistics["indices"][0]
    return {
        "metric": details["metric_type"],
        "num_partitions": first["num_partitions"],
        "num_sub_vectors": first.get("sub_index", {}).get("num_sub_vectors"),
    }


def _build(
    version_ref: VersionRef,
    dataset: lance.LanceDataset,
    column: str,
    kind: IndexKind,
    *,
    name: str,
    arguments: Mapping[str, Any],
) -> Index:
    fragments = [fragment.fragment_id for fragment in dataset.get_fragments()]
    try:
        with lance_errors(version_ref.home.uri, version_ref.home.storage_options):
            # Building an index locks the handle, and other threads use the shared one.
            dataset = alone(dataset)
            built = dataset.create_index_uncommitted(
                column, kind.value.upper(), name=name, replace=True, fragment_ids=fragments, **arguments
            )
            # What is built of words stays in pieces, which no query can read, until it is merged.
            return dataset.merge_existing_index_segments([built]) if kind is IndexKind.INVERTED else built
    # What pylance raises if the kind does not fit the type of the column.
    except (KeyError, TypeError) as err:
        raise SchemaMismatchError(
            f"column {column!r} cannot have an index of kind {kind.value}: {' '.join(map(str, err.args))}",
            hint="choose a column and a kind that fit",
        ) from None
    except StorageError as err:
        # Lance has no type for this error, so its text decides.
        if "cannot train" not in err.problem:
            raise
        raise _NothingToLearnError(
            f"column {column!r} holds no vectors to build an index of kind {kind.value} from", hint="add rows first"
        ) from None


def _segments(dataset: lance.LanceDataset, names: Sequence[str]) -> list[Index]:
    """All parts of the indices of these names, in the form in which Lance takes what to remove."""
    return [
        Index(
            uuid=segment.uuid,
            name=description.name,
            fields=list(description.fields),
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=segment.fragment_ids,
            index_version=segment.index_version,
            base_id=segment.base_id,
        )
        for description in dataset.describe_indices()
        if description.name in names
        for segment in description.segments
    ]
