"""Keys of more rows than are given to Lance as a list: the same rules, checked by their hashes."""

from collections.abc import Callable

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import KeyConflictError
from tests.repo.conftest import ORDERS, table

Given = Callable[[pa.Table], object]


def as_reader(rows: pa.Table) -> pa.RecordBatchReader:
    return rows.to_reader(max_chunksize=300)


@pytest.fixture(params=[lambda rows: rows, as_reader], ids=["table", "reader"])
def given(request: pytest.FixtureRequest) -> Given:
    found: Given = request.param
    return found


def test_many_new_keys_are_appended(lake: ab.Repository, given: Given) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, given(table(*range(4, 2000))))
        tx.append(ORDERS, given(table(*range(2000, 4000))))
    assert lake.snapshot()[ORDERS].count_rows() == 3999


def test_many_keys_of_which_one_is_there_are_refused(lake: ab.Repository, given: Given) -> None:
    with (
        pytest.raises(KeyConflictError, match=r"1 key already exists in the table, for example \{'id': 3\}"),
        lake.transaction() as tx,
    ):
        tx.append(ORDERS, given(table(*range(3, 2000))))
    assert lake.snapshot()[ORDERS].count_rows() == 3


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_many_keys_of_which_two_repeat_are_refused(lake: ab.Repository, given: Given, operation: str) -> None:
    with (
        pytest.raises(KeyConflictError, match=r"2 keys occur more than once in the data, such as \{'id': 200[01]\}"),
        lake.transaction() as tx,
    ):
        getattr(tx, operation)(ORDERS, given(table(*range(1000, 3000), 2000, 2001)))
    assert lake.snapshot()[ORDERS].count_rows() == 3


def test_one_of_many_keys_that_another_commit_took_is_refused(lake: ab.Repository) -> None:
    first, second = lake.transaction(), lake.transaction()
    first.append(ORDERS, table(*range(1000, 2000)))
    second.append(ORDERS, table(*range(1999, 3000)))
    first.commit()
    with pytest.raises(KeyConflictError, match=rf"'{ORDERS}': 1 key already exists in the table.*1999"):
        second.commit()
