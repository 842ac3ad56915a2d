"""The tutorial is followed as it stands: all of it but what needs more in one test, and each of those in its own."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT, Reader, read_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCKS = read_blocks(TUTORIAL)


def _reader(folder: Path, **env: str) -> Reader:
    return Reader(folder=folder, env={"ANABRANCH_ACTOR": "ada", **env})


def test_it_works_as_written(tmp_path: Path) -> None:
    done = _reader(tmp_path).follow(TUTORIAL, [block for block in BLOCKS if block.needs is None])
    assert done > 45


@pytest.mark.xdist_group("s3")
def test_it_works_on_s3(tmp_path: Path, s3_options: dict[str, str]) -> None:
    keys = {"ENDPOINT": "aws_endpoint", "KEY": "aws_access_key_id", "SECRET": "aws_secret_access_key"}
    reader = _reader(tmp_path, **{name: s3_options[option] for name, option in keys.items()})
    begin = [block for block in BLOCKS if block.section == BLOCKS[0].section]
    assert reader.follow(TUTORIAL, [*begin, *(block for block in BLOCKS if block.needs == "s3")]) > 10


@pytest.mark.spark
def test_its_pipeline_works_on_spark(tmp_path: Path, spark: "SparkSession") -> None:
    before = [block for block in BLOCKS if block.needs is None and block.section != "HTTP service"]
    reader = _reader(tmp_path)
    assert reader.follow(TUTORIAL, [*before, *(block for block in BLOCKS if block.needs == "spark")]) > 45


def test_every_block_is_a_command_or_is_a_file() -> None:
    assert {block.language for block in BLOCKS if block.title is None} == {"console", "python"}
    shown = [block for block in BLOCKS if block.language == "python" and "print(" in block.text and not block.title]
    assert all(block.shown for block in shown)
