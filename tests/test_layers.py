"""The layers: a wrong import fails the check, and nothing heavy is loaded before it is needed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
HEAVY = {"duckdb", "fastapi", "lance", "numpy", "obstore", "pyarrow", "pyspark"}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The package and its contracts, to break."""
    shutil.copytree(PROJECT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    return tmp_path


def check_layers(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    environment = {"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_package_keeps_its_layers(copied: Path) -> None:
    answer = check_layers(copied)
    assert answer.returncode == 0, answer.stdout
    assert "0 broken" in answer.stdout


WRONG = [
    ("cli.main", "import lance", "Only the format layer imports lance"),
    ("storage.store", "import lance", "Only the format layer imports lance"),
    ("ids", "from lance import dataset", "Only the format layer imports lance"),
    ("spark.reader", "import lance", "Only the format layer imports lance"),
    ("format.home", "import obstore", "Only the storage layer imports obstore"),
    ("cli.main", "from obstore.store import LocalStore", "Only the storage layer imports obstore"),
    ("format.home", "import rich", "Only the command line talks to the terminal"),
    ("storage.store", "import typer", "Only the command line talks to the terminal"),
    ("repo.draft", "import pyspark", "Only the Spark layer imports pyspark"),
    ("repo.draft", "from anabranch.spark.types import shown_schema", "Imports go downwards only"),
    ("storage.store", "from anabranch.format.home import Home", "Imports go downwards only"),
    ("errors", "import anabranch.ids", "Imports go downwards only"),
    ("format.home", "from anabranch.cli import main", "Imports go downwards only"),
]


def test_every_wrong_import_breaks_the_check(copied: Path) -> None:
    for module, line, _ in WRONG:
        file = copied / "src" / "anabranch" / f"{module.replace('.', '/')}.py"
        file.write_text(f"{file.read_text()}\n{line}\n")
    answer = check_layers(copied)
    assert answer.returncode != 0
    _, told = answer.stdout.split("Broken contracts\n")
    for module, line, contract in WRONG:
        assert f"{contract} BROKEN" in answer.stdout
        _, _, broken = told.partition(f"{contract}\n{'-' * len(contract)}\n")
        imported = line.split()[1]
        imported = imported if imported.startswith("anabranch.") else imported.partition(".")[0]
        assert f"anabranch.{module} -> {imported}" in broken.split("\n---")[0], (module, line)


@pytest.mark.parametrize(
    "code",
    [
        "import anabranch",
        "import anabranch.errors, anabranch.ids",
        "import anabranch.cli.main",
        "import anabranch.cli.main as m; m.main(['--help'])",
        "import anabranch.cli.main as m; m.main(['--version'])",
        "import anabranch.cli.main as m; m.main(['dataset', 'branch', 'create', '--help'])",
        "import anabranch.cli.main as m; m.main(['log', '--help'])",
        "import anabranch.cli.main as m; m.main(['cat', '--help'])",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str) -> None:
    script = f"""
import atexit, sys
atexit.register(lambda: print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr))
{code}
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stderr.splitlines()[-1] == "[]"
