"""One flipped bit in an object of the repository is an error that names the file, never another answer."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import CorruptError
from anabranch.repo.log.creation import RESERVE
from tests.conftest import Location
from tests.lake_templates import build
from tests.proof_log import record_proof
from tests.repo.conftest import ORDERS, another, append, ids
from tests.repo.doctor.sample_repository import furnish
from tests.repo.gc.object_ages import pass_time
from tests.repo.witness import OWN, Answer, ask_again, fresh, list_answers
from tests.sealing import unsealed

MARK_BITS = 19 * 8
# These read the whole repository.
SLOW = ("gc", "branches")


@dataclass(frozen=True)
class Lake:
    """A repository, the bytes of its own objects, and for each of them the answers that depend on it."""

    repo: ab.Repository
    objects: dict[str, bytes]
    readers: dict[str, list[Answer]]

    @classmethod
    def of(cls, repo: ab.Repository) -> "Lake":
        store = testing.store_of(repo)
        objects = {info.path: store.get(info.path) for info in store.list() if info.path.startswith(OWN)}
        readers: dict[str, list[Answer]] = defaultdict(list)
        for answer in list_answers(repo):
            for path in answer.paths & objects.keys():
                readers[path].append(answer)
        return cls(repo, objects, dict(readers))

    def put(self, path: str, data: bytes) -> None:
        Path(self.repo.uri, path).write_bytes(data)


@dataclass(frozen=True)
class Flip:
    """One bit of one object."""

    lake: Lake
    path: str
    bit: int

    @property
    def kind(self) -> str:
        name = "hint" if self.path.endswith("hint") else "copy" if self.path.endswith((".copy", "_copy.json")) else ""
        return f"{self.path.partition('/')[0]} {name}".strip()

    @property
    def damaged(self) -> bytes:
        data = bytearray(self.lake.objects[self.path])
        data[self.bit // 8] ^= 1 << self.bit % 8
        return bytes(data)

    def chosen_readers(self) -> list[Answer]:
        """Some of the answers that depend on the object; the slow ones seldom where others depend on it too."""
        readers = self.lake.readers.get(self.path, [])
        quick = [answer for answer in readers if answer.name not in SLOW]
        if not quick or self.bit % 16 == 0:
            return readers
        return random.Random(self.bit).sample(quick, min(len(quick), 4))

    def __enter__(self) -> "Flip":
        self.lake.put(self.path, self.damaged)
        return self

    def __exit__(self, *_: object) -> None:
        self.lake.put(self.path, self.lake.objects[self.path])


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, ...]]:
    """A lake with an object of every kind, and a clone of it, which has the log of where it came from."""
    source = build(Location(root=str(tmp_path_factory.mktemp("source"))), furnish)
    pass_time(source)
    assert source.gc(keep_last=2).commits
    clone = ab.clone(source.uri, tmp_path_factory.mktemp("clone") / "lake", actor="ada")
    append(clone, 60)
    # Without hints the newest entries are read from the logs.
    for hint in [*Path(clone.uri).glob("_*/**/hint"), *Path(source.uri).glob("_clones/*/hint")]:
        hint.unlink()
    held = source.list_commits("main", limit=None)[-1].graph_commit_id
    # So long that the lease neither expires nor is renewed while the tests run.
    source = testing.open(source, lease=timedelta(hours=12))
    lease = testing.config_of(source).leases.start_work(held=[held])
    yield Lake.of(source), Lake.of(clone)
    lease.release()


def flips(lakes: tuple[Lake, ...], count: int, *, seed: int) -> Iterator[Flip]:
    """Random bits, the same number in objects of each kind; of each kind some in the mark at the end."""
    chance = random.Random(seed)
    by_kind: dict[str, list[Flip]] = defaultdict(list)
    for lake in lakes:
        for path, data in lake.objects.items():
            if data not in {b"alive\n", b"\n"} and path != RESERVE:  # the content of these is never read
                by_kind[Flip(lake, path, 0).kind].append(Flip(lake, path, len(data) * 8))
    assert len(by_kind) == 14, by_kind.keys()
    for number in range(count):
        kind = sorted(by_kind)[number % len(by_kind)]
        whole = chance.choice(by_kind[kind])
        first = max(0, whole.bit - MARK_BITS) if number % 5 == 0 else 0
        yield replace(whole, bit=chance.randrange(first, whole.bit))


def check_flip(flip: Flip) -> str:
    """Make sure that every answer is an error or the same as before; return what became of the flip."""
    found = set()
    with flip:
        for answer in flip.chosen_readers():
            now = ask_again(flip.lake.repo, answer)
            is_error = isinstance(now, str) and now.startswith("CorruptError: ") and flip.path in now
            assert is_error or now == answer.expected, (flip.path, flip.bit, answer.name, now)
            found.add("error" if is_error else "same answer")
    return "error" if "error" in found else "same answer" if found else "not read"


def check_all(lakes: tuple[Lake, ...], count: int, *, seed: int) -> Counter[str]:
    return Counter(f"{flip.kind}: {check_flip(flip)}" for flip in flips(lakes, count, seed=seed))


def test_a_flipped_bit_is_an_error_and_never_another_answer(lakes: tuple[Lake, ...]) -> None:
    outcomes = check_all(lakes, 300, seed=1)
    for kind in ("_versions", "_commits", "_tags", "_runs", "_clones", "_origin", "_gc", "_repo.json", "_leases"):
        assert outcomes[f"{kind}: error"], outcomes


@pytest.mark.proof
def test_ten_thousand_flipped_bits_are_errors(lakes: tuple[Lake, ...]) -> None:
    began = time.monotonic()
    outcomes = check_all(lakes, 10_000, seed=random.SystemRandom().randrange(1 << 32))
    record_proof("flipped bits", {"flips": outcomes.total(), **outcomes}, seconds=time.monotonic() - began)


def repair(flip: Flip) -> str:
    """Repair a flipped bit; what is restored is what it was, and what is not restored is reported and left alone."""
    with flip:
        report = fresh(flip.lake.repo).doctor(repair=True)
        named = [finding for finding in report.findings if flip.path in {finding.subject, *finding.paths}]
        assert named, (flip.path, flip.bit, report.findings)
        after = {path: testing.store_of(flip.lake.repo).get(path) for path in flip.lake.objects}
        changed = {path for path, data in flip.lake.objects.items() if after[path] != data}
        if named[0].repaired:
            assert not changed or flip.path.endswith("hint"), (flip.path, flip.bit, changed)
            return "restored"
        assert changed == {flip.path}, (flip.path, flip.bit, changed)
        assert after[flip.path] == flip.damaged
        assert "backup" in named[0].remedy
    return "reported"


def test_a_repair_restores_a_flipped_bit_or_leaves_it_alone(lakes: tuple[Lake, ...]) -> None:
    outcomes = Counter(repair(flip) for flip in flips(lakes, 15, seed=2) if not flip.path.startswith("_leases"))
    assert outcomes["restored"] > 5


@pytest.mark.proof
def test_repairs_of_many_flipped_bits(lakes: tuple[Lake, ...]) -> None:
    began = time.monotonic()
    many = flips(lakes, 600, seed=random.SystemRandom().randrange(1 << 32))
    outcomes = Counter(f"{flip.kind}: {repair(flip)}" for flip in many if not flip.path.startswith("_leases"))
    record_proof("repaired bits", {"flips": outcomes.total(), **outcomes}, seconds=time.monotonic() - began)


def test_objects_without_a_checksum_are_still_read(lake: ab.Repository) -> None:
    """As releases before format 3 have written them."""
    lake.tag_create("v1")
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    before = [answer.expected for answer in list_answers(lake)]
    store = testing.store_of(lake)
    for info in list(store.list()):
        if info.path.startswith(OWN) and info.path.endswith(".json"):
            store.put(info.path, unsealed(store.get(info.path)))
        elif info.path.endswith("/hint"):
            store.delete(info.path)
    assert [answer.expected for answer in list_answers(another(lake))] == before
    append(another(lake), 5, branch="dev")
    assert ids(another(lake).snapshot_of("dev")) == [1, 2, 3, 4, 5]
    assert another(lake).doctor().is_clean
    assert b'"~crc":"' in store.get(f"_commits/{another(lake).snapshot_of('dev').id}.json")


def test_an_object_without_a_checksum_is_refused_in_the_new_format(lake: ab.Repository) -> None:
    store, path = testing.store_of(lake), f"_commits/{lake.snapshot().id}.json"
    store.put(path, unsealed(store.get(path), format=3))
    with pytest.raises(CorruptError, match=f"'{path}' is damaged: it has no checksum"):
        another(lake).snapshot_of(lake.snapshot().id)


def test_a_row_count_is_not_changed_by_a_flipped_bit(lake: ab.Repository) -> None:
    store, path = testing.store_of(lake), f"_commits/{lake.snapshot().id}.json"
    store.put(path, store.get(path).replace(b'"rows":3', b'"rows":7'))
    with pytest.raises(CorruptError, match=path):
        another(lake).snapshot_of(lake.snapshot().id)[ORDERS].count_rows()
