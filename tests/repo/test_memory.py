"""What a process keeps in memory is bounded, however many commits it makes."""

from pathlib import Path

import pytest

import anabranch as ab
from anabranch.format import home
from anabranch.format.home import BoundedCache
from tests.repo.conftest import append, ids
from tests.repo.test_processes import in_a_process

_APPENDS = """
import sys
import pyarrow as pa
import anabranch as ab

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

repo = ab.init(sys.argv[1], storage_options={"durability": "none"})
with repo.transaction() as tx:
    tx.create_table("a.t", pa.schema([("id", pa.int64())]))
before = resident()
for number in range(int(sys.argv[2])):
    with repo.transaction() as tx:
        tx.append("a.t", pa.table({"id": [number]}))
print((resident() - before) // 1_000_000)
"""


def test_cached_handles_are_bounded_by_the_fragments_they_hold(
    lake: ab.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache: BoundedCache[home.HomeKey, object] = BoundedCache(limit=64, capacity=40)
    monkeypatch.setattr(home, "_HANDLES", cache)
    for number in range(4, 24):
        append(lake, number)
        assert cache.weight <= 40
    assert ids(lake) == list(range(1, 24))
    assert 0 < len(cache) < 5  # the newest handles have 20 fragments and more


@pytest.mark.proof
def test_many_commits_in_one_process_need_little_memory(tmp_path: Path) -> None:
    """With one unbounded session for a chain of versions it grows by 195 MB here, and later by a gigabyte."""
    assert int(in_a_process(_APPENDS, str(tmp_path / "lake"), "600", seconds=3000)) < 120
