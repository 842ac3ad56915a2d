"""The layers: a wrong import fails the check, and nothing heavy is loaded before it is needed."""

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from anabranch.format import staging

PROJECT = Path(__file__).parent.parent
HEAVY = {"duckdb", "fastapi", "google.protobuf", "lance", "numpy", "obstore", "pyarrow", "pyspark"}


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


DOWNWARDS = "Imports go downwards only"
REPOSITORY = "Imports inside the repository go downwards only"
WRONG = [
    ("cli.main", "import lance", "Only the format layer imports lance"),
    ("storage.store", "import lance", "Only the format layer imports lance"),
    ("ids", "from lance import dataset", "Only the format layer imports lance"),
    ("spark.source", "import lance", "Only the format layer imports lance"),
    ("format.home", "import obstore", "Only the storage layer imports obstore"),
    ("cli.main", "from obstore.store import LocalStore", "Only the storage layer imports obstore"),
    ("format.home", "import rich", "Only the command line talks to the terminal"),
    ("storage.store", "import typer", "Only the command line talks to the terminal"),
    ("repo.snapshot", "import pyspark", "Only the Spark layer imports pyspark"),
    ("pipelines.plan", "if TYPE_CHECKING: from pyspark.sql import DataFrame", "Only the Spark layer imports pyspark"),
    ("repo.snapshot", "from anabranch.spark.types import shown_schema", DOWNWARDS),
    ("storage.store", "from anabranch.format.home import Home", DOWNWARDS),
    ("errors", "import anabranch.ids", DOWNWARDS),
    ("format.home", "from anabranch.cli import main", DOWNWARDS),
    ("format.home", "if TYPE_CHECKING: from anabranch.repo.snapshot import Snapshot", DOWNWARDS),
    ("repo.run", "from anabranch.repo.repository import Repository", REPOSITORY),
    ("repo.merge", "from anabranch.repo.run import Run", REPOSITORY),
    ("repo.merge", "import anabranch.repo.gc", REPOSITORY),
    ("repo.schema", "import anabranch.repo.io", REPOSITORY),
    ("repo.history", "import anabranch.repo.runs", REPOSITORY),
    ("repo.transaction", "if TYPE_CHECKING: from anabranch.repo.history.diff import Diff", REPOSITORY),
    ("repo.write", "from anabranch.repo.transaction import Transaction", REPOSITORY),
    ("repo.refs", "if TYPE_CHECKING: import anabranch.repo.write", REPOSITORY),
    ("repo.refs", "from anabranch.repo.snapshot import Snapshot", REPOSITORY),
    ("repo.log", "def find(): import anabranch.repo.refs", REPOSITORY),
    ("repo.log.leases", "import anabranch.repo.refs", REPOSITORY),
]


def test_every_wrong_import_breaks_the_check(copied: Path) -> None:
    for module, line, _ in WRONG:
        path = copied / "src" / "anabranch" / module.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        file.write_text(f"{file.read_text()}\n{line}\n")
    answer = check_layers(copied)
    assert answer.returncode != 0
    _, broken_contracts = answer.stdout.split("Broken contracts\n")
    for module, line, contract in WRONG:
        assert f"{contract} BROKEN" in answer.stdout
        _, _, broken = broken_contracts.partition(f"{contract}\n{'-' * len(contract)}\n")
        _, _, imported = re.split(r"\b(from|import) ", line, maxsplit=1)
        imported = imported.split()[0]
        imported = imported if imported.startswith("anabranch.") else imported.partition(".")[0]
        assert f"anabranch.{module} -> {imported}" in broken.split("\n---")[0], (module, line)


def test_new_folder_of_the_repository_needs_a_layer(copied: Path) -> None:
    (copied / "src" / "anabranch" / "repo" / "attic.py").write_text('"""A module without a layer."""\n')
    answer = check_layers(copied)
    assert answer.returncode != 0
    assert "attic" in answer.stdout.split("Broken contracts\n")[1]


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


@pytest.mark.parametrize("module", staging._MODULES)
def test_every_name_of_a_package_that_loads_them_later_is_that_of_its_module(module: str) -> None:
    source = import_module(f"anabranch.format.staging.{module}")
    for name, value in vars(source).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == source.__name__:
            assert getattr(staging, name) is value, name


def test_package_that_loads_names_later_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        staging.missing  # noqa: B018 - the access raises
