"""Machines whose clocks are wrong: they date no commits, and what they dated before is found all the same."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.creation import create_repository
from anabranch.storage import open_store
from anabranch.testing import CountingStore
from tests.handles import open_with
from tests.repo.clocks import at_store_time, with_clock
from tests.repo.conftest import ORDERS, SCHEMA, another, append, fill_lake, ids, nothing_changes, table

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def lake(repo: ab.Repository) -> ab.Repository:
    """A lake that was made just now: in a copy of an older one, the times of files differ from those of commits."""
    fill_lake(repo)
    return repo


def at(moment: datetime) -> str:
    return f"main@{{{moment.isoformat()}}}"


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize(("shift", "message"), [(DAY, "86[34]\\d\\d s ahead of"), (-DAY, "86[34]\\d\\d s behind")])
def test_a_commit_is_refused_while_the_clock_is_wrong(lake: ab.Repository, shift: timedelta, message: str) -> None:
    append(lake, 4)
    with nothing_changes(lake), pytest.raises(AnabranchError, match=message) as caught:
        append(with_clock(lake, shift), 5)
    assert caught.value.code == "clock_skew"
    assert (now() + shift).strftime("%Y-%m-%dT") in str(caught.value)
    assert "clock_tolerance_seconds" in caught.value.hint
    assert append(with_clock(lake, 2 * MINUTE), 6).message == "append (6,)"


def test_merges_and_runs_are_refused_too(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    wrong = with_clock(lake, DAY)
    with pytest.raises(AnabranchError, match="the clock of this machine"):
        wrong.merge("dev", into="main")
    run = wrong.begin_run("main")
    with pytest.raises(AnabranchError, match="the clock of this machine"), run.transaction() as tx:
        tx.append(ORDERS, table(5))
    assert ids(another(lake)) == [1, 2, 3]


def test_one_wrong_commit_does_not_hide_the_later_ones(lake: ab.Repository) -> None:
    """As releases made them that did not compare clocks."""
    before = now()
    append(with_clock(lake, DAY, tolerant=True), 4)
    append(lake, 5)
    stamped = lake.list_commits("main", limit=2)
    assert stamped[0].created_at == stamped[1].created_at
    assert ids(another(lake).snapshot_of(at(now() + MINUTE))) == [1, 2, 3, 4, 5]
    assert ids(another(lake).snapshot_of(at(before))) == [1, 2, 3]
    assert ids(another(lake).snapshot_of(at(now() + 2 * DAY))) == [1, 2, 3, 4, 5]


def test_a_wrong_time_is_reported_until_it_has_come(lake: ab.Repository) -> None:
    append(with_clock(lake, DAY, tolerant=True), 4)
    append(lake, 5)
    lake.history_sync()
    (finding,) = another(lake).doctor().findings
    assert (finding.kind, finding.severity) == ("future_time", "warning")
    assert "2 entries of branch 'main', from number 3 on, are dated in the future" in finding.explanation
    assert len(finding.paths) == 2
    assert with_clock(lake, 2 * DAY).doctor().findings == ()


class Past:
    """A repository whose third version was dated two days ahead of its store, days ago."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "lake")
        self.begin = now() - 5 * DAY
        self._moment = self.begin
        config = RepoConfig(root=self.uri, store=open_store(self.uri), clock=self._clock, clock_tolerance=None)
        create_repository(config)
        repo = open_with(config)
        with repo.transaction() as tx:
            tx.create_table(ORDERS, SCHEMA)
        for number, moment in ((1, 3 * DAY), (2, 1 * DAY + HOUR), (3, 1 * DAY + 2 * HOUR), (4, 4 * DAY)):
            self._moment = self.begin + moment
            append(repo, number)
        for number, moment in {1: 0 * DAY, 2: 0 * DAY, 3: DAY, 4: DAY + HOUR, 5: DAY + 2 * HOUR, 6: 4 * DAY}.items():
            self.put_time(number, self.begin + moment)

    def _clock(self) -> int:
        return int(self._moment.timestamp() * 1_000_000)

    def put_time(self, number: int, moment: datetime) -> None:
        path = Path(self.uri, f"_versions/main/{(1 << 64) - 1 - number:020d}.json")
        os.utime(path, (moment.timestamp(), moment.timestamp()))


@pytest.mark.parametrize(
    ("after", "rows"),
    [
        (HOUR, []),
        (DAY + MINUTE, [1]),
        (DAY + HOUR + MINUTE, [1, 2]),
        (DAY + 3 * HOUR, [1, 2, 3]),
        (3 * DAY + MINUTE, [1, 2, 3]),
        (4 * DAY + MINUTE, [1, 2, 3, 4]),
    ],
)
def test_times_of_the_store_decide_where_a_clock_was_ahead(tmp_path: Path, after: timedelta, rows: list[int]) -> None:
    past = Past(tmp_path)
    assert ids(ab.open(past.uri).snapshot_of(at(past.begin + after))) == rows


def test_a_copy_that_has_other_times_is_refused_for_such_moments(tmp_path: Path) -> None:
    past = Past(tmp_path)
    for number in range(1, 7):
        past.put_time(number, past.begin + 2 * DAY)
    with pytest.raises(AnabranchError, match="the time of version 3 of branch 'main' is unknown") as caught:
        ab.open(past.uri).snapshot_of(at(past.begin + 2 * DAY + HOUR))
    assert "main@v3" in caught.value.hint
    assert ids(ab.open(past.uri).snapshot_of("main@v3")) == [1]


def test_a_branch_expires_by_the_clock_of_the_store(lake: ab.Repository) -> None:
    with_clock(lake, -2 * DAY).branch_create_from("main", "dev", expires_in=HOUR)
    assert with_clock(lake, 2 * DAY).gc().branches == ()
    assert at_store_time(lake, 2 * HOUR).gc().branches == ("dev",)


def test_the_store_is_asked_for_its_time_once(lake: ab.Repository) -> None:
    append(lake, 4)
    counting = CountingStore(testing.store_of(lake))
    repo = testing.open(lake, store=counting)
    append(repo, 5)
    assert "head" not in counting.counts
    with pytest.raises(AnabranchError, match="the clock of this machine"):
        append(open_with(replace(testing.config_of(with_clock(lake, DAY)), store=counting)), 6)
    assert counting.counts["head"] == 1


def test_the_tolerance_is_a_storage_option(lake: ab.Repository) -> None:
    assert append(with_clock(lake, DAY, tolerant=True), 4).message == "append (4,)"
    with pytest.raises(InvalidInputError, match="'clock_tolerance_seconds' must be an integer, got 'a minute'"):
        ab.open(lake.uri, storage_options={"clock_tolerance_seconds": "a minute"})
