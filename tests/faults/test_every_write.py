"""Every public write, while one of the requests of this process fails, times out, loses its answer or takes long."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from shutil import rmtree

import pytest

import anabranch as ab
from anabranch.repo.run import Run
from anabranch.repo.runs.engine_access import EngineAccess, TableWrites
from tests.conftest import Location
from tests.conftest import _make_folder as make_folder
from tests.faults.attempts import States, Trial, examine_lake, examine_stock
from tests.faults.datasets import DATASET_READS, DATASET_WRITES, fill_stock
from tests.faults.fault_injection import Kind
from tests.faults.lakes import fill
from tests.faults.tallying import Tally, reported, spread
from tests.faults.transactions import TABLE_WRITES, TRANSACTION_READS, TRANSACTION_WRITES
from tests.faults.writes import (
    ENGINE_READS,
    ENGINE_WRITES,
    MODULE_READS,
    MODULE_WRITES,
    REPOSITORY_READS,
    REPOSITORY_WRITES,
    RUN_READS,
    RUN_WRITES,
    Look,
    Write,
)
from tests.lake_templates import Fill, LakeTemplate

pytestmark = pytest.mark.local

MakeTrial = Callable[[str], Trial]

# A write with more requests is tried at this number of them, evenly spread.
MOST_REQUESTS = 6
# What the lake, or the dataset's, shows before any write.
KNOWN: dict[bool, dict[Look, States]] = {}

TABLES: dict[str, tuple[type, dict[str, list[Write]], frozenset[str]]] = {
    "Repository": (ab.Repository, REPOSITORY_WRITES, REPOSITORY_READS),
    "Run": (Run, RUN_WRITES, RUN_READS),
    "Transaction": (ab.Transaction, TRANSACTION_WRITES, TRANSACTION_READS),
    "TableWrites": (TableWrites, TABLE_WRITES, frozenset()),
    "EngineAccess": (EngineAccess, ENGINE_WRITES, ENGINE_READS),
    "Dataset": (ab.Dataset, DATASET_WRITES, DATASET_READS),
}
ALL = {
    **{f"ab.{name}-{n}": write for name, writes in MODULE_WRITES.items() for n, write in enumerate(writes)},
    **{
        f"{owner}.{name}-{n}": write
        for owner, (_, table, _) in TABLES.items()
        for name, writes in table.items()
        for n, write in enumerate(writes)
    },
}


@pytest.mark.parametrize("owner", TABLES)
def test_every_public_name_is_a_read_or_a_write_with_a_case(owner: str) -> None:
    handle, writes, reads = TABLES[owner]
    public = {name for name in dir(handle) if not name.startswith("_")}
    assert public == {*writes, *reads}
    assert not {*writes} & reads


def test_every_public_function_is_a_read_or_a_write_with_a_case() -> None:
    functions = {name for name in ab.__all__ if name[0].islower() and name not in {"errors", "types"}}
    assert functions == {*MODULE_WRITES, *MODULE_READS}


@pytest.fixture(scope="session")
def tally() -> Iterator[Tally]:
    with reported("faults at every write") as tally:
        yield tally


@pytest.fixture
def trial(
    lake_templates: dict[tuple[Fill, str], LakeTemplate], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeTrial]:
    """Make a trial of a write on the lake that it is for."""
    used: list[Location] = []

    def new_location() -> Location:
        used.append(Location(root=str(make_folder(tmp_path_factory, "fault"))))
        return used[-1]

    def make(name: str) -> Trial:
        is_stock = name.startswith("Dataset.")
        wanted = fill_stock if is_stock else fill
        if (wanted, "") not in lake_templates:
            lake_templates[wanted, ""] = LakeTemplate(
                Location(root=str(make_folder(tmp_path_factory, "template"))), wanted
            )
        return Trial(
            write=ALL[name],
            template=lake_templates[wanted, ""],
            new_location=new_location,
            examine=examine_stock if is_stock else examine_lake,
            known=KNOWN.setdefault(is_stock, {}),
        )

    yield make
    for location in used:
        rmtree(location.root)


@pytest.mark.parametrize("name", ALL)
def test_a_write_at_one_of_its_requests(trial: MakeTrial, name: str, tally: Tally) -> None:
    """One fault each, of another kind and at another request for each write; every third time doctor looks, too."""
    turn = list(ALL).index(name)
    kind = list(Kind)[turn % len(Kind)]
    tried = trial(name) if turn % 3 == 0 else replace(trial(name), examine=lambda _repo: [])
    tried.run(lambda requests: [(1 + turn * 7 % requests, kind)], tally)


@pytest.mark.proof
@pytest.mark.parametrize("name", ALL)
def test_a_write_at_all_of_its_requests(trial: MakeTrial, name: str, tally: Tally) -> None:
    def choose(requests: int) -> list[tuple[int, Kind]]:
        return [(nth, kind) for nth in spread(requests, MOST_REQUESTS) for kind in Kind]

    trial(name).run(choose, tally)
