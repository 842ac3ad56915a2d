"""What hypothesis draws: names, rows and operations, from pools so small that they meet again and again."""

from collections.abc import Sequence

from hypothesis import strategies as st

from anabranch.testing.model import ModelRepository, Row, Value
from anabranch.testing.operations import (
    TYPES,
    AddColumn,
    Append,
    Below,
    Create,
    Delete,
    Drop,
    DropColumn,
    Formula,
    Operation,
    Overwrite,
    Rename,
    RenameColumn,
    Update,
    Upsert,
)

__all__ = ["branch_names", "operations", "refs", "table_keys"]

_BRANCHES = ("dev", "dev/x", "fix")
_TABLES = ("s.a", "s.b", "t.c")
_OTHER_COLUMNS = tuple(name for name in TYPES if name != "id")
_NUMBERS = tuple(name for name in _OTHER_COLUMNS if TYPES[name] == TYPES["id"])
_TEXTS = tuple(name for name in _OTHER_COLUMNS if name not in _NUMBERS)


def branch_names() -> st.SearchStrategy[str]:
    """Names that a user may create."""
    return st.sampled_from(_BRANCHES)


def table_keys() -> st.SearchStrategy[str]:
    return st.sampled_from(_TABLES)


def refs(model: ModelRepository) -> st.SearchStrategy[str]:
    """Refs of all forms, most of which stand for something."""
    names = sorted(model.logs)
    return st.one_of(
        st.sampled_from(names),
        st.sampled_from(sorted(model.commits)),
        st.builds("{}~{}".format, st.sampled_from(names), st.integers(0, 5)),
        st.builds("{}@v{}".format, st.sampled_from(names), st.integers(1, 8)),
    )


def operations(existing: Sequence[str]) -> st.SearchStrategy[Operation]:
    """Any operation, most often on a table that exists."""
    keys = st.sampled_from([*existing, *existing, *_TABLES])
    others = st.sampled_from(_OTHER_COLUMNS)
    below = st.builds(Below, st.integers(0, 8))
    created = st.builds(Create, table_keys(), _columns(), st.sampled_from([(), ("id",), ("id",)]))
    on_rows = (
        keys.flatmap(lambda key: _data().map(lambda data: Append(key, *data))),
        keys.flatmap(lambda key: _data().map(lambda data: Append(key, *data, as_stream=True))),
        keys.flatmap(lambda key: _data().map(lambda data: Upsert(key, *data))),
        keys.flatmap(lambda key: _data().map(lambda data: Overwrite(key, *data))),
        keys.flatmap(lambda key: _assignments().map(lambda data: Update(key, *data, Below(6)))),
        st.builds(Delete, keys, below),
    )
    renamed = st.sampled_from([*_pairs(_NUMBERS), *_pairs(_TEXTS)])
    on_columns = (
        keys.flatmap(lambda key: _assignments().map(lambda data: AddColumn(key, *data))),
        keys.flatmap(lambda key: renamed.map(lambda names: RenameColumn(key, *names))),
        st.builds(DropColumn, keys, others),
    )
    if not existing:
        return st.one_of(created, created, *on_rows)
    on_tables = (created, st.builds(Drop, keys), st.builds(Rename, keys, table_keys()))
    return st.one_of(*on_tables, *on_rows, *on_rows, *on_columns)


def _columns() -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(_OTHER_COLUMNS), unique=True, max_size=3).map(lambda names: ("id", *names))


def _data() -> st.SearchStrategy[tuple[tuple[str, ...], tuple[Row, ...]]]:
    """Columns and rows of them; keys may be null, repeated or there already."""
    return _columns().flatmap(lambda columns: st.tuples(st.just(columns), _rows(columns)))


def _rows(columns: Sequence[str]) -> st.SearchStrategy[tuple[Row, ...]]:
    ids = st.one_of(*[st.integers(0, 9)] * 9, st.none())
    values = {name: ids if name == "id" else _values(name) for name in columns}
    mostly_unique = st.lists(st.fixed_dictionaries(values), max_size=4, unique_by=lambda row: row["id"])
    return st.one_of(*[mostly_unique] * 4, st.lists(st.fixed_dictionaries(values), max_size=4)).map(tuple)


def _values(column: str) -> st.SearchStrategy[Value]:
    return st.one_of(st.none(), st.integers(-5, 5) if column in _NUMBERS else st.sampled_from(["", "x", "yy", "Ž"]))


def _assignments() -> st.SearchStrategy[tuple[str, Formula]]:
    numbers = st.one_of(st.builds(Formula, st.integers(0, 5)), st.builds(Formula, added_to_id=st.integers(0, 5)))
    texts = st.builds(Formula, st.sampled_from(["x", "new"]))
    return st.one_of(
        st.tuples(st.sampled_from(_NUMBERS), numbers),
        st.tuples(st.sampled_from(_TEXTS), texts),
        st.tuples(st.sampled_from(_OTHER_COLUMNS), st.just(Formula())),
    )


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(one, other) for one in names for other in names]
