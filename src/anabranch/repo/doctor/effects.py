"""What damage to tables means: which branches, tags, runs and commits have a state that cannot be read."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from anabranch.errors import AnabranchError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.doctor.findings import Case, Placement
from anabranch.repo.doctor.seen import Seen, name_of, placement_of
from anabranch.repo.log.entries import BranchMode, CommitRecord
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.live import shown
from anabranch.storage import in_parallel

__all__ = ["with_effects"]


def with_effects(records: RepoStore, seen: Seen, cases: Iterable[Case]) -> list[Case]:
    """Say of each case whom it affects; commits are read once more only where something is damaged."""
    found = list(cases)
    damaged = frozenset(place for case in found for place in case.placements)
    if not damaged:
        return found
    keys = frozenset(TableKey.parse(key) for place in damaged for key in seen.uses[place].tables)
    refs: dict[Placement, set[str]] = defaultdict(set)
    commits: dict[Placement, set[str]] = defaultdict(set)
    for name, record in _iter_refs(records, seen):
        for place in _placements(records, record, keys) & damaged:
            refs[place].add(name)

    def look_at(commit_id: str) -> frozenset[Placement]:
        try:
            record = records.commits.get(commit_id)
        except AnabranchError:
            return frozenset()  # reported by itself
        return _placements(records, record, keys) & damaged if record.collected_at is None else frozenset()

    ids = sorted(seen.commits)
    for commit_id, places in zip(ids, in_parallel(look_at, ids), strict=True):
        for place in places:
            commits[place].add(commit_id)
    told = [_with_effects(case, seen, refs, commits) for case in found]
    # What nobody has any more was let go by a garbage collection since the commits were read.
    return [case for case in told if seen.broken or not case.placements or case.finding.refs or case.finding.commits]


def _with_effects(case: Case, seen: Seen, refs: dict[Placement, set[str]], commits: dict[Placement, set[str]]) -> Case:
    if not case.placements:
        return case
    finding = replace(
        case.finding,
        tables=tuple(sorted({key for place in case.placements for key in seen.uses[place].tables})),
        refs=tuple(sorted({name for place in case.placements for name in refs[place]})),
        commits=tuple(sorted({commit_id for place in case.placements for commit_id in commits[place]})),
    )
    return replace(case, finding=finding)


def _placements(records: RepoStore, record: CommitRecord, keys: frozenset[TableKey]) -> frozenset[Placement]:
    found = set()
    for key in keys:
        try:
            entry = records.commits.find_table(record, key)
        except AnabranchError:
            continue  # its base is damaged, which is reported by itself
        if entry is not None:
            found.add(placement_of(entry))
    return frozenset(found)


def _iter_refs(records: RepoStore, seen: Seen) -> Iterator[tuple[str, CommitRecord]]:
    """Everything that exists by name, with what it shows now."""
    main = seen.heads.get(MAIN)
    for head in seen.heads.values():
        if head.state.is_deleted or (head.branch.is_internal and head.branch.run_id is None):
            continue
        is_live = head.state.mode is BranchMode.LIVE
        yield name_of(head.branch), (shown(head, main.head) if is_live and main is not None else head).head
    for tag in seen.tags.values():
        try:
            yield tag.name, records.commits.get(tag.commit_id)
        except AnabranchError:
            continue  # reported by itself
