"""Every pair of changes to one row, under every strategy, against the expected results in this file."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind
from anabranch.repo.merge.plan import MergePlan
from tests.repo.conftest import nothing_changes
from tests.repo.merge.grids import Grid, parse_grid

# What an operation makes of the row 11. With a key, a row that is deleted and inserted again is the same row.
AFTER = {
    "keep": "11",
    "touch": "11",
    "a2": "21",
    "a3": "31",
    "b2": "12",
    "gone": "-",
    "again": "11",
    "other": "55",
}

KEYED = parse_grid("""
        keep  touch a2    a3    b2    gone  again other
keep    11    11    21    31    12    -     11    55
touch   11    11    21    31    12    -     11    55
a2      21    21    21    a!    22    row!  21    a!
a3      31    31    a!    31    32    row!  31    a!
b2      12    12    22    32    12    row!  12    b!
gone    -     -     row!  row!  row!  -     -     row!
again   11    11    21    31    12    -     11    55
other   55    55    a!    a!    b!    row!  55    55
""")
KEYED_SOURCE_WINS = parse_grid("""
        keep  touch a2    a3    b2    gone  again other
keep    11    11    21    31    12    -     11    55
touch   11    11    21    31    12    -     11    55
a2      21    21    21    21    22    21    21    25
a3      31    31    31    31    32    31    31    35
b2      12    12    22    32    12    12    12    52
gone    -     -     -     -     -     -     -     -
again   11    11    21    31    12    -     11    55
other   55    55    55    55    55    55    55    55
""")
KEYED_TARGET_WINS = parse_grid("""
        keep  touch a2    a3    b2    gone  again other
keep    11    11    21    31    12    -     11    55
touch   11    11    21    31    12    -     11    55
a2      21    21    21    31    22    -     21    55
a3      31    31    21    31    32    -     31    55
b2      12    12    22    32    12    -     12    55
gone    -     -     21    31    12    -     -     55
again   11    11    21    31    12    -     11    55
other   55    55    25    35    52    -     55    55
""")

# What an operation makes of no row at all.
AFTER_NEW = {"keep": "-", "new": "11", "same": "11", "a2": "21", "both": "22", "passing": "-"}

NEW = parse_grid("""
        keep  new   same  a2    both  passing
keep    -     11    11    21    22    -
new     11    11    11    a!    ab!   11
same    11    11    11    a!    ab!   11
a2      21    a!    a!    21    b!    21
both    22    ab!   ab!   b!    22    22
passing -     11    11    21    22    -
""")
NEW_SOURCE_WINS = parse_grid("""
        keep  new   same  a2    both  passing
keep    -     11    11    21    22    -
new     11    11    11    11    11    11
same    11    11    11    11    11    11
a2      21    21    21    21    21    21
both    22    22    22    22    22    22
passing -     11    11    21    22    -
""")
NEW_TARGET_WINS = parse_grid("""
        keep  new   same  a2    both  passing
keep    -     11    11    21    22    -
new     11    11    11    21    22    11
same    11    11    11    21    22    11
a2      21    11    11    21    22    21
both    22    11    11    21    22    22
passing -     11    11    21    22    -
""")

# Without a key a row that is inserted again is another row, and both inserted rows stay, even if they are equal.
KEYLESS = parse_grid("""
        keep  touch a2    a3    b2    gone  again other
keep    11    11    21    31    12    -     11    55
touch   11    11    21    31    12    -     11    55
a2      21    21    21    a!    22    row!  row!  row!
a3      31    31    a!    31    32    row!  row!  row!
b2      12    12    22    32    12    row!  row!  row!
gone    -     -     row!  row!  row!  -     11    55
again   11    11    row!  row!  row!  11    11+11 11+55
other   55    55    row!  row!  row!  55    11+55 55+55
""")
KEYLESS_SOURCE_WINS = parse_grid("""
        keep  touch a2    a3    b2    gone  again other
keep    11    11    21    31    12    -     11    55
touch   11    11    21    31    12    -     11    55
a2      21    21    21    21    22    21    21+11 21+55
a3      31    31    31    31    32    31    31+11 31+55
b2      12    12    22    32    12    12    12+11 12+55
gone    -     -     -     -     -     -     11    55
again   11    11    11    11    11    11    11+11 11+55
other   55    55    55    55    55    55    11+55 55+55
""")
KEYLESS_TARGET_WINS = parse_grid("""
        keep  touch a2    a3    b2    gone  again other
