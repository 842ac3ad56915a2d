"""The wheel has all that the package needs outside the source tree."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Reader, read_blocks

# Variables that can make another interpreter find this source tree or another repository.
VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "ANABRANCH_REPO")


def test_wheel_contains_the_package_and_nothing_else(tmp_path: Path) -> None:
    """Built without a Java compiler, which takes a second, the wheel lacks the jar of the Spark catalog only."""
    wheel = build_wheel(tmp_path, env={"PATH": "", "JAVA_HOME": ""})
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    source = ROOT / "src"
    files = {path for path in source.glob("*anabranch/**/*") if path.is_file()}
    wanted = {path.relative_to(source).as_posix() for path in files if path.suffix not in {".jar", ".pyc"}}
    information = {name for name in names if ".dist-info/" in name}
    assert {"anabranch/py.typed", "anabranch/__init__.py"} <= wanted
    assert names - information == wanted
    assert any(name.endswith("/licenses/LICENSE") for name in information)


def test_unpacked_wheel_works_without_the_source_tree(tmp_path: Path) -> None:
    """The bounded version of the test below: the other packages are those of this environment."""
    installed = tmp_path / "installed"
    with zipfile.ZipFile(build_wheel(tmp_path, env={"PATH": "", "JAVA_HOME": ""})) as packed:
        packed.extractall(installed)
    program = (
        "import anabranch as ab; repo = ab.init('lake'); repo.load('s.t', [{'id': 1}]);"
        "print(ab.__file__, repo['s.t'].count_rows())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert answer.stdout.split() == [str(installed / "anabranch/__init__.py"), "1"]


@pytest.mark.proof
def test_readme_and_tour_work_in_an_environment_that_has_the_wheel_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    wheel, environment = build_wheel(tmp_path, env=os.environ), tmp_path / "venv"
    with zipfile.ZipFile(wheel) as packed:
        has_jar = any(name.startswith("anabranch/spark/jars/") for name in packed.namelist())
    assert has_jar == (shutil.which("javac") is not None)
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "requirements.lock")]
    run(python, *install, f"{wheel}[server]", "pandas", folder=tmp_path)
    # Nothing of the source tree is on the path of the new environment.
    searched = run(python, "-c", "import sys, anabranch; print(anabranch.__file__, *sys.path)", folder=tmp_path)
    assert searched.startswith(str(environment))
    assert str(ROOT) not in searched
    for page in (ROOT / "README.md", ROOT / "docs" / "tour.md"):
        folder = tmp_path / page.stem
        folder.mkdir()
        blocks = [block for block in read_blocks(page) if block.language in {"python", "console"} and not block.needs]
        done = Reader(folder=folder, bin=python.parent, env={"ANABRANCH_ACTOR": "ada"}).follow(page, blocks)
        assert done >= {"README": 5, "tour": 16}[page.stem]


def build_wheel(folder: Path, *, env: "os._Environ[str] | dict[str, str]") -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, env=env, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def run(python: Path, *arguments: str, folder: Path) -> str:
    answer = subprocess.run([python, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout
