"""Commit objects: whether each that something speaks of is there, whole, and what its log entry says."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from anabranch.errors import AnabranchError, CorruptError, ObjectNotFoundError, UnsupportedFormatError
from anabranch.ids import MAIN
from anabranch.repo.doctor.findings import Case, FindingKind, RepositoryFinding
from anabranch.repo.doctor.rebuilding import Rebuilder
from anabranch.repo.doctor.seen import Broken, CommitFacts, Seen, name_of
from anabranch.repo.log import codec
from anabranch.repo.log.commits import commit_path
from anabranch.repo.log.entries import BranchMode, CommitRecord, LogEntry
from anabranch.repo.log.store import RepoStore
from anabranch.storage import documents, in_parallel

__all__ = ["diagnose_commits", "look_at_object", "look_at_rest"]

_FROM_BACKUP = "restore it from a backup"


def look_at_rest(records: RepoStore, seen: Seen) -> None:
    """Look at every commit that something speaks of and that no entry of a log has published."""
    tagged = {tag.commit_id for tag in seen.tags.values()}
    while todo := sorted((seen.named | tagged) - seen.looked_at):
        in_parallel(lambda commit_id: look_at_object(records, seen, commit_id), todo)
    _look_at_maps(records, seen)
    seen.add_full_maps(lambda base: records.commits.tables_of(records.commits.get(base)))


def look_at_object(records: RepoStore, seen: Seen, commit_id: str, expected: CommitRecord | None = None) -> None:
    """Look at a commit object; `expected` is what the entry says that published it, and has the last word."""
    found = _read(records, commit_id, expected)
    if isinstance(found, CommitRecord):
        return seen.add_commit(found)
    if expected is not None:
        seen.add_commit(expected)
    return seen.add_broken(commit_id, found)


def _read(records: RepoStore, commit_id: str, expected: CommitRecord | None) -> CommitRecord | Broken:
    path = commit_path(commit_id)
    try:
        fields = documents.load(records.context.store.get(path), path=path)
        with documents.damage_named(path):
            record = codec.decode_commit(fields)
            if record.base == record.commit.graph_commit_id:
                codec.decode_full_map(fields)
    except ObjectNotFoundError:
        return Broken(kind=FindingKind.MISSING_COMMIT, problem="there is no such object")
    except UnsupportedFormatError as err:
        return Broken(kind=FindingKind.NEWER_FORMAT, problem=err.problem)
    except CorruptError as err:
        return Broken(kind=FindingKind.DAMAGED_COMMIT, problem=err.problem)
    if record.commit.graph_commit_id != commit_id:
        said = f"it holds another commit, {record.commit.graph_commit_id}"
        return Broken(kind=FindingKind.DIFFERENT_COMMIT, problem=said)
    if expected is not None and replace(record, collected_at=None) != expected:
        said = "it does not say what the log entry says that published it"
        return Broken(kind=FindingKind.DIFFERENT_COMMIT, problem=said)
    return record


def diagnose_commits(records: RepoStore, seen: Seen) -> Iterator[Case]:
    """Say what is wrong with the commits that were looked at, and what cannot be read because of it."""
    users = _Users.of(seen)
    rebuilder = Rebuilder(records, seen)
    for commit_id, broken in sorted(seen.broken.items()):
        yield _broken_commit(seen, users, rebuilder, commit_id, broken)
    for commit_id, facts in sorted(seen.commits.items()):
        yield from _wrong_order(seen, commit_id, facts)


@dataclass(frozen=True, slots=True)
class _Users:
    """Which commits, and which branches, runs and tags as they are now, build on each full map."""

    commits: dict[str, list[str]]
    refs: dict[str, list[str]]

    @classmethod
    def of(cls, seen: Seen) -> "_Users":
        users = cls({}, {})
        for commit_id, facts in sorted(seen.commits.items()):
            users.commits.setdefault(facts.base, []).append(commit_id)
        for head in seen.heads.values():
            if not head.state.is_deleted:
                users.refs.setdefault(_base_shown(seen, head), []).append(name_of(head.branch))
        for name, tag in seen.tags.items():
            known = seen.commits.get(tag.commit_id)
            for needed in {tag.commit_id, tag.commit_id if known is None else known.base}:
                users.refs.setdefault(needed, []).append(name)
        return users


def _base_shown(seen: Seen, head: LogEntry) -> str:
    """The commit whose full map is under what a branch shows now: of a live one, that of main."""
    main = seen.heads.get(MAIN)
    return main.head.base if head.state.mode is BranchMode.LIVE and main is not None else head.head.base


def _broken_commit(seen: Seen, users: _Users, rebuilder: Rebuilder, commit_id: str, broken: Broken) -> Case:
    kind, only_tags = broken.kind, commit_id not in seen.named
    refs = tuple(sorted(users.refs.get(commit_id, ())))
    others = tuple(one for one in users.commits.get(commit_id, ()) if one != commit_id)
    is_missing = kind is FindingKind.MISSING_COMMIT
    if is_missing and only_tags:
        kind = FindingKind.BROKEN_TAG
    can_mend = kind is not FindingKind.NEWER_FORMAT and rebuilder.can_rebuild(commit_id)
    if kind is FindingKind.BROKEN_TAG:
        remedy = "restore the commit from a backup, or delete the tag"
    elif kind is FindingKind.NEWER_FORMAT:
        remedy = "upgrade Anabranch"
    elif can_mend:
        remedy = "a repair writes it again from the log entry that published it"
    else:
        remedy = _FROM_BACKUP
    built_on = f"; {len(others)} other commits build on its tables" if others else ""
    finding = RepositoryFinding(
        kind=kind,
        subject=commit_path(commit_id),
        explanation=f"commit {commit_id} cannot be read: {broken.problem}{built_on}",
        remedy=remedy,
        refs=refs,
        commits=(commit_id, *others),
        repairable=can_mend,
    )
    return Case(finding=finding, mend=(lambda: rebuilder.rebuild(commit_id)) if can_mend else None)


def _look_at_maps(records: RepoStore, seen: Seen) -> None:
    """Find full maps that differ from what the commit before had in more than the commit says that it changed."""
    full = [commit_id for commit_id, facts in sorted(seen.commits.items()) if facts.base == commit_id]
    for commit_id in full:
        strange = () if commit_id in seen.broken else _strange_tables(records, seen, commit_id)
        if strange:
            said = f"it has not changed {', '.join(strange[:3])}, and yet another state than the commit before"
            seen.add_broken(commit_id, Broken(kind=FindingKind.DIFFERENT_COMMIT, problem=said))


def _strange_tables(records: RepoStore, seen: Seen, commit_id: str) -> tuple[str, ...]:
    record = records.commits.get(commit_id)
    parent = record.commit.parent_commit_id
    # What a live branch showed came from main, not from the commit before.
    if parent is None or record.made_on is not None or parent in seen.broken:
        return ()
    try:
        before = records.commits.tables_of(records.commits.get(parent))
    except AnabranchError:
        return ()  # reported by itself
    after = records.commits.tables_of(record)
    changed = set(record.commit.tables)
    return tuple(
        str(key) for key in sorted({*before, *after}) if before.get(key) != after.get(key) and str(key) not in changed
    )


def _wrong_order(seen: Seen, commit_id: str, facts: CommitFacts) -> Iterator[Case]:
    for source in facts.made_from:
        before = seen.commits.get(source)
        if before is None or source in seen.broken or commit_id in seen.broken:
            continue
        if facts.generation > before.generation and facts.created_at >= before.created_at:
            continue
        finding = RepositoryFinding(
            kind=FindingKind.WRONG_ORDER,
            subject=commit_path(commit_id),
            explanation=(
                f"commit {commit_id} (generation {facts.generation}, made at {facts.created_at}) should come after"
                f" {source} (generation {before.generation}, made at {before.created_at}), from which it was made"
            ),
            remedy="none: merges may choose a wrong base; restore the commit from a backup",
            commits=(commit_id,),
        )
        yield Case(finding=finding)
