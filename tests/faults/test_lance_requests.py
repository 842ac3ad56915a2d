"""The main writes on S3, while one request goes wrong on its way: ours or one that Lance makes by itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, BusyError, StorageError
from anabranch.format.doctor.findings_and_repairs import Severity
from anabranch.repo.log.leases import LEASES
from anabranch.storage import open_store
from tests.conftest import Location
from tests.faults.proxy import Mishap, Plan, Proxy, proxy_before
from tests.faults.remote_writes import REMOTE_WRITES, RemoteWrite, fill_remote
from tests.faults.tallying import Tally, reported, spread
from tests.repo.conftest import ORDERS, raw, rows

pytestmark = pytest.mark.xdist_group("s3")

# How often a request is tried again by itself, and how long one may take before it is given up.
TRIES_AGAIN = {"patient": "2", "impatient": "0"}
TIMEOUT = "4s"
# A write with more requests is tried at about that many of them, evenly spread; stalls take as long as the time-out.
MOST_REQUESTS = 6
STALLS_EVERY = 4


@pytest.fixture(scope="session")
def remote_tally() -> Iterator[Tally]:
    with reported("faults on the way to S3") as tally:
        yield tally


@pytest.fixture(scope="session")
def proxy(s3_options: dict[str, str]) -> Iterator[Proxy]:
    with proxy_before(s3_options["aws_endpoint"]) as proxy:
        yield proxy


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """One lake, reached directly and through a proxy, and writes on it that meet mishaps."""

    lake: ab.Repository
    proxy: Proxy
    write: RemoteWrite
    tries_again: str

    def open_through(self) -> ab.Repository:
        options = {
            **self.lake.storage_options,
            "aws_endpoint": self.proxy.endpoint,
            "timeout": TIMEOUT,
            "client_max_retries": self.tries_again,
            "client_retry_timeout": "60",
        }
        return ab.open(self.lake.uri, storage_options=options, actor="ada")

    def travel(self, number: int, plan: Plan) -> str:
        """Do the write of a number through the proxy; whether it succeeded, was done, or had to be tried again."""
        lake = self.again()
        self.write.prepare(lake, number)
        before = self.write.look(lake, number)
        promised = self.write.after(before, number)
        repo = self.open_through()
        self.proxy.plan = plan
        error = self._act(repo, number)
        self.proxy.plan = Plan()
        where = f"{plan.mishap} at {plan.nth} of {len(plan.seen)}, {plan.seen[plan.nth - 1 :][:1]}: {error!r}"
        state = self.write.look(self.again(), number)
        assert error is None or isinstance(error, StorageError | BusyError), where
        assert state in (before, promised), f"{where} left {state}, neither {before} nor {promised}"
        if error is None:
            assert state == promised, f"{where} said that it was done, and is not"
        elif state != promised or self.write.quiet:
            self._act_again(number)
            assert self.write.look(self.again(), number) == promised, f"{where}: trying again did something else"
        is_done = state == promised != before
        return "succeeded" if error is None else "raised, and done" if is_done else "raised, and tried again"

    def _act(self, repo: ab.Repository, number: int) -> AnabranchError | None:
        try:
            self.write.act(repo, number)
        except AnabranchError as err:
            return err
        return None

    def _act_again(self, number: int) -> None:
        try:
            self.write.act(self.again(), number)
        except BusyError:
            # A writer that could not remove its heartbeat counts as alive for some minutes, which cannot pass here.
            store = open_store(self.lake.uri, self.lake.storage_options)
            for lease in list(store.list(LEASES)):
                store.delete(lease.path)
            self.write.act(self.again(), number)

    def again(self) -> ab.Repository:
        return ab.open(self.lake.uri, storage_options=self.lake.storage_options, actor="ada")

    def arrive(self) -> None:
        """Nothing is damaged after all this, and every Lance tool sees what the repository shows."""
        repo = self.again()
        with repo.transaction(message="last") as tx:
            tx.delete(ORDERS, "id = 3")
        assert rows(raw(repo)) == rows(repo.snapshot()[ORDERS])
        findings = repo.doctor(repair=True, rows=True).findings
        assert [found for found in findings if found.severity is Severity.ERROR] == []


MakeJourney = Callable[..., Journey]


@pytest.fixture
def journey(s3_location: Location, proxy: Proxy) -> MakeJourney:
    def make(name: str, patience: str) -> Journey:
        lake = ab.init(s3_location / "lake", storage_options=s3_location.storage_options, actor="ada")
        fill_remote(lake)
        return Journey(lake=lake, proxy=proxy, write=REMOTE_WRITES[name], tries_again=TRIES_AGAIN[patience])

    return make


def test_a_proxy_carries_requests_unchanged(s3_location: Location, proxy: Proxy) -> None:
    options = {**s3_location.storage_options, "aws_endpoint": proxy.endpoint}
    store, direct = open_store(s3_location.root, options), open_store(s3_location.root, s3_location.storage_options)
    proxy.plan = plan = Plan()
    large = bytes(range(256)) * 20_000
    store.put("large", large)
    assert direct.get("large") == store.get("large") == large
    assert [info.size for info in store.list()] == [len(large)]
    assert store.head("large").size == len(large)
    store.delete("large")
    assert list(direct.list()) == []
    assert [line.split()[0] for line in plan.seen] == ["PUT", "GET", "GET", "HEAD", "POST"]


@pytest.mark.parametrize("mishap", Mishap)
def test_a_mishap_happens_to_the_nth_request(s3_location: Location, proxy: Proxy, mishap: Mishap) -> None:
    options = {
        **s3_location.storage_options,
        "aws_endpoint": proxy.endpoint,
        "client_max_retries": "0",
        "timeout": "1s",
    }
    store, direct = open_store(s3_location.root, options), open_store(s3_location.root, s3_location.storage_options)
    proxy.plan = plan = Plan(nth=2, mishap=mishap, methods=frozenset({"PUT"}))
    store.put("a", b"1")
    try:
        store.put("b", b"2")
        problem = ""
    except StorageError as err:
        problem = str(err)
    assert plan.is_reached
    assert (problem == "") is (mishap is Mishap.DELAYED)
    if mishap is not Mishap.STALLED:  # that is carried out at some time later
        is_done = mishap in {Mishap.DELAYED, Mishap.LOST_ANSWER}
        assert [info.path for info in direct.list()] == ["a", "b"][: 1 + is_done]
    store.put("c", b"3")


@pytest.mark.parametrize("name", ["append", "merge"])
def test_answers_to_puts_are_lost(journey: MakeJourney, name: str, remote_tally: Tally) -> None:
    """Who tries again meets what the first try has done."""
    on_the_way = journey(name, "patient")
    for nth in (1, 3, 5):
        plan = Plan(nth=nth, mishap=Mishap.LOST_ANSWER, methods=frozenset({"PUT"}))
        assert on_the_way.travel(nth, plan) == "succeeded"
        assert plan.is_reached
        remote_tally.faults[plan.mishap] += 1
    on_the_way.arrive()


@pytest.mark.proof
@pytest.mark.parametrize("patience", TRIES_AGAIN)
@pytest.mark.parametrize("name", REMOTE_WRITES)
def test_requests_of_a_write_go_wrong(journey: MakeJourney, name: str, patience: str, remote_tally: Tally) -> None:
    on_the_way = journey(name, patience)
    counting = Plan()
    assert on_the_way.travel(1, counting) == "succeeded"
    remote_tally.writes += 1
    remote_tally.requests += len(counting.seen)
    tried = spread(len(counting.seen), MOST_REQUESTS)
    planned: list[tuple[int, Mishap]] = [
        (nth, mishap) for nth in tried for mishap in Mishap if mishap is not Mishap.STALLED
    ]
    planned += [(nth, Mishap.STALLED) for nth in tried[1::STALLS_EVERY]]
    reached = 0
    for number, (nth, mishap) in enumerate(planned, start=2):
        plan = Plan(nth=nth, mishap=mishap)
        outcome = on_the_way.travel(number, plan)
        if plan.is_reached:
            reached += 1
            remote_tally.faults[mishap] += 1
            remote_tally.outcomes[outcome] += 1
    assert reached > len(planned) / 2
    on_the_way.arrive()
