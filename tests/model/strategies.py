"""What Hypothesis draws: names, rows and operations, from small sets, so that steps often concern each other."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from tests.model import operations as ops
from tests.model.invariants import as_moment
from tests.model.model import ModelRepository
from tests.model.operations import TABLES, TYPES, Below, Formula, Operation
from tests.model.schema import DesiredSchema, DesiredTable
from tests.model.table import ModelTable, Row, Value

BRANCHES = ("dev", "dev/x", "fix")
TAGS = ("first", "fix", "last")  # A branch may have one of these names at another time.
_OTHER_COLUMNS = tuple(name for name in TYPES if name != "id")
_NUMBERS = tuple(name for name in _OTHER_COLUMNS if TYPES[name] == TYPES["id"])
_TEXTS = tuple(name for name in _OTHER_COLUMNS if name not in _NUMBERS)


def branch_names() -> st.SearchStrategy[str]:
    """Names that a user may create."""
    return st.sampled_from(BRANCHES)


def table_keys() -> st.SearchStrategy[str]:
    return st.sampled_from(TABLES)


def refs(model: ModelRepository) -> st.SearchStrategy[str]:
    """Refs of all forms. Most of them exist."""
    names = sorted(model.logs)
    times = sorted(time for known in model.times.values() for time in known)
    return st.one_of(
        st.sampled_from(names),
        st.sampled_from(sorted(model.commits)),
        st.sampled_from(TAGS),
        st.builds("{}~{}".format, st.sampled_from([*names, *sorted(model.tags)]), st.integers(0, 5)),
        st.builds("{}@v{}".format, st.sampled_from(names), st.integers(1, 8)),
        st.builds(lambda name, time: f"{name}@{{{as_moment(time)}}}", st.sampled_from(names), st.sampled_from(times)),
    )


def operations(tables: Mapping[str, Sequence[str]]) -> st.SearchStrategy[Operation]:
    """Any operation, usually one that fits an existing table. `tables` are these, with their columns."""
    keys = st.sampled_from([*sorted(tables) * 4, *TABLES])
    return keys.flatmap(lambda key: _operations_on(key, tables.get(key, ())))


def appends(tables: Mapping[str, Sequence[str]]) -> st.SearchStrategy[Operation]:
    """Appends to an existing table. Without tables, any operation."""
    if not tables:
        return operations(tables)
    keys = st.sampled_from(sorted(tables))
    ids = st.lists(st.integers(0, 20), unique=True, min_size=1, max_size=4)
    rows = ids.map(lambda found: tuple({"id": number} for number in found))
    return st.builds(ops.append, keys, st.just(("id",)), rows)


def close_changes(tables: Mapping[str, Sequence[str]]) -> st.SearchStrategy[Operation]:
    """Changes to the same few rows of existing tables, so that they often conflict. Without tables, any operation.

    Most are to the first table, which begins with a key: merges of rows without a key are often left out.
    """
    if not tables:
        return operations(tables)
    first, *others = sorted(tables)
    return st.sampled_from([first, first, first, *others]).flatmap(lambda key: _close_changes_to(key, tables[key]))


def _close_changes_to(key: str, columns: Sequence[str]) -> st.SearchStrategy[Operation]:
    others = [name for name in columns if name != "id"]
    data = _columns(others).flatmap(lambda columns: st.tuples(st.just(columns), _close_rows(columns)))
    below = st.builds(Below, st.integers(1, 6))
    upserted = data.map(lambda data: ops.upsert(key, *data))
    appended = data.map(lambda data: ops.append(key, *data))
    deleted = st.builds(ops.delete, st.just(key), below)
    updated = st.builds(lambda to, where: ops.update(key, to[0], to[1], where), _assignments(others or ["n"]), below)
    return st.one_of(upserted, upserted, appended, updated, updated, deleted, _column_operations(key))


def _close_rows(columns: Sequence[str]) -> st.SearchStrategy[tuple[Row, ...]]:
    values = {name: st.integers(0, 8) if name == "id" else _values(name) for name in columns}
    rows = st.lists(st.fixed_dictionaries(values), min_size=1, max_size=3, unique_by=lambda row: row["id"])
    return rows.map(tuple)


def _appends_to(key: str, others: Sequence[str]) -> st.SearchStrategy[Operation]:
    data = _columns(others).flatmap(lambda columns: st.tuples(st.just(columns), _rows(columns)))
    return st.builds(
        lambda data, as_stream: ops.append(key, data[0], data[1], as_stream=as_stream), data, st.booleans()
    )


def _operations_on(key: str, columns: Sequence[str]) -> st.SearchStrategy[Operation]:
    created = st.builds(ops.create, st.just(key), _columns(_OTHER_COLUMNS), st.sampled_from([(), ("id",)]))
    if not columns:
        return st.one_of(created, created, _rows_operations(key, _OTHER_COLUMNS))
    others = [name for name in columns if name != "id"]
    fitting = _rows_operations(key, others)
    misfitting = _rows_operations(key, _OTHER_COLUMNS)
    renamed = st.builds(ops.rename, st.just(key), table_keys())
    return st.one_of(*[fitting] * 6, misfitting, _column_operations(key), renamed, st.just(ops.drop(key)), created)


def _rows_operations(key: str, others: Sequence[str]) -> st.SearchStrategy[Operation]:
    data = _columns(others).flatmap(lambda columns: st.tuples(st.just(columns), _rows(columns)))
    appended = _appends_to(key, others)
    assigned = _assignments(others or _OTHER_COLUMNS)
    below = st.builds(Below, st.integers(0, 20))
    return st.one_of(
        appended,
        appended,
        data.map(lambda data: ops.upsert(key, *data)),
        data.map(lambda data: ops.overwrite(key, *data)),
        st.builds(lambda to, where: ops.update(key, to[0], to[1], where), assigned, below),
        st.builds(ops.delete, st.just(key), below),
    )


def _column_operations(key: str) -> st.SearchStrategy[Operation]:
    return st.one_of(
        _assignments(_OTHER_COLUMNS).map(lambda data: ops.add_column(key, *data)),
        st.sampled_from([*_pairs(_NUMBERS), *_pairs(_TEXTS)]).map(lambda names: ops.rename_column(key, *names)),
        st.builds(ops.drop_column, st.just(key), st.sampled_from(_OTHER_COLUMNS)),
    )


def _columns(others: Sequence[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """The id and some of the other columns."""
    if not others:
        return st.just(("id",))
    return st.lists(st.sampled_from(others), unique=True, max_size=3).map(lambda names: ("id", *names))


def _rows(columns: Sequence[str]) -> st.SearchStrategy[tuple[Row, ...]]:
    """Rows whose keys are usually new, and sometimes null, repeated or in the table already."""
    ids = st.one_of(*[st.integers(0, 40)] * 12, st.none())
    values = {name: ids if name == "id" else _values(name) for name in columns}
    return st.lists(st.fixed_dictionaries(values), max_size=4).map(tuple)


def _values(column: str) -> st.SearchStrategy[Value]:
    return st.one_of(st.none(), st.integers(-5, 5) if column in _NUMBERS else st.sampled_from(["", "x", "yy", "Ž"]))


def _assignments(columns: Sequence[str]) -> st.SearchStrategy[tuple[str, Formula]]:
    return st.sampled_from(columns).flatmap(lambda name: st.tuples(st.just(name), _formulas(name)))


def _formulas(column: str) -> st.SearchStrategy[Formula]:
    numbers = st.one_of(st.builds(Formula, st.integers(0, 5)), st.builds(Formula, added_to_id=st.integers(0, 5)))
    texts = st.builds(Formula, st.sampled_from(["x", "new"]))
    return st.one_of(numbers if column in _NUMBERS else texts, st.just(Formula()))


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(one, other) for one in names for other in names]


@st.composite
def desired_schemas(draw: st.DrawFn, tables: Mapping[str, ModelTable]) -> DesiredSchema:
    """Schemas close to the current one: a table more or less, and added, dropped or renamed columns."""
    bucket = draw(st.sampled_from(sorted({key.partition(".")[0] for key in TABLES})))
    wanted = {}
    for key in TABLES:
        if not key.startswith(f"{bucket}."):
            continue
        if key in tables:
            if draw(st.integers(0, 5)):
                wanted[key] = draw(_desired_tables(tables[key]))
        elif draw(st.booleans()):
            created = draw(_columns(_OTHER_COLUMNS))
            keys = draw(st.sampled_from([(), ("id",)]))
            wanted[key] = DesiredTable(columns=_typed(created), primary_key=keys, was={})
    return DesiredSchema(bucket=bucket, tables=wanted)


@st.composite
def _desired_tables(draw: st.DrawFn, table: ModelTable) -> DesiredTable:
    columns, was = list(table.columns), {}
    free = [name for name in _OTHER_COLUMNS if name not in columns]
    old = draw(st.sampled_from([None, None, *columns]))
    new = draw(st.sampled_from([None, *free]))
    if old is not None and new is not None and old != "id" and TYPES[old] == TYPES[new]:
        columns[columns.index(old)] = new
        was[new] = old
    dropped = draw(st.sampled_from([None, None, *columns]))
    if dropped is not None and dropped not in {"id", *was}:
        columns.remove(dropped)
    more = draw(st.lists(st.sampled_from(_OTHER_COLUMNS), max_size=2))
    columns += [name for name in dict.fromkeys(more) if name not in columns and name != dropped]
    # A key is never removed: an open transaction must not find a table with its old key again.
    keys = table.primary_key or draw(st.sampled_from([(), ("id",)]))
    return DesiredTable(columns=_typed(columns), primary_key=keys, was=was)


def _typed(columns: Sequence[str]) -> dict[str, str]:
    return {name: str(TYPES[name]) for name in columns}
