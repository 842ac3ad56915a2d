"""Texts of a repository from elsewhere cannot steer the terminal."""

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import Run

ODD = "in_c_sales.odd"
ESCAPE = "\x1b]0;title\x07\x1b[2J\u202e"


@pytest.fixture
def odd(lake: ab.Repository) -> ab.Repository:
    column = f"[bold]{ESCAPE}"
    with lake.transaction(message=f"first {ESCAPE}", metadata={"note": ESCAPE}) as tx:
        tx.create_table(ODD, pa.schema([(column, pa.string())]))
        tx.append(ODD, pa.table({column: [ESCAPE]}))
    return lake


@pytest.mark.parametrize(
    "command",
    [
        ("cat", ODD),
        ("cat", ODD, "--json"),
        ("log",),
        ("log", "--json"),
        ("show",),
        ("table", "show", ODD),
        ("sql", "select * from in_c_sales.odd"),
    ],
    ids=" ".join,
)
def test_control_characters_of_a_repository_are_escaped(cli: Run, odd: ab.Repository, command: tuple[str, ...]) -> None:
    ran = cli(*command)
    assert ran.code == 0, ran
    assert {c for c in ran.out + ran.err if not c.isprintable()} <= {"\n"}


def test_markup_in_a_column_name_is_text(cli: Run, odd: ab.Repository) -> None:
    assert "[bold]" in cli("cat", ODD).out
