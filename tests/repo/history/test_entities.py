"""One row at any state, and each change of it."""

import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    BranchNotFoundError,
    InvalidInputError,
    KeyConflictError,
    TableNotFoundError,
    VersionNotFoundError,
)
from anabranch.format.compare.row_by_key import find_row
from anabranch.format.staging import VersionRef
from anabranch.repo.history.entities import EntityChange
from tests.conftest import Location
from tests.faults.fault_injection import FaultInjection, all_stores_through
from tests.repo import histories
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, entry, table
from tests.repo.test_budgets import MARK, open_counted

Reported = list[tuple[str, str, Any, Any]]


def put(repo: ab.Repository, number: int, v: str, *, branch: str | None = None) -> ab.GraphCommit:
    """Give an order another value, in a commit whose message is the value."""
    with repo.transaction(branch, message=v) as tx:
        tx.upsert(ORDERS, table(number, v=v))
    assert tx.published is not None
    return tx.published


def reported(changes: list[EntityChange]) -> Reported:
    """Each change: on which branch, the commit's message, and v before and after."""
    return [(c.commit.branch, c.commit.message, c.before and c.before["v"], c.after and c.after["v"]) for c in changes]


@pytest.mark.s3
def test_row_is_read_at_versions_and_refs(lake: ab.Repository) -> None:
    put(lake, 2, "new")
    lake.tag_create("v1", ref="main")
    lake.branch_create("dev")
    put(lake, 2, "dev", branch="dev")
    with lake.transaction(message="gone") as tx:
        tx.delete(ORDERS, "id = 2")
    assert lake.entity_at(ORDERS, 2) is None
    assert lake.entity_at(ORDERS, 2, version=2) == {"id": 2, "v": "b"}
    assert lake.entity_at(ORDERS, 2, version=3) == {"id": 2, "v": "new"}
    assert lake.entity_at(ORDERS, 2, ref="v1") == {"id": 2, "v": "new"}
    assert lake.entity_at(ORDERS, 2, ref="main~2") == {"id": 2, "v": "b"}
    assert lake.entity_at(ORDERS, 2, ref="dev") == {"id": 2, "v": "dev"}
    assert another(lake, "dev").entity_at(ORDERS, 2) == {"id": 2, "v": "dev"}
    assert another(lake, "dev").entity_at(ORDERS, 2, version=1) == {"id": 2, "v": "new"}


def test_row_of_a_live_branch_is_mains_until_the_branch_writes(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    put(lake, 2, "main")
    assert lake.entity_at(ORDERS, 2, ref="dev") == {"id": 2, "v": "main"}
    put(lake, 2, "dev", branch="dev")
    put(lake, 2, "later")
    assert lake.entity_at(ORDERS, 2, ref="dev") == {"id": 2, "v": "dev"}


KEYS = [
    pytest.param(pa.string(), ["it's", "' OR 1 = 1 --", ""], id="text with quotes"),
    pytest.param(pa.large_string(), ["é", "\\'"], id="large text"),
    pytest.param(pa.binary(), [b"\x00'", b"\xff"], id="bytes"),
    pytest.param(pa.int64(), [-(2**63), 2**63 - 1, 0], id="integers"),
    pytest.param(pa.uint64(), [2**64 - 1, 0], id="unsigned integers"),
    pytest.param(pa.int8(), [-128, 127], id="small integers"),
    pytest.param(pa.bool_(), [True, False], id="booleans"),
    pytest.param(pa.time64("us"), [time(1, 2, 3, 4), time(0)], id="times of day"),
    pytest.param(pa.date32(), [date(2026, 2, 28), date(1969, 12, 31)], id="dates"),
    pytest.param(pa.timestamp("us"), [datetime(2026, 1, 1, 2, 3, 4, 5), datetime(1969, 1, 1)], id="times"),
    pytest.param(pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC)], id="times in a zone"),
    pytest.param(pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-2.25")], id="decimals"),
]


