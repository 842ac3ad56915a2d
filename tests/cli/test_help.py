"""`anabranch help` and `anabranch version`."""

import anabranch
from anabranch.cli.output import EXIT_CODES, MEANINGS
from anabranch.ids import Ref
from tests.cli.conftest import Run


def test_help_is_that_of_the_command(run: Run) -> None:
    assert run("help").out == run("--help").out
    assert run("help", "merge").out == run("merge", "--help").out
    assert run("help", "branch", "create").out == run("branch", "create", "--help").out
    assert run("help", "nonsense").code == 2


def test_help_shows_a_default_without_the_range_of_the_number(run: Run) -> None:
    shown = " ".join(run("conflicts", "--help").out.split())
    assert "[default: 20]" in shown
    assert "x>=" not in shown + run("branch", "list", "--help").out


def test_exit_codes_are_one_table(run: Run) -> None:
    shown = run("help", "exit-codes").out.splitlines()[2:]
    assert [int(line.split()[0]) for line in shown] == [*MEANINGS]
    assert {*EXIT_CODES.values()} <= {*MEANINGS}


def test_refs_are_one_table_and_each_is_a_ref(run: Run) -> None:
    shown = run("help", "refs").out.splitlines()[2:]
    refs = [line.split()[0] for line in shown]
    assert [*run("help", "refs", "--json").document] == refs
    parsed = [Ref.parse(ref) for ref in refs]
    assert [(ref.name, bool(ref.steps), ref.version, ref.at is not None) for ref in parsed[-4:]] == [
        ("main", True, None, False),
        ("main", True, None, False),
        ("main", False, 7, False),
        ("main", False, None, True),
    ]


def test_version(run: Run) -> None:
    assert run("version", "--json").document["anabranch"] == anabranch.__version__
