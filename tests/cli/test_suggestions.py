"""Unknown names on the command line: the hint names the one that was probably meant."""

import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, Run

TYPO = "in_c_sales.ordesr"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["cat", TYPO], ORDERS),
        (["table", "show", TYPO], ORDERS),
        (["log", "--table", "x.y", "developmnet"], "development"),
        (["branch", "show", "developmnet"], "development"),
        (["cat", ORDERS, "--ref", "developmnet"], "development"),
        (["switch", "developmnet"], "development"),
        (["tag", "show", "relaese-1"], "release-1"),
        (["diff", "main", "relaese-1"], "release-1"),
        (["sql", f"FROM {TYPO}"], ORDERS),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else part,
)
def test_an_unknown_name_gets_a_suggestion(cli: Run, lake: ab.Repository, words: list[str], meant: str) -> None:
    lake.branch_create("development")
    lake.tag_create("release-1")
    error = cli(*words, "--json").error
    assert error["code"].endswith("_not_found")
    assert f"did you mean '{meant}'?" in error["hint"]


def test_a_deleted_current_branch_can_be_restored(cli: Run, lake: ab.Repository) -> None:
    """Opening the repository does not fail, though `ab.open` would."""
    lake.branch_create("mine")
    assert cli("switch", "mine").code == 0
    lake.branch_delete("mine")
    assert "was deleted, and it is the current branch of this folder" in cli("status").err
    assert cli("branch", "restore", "mine").code == 0
    assert cli("status").code == 0