keep    11    11    21    31    12    -     11    55
touch   11    11    21    31    12    -     11    55
a2      21    21    21    31    22    -     11    55
a3      31    31    21    31    32    -     11    55
b2      12    12    22    32    12    -     11    55
gone    -     -     21    31    12    -     11    55
again   11    11    21+11 31+11 12+11 11    11+11 11+55
other   55    55    21+55 31+55 12+55 55    11+55 55+55
""")

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("a", pa.int64()), ("b", pa.int64())])


@dataclass(frozen=True)
class Case:
    """A table for each kind of pair, with a row for each pair of it."""

    name: str
    key: tuple[str, ...]
    base: str
    after: dict[str, str]
    expected: dict[str, Grid]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return list(self.expected["fail"])

    def numbers(self, *, is_clean: bool) -> dict[int, tuple[str, str]]:
        """The ids of those pairs that are, or are not, in conflict."""
        outcomes = self.expected["fail"]
        return {n: pair for n, pair in enumerate(self.pairs) if is_clean is not outcomes[pair].endswith("!")}


CASES = [
    *[
        case
        for key in (("id",), ("id", "part"))
        for case in (
            Case(
                f"s.known_{len(key)}",
                key,
                "11",
                AFTER,
                {"fail": KEYED, "source": KEYED_SOURCE_WINS, "target": KEYED_TARGET_WINS},
            ),
            Case(
                f"s.new_{len(key)}",
                key,
                "-",
                AFTER_NEW,
                {"fail": NEW, "source": NEW_SOURCE_WINS, "target": NEW_TARGET_WINS},
            ),
        )
    ],
    Case(
        "s.keyless",
        (),
        "11",
        AFTER,
        {"fail": KEYLESS, "source": KEYLESS_SOURCE_WINS, "target": KEYLESS_TARGET_WINS},
    ),
]


def row_of(number: int, cells: str) -> dict[str, Any]:
    # One part of the key is the same in many rows.
    return {"id": number, "part": "p", "a": int(cells[0]), "b": int(cells[1])}


def to_rows(number: int, cells: str) -> list[dict[str, Any]]:
    return [] if cells == "-" else [row_of(number, each) for each in cells.split("+")]


def to_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def begin(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        for case in CASES:
            tx.create_table(case.name, SCHEMA, primary_key=case.key)
            tx.append(case.name, to_table([row for n, _ in enumerate(case.pairs) for row in to_rows(n, case.base)]))


def do(repo: ab.Repository, branch: str, case: Case, chosen: dict[int, str]) -> None:
    """Do to each row what is chosen for it."""

    def such(*names: str) -> str:
        return ", ".join(str(n) for n, name in chosen.items() if name in names) or "-1"

    news = {n: name for n, name in chosen.items() if name not in ("keep", "gone", "touch")}
    with repo.transaction(branch) as tx:
        if case.base == "-":
            passing = [row_of(n, "77") for n in news]
            tx.append(case.name, to_table(passing))
            tx.delete(case.name, "a = 7")
            tx.append(case.name, to_table([r for n, name in news.items() for r in to_rows(n, case.after[name])]))
            return
        tx.update(case.name, {"a": "a"}, where=f"id IN ({such('touch')})")
        tx.update(case.name, {"a": "2"}, where=f"id IN ({such('a2')})")
        tx.update(case.name, {"a": "3"}, where=f"id IN ({such('a3')})")
        tx.update(case.name, {"b": "2"}, where=f"id IN ({such('b2')})")
        tx.delete(case.name, f"id IN ({such('gone', 'again', 'other')})")
        again = [row_of(n, case.after[name]) for n, name in news.items() if name in ("again", "other")]
        tx.append(case.name, to_table(again))


def do_pairs(repo: ab.Repository, source: str, target: str, *, kinds: tuple[bool, ...]) -> None:
    for case in CASES:
        chosen = {n: pair for is_clean in kinds for n, pair in case.numbers(is_clean=is_clean).items()}
        do(repo, source, case, {n: pair[0] for n, pair in chosen.items()})
        do(repo, target, case, {n: pair[1] for n, pair in chosen.items()})


def found(repo: ab.Repository, branch: str, case: Case) -> dict[int, Counter[str]]:
    cells: dict[int, Counter[str]] = {n: Counter() for n, _ in enumerate(case.pairs)}
    for row in repo.snapshot_of(branch)[case.name].to_arrow().to_pylist():
        assert row["part"] == "p"
        cells[row["id"]][f"{row['a']}{row['b']}"] += 1
    return cells


def wanted(case: Case, strategy: str, *, but: dict[int, tuple[str, str]]) -> dict[int, Counter[str]]:
    """What is written down, and the base of the pairs that were left out."""
    outcomes = [case.base if n in but else case.expected[strategy][pair] for n, pair in enumerate(case.pairs)]
    return {n: Counter([] if cells == "-" else cells.split("+")) for n, cells in enumerate(outcomes)}


def expected_conflicts(case: Case) -> Iterator[tuple[Any, ...]]:
    for number, (source, target) in case.numbers(is_clean=False).items():
        outcome = case.expected["fail"][source, target].removesuffix("!")
        states = [case.base, case.after[source], case.after[target]]
        if not case.key:
            named = zip(("base", source, target), states, strict=True)
            states = ["-" if name in ("again", "other") else state for name, state in named]
        base, ours, theirs = ([*to_rows(number, state), None][0] for state in states)
        if outcome == "row":
            yield case.name, number, ConflictKind.DELETE_VS_UPDATE, None, str(base), str(ours), str(theirs)
            continue
        kind = ConflictKind.DIVERGENT_INSERT if base is None else ConflictKind.DIVERGENT_UPDATE
        for column in outcome:
            cells = [row and row[column] for row in (base, ours, theirs)]
            yield case.name, number, kind, column, *map(str, cells)


def reported(case: Case, conflict: Conflict, by_address: dict[int, int]) -> tuple[Any, ...]:
    key = dict(conflict.key or {})
    values = map(str, (conflict.base, conflict.source, conflict.target))
    if case.key:
        number = key["id"]
        assert key == {name: {"id": number, "part": "p"}[name] for name in case.key}
    else:
        number = by_address.get(key.pop("_rowaddr"), -1)
        assert key == {}
        if number == -1:  # the target does not have it
            assert conflict.base is not None
            number = conflict.base["id"]
    return conflict.table, number, conflict.kind, conflict.column, *values


def addresses(repo: ab.Repository, branch: str, case: Case) -> dict[int, int]:
    scan = (
        repo.snapshot_of(branch)[case.name].version_ref.open().scanner(columns=["id"], with_row_address=True).to_table()
    )
    return dict(zip(scan["_rowaddr"].to_pylist(), scan["id"].to_pylist(), strict=True))


def test_pairs_without_a_conflict_have_the_expected_result(repo: ab.Repository) -> None:
    begin(repo)
    for name in ("source", "target"):
        repo.branch_create(name)
    do_pairs(repo, "source", "target", kinds=(True,))
    planned = repo.merge("source", into="target", dry_run=True).plan
    assert planned.is_clean
    assert list(repo.conflicts("source", into="target")) == []
    check_counts(planned, "fail", but={case.name: case.numbers(is_clean=False) for case in CASES})
    merged = repo.merge("source", into="target")
    assert merged.plan == planned
    for case in CASES:
        assert found(repo, "target", case) == wanted(case, "fail", but=case.numbers(is_clean=False)), case.name


@pytest.mark.both_engines(spark_is_slow=True)
def test_pairs_that_conflict_are_reported_and_change_nothing(repo: ab.Repository) -> None:
    begin(repo)
    for name in ("source", "target"):
        repo.branch_create(name)
    do_pairs(repo, "source", "target", kinds=(True, False))
    conflicts = list(repo.conflicts("source", into="target"))
    for case in CASES:
        by_address = addresses(repo, "target", case)
        own = [reported(case, conflict, by_address) for conflict in conflicts if conflict.table == case.name]
        assert sorted(own) == sorted(expected_conflicts(case))
    planned = repo.merge("source", into="target", dry_run=True).plan
    assert planned.conflict_count == len(conflicts) == sum(table.conflicts for table in planned.tables)
    assert planned.conflicts == tuple(conflicts[:100])
    with nothing_changes(repo), pytest.raises(MergeConflictError) as caught:
        repo.merge("source", into="target")
    assert caught.value.count == len(conflicts)
    assert caught.value.conflicts == tuple(conflicts[:100])


@pytest.mark.parametrize("strategy", ["source", "target"])
def test_strategy_decides_every_pair_as_expected(repo: ab.Repository, strategy: str) -> None:
    begin(repo)
    for name in ("source", "target"):
        repo.branch_create(name)
    do_pairs(repo, "source", "target", kinds=(True, False))
    planned = repo.merge("source", into="target", strategy=strategy, dry_run=True).plan
    assert planned.is_clean
    assert list(repo.conflicts("source", into="target", strategy=strategy)) == []
    check_counts(planned, strategy, but={case.name: {} for case in CASES})
    merged = repo.merge("source", into="target", strategy=strategy)
    assert merged.plan == planned
    for case in CASES:
        assert found(repo, "target", case) == wanted(case, strategy, but={}), case.name


def check_counts(plan: MergePlan, strategy: str, *, but: dict[str, dict[int, tuple[str, str]]]) -> None:
    """The rows that a plan counts as inserted, updated and deleted are those of the grids."""
    by_name = {table.table: table for table in plan.tables}
    for case in CASES:
        if not case.key:
            continue
        inserted = updated = deleted = 0
        for number, pair in enumerate(case.pairs):
            if number in but[case.name]:
                continue
            before, after = case.after[pair[1]], case.expected[strategy][pair]
            inserted += before == "-" != after
            deleted += after == "-" != before
            updated += "-" not in (before, after) and before != after
        counts = by_name[case.name].counts
        assert (counts.inserted, counts.updated, counts.deleted) == (inserted, updated, deleted)
