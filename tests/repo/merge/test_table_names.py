"""Tables that were renamed, swapped or replaced on branches, against the expected names and rows in this file."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.repo.transaction import Transaction
from tests.repo.conftest import nothing_changes

SCHEMA = pa.schema([("id", pa.string())])

# What the branches dev and main do to the tables a and b: rename (a>c), add a row (a*), drop (-a) or create one (+a).
# A table has the rows of its origin and of the branches that changed it, so 'b=A,main' is a table created as a.
CLEAN: dict[str, tuple[str, str, str]] = {
    "swapped": ("a>x b>a x>b", "a*", "a=B b=A,main"),
    "swapped and changed": ("a>x b>a x>b a*", "b*", "a=B,dev,main b=A"),
    "swapped on both sides": ("a>x b>a x>b a*", "a>x b>a x>b b*", "a=B,dev b=A,main"),
    "swapped, added": ("a>x b>a x>b", "+c a*", "a=B b=A,main c=main"),
    "moved up": ("b>c a>b", "a* b*", "b=A,main c=B,main"),
    "moved up, and a new one": ("b>c a>b +a", "a* b*", "a=dev b=A,main c=B,main"),
    "moved up in part on the other side": ("b>c a>b", "b>c a*", "b=A,main c=B"),
    "old name used again": ("a>c +a", "a* b*", "a=dev b=B,main c=A,main"),
    "old name used again, same rename": ("a>c +a", "a>c c*", "a=dev b=B c=A,main"),
    "old name used again on both sides": ("a>c +a c*", "a>c +a", "a=dev,main b=B c=A,dev"),
    "old name used again, not changed": ("a>c +a", "b*", "a=dev b=B,main c=A"),
    "old name of a dropped table": ("-a b>a", "b*", "a=B,main"),
    "dropped and created again": ("-a +a", "b*", "a=dev b=B,main"),
    "two names later": ("a>c c>d +a a>c", "a*", "b=B c=dev d=A,main"),
}
# The conflicts, and what comes of them if dev wins, and if main wins.
UNDECIDED: dict[str, tuple[str, str, str, str, str]] = {
    "new table takes the new name": ("a>c", "+c a*", "c", "b=B c=A,main", "a=A,main b=B c=main"),
    "both take one name": ("a>c", "b>c a*", "c", "b=B c=A,main", "a=A,main c=B"),
    "both take one name, and a new one": ("a>c", "b>c +b", "c", "b=B c=A", "a=A b=main c=B"),
    "swapped, renamed": ("a>x b>a x>b", "a>c", "c", "a=B b=A", "a=B c=A"),
    "swapped, renamed to the same": ("a>x b>a x>b", "a>c b>d", "c d", "a=B b=A", "c=A d=B"),
    "swapped, dropped": ("a>x b>a x>b", "-a", "b", "a=B b=A", "a=B"),
    "taken, changed": ("-a b>a", "a*", "a a", "a=B", "a=A,main b=B"),
    "old name used again, renamed": ("a>c +a", "a>d", "d", "a=dev b=B c=A", "a=dev b=B d=A"),
    "old name used again, dropped": ("a>c +a", "-a", "c", "a=dev b=B c=A", "a=dev b=B"),
}


def do(tx: Transaction, steps: str, branch: str) -> None:
    for step in steps.split():
        if step[0] == "+":
            create(tx, step[1:], branch)
        elif step[0] == "-":
            tx.drop_table(f"s.{step[1:]}")
        elif step[-1] == "*":
            tx.append(f"s.{step[:-1]}", [{"id": branch}])
        else:
            old, new = step.split(">")
            tx.rename_table(f"s.{old}", f"s.{new}")


def create(tx: Transaction, name: str, row: str) -> None:
    tx.create_table(f"s.{name}", SCHEMA, primary_key=["id"])
    tx.append(f"s.{name}", [{"id": row}])


def tables_of(repo: ab.Repository, branch: str) -> str:
    def iter_texts() -> Iterator[str]:
        for key, table in sorted(repo.snapshot_of(branch).items()):
            yield f"{key[2:]}={','.join(sorted(table.to_arrow()['id'].to_pylist()))}"

    return " ".join(iter_texts())


def begin(repo: ab.Repository, dev: str, main: str) -> None:
    with repo.transaction() as tx:
        create(tx, "a", "A")
        create(tx, "b", "B")
    repo.branch_create("dev")
    for branch, steps in (("dev", dev), ("main", main)):
        with repo.transaction(branch) as tx:
            do(tx, steps, branch)


def merged(repo: ab.Repository, source: str, target: str, into: str, **ways: Any) -> str:
    """Merge into a copy of the target. Return its tables."""
    repo.branch_create(into, target)
    planned = repo.merge(source, into, **ways, dry_run=True).plan
    assert planned.is_clean
    assert repo.merge(source, into, **ways).plan == planned
    assert repo.merge(source, into).outcome == "already_up_to_date"
    return tables_of(repo, into)


@pytest.mark.parametrize("case", CLEAN)
def test_tables_are_matched_by_their_origin_and_not_by_their_names(repo: ab.Repository, case: str) -> None:
    dev, main, expected = CLEAN[case]
    begin(repo, dev, main)
    assert merged(repo, "dev", "main", "one") == expected
    assert merged(repo, "main", "dev", "other") == expected
    # The next merge finds the same tables again.
    with repo.transaction("dev") as tx:
        for key in tx.tables:
            tx.append(key, [{"id": "again"}])
    tables = dict(text.split("=") for text in expected.split())
    again = {
        name: rows if rows == "main" else ",".join(sorted([*rows.split(","), "again"])) for name, rows in tables.items()
    }
    repo.merge("dev", "one")
    assert tables_of(repo, "one") == " ".join(f"{name}={rows}" for name, rows in again.items())


@pytest.mark.parametrize("case", UNDECIDED)
def test_conflicts_about_table_names_are_decided_for_one_side(repo: ab.Repository, case: str) -> None:
    """A table that loses its name gets the one that it has on the side that wins, or is left out if it is new."""
    dev, main, names, *decided = UNDECIDED[case]
    begin(repo, dev, main)
    conflicts = list(repo.conflicts("dev", "main"))
    assert " ".join(sorted(conflict.table[2:] for conflict in conflicts)) == names
    plan = repo.merge("dev", "main", dry_run=True).plan
    assert {(one.table, one.conflicts) for one in plan.tables if one.conflicts} == {
        (f"s.{name}", names.split().count(name)) for name in names.split()
    }
    with nothing_changes(repo), pytest.raises(MergeConflictError):
        repo.merge("dev", "main")
    with nothing_changes(repo), pytest.raises(MergeConflictError):
        repo.merge("main", "dev")
    for side, other, expected in zip(("source", "target"), ("target", "source"), decided, strict=True):
        for way, decisions in ways_to_decide(conflicts, side):
            assert merged(repo, "dev", "main", f"{side}-{way}", **decisions) == expected, way
        assert merged(repo, "main", "dev", f"{side}-other", strategy=other) == expected


def ways_to_decide(conflicts: list[Conflict], side: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "strategy", {"strategy": side}
    yield "resolvers", {"resolvers": {conflict.table: side for conflict in conflicts}}
    yield "resolutions", {"resolutions": [{**asdict(conflict), "take": side} for conflict in conflicts]}


def append(repo: ab.Repository, branch: str, name: str, row: str) -> None:
    with repo.transaction(branch) as tx:
        tx.append(f"s.{name}", [{"id": row}])


def test_tables_of_one_folder_are_not_one_table(repo: ab.Repository) -> None:
    """A name that two branches give to new tables is one folder, also after one of them is renamed."""
    begin(repo, "+v", "+v v>z")
    repo.merge("dev", "main")
    append(repo, "dev", "v", "later")
    repo.merge("dev", "main")
    assert tables_of(repo, "main") == "a=A b=B v=dev,later z=main"


def test_table_that_a_merge_copied_is_found_under_another_name(repo: ab.Repository) -> None:
    begin(repo, "+v", "")
    repo.merge("dev", "main")
    with repo.transaction() as tx:
        do(tx, "v>z +v", "main")
    append(repo, "dev", "v", "later")
    assert merged(repo, "dev", "main", "copy") == "a=A b=B v=main z=dev,later"


def test_rename_that_was_squashed_and_pulled_is_not_a_drop(repo: ab.Repository) -> None:
    begin(repo, "a>c", "b*")
    repo.merge("dev", "main", squash=True)
    repo.branch_pull("dev", "s.c")
    append(repo, "dev", "b", "dev")
    repo.merge("dev", "main")
    assert tables_of(repo, "main") == "b=B,dev,main c=A"


def test_several_bases_have_different_tables_of_one_name(repo: ab.Repository) -> None:
    begin(repo, "a*", "a>c +a")
    for branch, from_, merged_in in (("one", "dev", "main"), ("other", "main", "dev")):
        repo.branch_create(branch, from_)
        repo.merge(merged_in, branch)
    append(repo, "one", "c", "one")
    append(repo, "other", "a", "dev")  # A row that the old table of this name has, too.
    assert merged(repo, "one", "other", "result") == "a=dev,main b=B c=A,dev,one"


def test_live_branch_follows_a_table_that_main_renamed(repo: ab.Repository) -> None:
    begin(repo, "", "")
    repo.branch_create("live", mode="live")
    append(repo, "live", "a", "live")
    with repo.transaction() as tx:
        do(tx, "a>x b>a x>b", "main")
    repo.merge("live", "main")
    assert tables_of(repo, "main") == "a=B b=A,live"


@pytest.mark.parametrize("how", ["cherry_pick", "rebase", "run"])
def test_change_is_applied_to_the_table_that_was_renamed(repo: ab.Repository, how: str) -> None:
    begin(repo, "a*", "")
    with repo.begin_run() as run:
        with run.transaction() as tx:
            do(tx, "a*", "dev")
        with repo.transaction() as tx:
            do(tx, "a>c +a", "main")
        if how != "run":
            run.abort()
    if how == "cherry_pick":
        repo.cherry_pick("dev")
    elif how == "rebase":
        repo.rebase("dev", "main")
    assert tables_of(repo, "dev" if how == "rebase" else "main") == "a=main b=B c=A,dev"


def test_revert_of_a_rename_keeps_the_table_that_got_the_old_name(repo: ab.Repository) -> None:
    begin(repo, "", "a>c")
    renamed = repo.snapshot_of("main").commit.graph_commit_id
    with repo.transaction() as tx:
        do(tx, "+a", "main")
    with nothing_changes(repo), pytest.raises(MergeConflictError, match=r"'s\.a' \(1\)"):
        repo.revert(renamed)
    with repo.transaction() as tx:
        do(tx, "a>d c*", "main")
    repo.revert(renamed)
    assert tables_of(repo, "main") == "a=A,main b=B d=main"


def test_swap_is_applied_and_reverted(repo: ab.Repository) -> None:
    begin(repo, "a>x b>a x>b", "a*")
    picked = repo.cherry_pick("dev").commit
    assert tables_of(repo, "main") == "a=B b=A,main"
    append(repo, "main", "a", "later")
    assert picked is not None
    repo.revert(picked.graph_commit_id)
    assert tables_of(repo, "main") == "a=A,main b=B,later"


def test_resolver_is_for_the_table_that_has_its_name_in_the_result(repo: ab.Repository) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    with repo.transaction() as tx:
        for name in ("a", "b"):
            tx.create_table(f"s.{name}", schema, primary_key=["id"])
            tx.append(f"s.{name}", [{"id": 1, "v": name.upper()}])
    repo.branch_create("dev")
    with repo.transaction("dev") as tx:
        do(tx, "a>x b>a x>b", "dev")
    for branch in ("dev", "main"):
        with repo.transaction(branch) as tx:
            for name in ("a", "b"):
                tx.update(f"s.{name}", {"v": f"concat(v, ' {branch}')"}, where="id = 1")
    conflicts = list(repo.conflicts("dev", "main", resolvers={"s.a": "source"}))
    assert [(one.table, one.base, one.source) for one in conflicts] == [("s.b", "A", "A dev")]
    repo.merge("dev", "main", resolvers={"s.a": "source", "s.b.v": "target"})
    assert [repo[f"s.{name}"].to_arrow()["v"].to_pylist() for name in ("a", "b")] == [["B dev"], ["A main"]]


@pytest.fixture
def unmatched(repo: ab.Repository) -> ab.Repository:
    """A table a whose rows cannot be matched: it has no key, and an earlier merge combined changes of both sides."""
    with repo.transaction() as tx:
        tx.create_table("s.a", SCHEMA)
        tx.append("s.a", [{"id": "A"}])
    repo.branch_create("dev")
    for branch in ("dev", "main"):
        append(repo, branch, "a", branch)
    repo.merge("dev", "main")
    repo.merge("main", "dev")
    for branch in ("dev", "main"):
        with repo.transaction(branch) as tx:
            tx.update("s.a", {"id": "concat(id, ' of ', id)"}, where=f"id = '{branch}'")
    return repo


def test_table_that_is_kept_as_a_whole_gets_its_new_name(unmatched: ab.Repository) -> None:
    """It kept its old name, and the new table of that name replaced it."""
    with unmatched.transaction("dev") as tx:
        do(tx, "a>c +a", "dev")
    planned = unmatched.merge("dev", "main", strategy="target", dry_run=True).plan
    changes = [(one.table, one.renamed_from, one.taken_from) for one in planned.tables]
    assert changes == [("s.c", "s.a", "target"), ("s.a", None, None)]
    assert unmatched.merge("dev", "main", strategy="target").plan == planned
    assert tables_of(unmatched, "main") == "a=dev c=A,dev,main of main"


def test_squash_of_only_a_new_name_is_a_commit(unmatched: ab.Repository) -> None:
    with unmatched.transaction("dev") as tx:
        do(tx, "a>c", "dev")
    assert unmatched.merge("dev", "main", strategy="target", squash=True, dry_run=True).plan.tables
    assert unmatched.merge("dev", "main", strategy="target", squash=True).commit is not None
    assert tables_of(unmatched, "main") == "c=A,dev,main of main"


@pytest.mark.parametrize("is_source_live", [True, False])
def test_live_branch_that_swapped_names_keeps_changes_that_main_got_since(
    repo: ab.Repository, *, is_source_live: bool
) -> None:
    """The base was the state of main by the old name, which was newer than the table of the live branch."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    with repo.transaction() as tx:
        for name in ("a", "b"):
            tx.create_table(f"s.{name}", schema, primary_key=["id"])
            tx.append(f"s.{name}", [{"id": 1, "v": 0}])
    repo.branch_create("dev")
    repo.branch_create_from("main", "live", mode="live")
    with repo.transaction() as tx:
        tx.rename_table("s.b", "s.c")
    with repo.transaction("live") as tx:
        do(tx, "a>x c>a x>c", "live")
    repo.update("s.b", {"v": "5"}, where="id = 1", branch="dev")
    repo.merge("dev", "main")
    target = "dev" if is_source_live else "live"
    repo.merge("live" if is_source_live else "dev", target)
    found = {str(key): table.to_arrow()["v"].to_pylist() for key, table in repo.snapshot_of(target).items()}
    assert found == {"s.a": [5], "s.c": [0]}