@pytest.mark.parametrize(("kind", "values"), KEYS)
def test_keys_of_every_type_find_their_row(repo: ab.Repository, kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("k", kind), ("n", pa.int64())])
    with repo.transaction(message="first") as tx:
        tx.create_table("s.t", schema, primary_key=["k"])
        tx.append("s.t", pa.table({"k": values, "n": range(len(values))}, schema=schema))
    assert [repo.entity_at("s.t", value) for value in values] == [
        {"k": value, "n": number} for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "1"),
        (pa.int64(), 1.5),
        (pa.int64(), True),
        (pa.int64(), 2**63),
        (pa.int64(), None),
        (pa.int64(), [1]),
        (pa.int8(), 200),
        (pa.string(), 1),
        (pa.string(), b"a"),
        (pa.string(), "\ud800"),
        (pa.date32(), datetime(2026, 1, 1, 12, tzinfo=UTC)),
        (pa.date32(), 5),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1)),
        (pa.decimal128(10, 2), Decimal("1.555")),
    ],
)
def test_wrong_values_of_the_key_are_refused(repo: ab.Repository, kind: pa.DataType, value: Any) -> None:
    with repo.transaction(message="first") as tx:
        tx.create_table("s.t", pa.schema([("k", kind)]), primary_key=["k"])
    for read in (repo.entity_at, repo.entity_history):
        with pytest.raises(InvalidInputError, match="'k'"):
            read("s.t", value)


def test_keys_of_several_columns_are_tuples(repo: ab.Repository) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.decimal128(4, 1)), ("n", pa.int64())])
    rows = [
        {"a": "x", "b": Decimal(1), "n": 1},
        {"a": "x", "b": Decimal(2), "n": 2},
        {"a": "y", "b": Decimal(1), "n": 3},
    ]
    with repo.transaction(message="first") as tx:
        tx.create_table("s.t", schema, primary_key=["a", "b"])
        tx.append("s.t", pa.Table.from_pylist(rows, schema=schema))
    assert repo.entity_at("s.t", ("x", Decimal(2))) == rows[1]
    assert repo.entity_at("s.t", ("z", Decimal(2))) is None
    assert [change.after for change in repo.entity_history("s.t", ("y", Decimal(1)))] == [rows[2]]
    for wrong in ("x", ("x",), ("x", Decimal(1), 1), ()):
        with pytest.raises(InvalidInputError, match=r"\(a, b\)"):
            repo.entity_at("s.t", wrong)
    with pytest.raises(InvalidInputError, match="None"):
        repo.entity_at("s.t", ("x", None))


def test_errors_name_the_missing_table_ref_or_version(lake: ab.Repository) -> None:
    for read in (lake.entity_at, lake.entity_history):
        with pytest.raises(InvalidInputError, match=f"'{CUSTOMERS}' has no primary key"):
            read(CUSTOMERS, 10)
        with pytest.raises(TableNotFoundError, match=r"s\.nothing"):
            read("s.nothing", 1)
        with pytest.raises(BranchNotFoundError, match="nowhere"):
            read(ORDERS, 1, ref="nowhere")
    with pytest.raises(VersionNotFoundError, match="version 99"):
        lake.entity_at(ORDERS, 1, version=99)
    with pytest.raises(TableNotFoundError):
        lake.entity_at(ORDERS, 1, version=1)
    with pytest.raises(InvalidInputError, match="both"):
        lake.entity_at(ORDERS, 1, version=1, ref="main")
    with pytest.raises(InvalidInputError, match="negative"):
        lake.entity_history(ORDERS, 1, limit=-1)


def test_repeated_key_is_reported(repo: ab.Repository) -> None:
    with repo.transaction(message="first") as tx:
        tx.create_table("s.t", SCHEMA)
        tx.append("s.t", table(1, 1))
    found = entry(repo, "s.t")
    with pytest.raises(KeyConflictError, match="more than once"):
        find_row(VersionRef(home=testing.config_of(repo).home_of(found), version=found.version), {"id": 1})


@pytest.mark.s3
def test_row_is_read_with_two_gets(location: Location) -> None:
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    with repo.transaction(message="first") as tx:
        for number in range(12):
            tx.create_table(f"s.t{number}", SCHEMA, primary_key=["id"])
        tx.append("s.t7", table(1))
    for number in range(5):
        append(repo, number, key="s.t8")
    commit = repo.list_commits()[2].graph_commit_id
    for where in ({"version": 4}, {"ref": commit}):
        counted, store = open_counted(location)
        assert counted.entity_at("s.t7", 1, **where) == {"id": 1, "v": "a"}
        assert (store.counts - MARK)["get"] <= 2
        assert (store.counts - MARK).total() <= 2


