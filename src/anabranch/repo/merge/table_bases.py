"""The common base states of the tables of two sides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.ids import TableKey
from anabranch.repo.history.ancestry import Ancestry, TableBase
from anabranch.repo.history.table_history import match_tables
from anabranch.repo.log.entries import CommitRecord, TableEntry, is_same_state
from anabranch.repo.log.store import RepoStore
from anabranch.repo.merge.combiner import Combiner
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.resolve import Resolution, Strategy
from anabranch.repo.merge.resolvers import Cells, choose, resolved_by
from anabranch.repo.merge.steps import MergeSteps, TableMatch, TableState

_Names = tuple[TableKey | None, TableKey | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bases:
    """Finds the common base of a table of two commits.

    If both sides were merged with each other before, a table may have several bases. These are merged into a virtual
    base. A cell on which the bases disagree gets a value that neither has, so that the merge sees a change on both
    sides.
    """

    repo_store: RepoStore
    ancestry: Ancestry
    combiner: Combiner

    def find(
        self, source: CommitRecord, target: CommitRecord, key: TableKey, *, names: _Names = (None, None)
    ) -> TableEntry | None:
        """Return the base of a table, or None if no common ancestor has a table of that name.

        `names` are the keys of the table on both sides, if it was renamed since the base.
        """
        return self._merge(source, target, key, names=names)

    def _merge(
        self,
        source: CommitRecord,
        target: CommitRecord,
        key: TableKey,
        *,
        names: _Names = (None, None),
        like: TableEntry | None = None,
    ) -> TableEntry | None:
        """Merge the bases of a table. It may have another name in some of them: it is the table of which `like` is."""
        bases = self.ancestry.find_table_bases(source, target, key, names=names)
        like = like or next((base.entry for base in bases if base.entry is not None), None)
        if like is None:
            return None
        first, *others = self._with_other_names(bases, source, target, key, like)
        entry = first.entry
        for other in others:
            lower = self._merge(self._record(other), self._record(first), key, like=like)
            entry = self._merge_two(key, base=lower, source=other.entry, target=entry)
        return entry

    def _with_other_names(
        self, bases: Sequence[TableBase], source: CommitRecord, target: CommitRecord, key: TableKey, like: TableEntry
    ) -> list[TableBase]:
        """Return the bases of a table, with the states that it has under another name in common ancestors."""
        found = [base for base in bases if base.entry is not None]
        known = {base.commit.graph_commit_id for base in found}
        commits = [base.commit for base in bases]
        # A base in which the table has another name seems to be older than one that has a table of this name.
        if len(plain := self.ancestry.find_merge_bases(source, target)) > 1:
            commits += plain
        for commit in commits:
            if commit.graph_commit_id not in known:
                known.add(commit.graph_commit_id)
                tables = self.repo_store.commits.tables_of(self.repo_store.commits.get(commit.graph_commit_id))
                other = match_tables(self.repo_store.config, {key: like}, tables).get(key)
                found += () if other is None else (TableBase(commit=commit, entry=tables[other]),)
        return found or list(bases)

    def _record(self, base: TableBase) -> CommitRecord:
        return self.repo_store.commits.get(base.commit.graph_commit_id)

    def _merge_two(
        self, key: TableKey, *, base: TableEntry | None, source: TableEntry | None, target: TableEntry | None
    ) -> TableEntry | None:
        """Merge two states of a table into a third one, which is staged and never published."""
        if source is None or target is None:
            return source or target
        if is_same_state(base, source) or is_same_state(source, target):
            return target
        if base is not None and source.dataset != target.dataset:
            # Another table got this name on one of the sides. The rows of two tables must not be mixed.
            return source if target.dataset == base.dataset else target
        match = TableMatch(
            key=key,
            base=None if base is None else TableState(key, base),
            source=TableState(key, source),
            target=TableState(key, target),
        )
        # Where the ancestors disagree, the base gets a null, so that both sides count as changed there. With the value
        # of one ancestor, a value that one side put back would be lost.
        combiner = replace(self.combiner, resolution=_NEITHER)
        combined = combiner.stage(MergeSteps(steps=(combiner.plan_table(match),)), {})
        combined.conflicts.check_none(
            f"the common base of '{key}', merged from several ancestors,", hint="change one side"
        )
        return combined.changes.get(key) or target


def _neither(cells: Cells) -> pa.Array:
    """Return null for each cell, or the value of the base if one of the sides is null. It differs from both sides."""
    nulls = pa.nulls(len(cells.target), cells.target.type)
    has_null = pc.or_(cells.source.is_null(), cells.target.is_null()).to_numpy(zero_copy_only=False)
    return choose(nulls, cells.base, has_null)


def _only_the_key(conflict: Conflict) -> Any:
    """Return a row with only the key, or the row of the target if the table has no key."""
    key = conflict.key or {}
    return key if "_rowaddr" not in key else conflict.target


# Where two bases disagree, the virtual base has a cell, or a row with only its key, that differs from both.
_NEITHER = Resolution(strategy=Strategy.TARGET, resolvers={}, any_cell=resolved_by(_neither), any_row=_only_the_key)
