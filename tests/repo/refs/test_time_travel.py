"""Refs of every form show, for ever, what was there."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import AnabranchError, BranchNotFoundError, CommitNotFoundError
from anabranch.repo.log.entries import TableMap
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, entry, ids, table

BRANCHES = ("dev", "live")


def at(microseconds: int, branch: str) -> str:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
    return f"{branch}@{{{moment.isoformat()}}}"


def moved_at(repo: ab.Repository, branch: str) -> int:
    return repo.reflog(branch, limit=1)[0].moved_at


@pytest.mark.s3
def test_every_form_of_ref_finds_its_commit(lake: ab.Repository) -> None:
    append(lake, 4)
    commit = append(lake, 5).graph_commit_id
    time = moved_at(lake, "main")
    append(lake, 6)
    lake.tag_create("v1", ref="main~1")
    prefix = commit[:20]
    for ref in ("main~1", "main@v4", commit, commit.lower(), prefix, "v1", at(time, "main"), at(time + 1, "main")):
        assert ids(lake.snapshot_of(ref)) == [1, 2, 3, 4, 5], ref
    assert ids(lake.snapshot_of("v1~1")) == ids(lake.snapshot_of(at(time - 1, "main"))) == [1, 2, 3, 4]
    assert ids(lake.snapshot_at_version(4)) == [1, 2, 3, 4, 5]


def test_a_live_commit_holds_the_main_it_was_made_on(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 30, key=CUSTOMERS)
    first = append(lake, 4, branch="dev").graph_commit_id
    append(lake, 40, key=CUSTOMERS)
    append(lake, 5, branch="dev")
    append(lake, 50, key=CUSTOMERS)
    for ref in (first, "dev~1", "dev@v2"):
        found = lake.snapshot_of(ref)
        assert (ids(found), ids(found, CUSTOMERS)) == ([1, 2, 3, 4], [10, 20, 30]), ref
    found = lake.snapshot_of("dev@v3")
    assert (ids(found), ids(found, CUSTOMERS)) == ([1, 2, 3, 4, 5], [10, 20, 30, 40])
    found = lake.snapshot_of("dev@v1")
    assert (ids(found), ids(found, CUSTOMERS)) == ([1, 2, 3], [10, 20])
    now = lake.snapshot_of("dev")
    assert (ids(now), ids(now, CUSTOMERS)) == ([1, 2, 3, 4, 5], [10, 20, 30, 40, 50])
    assert now.main_commit_id == lake.head_commit_id_for_branch("main")


def test_between_its_commits_a_live_branch_followed_main(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 4, branch="dev")
    shown = {}
    for number in (30, 40, 50):
        append(lake, number, key=CUSTOMERS)
        shown[moved_at(lake, "main")] = ids(lake.snapshot_of("dev"), CUSTOMERS)
    append(lake, 5, branch="dev")
    for time, rows in shown.items():
        found = lake.snapshot_of(at(time, "dev"))
        assert (ids(found), ids(found, CUSTOMERS)) == ([1, 2, 3, 4], rows)
    # The same moment, made to stay: a pinned branch from it, and all that can be read of it.
    middle = list(shown)[1]
    lake.branch_create_from(at(middle, "dev"), "then")
    for ref in ("then", "then@v1", lake.head_commit_id_for_branch("then")):
        assert ids(lake.snapshot_of(ref), CUSTOMERS) == shown[middle], ref


def test_times_before_and_after_a_branchs_life_are_distinguished(lake: ab.Repository) -> None:
    before = moved_at(lake, "main")
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    alive = moved_at(lake, "dev")
    lake.branch_delete("dev")
    gone = moved_at(lake, "dev")
    lake.branch_create("dev")
    with pytest.raises(CommitNotFoundError):
        lake.snapshot_of(at(before, "dev"))
    assert ids(lake.snapshot_of(at(alive, "dev"))) == [1, 2, 3, 4]
    with pytest.raises(BranchNotFoundError):
        lake.snapshot_of(at(gone, "dev"))
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3]
    assert ids(lake.snapshot_of("dev@v2")) == [1, 2, 3, 4]


class Chronicle:
    """A repository, and what every ref of it has once shown."""

    def __init__(self, repo: ab.Repository) -> None:
        self.repo = repo
        self.shown: dict[str, TableMap] = {}
        self.rows: dict[object, list[int]] = {}
        self.next_id = 1

    def step(self, name: str, branch: str, key: str) -> None:
        before = self.numbers()
        try:
            getattr(self, name)(branch, key)
        except AnabranchError as err:
            event(f"{name} refused: {err.code}")
            assert self.numbers() == before
        else:
            event(name)
        self.note()

    def append(self, branch: str, key: str) -> None:
        self.next_id += 1
        append(self.repo, self.next_id, branch=branch, key=key)

    def append_to_main(self, _: str, key: str) -> None:
        self.append("main", key)

    def drop(self, branch: str, key: str) -> None:
        with self.repo.transaction(branch) as tx:
            tx.drop_table(key)
            tx.append(CUSTOMERS if key == ORDERS else ORDERS, table(self.next_id + 1000))

    def create(self, branch: str, _: str) -> None:
        self.repo.branch_create_from("main", branch, mode="live" if branch == "live" else "pinned")

    def create_from_live(self, branch: str, _: str) -> None:
        self.repo.branch_create_from("live", branch)

    def delete(self, branch: str, _: str) -> None:
        self.repo.branch_delete(branch)

    def restore(self, branch: str, _: str) -> None:
        self.repo.branch_restore(branch)

    def pull(self, branch: str, key: str) -> None:
        self.repo.branch_pull(branch, key)

    def freeze(self, branch: str, _: str) -> None:
        self.repo.branch_freeze(branch)

    def reset(self, branch: str, _: str) -> None:
        self.repo.reset(branch, to=f"{branch}@v{max(1, self.numbers().get(branch, 1) - 2)}")

    def reset_main(self, branch: str, _: str) -> None:
        self.repo.reset("main", to=branch)

    def revert(self, branch: str, _: str) -> None:
        self.repo.revert(branch, branch=branch)

    def undo(self, branch: str, _: str) -> None:
        self.repo.reflog(branch)
        ab.open(self.repo.uri).undo(branch)

    def numbers(self) -> dict[str, int]:
        found = {}
        for branch in ("main", *BRANCHES):
            try:
                found[branch] = self.repo.reflog(branch, limit=1)[0].number
            except BranchNotFoundError:
                continue
        return found

    def note(self) -> None:
        """Write down what is shown now under refs that must show it for ever."""
        for info in self.repo.branch_list():
            snapshot = self.repo.snapshot_of(info.name)
            newest, main_at = self.repo.reflog(info.name, limit=1)[0], moved_at(self.repo, "main")
            is_live = info.mode == "live"
            self.keep(at(max(newest.moved_at, main_at) if is_live else newest.moved_at, info.name), snapshot.entries)
            has_just_committed = str(newest.event) in ("committed", "pulled") and newest.moved_at > main_at
            if not is_live or has_just_committed:
                self.keep(info.head_commit_id, snapshot.entries)
                self.keep(f"{info.name}@v{info.version}", snapshot.entries)
            for found in snapshot.values():
                self.rows.setdefault(found.entry, ids(found))

    def keep(self, ref: str, entries: TableMap) -> None:
        assert self.shown.setdefault(ref, entries) == entries, ref

    def check(self) -> None:
        fresh = ab.open(self.repo.uri)
        for ref, entries in self.shown.items():
            assert fresh.snapshot_of(ref).entries == entries, ref
        for ref in self.shown:
            for found in fresh.snapshot_of(ref).values():
                if (rows := self.rows.pop(found.entry, None)) is not None:
                    assert ids(found) == rows
        for info in fresh.branch_list():
            history = fresh.list_commits(info.name, limit=None)
            assert fresh.snapshot_of(f"{info.name}~{len(history) - 1}").commit == history[-1]
            for back, commit in enumerate(history[1:], start=1):
                old = fresh.snapshot_of(f"{info.name}~{back}")
                assert (old.commit, old.entries) == (commit, fresh.snapshot_of(commit.graph_commit_id).entries)
                assert old.entries == self.shown.get(commit.graph_commit_id, old.entries)


STEPS = st.tuples(
    st.sampled_from(
        ["append"] * 4
        + ["append_to_main"] * 3
        + [
            "create",
            "create",
            "create_from_live",
            "delete",
            "restore",
            "restore",
            "pull",
            "freeze",
            "reset",
            "revert",
            "undo",
        ]
        + ["drop", "reset_main"]
    ),
    st.sampled_from(BRANCHES),
    st.sampled_from([ORDERS, CUSTOMERS]),
)


@given(st.lists(STEPS, min_size=8, max_size=15))
def test_what_a_ref_has_shown_it_shows_for_ever(steps: list[tuple[str, str, str]]) -> None:
    with TemporaryDirectory(prefix="anabranch-travel-") as folder:
        repo = ab.init(str(Path(folder) / "lake"))
        with repo.transaction() as tx:
            tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
            tx.create_table(CUSTOMERS, SCHEMA)
        chronicle = Chronicle(repo)
        repo.branch_create_from("main", "live", mode="live")
        repo.branch_create("dev")
        chronicle.note()
        for step in steps:
            chronicle.step(*step)
        chronicle.check()


def test_a_version_of_a_name_used_again_is_of_the_branch_it_was_then(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    home = entry(lake, ref="dev").home
    lake.branch_delete("dev")
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 5, branch="dev")
    assert ids(lake.snapshot_of("dev@v2")) == [1, 2, 3, 4]
    assert ids(lake.snapshot_of("dev@v5")) == [1, 2, 3, 5]
    assert entry(lake, ref="dev").home != home
    lake.branch_delete("dev")
    lake.branch_create_from("dev@v2", "dev")
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]
    append(lake, 6, branch="dev")
    assert ids(lake.snapshot_of("dev@v2")) == [1, 2, 3, 4]
