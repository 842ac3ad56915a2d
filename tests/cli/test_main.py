"""The command as a whole: help, errors, exit codes, and what goes to stdout and what to stderr."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
import typer
from typer.core import TyperCommand, TyperGroup

import anabranch
from anabranch import errors
from anabranch.cli.main import INSTEAD, create_app
from anabranch.cli.output import EXIT_CODES, exit_code
from anabranch.errors import AnabranchError
from tests.cli.conftest import Run

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
SECRET = "love-lace"  # noqa: S105
UNREACHABLE = [
    "aws_endpoint=http://127.0.0.1:9",
    "aws_access_key_id=ada-lovelace-id",
    f"aws_secret_access_key={SECRET}",
    "aws_region=us-east-1",
    "allow_http=true",
    "client_max_retries=0",
]


def commands() -> Iterator[tuple[str, TyperCommand]]:
    """Every command with its full name."""

    def walk(group: TyperGroup, name: str) -> Iterator[tuple[str, TyperCommand]]:
        for part, command in group.commands.items():
            if isinstance(command, TyperGroup):
                yield from walk(command, f"{name} {part}")
            else:
                assert isinstance(command, TyperCommand)
                yield f"{name} {part}", command

    root = typer.main.get_command(create_app())
    assert isinstance(root, TyperGroup)
    return walk(root, "anabranch")


COMMANDS = dict(commands())


def in_a_process(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "anabranch.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_the_commands_are_these() -> None:
    of_a_dataset = [
        *("base add", "base list", "base remove"),
        *("branch create", "branch delete", "branch list", "branch metadata", "branch show"),
        *("cleanup", "clone create", "clone drop", "clone list", "clone release", "compact"),
        *("doctor", "layout", "move", "relocate", "report", "restore", "show", "versions"),
        *("tag create", "tag delete", "tag list", "tag metadata", "tag show", "tag update"),
    ]
    of_a_repository = [
        *("blame", "branch create", "branch delete", "branch drift", "branch freeze", "branch list", "branch protect"),
        *(
            "branch pull",
            "branch rename",
            "branch restore",
            "branch show",
            "cat",
            "changes",
            "cherry-pick",
            "clone create",
            "clone list",
            "clone release",
            "export",
            "load",
            "compact",
            "completion",
            "conflicts",
            "decisions",
            "demo",
            "diff",
            "doctor",
            "gc",
            "index",
            "init",
            "lineage",
            "log",
            "merge",
            "merge-base",
            "rebase",
            "redo",
            "reflog",
            "relocate",
            "reset",
            "revert",
            *("row insert", "row update", "row delete", "table create", "table drop", "table rename"),
            *("config list", "config get", "config set", "config unset", "help", "version"),
            "run abort",
            "pipeline backfill",
            "run list",
            "pipeline plan",
            "pipeline list",
            "pipeline run",
            "run show",
            "schema apply",
            "schema plan",
            "schema show",
            "serve",
            "show",
            "storage",
        ),
        *("sql", "status", "switch", "table adopt", "table history", "table list", "table settle", "table show"),
        *("tag create", "tag delete", "tag list", "tag show", "ui", "undo"),
    ]
    expected = [*of_a_repository, *(f"dataset {name}" for name in of_a_dataset)]
    assert sorted(COMMANDS) == sorted(f"anabranch {name}" for name in expected)


def test_the_help_groups_the_commands(run: Run) -> None:
    headings = [line for line in run().out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        *("Options:", "Start:", "Branches:", "History:"),
        *("Undo and redo:", "Tables:", "Pipelines:", "Maintenance:", "One Lance dataset:", "Help:"),
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(run: Run, name: str) -> None:
    answer = run(*name.split()[1:], "--help")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"Usage: {name} ")
    assert re.search(rf"^  Example:\n    {name}( |$)", answer.out, re.MULTILINE)
    assert "--json" in answer.out
    # These work in a local folder.
    local = {"completion", "config", "demo", "help", "serve", "version"}
    assert ("--storage-option" in answer.out) is (name.split()[1] not in local)


@pytest.mark.parametrize("group", sorted({name.rpartition(" ")[0] for name in COMMANDS}))
def test_the_help_of_a_group_fits_80_columns(run: Run, group: str) -> None:
    usage, *lines = run(*group.split()[1:], "--help").out.splitlines()
    assert usage.startswith(f"Usage: {group} [OPTIONS] COMMAND")
    assert [line for line in lines if line.endswith("...") or len(line) > 80] == []


def test_the_reference_shows_the_exit_codes() -> None:
    text = DOCS.read_text()
    for group, code in EXIT_CODES.items():
        assert f"| {code} | `{group.__name__}`" in text


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    assert run().out == run("--help").out == run("-h").out
    assert "dataset" in run().out


def test_the_version_is_shown(run: Run) -> None:
    assert run("--version").out == f"anabranch {anabranch.__version__}\n"


@pytest.mark.parametrize(
    ("args", "problem", "command"),
    [
        (["nonsense"], "no such command 'nonsense'", "anabranch"),
        (["dataset", "branch", "creat"], "no such command 'creat'", "anabranch dataset branch"),
        (["dataset", "branch", "create", "x"], "missing argument 'BRANCH'", "anabranch dataset branch create"),
        (["dataset", "base", "add", "x", "y"], "missing option '--name'", "anabranch dataset base add"),
        (["dataset", "show", "x", "--nonsense"], "no such option: --nonsense", "anabranch dataset show"),
        (
            ["dataset", "move", "x", "--to", "y", "--fragment", "z"],
            "invalid value for '--fragment'",
            "anabranch dataset",
        ),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(run: Run, args: list[str], problem: str, command: str) -> None:
    answer = run(*args)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {problem}")
    assert f"\nhint: see '{command}" in answer.err
    error = run(*args, "--json").error
    assert (error["code"], error["retryable"]) == ("usage", False)
    assert error["message"].startswith(problem)


@pytest.mark.parametrize("word", [*INSTEAD])
def test_a_word_of_git_is_answered_with_what_to_use(run: Run, word: str) -> None:
    answer = run(word, "x", "--y")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"error: there is no command '{word}'\nhint: {INSTEAD[word]}\n"
    assert word not in {name.split()[1] for name in COMMANDS}
    for named in re.findall(r"'anabranch ([a-z -]+?)(?: [A-Z'-]|')", INSTEAD[word]):
        assert f"anabranch {named}" in COMMANDS, named


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["branch", "dev"], "use 'anabranch branch create dev'"),
        (["tag", "v1.0"], "use 'anabranch tag create v1.0'"),
        (["clone", "lake", "copy"], "use 'anabranch clone create lake copy'"),
        (["branch", "dev", "-o", f"key={SECRET}"], "use 'anabranch branch create dev -o key=...'"),
        (["branch", "dev", f"-okey={SECRET}="], "use 'anabranch branch create dev -okey=...'"),
        (
            ["table", "a.b", f"--storage-option=key={SECRET}", "--x=y", "--storage-option", f"k={SECRET}\n{SECRET}"],
            "use 'anabranch table show a.b --storage-option=key=... --x=y --storage-option k=...'",
        ),
    ],
)
def test_a_group_names_the_command_that_was_left_out(run: Run, args: list[str], hint: str) -> None:
    answer = run(*args)
    assert answer.code == 2
    assert f"hint: {hint}, or see 'anabranch {args[0]} --help'" in answer.err


@pytest.mark.parametrize("group", ["branch", "tag", "table", "clone", "run", "pipeline"])
def test_a_group_alone_lists(run: Run, lake: anabranch.Repository, group: str) -> None:
    assert lake.branch == "main"
    assert run(group).out == run(group, "list").out
    assert run(group, "--json").document == run(group, "list", "--json").document


def test_a_group_asks_for_its_command(run: Run) -> None:
    answer = run("dataset")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "error: missing command\nhint: see 'anabranch dataset --help'\n"


def test_every_error_has_the_exit_code_of_its_group() -> None:
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, AnabranchError)]
    assert {cls.__name__: exit_code(cls) for cls in classes if cls.__base__ in {Exception, AnabranchError}} == {
        "AnabranchError": 1,
        "InvalidInputError": 2,
        "NotFoundError": 3,
        "ConflictError": 4,
        "BusyError": 5,
        "StorageError": 6,
        "CorruptError": 7,
        "AccessError": 1,
        "LimitError": 1,
        "MissingDependencyError": 1,
        "StepFailedError": 1,
    }
    for cls in classes:
        assert exit_code(cls) == next(code for group, code in EXIT_CODES.items() if issubclass(cls, group))


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["dataset", "show", ""], "invalid_path", 2),
        (["dataset", "show", "memory://x"], "invalid_path", 2),
        (["dataset", "show", "/no/such/place"], "dataset_not_found", 3),
        (["dataset", "branch", "show", "{table}", "dev"], "branch_not_found", 3),
        (["dataset", "branch", "create", "{table}", "a//b"], "invalid_name", 2),
        (["dataset", "branch", "create", "{table}", "ветка"], "invalid_name", 2),
        (["dataset", "branch", "create", "{table}", "dev", "--from", "main~3"], "invalid_input", 2),
        (["dataset", "branch", "create", "{table}", "dev", "--from", "99"], "version_not_found", 3),
        (["dataset", "tag", "show", "{table}", "v1"], "tag_not_found", 3),
        (["dataset", "move", "{table}", "--to", "cold", "--fragment", "0"], "base_not_found", 3),
        (["dataset", "clone", "create", "{table}", "{table}"], "invalid_path", 2),
        (["status"], "repository_not_found", 3),
        (["init", ""], "invalid_path", 2),
        (["log", "--repo", "/no/such/place"], "repository_not_found", 3),
        (["log", "--graph", "--table", "a.b"], "invalid_input", 2),
        (["cat", "a.b", "--repo", ""], "invalid_path", 2),
    ],
)
def test_errors_name_themselves_and_choose_the_exit_code(
    run: Run, tmp_path: Path, args: list[str], code: str, exit_code: int
) -> None:
    table = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1]}), table)
    filled = [arg.replace("{table}", table) for arg in args]
    error = run(*filled, "--json").error
    assert error["code"] == code
    answer = run(*filled)
    assert (answer.code, answer.out) == (exit_code, "")
    assert answer.err == f"error: {error['message']}\nhint: {error['hint']}\n"


def test_an_unreachable_store_is_worth_another_try(run: Run) -> None:
    options = [part for option in UNREACHABLE for part in ("-o", option)]
    error = run("dataset", "layout", "s3://lake/t.lance", *options, "--json").error
    assert (error["code"], error["retryable"]) == ("storage_unavailable", True)
    assert SECRET not in json.dumps(error)
    assert run("dataset", "layout", "s3://lake/t.lance", *options).code == 6


def test_storage_options_come_from_the_environment_too(run: Run) -> None:
    variables = {"ANABRANCH_STORAGE_OPTIONS": " ".join(UNREACHABLE)}
    answer = run("dataset", "layout", "s3://lake/t.lance", env=variables)
    assert answer.code == 6
    assert "127.0.0.1:9" in answer.err
    assert SECRET not in answer.err
    assert SECRET not in run("dataset", "layout", "--help", env=variables).out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["aws_region=x", SECRET], "--storage-option number 2 is not of the form KEY=VALUE"),
        ([f"={SECRET}"], "--storage-option number 1 is not of the form KEY=VALUE"),
        (["a=1", f"a={SECRET}"], "--storage-option gives 'a' twice"),
    ],
)
def test_a_wrong_storage_option_is_refused_and_not_repeated(run: Run, options: list[str], problem: str) -> None:
    answer = run("dataset", "show", "x", *(part for option in options for part in ("-o", option)))
    assert answer.code == 2
    assert answer.err.startswith(f"error: {problem}\n")
    assert SECRET not in answer.err


def test_the_real_process_keeps_stdout_for_the_answer(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "t.lance"))
    answer = in_a_process("dataset", "show", "t.lance", "--json", cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads(answer.stdout)["rows"] == 1


def test_the_real_process_keeps_errors_for_stderr(tmp_path: Path) -> None:
    answer = in_a_process("dataset", "show", "t.lance", cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr == f"error: there is no Lance dataset at '{tmp_path}/t.lance'\nhint: check the path\n"


def test_the_installed_command_is_the_same() -> None:
    script = Path(sys.executable).parent / "anabranch"
    answer = subprocess.run([str(script), "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"anabranch {anabranch.__version__}\n"


def test_a_reader_who_leaves_early_causes_no_traceback(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "t.lance"))
    gone, stdout = os.pipe()
    os.close(gone)
    command = [sys.executable, "-m", "anabranch.cli.main", "dataset", "layout", "t.lance", "--json"]
    try:
        answer = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    finally:
        os.close(stdout)
    assert "Traceback" not in answer.stderr
