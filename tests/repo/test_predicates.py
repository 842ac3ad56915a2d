"""Double quotes name columns in every predicate and expression, and an unknown column is an error."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import AnabranchError, InvalidExpressionError
from anabranch.format.staging import DEFAULT
from anabranch.format.staging.expressions import to_lance_dialect
from anabranch.repo.snapshot import Table
from tests.lake_templates import Cast

KEY = "in_c_sales.items"
SOURCES = Path(ab.__file__).parent

ODD = ['q"t', "odd name", "SELECT", "Größe", "it's", "--c", "(", "back\\slash", "/*"]


def fill(repo: ab.Repository) -> None:
    """Three items: 'abc', 'x' and null; `n` is a field of a struct, and each odd column holds the id."""
    rows = {
        "id": [1, 2, 3],
        "v": ["abc", "x", None],
        "s": pa.array([{"N": number} for number in (1, 2, 3)]),
        "vector": pa.array([[0.0, float(number)] for number in (1, 2, 3)], pa.list_(pa.float32(), 2)),
        **{name: [1, 2, 3] for name in ODD},
    }
    data = pa.table(rows)
    with repo.transaction(message="items") as tx:
        tx.create_table(KEY, data.schema, primary_key=["id"])
        tx.append(KEY, data)


@pytest.fixture
def items(cast: Cast) -> ab.Repository:
    return cast(fill)


def _table(repo: ab.Repository) -> Table:
    return repo.snapshot()[KEY]


def _dataset(repo: ab.Repository) -> Any:
    return ab.dataset(f"{repo.uri}/tables/in_c_sales/items.lance", storage_options=repo.storage_options)


def _ids(found: Any) -> list[int]:
    return sorted(row["id"] for row in found.to_pylist())


def _left_after_delete(repo: ab.Repository, where: str) -> list[int]:
    with repo.transaction() as tx:
        tx.delete(KEY, where)
    return sorted({1, 2, 3} - set(_ids(_table(repo).to_arrow())))


def _updated(repo: ab.Repository, where: str) -> list[int]:
    with repo.transaction() as tx:
        tx.update(KEY, {"v": "'new'"}, where=where)
    return _ids(_table(repo).to_arrow(where="v = 'new'"))


def _assigned(repo: ab.Repository, where: str) -> list[int]:
    with repo.transaction() as tx:
        tx.update(KEY, {"v": f"CAST(coalesce({where}, false) AS STRING)"}, where="true")
    return _ids(_table(repo).to_arrow(where="v = 'true'"))


def _added(repo: ab.Repository, where: str) -> list[int]:
    with repo.transaction() as tx:
        tx.add_columns(KEY, {"found": where})
    return _ids(_table(repo).to_arrow(where="found"))


def _default(repo: ab.Repository, where: str) -> list[int]:
    schema = repo.schema_show().to_dict()
    schema["tables"]["in_c_sales"]["items"]["columns"]["found"] = {"type": "bool", "default": where}
    repo.schema_apply(schema)
    return _ids(_table(repo).to_arrow(where="found"))


def _exported(repo: ab.Repository, where: str) -> list[int]:
    target = f"{repo.uri}-export.json"
    repo.export(KEY, target, columns=["id"], where=where, overwrite=True)
    return [json.loads(line)["id"] for line in Path(target).read_text().splitlines()]


def _moved(repo: ab.Repository, where: str) -> list[int]:
    """All three rows are in one fragment, which moves if all of them match."""
    dataset = _dataset(repo)
    if not dataset.base_list():
        dataset.base_add(f"{repo.uri}-cold", name="cold")
    report = dataset.move_fragments(to="cold", where=where)
    return [1, 2, 3] if report.moved else [0] * len(report.partly_matching)


READERS: dict[str, Callable[[ab.Repository, str], list[int]]] = {
    "to_arrow": lambda repo, where: _ids(_table(repo).to_arrow(where=where)),
    "to_arrow with limit": lambda repo, where: _ids(_table(repo).to_arrow(columns=["id"], where=where, limit=9)),
    "to_pandas": lambda repo, where: sorted(_table(repo).to_pandas(where=where)["id"].tolist()),
    "to_polars": lambda repo, where: sorted(_table(repo).to_polars(where=where)["id"].to_list()),
    "scan": lambda repo, where: _ids(pa.Table.from_batches(_table(repo).scan(columns=["id"], where=where))),
    "nearest": lambda repo, where: _ids(_table(repo).nearest("vector", [0.0, 0.0], where=where)),
    "export": _exported,
    "dataset.to_arrow": lambda repo, where: _ids(_dataset(repo).to_arrow(where=where)),
}
WRITERS: dict[str, Callable[[ab.Repository, str], list[int]]] = {
    "delete": _left_after_delete,
    "update where": _updated,
    "update assignment": _assigned,
    "add_columns": _added,
    "default": _default,
}
COUNTERS: dict[str, Callable[[ab.Repository, str], int]] = {
    "count_rows": lambda repo, where: _table(repo).count_rows(where),
    "dataset.count_rows": lambda repo, where: int(_dataset(repo).count_rows(where)),
    "move_fragments": lambda repo, where: len(_moved(repo, where)),
}

FOUND: list[tuple[str, list[int]]] = [
    ("\"v\" <> 'abc'", [2]),
    ('"v" = \'abc\' /* "nope" */ -- "nope"', [1]),
    ('"s"."N" = 2', [2]),
    ("v = 'abc' OR v = '\"nope\"'", [1]),
    *((f'"{name.replace(chr(34), chr(34) * 2)}" = 3', [3]) for name in ODD),
]
UNKNOWN: list[tuple[str, str]] = [
    ('"nope" IS NOT NULL', "nope"),
    ('v <> "abc"', "abc"),
    ("\"V\" <> 'abc'", "V"),
    ("'a' = 'a' AND \"it's \" = 1", "it's "),
    ("nope IS NULL", "nope"),
    ('"s.N" = 1', "s.N"),
]


def test_every_entry_point_reads_quoted_columns(items: ab.Repository) -> None:
    for name, read in READERS.items():
        for where, ids in FOUND:
            assert read(items, where) == ids, (name, where)
    for name, count in COUNTERS.items():
        if name != "move_fragments":
            assert {where: count(items, where) for where, _ in FOUND} == {where: len(ids) for where, ids in FOUND}, name
    assert _moved(items, "\"v\" <> 'abc'") == [0]


@pytest.mark.parametrize("entry", WRITERS)
def test_every_write_reads_quoted_columns(items: ab.Repository, entry: str) -> None:
    assert WRITERS[entry](items, "\"v\" <> 'abc'") == [2]


@pytest.mark.parametrize("entry", [*READERS, *WRITERS, *COUNTERS])
def test_every_entry_point_refuses_an_unknown_column(items: ab.Repository, entry: str) -> None:
    call = {**READERS, **WRITERS, **COUNTERS}[entry]
    before = items.head_commit_id_for_branch("main")
    for where, column in UNKNOWN:
        with pytest.raises(AnabranchError) as caught:
            call(items, where)
        assert f"there is no column {column!r}" in str(caught.value), (where, str(caught.value))
        assert "Größe" in caught.value.hint
    assert items.head_commit_id_for_branch("main") == before
    assert _table(items).count_rows() == 3


@pytest.mark.parametrize("entry", ["to_arrow", "count_rows", "delete", "update where"])
def test_an_empty_table_refuses_an_unknown_column_too(items: ab.Repository, entry: str) -> None:
    with items.transaction() as tx:
        tx.delete(KEY, "true")
    with pytest.raises(InvalidExpressionError, match="there is no column 'nope'"):
        {**READERS, **WRITERS, **COUNTERS}[entry](items, '"nope" = 1')


def test_the_error_suggests_a_column(items: ab.Repository) -> None:
    suggested = {
        '"odd nam" = 1': "did you mean 'odd name'? the columns are id, v, s",
        '"vectr" IS NULL': "did you mean 'vector'? the columns are id, v, s",
        "\"V\" = 'abc'": "did you mean 'v'? the columns are id, v, s",
        'v = "some text"': 'write text in single quotes, "some text" is a column; the columns are id, v, s',
    }
    for where, hint in suggested.items():
        with pytest.raises(InvalidExpressionError) as caught:
            _table(items).to_arrow(where=where)
        assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("where", ['"" = v', "id = ?", "id = $1", "id = :x", "v = N'abc'", '"v = 1', "v = $$abc$$"])
@pytest.mark.parametrize("entry", ["to_arrow", "delete", "add_columns"])
def test_what_lance_cannot_read_is_an_invalid_expression(items: ab.Repository, entry: str, where: str) -> None:
    with pytest.raises(InvalidExpressionError):
        {**READERS, **WRITERS}[entry](items, where)


def test_recorded_default_that_took_a_name_for_text_is_refused(items: ab.Repository) -> None:
    """An older version recorded `"new"` as text. Null instead of it would be a silent change."""
    with items.transaction() as tx:
        tx.add_columns(KEY, pa.schema([pa.field("state", pa.string(), metadata={DEFAULT: '"new"'})]))
    refused = pytest.raises(InvalidExpressionError, match="the default '\"new\"' of column 'state' names a column")
    with refused, items.transaction() as tx:
        tx.append(KEY, pa.table({"id": [4], "v": ["y"]}))
    assert _table(items).count_rows() == 3


NAMES = st.text(st.characters(codec="utf-8", exclude_characters=".`\0"), min_size=1, max_size=6) | st.sampled_from(
    ["select", "FROM", "true", "null", "a b", '"', '""', "'", "--", "/*", "*/", ")", "(", "é", "Ω", "日本"]
)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6) | st.sampled_from(
    ['"', "'", "`", '"id"', "--", "/* */", "\\", "%", ")"]
)


@given(
    name=NAMES.filter(lambda name: name.casefold() not in {"id", "_rowid", "_rowaddr", "_rowoffset"}),
    values=st.lists(st.none() | VALUES, min_size=1, max_size=5),
    wanted=VALUES,
)
def test_any_quoted_name_selects_what_python_selects(
    tmp_path_factory: pytest.TempPathFactory, name: str, values: list[str | None], wanted: str
) -> None:
    values = [*values, wanted]
    data = pa.table({"id": range(len(values)), name: pa.array(values, pa.string())})
    uri = str(tmp_path_factory.mktemp("names") / "t.lance")
    lance.write_dataset(data, uri)
    dataset = ab.dataset(uri)
    quoted = '"' + name.replace('"', '""') + '"'
    text = "'" + wanted.replace("'", "''") + "'"
    for predicate, expected in (
        (f"{quoted} = {text}", [value == wanted for value in values]),
        (f"{text} <> {quoted}", [value is not None and value != wanted for value in values]),
        (f"{quoted} IS NULL", [value is None for value in values]),
    ):
        found = dataset.to_arrow(columns=["id"], where=predicate).column("id").to_pylist()
        assert found == [number for number, is_found in enumerate(expected) if is_found], predicate


@given(st.text(st.sampled_from(list("\"'`ab-/*\n ()=1\\")), max_size=24))
def test_translating_twice_changes_nothing(text: str) -> None:
    try:
        once = to_lance_dialect(text)
    except InvalidExpressionError:
        return
    assert to_lance_dialect(once) == once


# Filters that the code itself builds, from backquoted columns and literals. None of them contains text of a user.
BUILT = {
    ("compare/row_by_key.py", "known"),
    ("compare/row_by_key.py", "filter_"),
    ("staging/columns.py", "f'{path} IS NULL'"),
}
READS = {"scanner", "to_table", "to_batches", "count_rows", "delete", "update", "merge_columns", "add_columns", "take"}


def test_no_text_reaches_lance_untranslated() -> None:
    """Every filter and every computed column in the format layer comes out of `enclosed`."""
    found = set()
    for path in sorted((SOURCES / "format").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in READS):
                continue
            for keyword in call.keywords:
                if keyword.arg == "filter" and not _is_translated(keyword.value):
                    found.add((str(path.relative_to(SOURCES / "format")), ast.unparse(keyword.value)))
    passed_on = {item for item in found if item[1] in {"filter", "condition"}}
    assert found - passed_on == BUILT
    # These hand the text to a function of the format layer, or have translated it before.
    assert {path for path, _ in passed_on} == {"scan.py"}


def _is_translated(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_translated(value.body) and _is_translated(value.orelse)
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in {"enclosed", "_enclosed"}
    return isinstance(value, ast.Constant) and value.value is None