def test_history_shows_each_change_with_commit_time_and_actor(lake: ab.Repository) -> None:
    changed = put(lake, 2, "new")
    append(lake, 4)
    put(lake, 1, "other")
    put(lake, 2, "new")
    with lake.transaction(message="gone") as tx:
        tx.delete(ORDERS, "id = 2")
    append(lake, 30, key=CUSTOMERS)
    append(lake, 2)
    found = lake.entity_history(ORDERS, 2)
    assert reported(found) == [
        ("main", "append (2,)", None, "b"),
        ("main", "gone", "new", None),
        ("main", "new", "b", "new"),
        ("main", "first", None, "b"),
    ]
    assert found[2].commit == changed
    assert (found[2].commit_id, found[2].changed_at, found[2].actor) == (
        changed.graph_commit_id,
        changed.created_at,
        "ada",
    )
    assert lake.entity_history(ORDERS, 2, limit=2) == found[:2]
    assert lake.entity_history(ORDERS, 2, limit=0) == []
    assert lake.entity_history(ORDERS, 2, ref="main~4") == found[2:]
    assert lake.entity_history(ORDERS, 99) == []


def test_history_goes_through_drops_renames_and_new_tables_of_the_name(lake: ab.Repository) -> None:
    with lake.transaction(message="drop") as tx:
        tx.drop_table(ORDERS)
    with lake.transaction(message="again") as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, table(2, v="again"))
    with lake.transaction(message="rename") as tx:
        tx.rename_table(ORDERS, "s.renamed")
    assert reported(lake.entity_history(ORDERS, 2)) == [
        ("main", "rename", "again", None),
        ("main", "again", None, "again"),
        ("main", "drop", "b", None),
        ("main", "first", None, "b"),
    ]
    assert reported(lake.entity_history("s.renamed", 2)) == [("main", "rename", None, "again")]


def test_history_goes_through_changes_of_the_columns(lake: ab.Repository) -> None:
    with lake.transaction(message="null column") as tx:
        tx.add_columns(ORDERS, pa.schema([("empty", pa.int64())]))
    with lake.transaction(message="computed column") as tx:
        tx.add_columns(ORDERS, {"twice": "id * 2"})
    with lake.transaction(message="drop column") as tx:
        tx.drop_columns(ORDERS, ["v"])
    found = lake.entity_history(ORDERS, 2)
    assert [(change.commit.message, change.after) for change in found] == [
        ("drop column", {"id": 2, "empty": None, "twice": 4}),
        ("computed column", {"id": 2, "v": "b", "empty": None, "twice": 4}),
        ("first", {"id": 2, "v": "b"}),
    ]


def test_history_of_a_row_begins_when_its_key_became_the_key(repo: ab.Repository) -> None:
    with repo.transaction(message="first") as tx:
        tx.create_table("s.t", pa.schema([("a", pa.int64()), ("b", pa.int64())]), primary_key=["a"])
        tx.append("s.t", pa.table({"a": [1, 5], "b": [5, 6]}))
    with repo.transaction(message="another key") as tx:
        tx.set_primary_key("s.t", ["b"])  # no data is written, so the Lance version stays the same
    found = repo.entity_history("s.t", 5)
    assert [(change.commit.message, change.before, change.after) for change in found] == [
        ("another key", {"a": 5, "b": 6}, {"a": 1, "b": 5}),
        ("first", None, {"a": 5, "b": 6}),
    ]


def test_history_of_a_value_that_is_not_a_number_has_no_changes_of_its_own(repo: ab.Repository) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("xs", pa.list_(pa.float64()))])
    nan = float("nan")
    with repo.transaction(message="first") as tx:
        tx.create_table("s.t", schema, primary_key=["id"])
        tx.append("s.t", pa.table({"id": [1], "x": [nan], "xs": [[nan, 1.0]]}, schema=schema))
    with repo.transaction(message="second") as tx:
        tx.append("s.t", pa.table({"id": [2], "x": [1.0], "xs": [[]]}, schema=schema))
    assert [change.commit.message for change in repo.entity_history("s.t", 1)] == ["first"]


@pytest.mark.s3
def test_history_of_a_branch_continues_in_what_it_was_made_from(lake: ab.Repository) -> None:
    put(lake, 2, "one")
    lake.branch_create("dev")
    put(lake, 2, "unseen")
    put(lake, 2, "two", branch="dev")
    assert reported(lake.entity_history(ORDERS, 2, ref="dev")) == [
        ("dev", "two", "one", "two"),
        ("main", "one", "b", "one"),
        ("main", "first", None, "b"),
    ]


