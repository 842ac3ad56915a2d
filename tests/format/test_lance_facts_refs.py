"""What Lance does with branches and refs, and why our own code does it instead."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest


@pytest.fixture
def plain(tmp_path: Path) -> lance.LanceDataset:
    return lance.write_dataset(pa.table({"id": [1, 2]}), str(tmp_path / "t.lance"))


def test_lance_removes_the_whole_dataset_with_the_last_branch_below_main(plain: lance.LanceDataset) -> None:
    plain.create_branch("dev")
    plain.create_branch("main/hotfix")
    plain.branches.delete("main/hotfix")
    assert not Path(plain.uri).exists()


def test_a_tag_with_other_letters_makes_lance_refuse_every_deletion(plain: lance.LanceDataset) -> None:
    plain.create_branch("dev")
    plain.tags.create("é", 1)
    assert (Path(plain.uri) / "_refs/tags/%C3%A9.json").exists()
    with pytest.raises(ValueError, match="%25C3%25A9"):
        plain.tags.list()
    with pytest.raises(OSError, match="%25C3%25A9"):
        plain.branches.delete("dev")
