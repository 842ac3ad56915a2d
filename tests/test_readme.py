"""The README and the tour are followed as written, in an empty folder: Python, commands, and the output they show."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT, Reader, read_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README, TOUR = ROOT / "README.md", ROOT / "docs" / "tour.md"


def test_example_of_the_readme_works_as_written(tmp_path: Path) -> None:
    example, commands = [block for block in read_blocks(README) if block.language in {"python", "console"}]
    assert len(example.text.splitlines()) <= 20
    assert Reader(folder=tmp_path).follow(README, [example, commands]) == 5


def test_tour_works_as_written(tmp_path: Path) -> None:
    blocks = [block for block in read_blocks(TOUR) if block.needs is None]
    assert sum(block.language == "python" and block.shown is not None for block in blocks) > 8
    done = Reader(folder=tmp_path, env={"ANABRANCH_ACTOR": "ada"}).follow(TOUR, blocks)
    assert done > 15


@pytest.mark.spark
def test_spark_sql_of_the_tour_works_as_written(tmp_path: Path, spark: "SparkSession") -> None:
    blocks = [block for block in read_blocks(TOUR) if block.needs == "spark"]
    assert Reader(folder=tmp_path, env={}).follow(TOUR, blocks) == 1


def test_badges_match_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = README.read_text(encoding="utf-8")
    python = project["requires-python"].removeprefix(">=")
    assert f"![License: {project['license']}]" in text
    assert f"![Python: {python} or newer]" in text
    assert project["version"].startswith("0.") == ("![Status: new, before 1.0]" in text)
    shown = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "img" / "badges").glob("*.svg")}
    assert f">{project['license']}<" in shown["license"]
    assert f">{python}+<" in shown["python"]


def test_readme_starts_with_exactly_two_commands() -> None:
    section = README.read_text(encoding="utf-8").split("## Start\n")[1].split("```")[1]
    assert [line.split("#")[0].strip() for line in section.strip().splitlines()] == ["make demo", "make test"]