def test_history_after_a_reset_leaves_out_what_was_undone(lake: ab.Repository) -> None:
    put(lake, 2, "one")
    put(lake, 2, "two")
    lake.reset("main", to="main~1")
    put(lake, 2, "three")
    assert reported(lake.entity_history(ORDERS, 2))[:2] == [
        ("main", "three", "one", "three"),
        ("main", "one", "b", "one"),
    ]


def test_history_of_a_live_branch_follows_main_where_the_branch_did(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    put(lake, 2, "seen")
    start: Reported = [("main", "seen", "b", "seen"), ("main", "first", None, "b")]
    assert reported(lake.entity_history(ORDERS, 2, ref="dev")) == start
    put(lake, 2, "own", branch="dev")
    put(lake, 2, "unseen")
    own: Reported = [("dev", "own", "seen", "own"), *start]
    assert reported(lake.entity_history(ORDERS, 2, ref="dev")) == own
    lake.branch_pull("dev", ORDERS)
    put(lake, 2, "after")
    pulled: Reported = [
        ("main", "after", "unseen", "after"),
        ("dev", f"Pull {ORDERS}", "own", "unseen"),
        *own,
    ]
    assert reported(lake.entity_history(ORDERS, 2, ref="dev")) == pulled
    lake.branch_freeze("dev")
    put(lake, 2, "too late")
    put(lake, 2, "last", branch="dev")
    assert reported(lake.entity_history(ORDERS, 2, ref="dev")) == [("dev", "last", "after", "last"), *pulled]


def test_history_on_a_live_branch_shows_main_dropping_the_table(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 30, key=CUSTOMERS, branch="dev")
    with lake.transaction(message="drop") as tx:
        tx.drop_table(ORDERS)
    assert reported(lake.entity_history(ORDERS, 2, ref="dev")) == [
        ("main", "drop", "b", None),
        ("main", "first", None, "b"),
    ]


def test_history_costs_nothing_for_commits_of_other_tables(location: Location) -> None:
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    with repo.transaction(message="first") as tx:
        for key in (ORDERS, CUSTOMERS):
            tx.create_table(key, SCHEMA, primary_key=["id"])
    append(repo, 1)
    costs = []
    for few in (range(2, 4), range(4, 30)):
        for number in few:
            append(repo, number, key=CUSTOMERS)
        counted, store = open_counted(location)
        assert len(counted.entity_history(ORDERS, 1)) == 1
        costs.append(store.counts.total())
    assert costs[0] == costs[1]


def row_at(repo: ab.Repository, number: int, commit_id: str | None) -> dict[str, Any] | None:
    """A row as it is read from one commit alone."""
    if commit_id is None or ORDERS not in repo.snapshot_of(commit_id):
        return None
    return repo.entity_at(ORDERS, number, ref=commit_id)


def change_at_random(repo: ab.Repository, branch: str, chance: random.Random) -> None:
    some = chance.sample(range(1, 7), 2)
    value = chance.choice("xyz")
    state = repo.snapshot_of(branch)
    there = set(state[ORDERS].to_arrow().column("id").to_pylist()) if ORDERS in state else set()
    with repo.transaction(branch, message=value) as tx:
        if ORDERS not in state:
            tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
            tx.append(ORDERS, table(*some, v=value))
            return
        match chance.randrange(10):
            case 0:
                tx.delete(ORDERS, f"id = {some[0]}")
            case 1:
                tx.overwrite(ORDERS, table(*some, v=value))
            case 2:
                tx.update(ORDERS, {"v": f"'{value}'"}, where=f"id <= {some[0]}")
            case 3:
                tx.drop_table(ORDERS)
            case 4 | 5:
                tx.append(ORDERS, table(*(set(some) - there) or {99 + len(there) + chance.randrange(10**6)}, v=value))
            case _:
                tx.upsert(ORDERS, table(*some, v=value))


@pytest.mark.parametrize("seed", range(2))
def test_history_is_what_reading_every_commit_shows(lake: ab.Repository, seed: int) -> None:
    chance = random.Random(seed)
    for step in range(24):
        if step == 8:
            lake.branch_create("dev")
        if step == 16:
            lake.reset("dev", to="dev~2")
        change_at_random(lake, "main" if step < 8 else "dev", chance)
    for number in range(1, 7):
        found_by_reading = []
        for commit in lake.list_commits("dev", limit=None):
            before = row_at(lake, number, commit.parent_commit_id)
            after = row_at(lake, number, commit.graph_commit_id)
            if before != after:
                found_by_reading.append(EntityChange(commit=commit, before=before, after=after))
        assert lake.entity_history(ORDERS, number, ref="dev") == found_by_reading


def check_history(repo: ab.Repository, seed: int, *, steps: int) -> None:
    chance = random.Random(seed)
    histories.begin(repo)
    for _ in range(steps):
        histories.change_table(repo, "main", chance)
    changed = [(commit.id, histories.changed_keys(repo, commit)) for commit in repo.list_commits(limit=None)]
    for key in histories.KEYS:
        expected = [commit_id for commit_id, keys in changed if key in keys]
        found = repo.entity_history(histories.TABLE, key)
        assert [change.commit_id for change in found] == expected
        assert all(change.before is not None or change.after is not None for change in found)


@pytest.mark.parametrize("seed", range(4))
def test_history_of_any_table_is_what_the_diff_of_each_commit_shows(repo: ab.Repository, seed: int) -> None:
    check_history(repo, seed, steps=20)


@pytest.mark.proof
@pytest.mark.local
@pytest.mark.parametrize("seed", range(100, 160))
def test_history_of_many_tables_is_what_the_diff_of_each_commit_shows(repo: ab.Repository, seed: int) -> None:
    check_history(repo, seed, steps=40)


def test_history_costs_what_changed_the_row(location: Location) -> None:
    """The requests grow with the logarithm of the number of commits to the table, and with the pages of the log."""
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    with repo.transaction(message="first") as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, table(1, 2, 3))
    costs = []
    for few in (range(4, 24), range(24, 104)):
        for number in few:
            with repo.transaction(message="other rows") as tx:
                tx.upsert(ORDERS, table(2, number, v=f"{number}"))
        injection = FaultInjection()
        with all_stores_through(injection):
            counted = ab.open(location / "lake", storage_options=location.storage_options)
            injection.arm()
            assert [len(counted.entity_history(ORDERS, key)) for key in (1, number)] == [1, 1]
        costs.append(len(injection.requests))
    assert costs[1] <= costs[0] + 40  # before, each of the 80 commits cost two requests and a scan for each row


