"""Every pair of changes to a whole table, under every strategy, against the expected results in this file."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.repo.merge.conflict_types import ConflictKind
from anabranch.repo.transaction import Transaction
from tests.repo.conftest import nothing_changes
from tests.repo.merge.grids import Grid, parse_grid

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64())])
TEXTS = pa.schema([("id", pa.int64()), ("a", pa.string())])

# The tables of a pair are called t, v or w; behind the name is a letter for what is in them.
CONTENTS: dict[str, list[tuple[int, Any]]] = {
    "": [(1, 1), (2, 2), (3, 3)],
    "5": [(1, 5), (2, 2), (3, 3)],
    "6": [(1, 6), (2, 2), (3, 3)],
    "o": [(1, 7), (4, 4)],
    "x": [(1, 5), (4, 4)],
    "y": [(1, 6), (4, 4)],
    "n": [(1, 1)],
    "m": [(1, 9), (2, 2)],
    "nm": [(1, 1), (2, 2)],
    "s": [(1, "s")],
}

KNOWN = parse_grid("""
        keep  set5  set6  drop  to_v  to_w  over
keep    t     t5    t6    -     v     w     to
set5    t5    t5    cell! drop! v5    w5    cell!
set6    t6    cell! t6    drop! v6    w6    cell!
drop    -     drop! drop! -     drop! drop! drop!
to_v    v     v5    v6    drop! v     name! vo
to_w    w     w5    w6    drop! name! w     wo
over    to    cell! cell! drop! vo    wo    to
""")
KNOWN_SOURCE_WINS = parse_grid("""
        keep  set5  set6  drop  to_v  to_w  over
keep    t     t5    t6    -     v     w     to
set5    t5    t5    t5    t5    v5    w5    tx
set6    t6    t6    t6    t6    v6    w6    ty
drop    -     -     -     -     -     -     -
to_v    v     v5    v6    v     v     v     vo
to_w    w     w5    w6    w     w     w     wo
over    to    to    to    to    vo    wo    to
""")
KNOWN_TARGET_WINS = parse_grid("""
        keep  set5  set6  drop  to_v  to_w  over
keep    t     t5    t6    -     v     w     to
set5    t5    t5    t6    -     v5    w5    to
set6    t6    t5    t6    -     v6    w6    to
drop    -     t5    t6    -     v     w     to
to_v    v     v5    v6    -     v     w     vo
to_w    w     w5    w6    -     v     w     wo
over    to    tx    ty    -     vo    wo    to
""")

# Tables that there were not: with one row, with others, with another type, without a key.
NEW = parse_grid("""
        keep  new   more  text  bare
keep    -     tn    tm    ts    tn
new     tn    tn    cell! type! key!
more    tm    cell! tm    type! key!
text    ts    type! type! ts    key!
bare    tn    key!  key!  key!  rows!
""")
NEW_SOURCE_WINS = parse_grid("""
        keep  new   more  text  bare
keep    -     tn    tm    ts    tn
new     tn    tn    tnm   tn    tn
more    tm    tm    tm    tm    tm
text    ts    ts    ts    ts    ts
bare    tn    tn    tn    tn    tn
""")
NEW_TARGET_WINS = parse_grid("""
        keep  new   more  text  bare
