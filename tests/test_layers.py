"""The layers: a wrong import fails the check, and nothing heavy is loaded before it is needed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
HEAVY = {"duckdb", "fastapi", "lance", "numpy", "obstore", "pyarrow", "pyspark"}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its contracts, to break."""
    folder = tmp_path_factory.mktemp("layers")
    shutil.copytree(PROJECT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", folder)
    return folder


def check_layers(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    environment = {"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_package_keeps_its_layers(copied: Path) -> None:
    answer = check_layers(copied)
    assert answer.returncode == 0, answer.stdout
    assert "0 broken" in answer.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("cli/main.py", "import lance", "Only the format layer imports lance"),
        ("storage/store.py", "import lance", "Only the format layer imports lance"),
        ("ids.py", "from lance import dataset", "Only the format layer imports lance"),
        ("format/home.py", "import obstore", "Only the storage layer imports obstore"),
        ("cli/main.py", "from obstore.store import LocalStore", "Only the storage layer imports obstore"),
        ("format/home.py", "import rich", "Only the command line talks to the terminal"),
        ("storage/store.py", "import typer", "Only the command line talks to the terminal"),
        ("repo/draft.py", "import pyspark", "Only the Spark layer imports pyspark"),
        ("spark/reader.py", "import lance", "Only the format layer imports lance"),
        ("repo/draft.py", "from anabranch.spark.types import shown_schema", "Imports go downwards only"),
        ("storage/store.py", "from anabranch.format.home import Home", "Imports go downwards only"),
        ("errors.py", "import anabranch.ids", "Imports go downwards only"),
        ("format/home.py", "from anabranch.cli import main", "Imports go downwards only"),
    ],
)
def test_a_wrong_import_breaks_the_check(copied: Path, module: str, line: str, contract: str) -> None:
    file = copied / "src" / "anabranch" / module
    before = file.read_text()
    try:
        file.write_text(f"{before}\n{line}\n")
        answer = check_layers(copied)
    finally:
        file.write_text(before)
    assert answer.returncode != 0
    assert f"{contract} BROKEN" in answer.stdout


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
