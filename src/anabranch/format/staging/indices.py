"""Indices that are built on a pinned version and staged with it, or built when the table gets rows."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from math import isqrt
from typing import Any

import lance
import pyarrow as pa
from lance.dataset import Index

from anabranch.errors import AnabranchError, CorruptError, InvalidInputError, SchemaMismatchError, StorageError
from anabranch.format.arguments import check_columns
from anabranch.format.home import VersionRef
from anabranch.format.staging.fields import FieldTree
from anabranch.format.staging.manifests import alone, stage
from anabranch.format.staging.schema_notes import WANTED_INDICES, annotate
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
        return _KINDS.get(_letters(value)) if isinstance(value, str) else None

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
        """Whether this is an index of vectors."""
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
        name = str(self.metric).lower()
        name = "l2" if name == "euclidean" else name  # Lance's other word for it
        if name not in METRICS:
            raise InvalidInputError(f"unknown metric {self.metric!r}", hint=f"use {', '.join(METRICS)}")
        object.__setattr__(self, "metric", name)


def index(
    version_ref: VersionRef,
    column: str,
    kind: IndexKind,
    *,
    name: str | None = None,
    vector: VectorOptions | None = None,
) -> VersionRef:
    """Stage an index over all rows. It replaces an index of the same name (`{column}_idx` by default)."""
    dataset = version_ref.open()
    if vector is not None and not kind.is_vector:
        raise InvalidInputError(f"an index of kind {kind.value} has no vector options", hint="leave them out")
    check_columns([column], dataset.schema.names)
    if not dataset.count_rows():
        # Lance accepts some kinds of empty indices, but they do not cover later rows.
        raise InvalidInputError(f"{version_ref.home.uri!r} holds no rows to index", hint="add rows first")
    chosen = name or f"{column}_idx"
    _check_index_name(version_ref, chosen, column)
    arguments = asdict(vector or VectorOptions()) if kind.is_vector else {}
    recipe = IndexRecipe(name=chosen, column=column, kind=kind, arguments=arguments)
    return _replace(version_ref, dataset, [chosen], built=[recipe.build(version_ref, dataset)])


def _check_index_name(version_ref: VersionRef, name: str, column: str) -> None:
    """Refuse the name of an index on other columns, before the index is built, which may take long."""
    for other in list_indices(version_ref):
        if other.name == name and other.columns != (column,):
            raise InvalidInputError(
                f"the name {name!r} belongs to an index on {', '.join(other.columns)}",
                hint="drop that index, or choose another name",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInfo:
    """One index of a version. Rows that it does not cover are found by reading them.

    `kind` is an `IndexKind`, or Lance's name in lower case if the kind is unknown; `metric` is of vector indices only.
    """

    name: str
    columns: tuple[str, ...]
    kind: str
    covered_rows: int
    metric: str | None = None


def list_indices(version_ref: VersionRef) -> list[IndexInfo]:
    """Return the indices of a version, including wanted ones, which cover no rows."""
    built = [
        IndexInfo(
            name=found.name,
            columns=tuple(found.field_names),
            kind=_KINDS.get(_letters(found.index_type), found.index_type.lower()),
            covered_rows=found.num_rows_indexed,
            metric=_metric_of((found.details or {}).get("metric_type")),
        )
        for found in version_ref.open().describe_indices()
    ]
    known = {index.name for index in built}
    wanted = [
        IndexInfo(name=one.name, columns=(one.column,), kind=one.kind, covered_rows=0, metric=one.metric)
        for one in read_wanted(version_ref.schema)
        if one.name not in known
    ]
    return [*built, *wanted]


def _metric_of(metric: object) -> str | None:
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
    known = [index.name for index in list_indices(version_ref)]
    if name not in known:
        names = ", ".join(map(repr, known)) or "none"
        raise InvalidInputError(f"there is no index {name!r}", hint=f"the indices are: {names}")
    return _replace(version_ref, dataset, [name])


def rebuild_indices(version_ref: VersionRef) -> VersionRef:
    """Build every index again with its options over all rows, and build the wanted ones. Stage the result."""
    dataset = version_ref.open()
    described = [IndexRecipe.read(dataset, description) for description in dataset.describe_indices()]
    return build_wanted(build_indices(version_ref, described))


def read_recipes(version_ref: VersionRef) -> "dict[str, IndexRecipe]":
    """Return how indices of a version were or are to be built, by their names. Leave out kinds that we cannot build."""
    dataset = version_ref.open_to_read()
    found = {recipe.name: recipe for recipe in read_wanted(version_ref.schema) if isinstance(recipe.kind, IndexKind)}
    for description in dataset.describe_indices():
        with suppress(InvalidInputError):
            found[description.name] = IndexRecipe.read(dataset, description)
    return found


def build_indices(version_ref: VersionRef, recipes: "Sequence[IndexRecipe]") -> VersionRef:
    """Stage indices over all rows. They replace those of the same names.

    Without rows, or without vectors to learn from, an index is noted as wanted.
    """
    if not recipes:
        return version_ref
    existing = read_recipes(version_ref)
    for recipe in recipes:
        # Lance refuses a name that belongs to an index of another column.
        if recipe.name in existing and existing[recipe.name].column != recipe.column:
            version_ref = drop_index(version_ref, recipe.name)
    dataset = version_ref.open()
    built: list[Index] = []
    wanted = list(recipes)
    if dataset.count_rows():
        for recipe in recipes:
            with suppress(_NothingToLearnError):
                built.append(recipe.build(version_ref, dataset))
                wanted.remove(recipe)
    return _replace(version_ref, dataset, [recipe.name for recipe in recipes], built=built, wanted=wanted)


def _replace(
    version_ref: VersionRef,
    dataset: lance.LanceDataset,
    names: Sequence[str],
    *,
    built: Sequence[Index] = (),
    wanted: "Sequence[IndexRecipe]" = (),
) -> VersionRef:
    """Stage indices that were just built or are wanted. They replace all indices of these names."""
    old = _segments(dataset, names)
    if built or old:
        version_ref = stage(dataset, version_ref, lance.LanceOperation.CreateIndex(list(built), old))
    others = [recipe for recipe in read_wanted(version_ref.schema) if recipe.name not in names]
    # Sorted, so that unchanged notes are not staged again.
    return _set_wanted(version_ref, sorted([*others, *wanted], key=lambda recipe: recipe.name))


def build_wanted(version_ref: VersionRef) -> VersionRef:
    """Stage the wanted indices, if the version has rows to build them from. The other ones stay wanted."""
    wanted = [recipe for recipe in read_wanted(version_ref.schema) if isinstance(recipe.kind, IndexKind)]
    if not wanted or not version_ref.open().count_rows():
        return version_ref
    for recipe in wanted:
        # The commit that brings the rows must not fail because of it.
        with suppress(AnabranchError):
            version_ref = build_indices(version_ref, [recipe])
    return version_ref


def keep_indices(staged: VersionRef, *, of: VersionRef, names: Mapping[str, str] | None = None) -> VersionRef:
    """Stage the indices of an older version that an overwrite or a new type of a column removed.

    `names` are the new names of columns. An index is not kept if its column is gone or has a type that does not fit.
    """
    before = read_recipes(of)
    if not before:
        return staged
    after, tree = read_recipes(staged), FieldTree.of(staged.open_to_read().lance_schema)
    for name, recipe in before.items():
        # The path of a nested column begins with its top-level column, which may be renamed.
        top, dot, path = recipe.column.partition(".")
        column = f"{(names or {}).get(top, top)}{dot}{path}"
        if name not in after and tree.find(column) is not None:
            with suppress(SchemaMismatchError):
                staged = build_indices(staged, [replace(recipe, column=column)])
    return staged


def require_rebuildable(dataset: lance.LanceDataset) -> None:
    """Refuse a version with an index that cannot be built again."""
    for description in dataset.describe_indices():
        IndexRecipe.read(dataset, description)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRecipe:
    """How an index was built, or is to be built. `kind` is an `IndexKind`, or the name of an unknown kind.

    `segments` are the ids of its parts: the same parts are the same index.
    """

    name: str
    column: str
    kind: str
    arguments: Mapping[str, Any]
    segments: tuple[str, ...] = field(default=(), compare=False)

    @property
    def metric(self) -> str | None:
        """The metric of a vector index, in lower case."""
        return _metric_of(self.arguments.get("metric"))

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
            # Earlier releases kept indices that cover no rows. They have no numbers.
            found = dataset.stats.index_stats(description.name)["indices"][0]
            arguments = {
                "metric": description.details["metric_type"],
                "num_partitions": found.get("num_partitions"),
                "num_sub_vectors": found.get("sub_index", {}).get("num_sub_vectors"),
            }
        elif kind is IndexKind.INVERTED:
            arguments = {name: value for name, value in description.details.items() if value is not None}
        (column,) = description.field_names
        segments = tuple(sorted(segment.uuid for segment in description.segments))
        return cls(name=description.name, column=column, kind=kind, arguments=arguments, segments=segments)

    def build(self, version_ref: VersionRef, dataset: lance.LanceDataset) -> Index:
        """Build the index over all rows. Raise InvalidInputError if there are not enough vectors to learn from."""
        kind, arguments = IndexKind(self.kind), dict(self.arguments)
        fragments = [fragment.fragment_id for fragment in dataset.get_fragments()]
        nothing_to_learn = _NothingToLearnError(
            f"column {self.column!r} holds no vectors to build an index of kind {kind.value} from, or too few",
            hint="add rows first",
        )
        try:
            if kind in (IndexKind.IVF_PQ, IndexKind.IVF_HNSW_PQ):
                arguments = _with_numbers(dataset, self.column, arguments)
            with version_ref.home.errors():
                # Building an index locks the handle, and other threads use the shared one.
                dataset = alone(dataset)
                built = dataset.create_index_uncommitted(
                    self.column, kind.value.upper(), name=self.name, replace=True, fragment_ids=fragments, **arguments
                )
                # An index of words is built in pieces, which no query can read before they are merged.
                if kind is IndexKind.INVERTED:
                    built = dataset.merge_existing_index_segments([built])
        # The errors of pylance if the kind does not fit the type of the column.
        except (KeyError, TypeError) as err:
            raise SchemaMismatchError(
                f"column {self.column!r} cannot have an index of kind {kind.value}: {' '.join(map(str, err.args))}",
                hint="choose a column and a kind that fit",
            ) from None
        except StorageError as err:
            # Lance has no type for this error, so its text decides.
            if "cannot train" not in err.problem:
                raise
            raise nothing_to_learn from None
        # Of too few vectors, Lance may make an index that covers no rows and cannot be read.
        if kind.is_vector and not built.fragment_ids:
            raise nothing_to_learn
        return built


def _letters(kind: str) -> str:
    """Return the name of a kind for comparison: Lance spells some kinds without `_`."""
    return kind.lower().replace("_", "")


_KINDS = {_letters(kind): kind for kind in IndexKind}


class _NothingToLearnError(InvalidInputError):
    """There are not enough vectors to train a vector index on."""


def _with_numbers(dataset: lance.LanceDataset, column: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the numbers for product quantization that are not given. For other kinds, Lance chooses them."""
    rows, kind = dataset.count_rows(), dataset.schema.field(column).type
    length = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
    chosen = {
        # Lance trains a partition on at least 256 vectors.
        "num_partitions": max(1, min(isqrt(rows), rows // 256)),
        # The number of parts that vectors are compressed in. Their length must be a multiple of it.
        "num_sub_vectors": next((length // size for size in (16, 8) if length % size == 0), 1),
    }
    return {**arguments, **{name: arguments.get(name) or number for name, number in chosen.items()}}


def _segments(dataset: lance.LanceDataset, names: Sequence[str]) -> list[Index]:
    """Return all parts of the indices of these names, in Lance's form for removals."""
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


# Wanted indices belong to a table but could not be built yet, because Lance builds no index without rows. Each of them
# is noted with its column, so that it follows a rename and goes with the column. The note of a nested column is with
# the top-level one, with the rest of the path. The first commit that brings rows builds it and removes the note.


def read_wanted(schema: pa.Schema) -> list[IndexRecipe]:
    """Return the wanted indices that are noted with the columns of a schema."""
    return [found for column in schema if column.metadata for found in _read_note(column)]


def _read_note(column: pa.Field) -> list[IndexRecipe]:
    text = column.metadata.get(WANTED_INDICES.encode())
    try:
        documents = [] if text is None else json.loads(text)
        return [
            IndexRecipe(
                name=_text(one["name"]),
                column=".".join([column.name, *([_text(one["path"])] if "path" in one else [])]),
                kind=_KINDS.get(_letters(_text(one["type"])), one["type"]),
                arguments=dict(one["arguments"]),
                segments=(json.dumps(one, sort_keys=True),),
            )
            for one in documents
        ]
    # The note is metadata of a column, which any Lance tool can write.
    except (LookupError, RecursionError, TypeError, ValueError) as err:
        raise CorruptError(
            f"the note about wanted indices of column {column.name!r} cannot be read: {text!r:.200}",
            hint="remove it with `annotate()`, and build the index again",
        ) from err


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _set_wanted(version_ref: VersionRef, wanted: Sequence[IndexRecipe]) -> VersionRef:
    """Stage the notes of the wanted indices. They replace all earlier ones."""
    schema = version_ref.schema
    notes: dict[str, str | None] = {_top_level(found.column, schema): None for found in read_wanted(schema)}
    documents: dict[str, list[dict[str, Any]]] = {}
    for recipe in wanted:
        top = _top_level(recipe.column, schema)
        nested = {} if top == recipe.column else {"path": recipe.column[len(top) + 1 :]}
        document = {"name": recipe.name, "type": str(recipe.kind), "arguments": dict(recipe.arguments), **nested}
        documents.setdefault(top, []).append(document)
    notes |= {name: json.dumps(found, sort_keys=True) for name, found in documents.items() if name in schema.names}
    if not notes:
        return version_ref
    return annotate(version_ref, {}, columns={name: {WANTED_INDICES: text} for name, text in notes.items()})


def _top_level(column: str, schema: pa.Schema) -> str:
    return column if column in schema.names else column.partition(".")[0]