keep    -     tn    tm    ts    tn
new     tn    tn    tm    ts    tn
more    tm    tnm   tm    ts    tn
text    ts    tn    tm    ts    tn
bare    tn    tn    tm    ts    tn
""")
# A row that only one side has comes along, but for the column that lost.
EXCEPTIONS = {
    ("source", "text", "more"): "t: 1=s 2=None",
    ("target", "more", "text"): "t: 1=s 2=None",
}

KNOWN_OPERATIONS: dict[str, Callable[[Transaction, str], object]] = {
    "keep": lambda _, __: None,
    "set5": lambda tx, t: tx.update(f"{t}t", {"a": "5"}, where="id = 1"),
    "set6": lambda tx, t: tx.update(f"{t}t", {"a": "6"}, where="id = 1"),
    "drop": lambda tx, t: tx.drop_table(f"{t}t"),
    "to_v": lambda tx, t: tx.rename_table(f"{t}t", f"{t}v"),
    "to_w": lambda tx, t: tx.rename_table(f"{t}t", f"{t}w"),
    "over": lambda tx, t: tx.overwrite(f"{t}t", rows("o")),
}
NEW_OPERATIONS: dict[str, Callable[[Transaction, str], object]] = {
    "keep": lambda _, __: None,
    "new": lambda tx, t: create(tx, t, "n", key=["id"]),
    "more": lambda tx, t: create(tx, t, "m", key=["id"]),
    "text": lambda tx, t: create(tx, t, "s", key=["id"]),
    "bare": lambda tx, t: create(tx, t, "n", key=[]),
}
GRIDS: dict[str, dict[str, Grid]] = {
    "known": {"fail": KNOWN, "source": KNOWN_SOURCE_WINS, "target": KNOWN_TARGET_WINS},
    "new": {"fail": NEW, "source": NEW_SOURCE_WINS, "target": NEW_TARGET_WINS},
}
OPERATIONS = {"known": KNOWN_OPERATIONS, "new": NEW_OPERATIONS}
# They add nothing, except where they meet a change of the same kind.
AGAIN = {"set6", "to_w"}
KINDS = {
    "cell!": ConflictKind.DIVERGENT_UPDATE,
    "drop!": ConflictKind.DELETE_VS_UPDATE,
    "name!": ConflictKind.SCHEMA,
    "type!": ConflictKind.SCHEMA,
    "key!": ConflictKind.SCHEMA,
    "rows!": ConflictKind.KEYLESS,
}


def rows(content: str) -> pa.Table:
    ids, values = zip(*CONTENTS[content], strict=True)
    return pa.table([ids, values], schema=TEXTS if content == "s" else SCHEMA)


def create(tx: Transaction, prefix: str, content: str, *, key: list[str]) -> None:
    data = rows(content)
    tx.create_table(f"{prefix}t", data.schema, primary_key=key)
    tx.append(f"{prefix}t", data)


def prefix_of(kind: str, pair: tuple[str, str]) -> str:
    return f"s.{kind}_{'_'.join(pair)}_".lower()


def expected(kind: str, strategy: str, pair: tuple[str, str]) -> str:
    cell = EXCEPTIONS.get((strategy, *pair)) or GRIDS[kind][strategy][pair]
    if cell == "-" or ":" in cell:
        return cell
    return f"{cell[0]}: " + " ".join(f"{id_}={value}" for id_, value in CONTENTS[cell[1:]])


def found(repo: ab.Repository, branch: str) -> dict[str, str]:
    """What there is of each pair."""
    states: dict[str, list[str]] = {}
    for key, table in sorted(repo.snapshot_of(branch).items()):
        content = sorted((row["id"], row["a"]) for row in table.to_arrow().to_pylist())
        states.setdefault(key[:-1], []).append(f"{key[-1]}: " + " ".join(f"{id_}={value}" for id_, value in content))
    return {prefix: "; ".join(state) for prefix, state in states.items()}


def begin(repo: ab.Repository, *, is_clean: bool) -> list[tuple[str, tuple[str, str]]]:
    """The pairs that do not conflict, or those that do, each done to tables of its own on two branches."""
    pairs = [
        (kind, pair)
        for kind, grids in GRIDS.items()
        for pair, cell in grids["fail"].items()
        if is_clean is not cell.endswith("!") and not (is_clean and AGAIN & {*pair})
    ]
    with repo.transaction() as tx:
        for kind, pair in pairs:
            if kind == "known":
                create(tx, prefix_of(kind, pair), "", key=["id"])
    for number, branch in enumerate(("source", "target")):
        repo.branch_create(branch)
        with repo.transaction(branch) as tx:
            for kind, pair in pairs:
                OPERATIONS[kind][pair[number]](tx, prefix_of(kind, pair))
    return pairs


def test_pairs_without_a_conflict_have_the_expected_result(repo: ab.Repository) -> None:
    pairs = begin(repo, is_clean=True)
    for kind, pair in pairs:
        assert len({grid[pair] for grid in GRIDS[kind].values()}) == 1, "no strategy is needed"
    planned = repo.merge("source", into="target", dry_run=True).plan
    assert planned.is_clean
    assert repo.merge("source", into="target").plan == planned
    states = found(repo, "target")
    for kind, pair in pairs:
        assert states.get(prefix_of(kind, pair), "-") == expected(kind, "fail", pair), (kind, pair)


def test_pairs_with_a_conflict_are_reported_or_decided_as_expected(repo: ab.Repository) -> None:
    pairs = begin(repo, is_clean=False)
    conflicts = list(repo.conflicts("source", into="target"))
    kinds: dict[str, set[ConflictKind]] = {}
    for conflict in conflicts:
        kinds.setdefault(conflict.table[:-1], set()).add(conflict.kind)
    for kind, pair in pairs:
        cell = GRIDS[kind]["fail"][pair]
        wanted = ConflictKind.DIVERGENT_INSERT if (kind, cell) == ("new", "cell!") else KINDS[cell]
        assert kinds[prefix_of(kind, pair)] == {wanted}, (kind, pair)
    with nothing_changes(repo), pytest.raises(MergeConflictError) as caught:
        repo.merge("source", into="target")
    assert caught.value.count == len(conflicts)
    assert caught.value.conflicts == tuple(conflicts[:100])
    for strategy in ("source", "target"):
        into = f"{strategy}-wins"
        repo.branch_create_from("target", into)
        planned = repo.merge("source", into=into, strategy=strategy, dry_run=True).plan
        assert planned.is_clean
        assert repo.merge("source", into=into, strategy=strategy).plan == planned
        states = found(repo, into)
        for kind, pair in pairs:
            assert states.get(prefix_of(kind, pair), "-") == expected(kind, strategy, pair), (kind, pair)
