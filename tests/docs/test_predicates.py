"""docs/predicates.md: every form that it promises works through the public API, and every other one is refused."""

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidExpressionError
from anabranch.repo.snapshot import Table
from anabranch.server.client_values import FUNCTIONS, checked_filter

PAGE = (Path(__file__).parents[2] / "docs" / "predicates.md").read_text()
KEY = "docs.rows"
_SQL = re.compile(r"`([^`]+)`")


def _rows(section: str) -> list[list[str]]:
    """The cells of all tables in a section, without their headers."""
    text = PAGE.split(f"## {section}")[1].split("\n## ")[0]
    found = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip().replace("\\|", "|") for cell in row] for row in found]
    return [
        row
        for row, after in zip(cells, [*cells[1:], [""]], strict=True)
        if not row[0].startswith("---") and not after[0].startswith("---")
    ]


def _promised() -> list[tuple[str, list[int]]]:
    promised: list[tuple[str, list[int]]] = []
    for forms, found in [row for row in _rows("What is supported") if len(row) == 2]:
        predicates = _SQL.findall(forms)
        ids = [[int(number) for number in part.split(",") if number.strip()] for part in found.split(";")]
        promised += zip(predicates, ids, strict=True)
    return promised


PROMISED = _promised()
REFUSED = [(_SQL.findall(bad)[0], _SQL.findall(good)) for bad, good in _rows("What is not supported")]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    repo = ab.init(str(tmp_path_factory.mktemp("predicates") / "lake"), actor="ada")
    days = [dt.date(2026, 1, 1), dt.date(2026, 2, 1), dt.date(2027, 1, 1)]
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("amount", pa.float64()),
            ("price", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("ok", pa.bool_()),
            ("tags", pa.list_(pa.string())),
            ("address", pa.struct([("city", pa.string())])),
            ("odd name", pa.int64()),
            ("doc", pa.json_()),
            ("raw", pa.binary()),
        ]
    )
    columns = [
        [1, 2, 3],
        ["Ada", " bob ", None],
        [1.5, 2.5, -0.5],
        [Decimal("1.50"), Decimal("20.00"), None],
        days,
        [dt.datetime(day.year, day.month, day.day, 10, tzinfo=dt.UTC) for day in days],
        [True, False, None],
        [["a", "b"], ["c"], []],
        [{"city": "Brno"}, {"city": "Oslo"}, {"city": None}],
        [1, 2, 3],
        ['{"n": 1}', '{"n": 2}', None],
        [b"a", b"b", b"c"],
    ]
    with repo.transaction() as tx:
        tx.create_table(KEY, schema, primary_key=["id"])
        tx.append(KEY, pa.table([pa.array(v, f.type) for v, f in zip(columns, schema, strict=True)], schema=schema))
    return repo.snapshot()[KEY]


@pytest.mark.parametrize(("predicate", "ids"), PROMISED, ids=[predicate for predicate, _ in PROMISED])
def test_promised_predicate_finds_its_rows(table: Table, predicate: str, ids: list[int]) -> None:
    assert table.to_arrow(columns=["id"], where=predicate).column("id").to_pylist() == ids
    assert table.to_arrow(columns=["id"], where=checked_filter(predicate)).num_rows == len(ids)


@pytest.mark.parametrize(("predicate", "instead"), REFUSED, ids=[predicate for predicate, _ in REFUSED])
def test_unsupported_predicate_is_refused(table: Table, predicate: str, instead: list[str]) -> None:
    with pytest.raises(InvalidExpressionError):
        table.to_arrow(where=predicate)
    for text in instead:
        if text.endswith(("'", ")", "1", "2")) and not text.startswith("repo."):
            table.to_arrow(where=text)


@pytest.mark.parametrize(
    ("predicate", "instead"),
    [
        ("day = '2026-01-01'", "write DATE '2026-01-01'"),
        ("at > '2026-01-01T10:00:00Z'", "write TIMESTAMP '2026-01-01T10:00:00Z'"),
        ("id = 'x'", "write a value of the column's type"),
    ],
)
def test_hint_names_what_to_write_instead_of_text(table: Table, predicate: str, instead: str) -> None:
    with pytest.raises(InvalidExpressionError) as error:
        table.to_arrow(where=predicate)
    assert instead in error.value.hint


def test_every_function_allowed_over_http_is_shown() -> None:
    shown = {name.lower() for predicate, _ in PROMISED for name in re.findall(r"\w+", predicate)}
    assert shown >= FUNCTIONS