@pytest.mark.local
def test_rows_are_found_in_a_table_of_very_many_fragments(repo: ab.Repository, tmp_path: Path) -> None:
    """Such a table is searched step by step, from both ends. Each fragment has one row."""
    numbers = range(1000)
    lance.write_dataset(table(*numbers), str(tmp_path / "raw.lance"), max_rows_per_file=1, enable_stable_row_ids=True)
    repo.adopt(ORDERS, str(tmp_path / "raw.lance"), primary_key=["id"])
    put(repo, 500, "later")
    put(repo, 1000, "new")
    assert repo.table(ORDERS).version_ref.count_fragments() >= 1000
    for number in (0, 31, 32, 200, 711, 712, 967, 968, 999):
        assert [
            (change.before is None, (change.after or {})["id"]) for change in repo.entity_history(ORDERS, number)
        ] == [(True, number)]
    assert [(change.after or {})["v"] for change in repo.entity_history(ORDERS, 500)] == ["later", "f"]
    assert [(change.after or {})["v"] for change in repo.entity_history(ORDERS, 1000)] == ["new"]
    assert repo.entity_history(ORDERS, 2000) == []


@pytest.mark.local
def test_repeated_key_is_reported_in_a_table_of_very_many_fragments(repo: ab.Repository, tmp_path: Path) -> None:
    """Each fragment has one row. The two rows of the key are in the middle and at the end."""
    raw = str(tmp_path / "raw.lance")
    lance.write_dataset(table(*range(400)), raw, max_rows_per_file=1, enable_stable_row_ids=True)
    repo.adopt(ORDERS, raw, primary_key=["id"])
    with repo.transaction(message="repeated") as tx:
        tx.append(ORDERS, table(100, v="again"), check_keys=False)
    with pytest.raises(KeyConflictError, match="more than once"):
        repo.entity_history(ORDERS, 100)
