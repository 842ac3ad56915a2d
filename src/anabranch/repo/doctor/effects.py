"""The effects of damaged tables: which branches, tags, runs and commits have a state that cannot be read."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from anabranch.errors import AnabranchError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.doctor.findings import Case, Placement
from anabranch.repo.doctor.inventory import Inventory, name_of, placement_of
from anabranch.repo.log.entries import CommitRecord
from anabranch.repo.log.store import RepoStore
from anabranch.repo.log.view import View
from anabranch.storage import in_parallel

__all__ = ["with_effects"]


def with_effects(repo_store: RepoStore, inventory: Inventory, cases: Iterable[Case]) -> list[Case]:
    """Add to each case the tables, refs and commits that it affects.

    The commits are read again only if a table is damaged.
    """
    found = list(cases)
    damaged = frozenset(place for case in found for place in case.placements)
    if not damaged:
        return found
    keys = frozenset(TableKey.parse(key) for place in damaged for key in inventory.uses[place].tables)
    refs: dict[Placement, set[str]] = defaultdict(set)
    for name, record in _iter_refs(repo_store, inventory):
        for place in _placements(repo_store, record, keys) & damaged:
            refs[place].add(name)
    commits = _find_commits(repo_store, sorted(inventory.commits), keys, damaged)
    affected = [_with_effects(case, inventory, refs, commits) for case in found]
    return [case for case in affected if inventory.broken or _has_effect(case)]


def _has_effect(case: Case) -> bool:
    """Return False for a table state that no ref and no commit has: it was collected after the logs were read."""
    return bool(not case.placements or case.finding.refs or case.finding.commits)


def _find_commits(
    repo_store: RepoStore, commit_ids: list[str], keys: frozenset[TableKey], damaged: frozenset[Placement]
) -> dict[Placement, set[str]]:
    """Return the commits that have each damaged table state, without collected commits."""

    def find_damaged(commit_id: str) -> frozenset[Placement]:
        try:
            record = repo_store.commits.get(commit_id)
        except AnabranchError:
            return frozenset()  # the damaged commit is a finding of its own
        return _placements(repo_store, record, keys) & damaged if record.collected_at is None else frozenset()

    commits: dict[Placement, set[str]] = defaultdict(set)
    for commit_id, places in zip(commit_ids, in_parallel(find_damaged, commit_ids), strict=True):
        for place in places:
            commits[place].add(commit_id)
    return commits


def _with_effects(
    case: Case, inventory: Inventory, refs: dict[Placement, set[str]], commits: dict[Placement, set[str]]
) -> Case:
    if not case.placements:
        return case
    finding = replace(
        case.finding,
        tables=tuple(sorted({key for place in case.placements for key in inventory.uses[place].tables})),
        refs=tuple(sorted({name for place in case.placements for name in refs[place]})),
        commits=tuple(sorted({commit_id for place in case.placements for commit_id in commits[place]})),
    )
    return replace(case, finding=finding)


def _placements(repo_store: RepoStore, record: CommitRecord, keys: frozenset[TableKey]) -> frozenset[Placement]:
    """Return the locations of some tables of a commit."""
    found = set()
    for key in keys:
        try:
            entry = repo_store.commits.find_table(record, key)
        except AnabranchError:
            continue  # the base of the commit is damaged, which is a finding of its own
        if entry is not None:
            found.add(placement_of(entry))
    return frozenset(found)


def _iter_refs(repo_store: RepoStore, inventory: Inventory) -> Iterator[tuple[str, CommitRecord]]:
    """Yield the name and the current commit of every branch, run and tag."""
    main = inventory.heads.get(MAIN)
    for head in inventory.heads.values():
        if head.state.is_deleted or (head.branch.is_internal and head.branch.run_id is None):
            continue
        yield name_of(head.branch), View.of(head, None if main is None else main.head).record
    for tag in inventory.tags.values():
        try:
            yield tag.name, repo_store.commits.get(tag.commit_id)
        except AnabranchError:
            continue  # the damaged commit is a finding of its own
