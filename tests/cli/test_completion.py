"""`anabranch completion`, and what a shell completes with it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run
from tests.cli.test_start import HEAVY

Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(run: Run) -> Complete:
    """Answer as to bash, which completes the last word of a line."""

    def complete(line: str) -> list[str]:
        env = {"_ANABRANCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        answer = run(env=env)
        assert (answer.code, answer.err) == (0, "")
        return answer.out.split()

    return complete


@pytest.fixture
def tagged(lake: ab.Repository) -> ab.Repository:
    """A lake with two branches, a deleted one, a tag and two tables."""
    lake.tag_create("v1.0")
    lake.branch_create("old")
    lake.branch_delete("old")
    return lake


@pytest.mark.usefixtures("tagged")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("anabranch sw", ["switch"]),
        ("anabranch branch d", ["delete", "drift"]),
        ("anabranch log --gr", ["--graph"]),
        ("anabranch switch ", ["dev", "main"]),
        ("anabranch status --branch d", ["dev"]),
        ("anabranch branch restore ", ["old"]),
        ("anabranch tag show ", ["v1.0"]),
        ("anabranch merge ", ["dev", "main", "v1.0"]),
        ("anabranch diff main...", ["main...dev", "main...main", "main...v1.0"]),
        ("anabranch cat ", [CUSTOMERS, ORDERS]),
        ("anabranch log --table in_c_sales.o", [ORDERS]),
        ("anabranch export --ref dev ", [ORDERS]),
        (f"anabranch cat {ORDERS} --columns ", ["id", "item", "price"]),
        (f"anabranch cat {ORDERS} --columns id,pr", ["id,price"]),
        (f"anabranch index {CUSTOMERS} ", ["name"]),
        ("anabranch merge dev --strategy s", ["source"]),
        ("anabranch completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_commands_and_names_are_completed(complete: Complete, line: str, found: list[str]) -> None:
    assert complete(line) == found


@pytest.mark.usefixtures("tagged")
@pytest.mark.parametrize(
    "line",
    ["anabranch cat x.y --columns ", f"anabranch load {ORDERS} ", "anabranch log --repo nowhere ", "anabranch sq x"],
)
def test_nothing_is_printed_where_there_is_nothing_to_complete(complete: Complete, line: str) -> None:
    assert complete(line) == []


def test_no_repository_completes_no_names(complete: Complete) -> None:
    assert complete("anabranch switch ") == []
    assert complete("anabranch swi") == ["switch"]


@pytest.mark.usefixtures("tagged")
def test_zsh_and_fish_get_their_forms(run: Run) -> None:
    typed = {"_TYPER_COMPLETE_ARGS": "anabranch switch ", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert run(env={**typed, "_ANABRANCH_COMPLETE": "complete_fish"}).out == "dev\nmain\n"
    assert run(env={**typed, "_ANABRANCH_COMPLETE": "complete_zsh"}).out == '_arguments \'*: :(("dev"\n"main"))\'\n'


def test_scripts_are_printed_and_installed(run: Run, tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = run("completion", shell).out
        assert f"_ANABRANCH_COMPLETE=complete_{shell}" in script
        document = run("completion", shell, "--install", "--json", env={"HOME": str(tmp_path)}).document
        assert document["shell"] == shell
        assert Path(document["path"]).is_relative_to(tmp_path)
        assert Path(document["path"]).read_text().strip() == script.strip()
    assert "anabranch.sh" in (tmp_path / ".bashrc").read_text()


def test_installation_names_the_files_that_it_changed(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("alias ll='ls -l'\n")
    first, again = (run("completion", "bash", "--install", env={"HOME": str(tmp_path)}).out for _ in range(2))
    script = tmp_path / ".bash_completions" / "anabranch.sh"
    line = f"source '{script}'"
    assert first.splitlines() == [
        f"installed the completion for bash in {script}; open a new shell to use it",
        f"added to {tmp_path / '.bashrc'}:",
        f"  {line}",
        f"to undo it, delete {script} and remove this line from {tmp_path / '.bashrc'}",
    ]
    assert line in (tmp_path / ".bashrc").read_text().splitlines()
    # The line is there already, so that nothing is added.
    assert again.splitlines()[1:] == [f"to undo it, delete {script}"]


def test_completion_for_an_unknown_shell(run: Run) -> None:
    error = run("completion", "fihs", "--json").error
    assert error["message"] == "there is no completion for the shell 'fihs'"
    assert error["hint"] == "did you mean 'fish'? use one of bash, zsh, fish"


@pytest.mark.usefixtures("tagged")
def test_bash_completes_by_the_script_and_loads_no_lance(run: Run) -> None:
    # As the shell calls it for `anabranch cat in_c_sales.orders -c <Tab>`, with a program that reports what it loaded.
    program = f"""
import atexit, sys
atexit.register(lambda: print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr))
from anabranch.cli.main import main
main()
"""
    Path("anabranch").write_text(f"#!{sys.executable}{program}")
    Path("anabranch").chmod(0o755)
    line = f"""{run("completion", "bash").out}
COMP_WORDS=(./anabranch cat {ORDERS} -c "")
COMP_CWORD=4
_anabranch_completion ./anabranch
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p anabranch
"""
    answer = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    *columns, registered = answer.stdout.splitlines()
    assert columns == ["id", "item", "price"]
    assert registered == "complete -o default -F _anabranch_completion anabranch"
    assert answer.stderr == "[]\n"
