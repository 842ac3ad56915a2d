"""The operations whose growth is measured, each beside what raw pylance does in its place."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from _comparison import seconds
from _delay import DelayingProxy
from _lakes import KEY, Lake, counted_requests, row

from anabranch.repo.repository import Repository

__all__ = ["OPERATIONS", "Cost", "Measured", "Operation", "counting_meter", "delaying_meter", "measure"]

LISTED = "on local disk Lance lists all versions of the table to find its newest, two for each commit"
NAMED = "it decodes the commit that names all tables"
# To be run once and timed, after all that comes before it was done.
Prepared = Callable[[], object]
WARM_UP = 2
NUMBERS = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`grows_with` has the axes on which it is not flat, by what it does there; elsewhere the design says it is."""

    name: str
    prepare: Callable[[Lake], Prepared]
    peer: str | None = None
    prepare_peer: Callable[[Lake], Prepared] | None = None
    grows_with: Mapping[str, str] = field(default_factory=dict)
    is_read: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    milliseconds: float
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The medians of an operation, and of its peer if it has one."""

    operation: str
    ours: Cost
    peer: Cost | None


# Runs something once, and tells how many milliseconds and requests that took.
Meter = Callable[[Prepared], Cost]


def measure(lake: Lake, meter: Meter, *, rounds: int) -> list[Measured]:
    """Let all take turns: those that only read first, because the others make branches and commits."""
    costs: dict[str, tuple[list[Cost], list[Cost]]] = {}
    for reads in (True, False):
        group = [operation for operation in OPERATIONS if operation.is_read is reads]
        for number in range(WARM_UP + rounds):
            for operation in group:
                ours, peers = costs.setdefault(operation.name, ([], []))
                if number == WARM_UP:
                    ours.clear()
                    peers.clear()
                ours.append(meter(operation.prepare(lake)))
                if operation.prepare_peer is not None:
                    peers.append(meter(operation.prepare_peer(lake)))
    found = ((operation.name, *costs[operation.name]) for operation in OPERATIONS)
    return [
        Measured(operation=name, ours=_median(ours), peer=_median(peers) if peers else None)
        for name, ours, peers in found
    ]


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        milliseconds=statistics.median(cost.milliseconds for cost in costs),
        requests=statistics.median_low(cost.requests for cost in costs),
    )


@contextmanager
def counting_meter() -> Iterator[Meter]:
    """Count the requests that do not come from Lance."""
    with counted_requests() as stores:

        def meter(run: Prepared) -> Cost:
            before = sum(store.total for store in stores)
            took = seconds(run)
            return Cost(milliseconds=took * 1000, requests=sum(store.total for store in stores) - before)

        yield meter


def delaying_meter(proxy: DelayingProxy, delay: float) -> Meter:
    """Let every request wait, and count them all."""

    def meter(run: Prepared) -> Cost:
        before = proxy.requests
        proxy.seconds = delay
        try:
            took = seconds(run)
        finally:
            proxy.seconds = 0.0
        return Cost(milliseconds=took * 1000, requests=proxy.requests - before)

    return meter


def handle(lake: Lake) -> Repository:
    """A handle that has read the head of main."""
    repo = lake.open()
    repo.snapshot()
    return repo


def new_name() -> str:
    return f"measured{next(NUMBERS)}"


def new_branch(lake: Lake, *, with_change: bool) -> str:
    name = new_name()
    repo = lake.open()
    repo.branch_create(name)
    if with_change:
        change_one_row(repo, lake, name)
    return name


def change_one_row(repo: Repository, lake: Lake, branch: str) -> None:
    number = next(NUMBERS) % lake.rows
    with repo.transaction(branch, message="one row") as tx:
        tx.update(KEY, {"amount": f"amount + {number + 1}"}, where=f"id = {number}")


def open_snapshot(lake: Lake) -> Prepared:
    return lambda: lake.open().snapshot()


def open_dataset(lake: Lake) -> Prepared:
    return lake.open_raw


def read_row(lake: Lake) -> Prepared:
    wanted = lake.rows // 3
    return lambda: require(lake.open().entity_at(KEY, wanted) is not None)


def read_raw_row(lake: Lake) -> Prepared:
    wanted = lake.rows // 3
    return lambda: require(len(lake.open_raw().to_table(filter=f"id = {wanted}")) == 1)


def list_branches(lake: Lake) -> Prepared:
    repo = handle(lake)
    return repo.branch_list


def list_raw_branches(lake: Lake) -> Prepared:
    return lake.open_raw().branches.list


def list_ten_commits(lake: Lake) -> Prepared:
    repo = handle(lake)
    return lambda: repo.list_commits(limit=10)


def append_row(lake: Lake) -> Prepared:
    repo, one = handle(lake), lake.new_row()

    def run() -> None:
        with repo.transaction(message="one row") as tx:
            tx.append(KEY, one, check_keys=False)

    return run


def append_raw_row(lake: Lake) -> Prepared:
    one = lake.new_row()
    return lambda: lake.open_raw().insert(one)


def upsert_row(lake: Lake) -> Prepared:
    repo, one = handle(lake), row(next(NUMBERS) % lake.rows)

    def run() -> None:
        with repo.transaction(message="one row") as tx:
            tx.upsert(KEY, one)

    return run


def upsert_raw_row(lake: Lake) -> Prepared:
    one = row(next(NUMBERS) % lake.rows)
    return lambda: (
        lake.open_raw().merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(one)
    )


def create_branch(lake: Lake) -> Prepared:
    repo, name = handle(lake), new_name()
    return lambda: repo.branch_create(name)


def create_raw_branch(lake: Lake) -> Prepared:
    name = new_name()
    return lambda: lake.open_raw().create_branch(name)


def fork(lake: Lake) -> Prepared:
    branch = new_branch(lake, with_change=False)
    repo, one = handle(lake), lake.new_row()

    def run() -> None:
        with repo.transaction(branch, message="one row") as tx:
            tx.append(KEY, one, check_keys=False)

    return run


def fork_raw(lake: Lake) -> Prepared:
    name, one = new_name(), lake.new_row()

    def run() -> None:
        lake.open_raw().create_branch(name)
        lake.open_raw(name).insert(one)

    return run


def diff_row(lake: Lake) -> Prepared:
    branch = new_branch(lake, with_change=True)
    repo = handle(lake)
    return lambda: require(len(repo.diff("main", branch, engine="local").to_arrow()[KEY]) >= 1)


def merge_row(lake: Lake) -> Prepared:
    branch = new_branch(lake, with_change=True)
    change_one_row(lake.open(), lake, "main")
    repo = handle(lake)
    return lambda: repo.merge(branch, into="main")


def create_tag(lake: Lake) -> Prepared:
    repo, name = handle(lake), new_name()
    return lambda: repo.tag_create(name)


def create_raw_tag(lake: Lake) -> Prepared:
    dataset, name = lake.open_raw(), new_name()
    return lambda: dataset.tags.create(name, dataset.version)


def require(held: bool) -> None:  # noqa: FBT001 - what must hold is its only argument
    if not held:
        raise RuntimeError("an operation did not find what it should")


OPERATIONS = (
    Operation(
        name="open, snapshot of main",
        grows_with={"tables": NAMED},
        prepare=open_snapshot,
        peer="open a dataset",
        prepare_peer=open_dataset,
        is_read=True,
    ),
    Operation(
        name="open, one row by its key",
        grows_with={"tables": NAMED},
        prepare=read_row,
        peer="open, filter",
        prepare_peer=read_raw_row,
        is_read=True,
    ),
    Operation(
        name="list branches",
        prepare=list_branches,
        peer="`branches.list`",
        prepare_peer=list_raw_branches,
        grows_with={"branches": "it reads the head of each, two requests for a branch, in parallel"},
        is_read=True,
    ),
    Operation(
        name="log of 10 commits",
        grows_with={"tables": "commits name the tables that they made"},
        prepare=list_ten_commits,
        is_read=True,
    ),
    Operation(
        name="append one row",
        grows_with={"commits": LISTED},
        prepare=append_row,
        peer="open, insert",
        prepare_peer=append_raw_row,
    ),
    Operation(
        name="upsert one row",
        prepare=upsert_row,
        peer="open, `merge_insert`",
        prepare_peer=upsert_raw_row,
        grows_with={"commits": LISTED, "rows": "Lance looks for the key in the whole column"},
    ),
    Operation(
        name="create a branch",
        prepare=create_branch,
        peer="open, `create_branch`",
        prepare_peer=create_raw_branch,
    ),
    Operation(
        name="first append on a branch",
        prepare=fork,
        peer="`create_branch`, insert",
        prepare_peer=fork_raw,
    ),
    Operation(name="diff of one row", grows_with={"tables": NAMED}, prepare=diff_row),
    Operation(name="merge of one row", grows_with={"commits": LISTED, "tables": NAMED}, prepare=merge_row),
    Operation(name="create a tag", prepare=create_tag, peer="`tags.create`", prepare_peer=create_raw_tag),
)
