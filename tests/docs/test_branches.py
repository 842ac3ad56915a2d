"""The page about branches is followed as it stands."""

from pathlib import Path

import pyarrow as pa

import anabranch as ab
from tests.docs.pages import ROOT, Reader, read_blocks

PAGE = ROOT / "docs" / "branches.md"


def test_it_works_as_written(shop: ab.Repository, tmp_path: Path) -> None:
    blocks = read_blocks(PAGE)
    assert all(block.shown for block in blocks)
    assert Reader(folder=tmp_path, names={"repo": shop, "pa": pa}).follow(PAGE, blocks) == 6
