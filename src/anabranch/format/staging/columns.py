"""Columns added, renamed, retyped and dropped; rows keep their ids and their other data files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import lance
import pyarrow as pa

from anabranch.column_types import show_type
from anabranch.errors import AnabranchError, InvalidExpressionError, InvalidInputError, SchemaMismatchError
from anabranch.format.home import VersionRef
from anabranch.format.staging.expressions import (
    DEFAULT,
    computed_types,
    default_expression,
    enclosed,
    expression_errors,
    find_default,
)
from anabranch.format.staging.fields import FieldTree, StoredField, check_column_names, new_fields
from anabranch.format.staging.incoming import cast_computed, require_computable
from anabranch.format.staging.manifests import stage
from anabranch.format.staging.schema_notes import noted_column_ids, with_id_of, with_ids_of_added, with_metadata_of

# Casts are written under temporary names, and get the column's name when it is free.
_CAST = "__cast_{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """The change of one column; None keeps it as it is. A path such as `address.city` names a nested field."""

    path: str
    name: str | None = None
    nullable: bool | None = None
    type: pa.DataType | None = None


def add_columns(
    version_ref: VersionRef, columns: Mapping[str, str] | pa.Schema, *, column_ids: Mapping[str, str] | None = None
) -> VersionRef:
    """Stage new columns: expressions of the others, computed for every row, or a schema of columns full of nulls.

    They are always nullable, so that rows can still be added without them. `column_ids` are the identities of computed
    columns that are copies of columns of another version.
    """
    dataset = version_ref.open()
    names = columns.names if isinstance(columns, pa.Schema) else list(columns)
    check_column_names(names)
    # Existing names are passed as well, so that the check for repeated names also finds these.
    check_column_names([*names, *set(names).intersection(dataset.schema.names)])
    if isinstance(columns, pa.Schema):
        return _stage_empty(version_ref, dataset, columns)
    planned = computed_types(dataset, columns)
    # Lance computes nothing without fragments and returns no schema. The planned types are used instead.
    if not dataset.get_fragments():
        return _stage_empty(version_ref, dataset, pa.schema([pa.field(f.name, f.type) for f in planned]))
    with version_ref.home.errors(), expression_errors(dataset, *columns.values()):
        expressions = {name: enclosed(expression) for name, expression in columns.items()}
        merged = [fragment.merge_columns(expressions) for fragment in dataset.get_fragments()]
    fragments, schemas = zip(*merged, strict=True)
    tree = FieldTree.of(schemas[-1])
    for name in names:
        tree = tree.replaced(replace(tree.get(name), nullable=True))
    tree = with_ids_of_added(tree, names, column_ids or {})
    return stage(dataset, version_ref, lance.LanceOperation.Merge(list(fragments), tree.to_lance()))


def add_defaults(version_ref: VersionRef, fields: Sequence[pa.Field]) -> VersionRef:
    """Stage new columns with their defaults in every row. They are nullable, without notes."""
    expressions = {
        field.name: default_expression(field.metadata[DEFAULT.encode()].decode(), field.type) for field in fields
    }
    staged = add_columns(version_ref, expressions, column_ids=noted_column_ids(fields))
    computed = staged.schema
    # SQL gives 7 the type int64, for example.
    casts = [
        ColumnChange(path=field.name, type=field.type)
        for field in fields
        if computed.field(field.name).type != field.type
    ]
    return alter_columns(staged, casts) if casts else staged


def alter_columns(version_ref: VersionRef, changes: Sequence[ColumnChange]) -> VersionRef:
    """Stage other names, types or nullability. Only a new type writes data, and removes the indices of the column."""
    dataset = version_ref.open()
    before = FieldTree.of(dataset.lance_schema)
    targets = [(change, before.get(change.path)) for change in changes]
    if len({field.id for _, field in targets}) < len(targets):
        raise InvalidInputError("a column is to be changed more than once", hint="combine the changes into one")
    for change, field in targets:
        _check_change(version_ref, dataset, change, field)
    casts = _find_casts(dataset.schema, targets)
    widened, with_casts = version_ref, before
    if casts:
        # Lance refuses to rename and to drop while it merges new data files, so casts take a version of their own.
        widened = _stage_casts(version_ref, pa.schema(list(casts.values())))
        with_casts = FieldTree.of(widened.open().lance_schema)
    after = with_casts
    for change, field in targets:
        cast = with_casts.get(_CAST.format(field.name)) if field.id in casts else None
        after = _with_change(after, change, field, cast)
    _check_distinct(after)
    if after == before:
        return version_ref
    return stage(widened.open(), widened, lance.LanceOperation.Project(after.to_lance()))


def _find_casts(schema: pa.Schema, targets: Iterable[tuple[ColumnChange, StoredField]]) -> dict[int, pa.Field]:
    """Return the columns that get another type, with that type, by their field ids."""
    return {
        field.id: pa.field(field.name, change.type)
        for change, field in targets
        if change.type is not None and change.type != schema.field(field.name).type
    }


def _with_change(tree: FieldTree, change: ColumnChange, field: StoredField, cast: StoredField | None) -> FieldTree:
    """Return the tree with a field changed, or replaced by the column of its cast values."""
    changed = replace(
        field if cast is None else with_metadata_of(cast, field),
        name=change.name or field.name,
        nullable=field.nullable if change.nullable is None else change.nullable,
    )
    if field.is_top_level:
        # The identity follows from field id and name, and one of them changes here. The note keeps the old one.
        changed = with_id_of(changed, field)
    # A cast column was added at the end. It takes the position of the old one, which this projection drops.
    return tree.replaced(changed) if cast is None else _moved(tree, field, changed)


def _check_distinct(tree: FieldTree) -> None:
    for (_, name), count in Counter((field.parent, field.name) for field in tree.fields).items():
        if count > 1:
            raise SchemaMismatchError(f"two columns would be called {name!r}", hint="choose another name")


def drop_columns(version_ref: VersionRef, paths: Sequence[str]) -> VersionRef:
    """Stage the table without some columns, or without fields of nested ones; no data is written."""
    if not paths:
        return version_ref
    dataset = version_ref.open()
    tree = FieldTree.of(dataset.lance_schema)
    gone = frozenset[int]().union(*(tree.family(tree.get(path)) for path in paths))
    left = tree.without(gone)
    parents = {field.parent for field in left.fields}
    for path in paths:
        parent = tree.get(path).parent
        if parent not in parents and parent not in gone:
            raise InvalidInputError(
                f"without {path!r} nothing would be left beside it", hint="keep a column, or drop what holds it"
            )
    return stage(dataset, version_ref, lance.LanceOperation.Project(left.to_lance()))


def find_computable(version_ref: VersionRef, expressions: Mapping[str, str]) -> dict[str, str]:
    """Return the expressions that Lance can plan on this version because it has their columns."""
    dataset, found = version_ref.open(), {}
    for name, expression in expressions.items():
        try:
            # One by one: if they are planned together, one bad expression makes all of them fail.
            computed_types(dataset, {name: expression})
        except InvalidExpressionError:
            continue
        found[name] = expression
    return found


def _check_change(
    version_ref: VersionRef, dataset: lance.LanceDataset, change: ColumnChange, field: StoredField
) -> None:
    if change.name is not None:
        check_column_names([change.name])
    if change.type is not None:
        # A cast is written as a new top-level column, so a part of a nested column cannot be cast alone.
        if not field.is_top_level:
            raise InvalidInputError(
                f"the type of the nested field {change.path!r} cannot be changed alone",
                hint="change the type of the whole column",
            )
        require_computable(dataset.schema.field(field.name).type, pa.field(field.name, change.type))
    # A projection changes only the schema and reads no rows, so nulls must be searched for here.
    if change.nullable is False and field.nullable:
        path = ".".join(f"`{part}`" for part in change.path.split("."))
        with version_ref.home.errors():
            nulls = dataset.count_rows(filter=f"{path} IS NULL")
        if nulls:
            raise SchemaMismatchError(f"column {change.path!r} holds {nulls} nulls", hint="fill them first")


def _with_nulls_allowed(version_ref: VersionRef, names: Iterable[str]) -> VersionRef:
    """Stage the table with nulls allowed in these columns, if it must be."""
    # Lance also casts deleted rows, and fails if one has a null in a column that does not allow it.
    dataset = version_ref.open()
    before = after = FieldTree.of(dataset.lance_schema)
    for name in names:
        after = after.replaced(replace(after.get(name), nullable=True))
    if after == before:
        return version_ref
    return stage(dataset, version_ref, lance.LanceOperation.Project(after.to_lance()))


def _stage_casts(version_ref: VersionRef, casts: pa.Schema) -> VersionRef:
    """Write each fragment's cast columns beside the old ones."""
    version_ref = _with_nulls_allowed(version_ref, casts.names)
    dataset = version_ref.open()
    new = pa.schema([pa.field(_CAST.format(field.name), field.type) for field in casts])
    fragments = dataset.get_fragments()
    if not fragments:
        return _stage_empty(version_ref, dataset, new)
    # Lance replaces an error of the callback. The original error names the column and the value.
    failures: list[Exception] = []

    # Without a schema, Lance would call it for the first rows only to find the types, and replace its errors.
    @lance.batch_udf(output_schema=new)
    def cast(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            arrays = [cast_computed(batch.column(field.name), field) for field in casts]
            return pa.RecordBatch.from_arrays(arrays, schema=new)
        except SchemaMismatchError as err:
            failures.append(err)
            raise

    try:
        with version_ref.home.errors():
            merged = [fragment.merge_columns(cast, columns=casts.names) for fragment in fragments]
    except AnabranchError:
        if failures:
            raise failures[0] from None
        raise
    return stage(dataset, version_ref, lance.LanceOperation.Merge([one for one, _ in merged], merged[-1][1]))


def _moved(tree: FieldTree, old: StoredField, new: StoredField) -> FieldTree:
    """Return the tree with one of its fields moved to the position of another one, which is removed."""
    family = tree.family(new)
    moving = [new if field.id == new.id else field for field in tree.fields if field.id in family]
    return tree.without(family).with_new(moving, instead_of=old)


def _stage_empty(version_ref: VersionRef, dataset: lance.LanceDataset, columns: pa.Schema) -> VersionRef:
    """Stage columns full of nulls. Refuse columns that do not allow nulls."""
    for field in columns:
        if not field.nullable:
            raise SchemaMismatchError(
                f"column {field.name!r} takes no nulls, and has no values yet", hint="give it an expression"
            )
    tree = FieldTree.of(dataset.lance_schema)
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    # `max_field_id` also counts dropped columns that data files still have. A new one with a lower id would read them.
    after = tree.with_new(new_fields(columns, first_id=dataset.max_field_id + 1))
    schema = with_ids_of_added(after, columns.names, {}).to_lance()
    return stage(dataset, version_ref, lance.LanceOperation.Merge(fragments, schema))


def check_defaults(schema: pa.Schema, columns: Iterable[str] | None = None) -> None:
    """Raise SchemaMismatchError if one of these columns (all by default) has a default that it cannot take."""
    found = {name: (schema.field(name).metadata or {}).get(DEFAULT.encode()) for name in columns or schema.names}
    wrong = find_wrong_default(schema, {name: noted.decode() for name, noted in found.items() if noted is not None})
    if wrong is not None:
        name, err = wrong
        raise SchemaMismatchError(f"the default of column {name!r} does not fit: {err.problem}", hint=err.hint) from err


def find_wrong_default(schema: pa.Schema, defaults: Mapping[str, str]) -> tuple[str, InvalidInputError] | None:
    """Return the first column whose default cannot be computed, or does not fit the column."""
    if not defaults:
        return None
    # Lance plans only over datasets. This one is never written.
    dataset = lance.write_dataset(schema.empty_table(), "memory://defaults")
    # One plan for all is much faster on wide tables. Only if that fails, plan one by one, to find the wrong one.
    try:
        known = computed_types(dataset, defaults)
    except InvalidExpressionError:
        known = None
    for name, expression in defaults.items():
        try:
            kind = (known or computed_types(dataset, {name: expression})).field(name).type
            _check(schema, name, expression, kind)
        except InvalidInputError as err:
            return name, err
    return None


def _check(schema: pa.Schema, name: str, expression: str, planned: pa.DataType) -> None:
    field = schema.field(name).with_metadata({DEFAULT: expression})
    is_time = pa.types.is_timestamp(field.type)
    # Text and other times are converted to the column's unit and zone. A number would be a time in 1970.
    if is_time and (pa.types.is_integer(planned) or pa.types.is_floating(planned)):
        raise SchemaMismatchError(
            f"column {field.name!r} takes {show_type(field.type)}, and the default is a number",
            hint="write it as a time, such as timestamp '2026-01-31 12:00:00'",
        )
    if not is_time:
        require_computable(planned, field)
    compute = find_default(field, columns=schema.names)
    # The type may fit and the value not, such as 300 for int8. Compute a constant now, before it fails in an append.
    if compute is not None:
        cast_computed(compute(1), field)
