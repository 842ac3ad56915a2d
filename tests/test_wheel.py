"""The wheel has all that the package needs outside of the source tree."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent


@pytest.mark.proof
def test_the_wheel_works_without_the_source_tree(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=PROJECT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        packed.extractall(tmp_path / "installed")
    assert "anabranch/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.startswith("anabranch/spark/jars/") for name in names)
    program = (
        "import anabranch as ab; repo = ab.init('lake'); repo.load('s.t', [{'id': 1}]);"
        "print(ab.__file__, repo['s.t'].count_rows())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "installed"), "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == [str(tmp_path / "installed/anabranch/__init__.py"), "1"]
