"""Times of commits, branches, tags, runs and movements: a number that ends in `_at`, and its datetime without it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anabranch as ab
from tests.repo.conftest import ORDERS


def check(value: Any, *names: str) -> None:
    for name in names:
        number, moment = getattr(value, f"{name}_at"), getattr(value, name)
        assert isinstance(number, int)
        assert isinstance(moment, datetime)
        assert moment.tzinfo is UTC
        assert (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == number
        assert abs(moment - datetime.now(UTC)) < timedelta(days=400)


def test_times_are_datetimes_beside_the_numbers(lake: ab.Repository) -> None:
    check(lake.list_commits()[0], "created")
    check(lake.branch_create_from("main", "dev", expires_in=timedelta(days=3)), "created", "expires")
    assert lake.branch_get("main").expires is None
    check(lake.tag_create("v1"), "created")
    run = lake.begin_run()
    check(run.info(), "begun", "changed")
    run.abort()
    check(lake.reflog()[0], "moved")
    check(lake.entity_history(ORDERS, 1)[0], "changed")
    check(next(lake.changes(ORDERS)), "changed")
    check(lake.lineage(ORDERS).nodes[0], "created")


def test_a_time_is_exact_to_the_microsecond(lake: ab.Repository) -> None:
    commit = lake.list_commits()[0]
    assert commit.created.microsecond == commit.created_at % 1_000_000
