"""Commit graphs made through publishing, without data: tables are entries that point to nothing."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import anabranch as ab
from anabranch import testing
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import Changes, CommitKind, CommitRecord, GraphCommit, LogEntry, TableEntry
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.write.publish import Attempt

T = TableKey.parse("s.t")
U = TableKey.parse("s.u")


def node(name: str, parents: Sequence[str], *, created_at: int) -> GraphCommit:
    """Return a commit for the layout of a graph."""
    first, merged = (*parents, None, None)[:2]
    return GraphCommit(
        graph_commit_id=name,
        manifest_branch=None,
        manifest_version=1,
        parent_commit_id=first,
        merged_parent_commit_id=merged,
        actor_id=None,
        created_at=created_at,
        message="",
        kind=CommitKind.CHANGE,
        metadata={},
        tables=(),
        generation=0,
    )


class Graph:
    """Branches that commit, and merge each other, as given."""

    def __init__(self, repo: ab.Repository) -> None:
        self.repo = repo
        # The entries point to nothing, so there are no files to sync.
        self.repo_store = RepoStore.of(replace(testing.config_of(repo), storage_options={"durability": "none"}))
        self._numbers = count(1)

    def branch(self, name: str, *, source: str = MAIN, is_live: bool = False) -> None:
        self.repo.branch_create_from(source, name, mode="live" if is_live else "pinned")

    def head(self, branch: str = MAIN) -> LogEntry:
        return self.repo_store.heads.get(BranchName(branch))

    def tip(self, branch: str = MAIN) -> CommitRecord:
        """The head commit of a branch with the tables that the branch shows now."""
        return View.now(self.repo_store, self.head(branch)).record

    def entry(self, branch: str, key: TableKey = T) -> TableEntry | None:
        return self.repo_store.commits.find_table(self.tip(branch), key)

    def commit(self, branch: str = MAIN, *keys: TableKey) -> GraphCommit:
        """Write to some tables, by default to one."""
        return self._publish(branch, {key: self._written(branch, key) for key in keys or (T,)}, CommitKind.CHANGE)

    def merge(self, source: str, *keys: TableKey, into: str = MAIN) -> GraphCommit:
        """Make a commit of two parents that wrote to some tables."""
        theirs = self.head(source)
        main = self.tip() if theirs.state.is_live else None
        changes = {key: self._written(into, key) for key in keys}
        return self._publish(into, changes, CommitKind.MERGE, merged=theirs.head.commit, main=main)

    def _publish(
        self,
        branch: str,
        changes: Changes,
        kind: CommitKind,
        *,
        merged: GraphCommit | None = None,
        main: CommitRecord | None = None,
    ) -> GraphCommit:
        spec = CommitSpec(
            message=f"{kind} {next(self._numbers)}",
            kind=kind,
            metadata={},
            merged_parent=merged,
            taken_from=None if main is None else main.commit,
        )
        head = self.repo_store.heads.get(BranchName(branch))
        done = Attempt(self.repo_store, head, changes, spec, lambda _: changes).put()
        return done.commit

    def _written(self, branch: str, key: TableKey) -> TableEntry:
        """The next version of a table, in a home of the branch's own."""
        old, version = self.entry(branch, key), next(self._numbers)
        if old is None:
            home = None if branch == MAIN else f"{branch}/{self.repo_store.config.new_id()}"
            dataset = f"{key.bucket}/{key.table}.lance"
            return TableEntry(dataset=dataset, home=home, version=version, head=1, primary_key=(), rows=1)
        if owns(BranchName(branch), old.home):
            return replace(old, version=version)
        home = f"{branch}/{self.repo_store.config.new_id()}"
        return replace(old, version=version, home=home, forked_from=(old.home, old.version))
