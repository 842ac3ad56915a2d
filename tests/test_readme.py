"""The README is followed as it stands, in an empty folder: its Python, its commands, and the output it shows."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT, Reader, read_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README = ROOT / "README.md"


def test_the_tour_works_as_written(tmp_path: Path) -> None:
    blocks = [block for block in read_blocks(README) if block.needs is None]
    assert sum(block.language == "python" and block.shown is not None for block in blocks) > 8
    done = Reader(folder=tmp_path, env={"ANABRANCH_ACTOR": "ada"}).follow(README, blocks)
    assert done > 15


@pytest.mark.spark
def test_its_spark_sql_works_as_written(tmp_path: Path, spark: "SparkSession") -> None:
    blocks = [block for block in read_blocks(README) if block.needs == "spark"]
    assert Reader(folder=tmp_path, env={}).follow(README, blocks) == 1


def test_it_starts_with_exactly_two_commands() -> None:
    section = README.read_text(encoding="utf-8").split("## Two commands")[1].split("```")[1]
    assert [line.split("#")[0].strip() for line in section.strip().splitlines()] == ["make demo", "make test"]
