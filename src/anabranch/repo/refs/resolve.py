"""Resolve a ref: a branch, a tag, a commit id or a prefix of one, `main~3`, `main^2`, `main@v7`, `main@{time}`."""

import re
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, takewhile

from anabranch.display import to_microseconds
from anabranch.errors import BranchNotFoundError, CommitNotFoundError, InvalidInputError, VersionNotFoundError
from anabranch.hints import suggest
from anabranch.ids import MAIN, BranchName, CommitId, Ref, TagName, hint_for_ref
from anabranch.repo.log.collected import refuse_collected, require_uncollected
from anabranch.repo.log.config import RepoConfig, as_text
from anabranch.repo.log.entries import CommitRecord, GraphCommit, LogEntry
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.refs.tags import find_tag, list_similar_tags

# A part of a ULID, which has 26 characters of base 32 without I, L, O and U. Shorter parts match too many commits.
_PREFIX = re.compile(r"[0-9A-HJKMNP-TV-Z]{4,25}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a ref names: its view, and the branch and version by which it was found, if it was.

    `created_as` is that of the branch. `is_head`: a branch was named as it is now. `is_old`: the commit was found in
    the log of a branch that need not exist any more.
    """

    view: View
    branch: BranchName | None
    version: int
    created_as: int | None = None
    is_head: bool = False
    is_old: bool = False

    @classmethod
    def of_entry(cls, entry: LogEntry, *, is_old: bool = False) -> "Resolved":
        """Return what a log entry recorded."""
        return cls(
            view=View.of(entry),
            branch=entry.branch,
            version=entry.number,
            created_as=entry.state.created_as,
            is_old=is_old,
        )

    @classmethod
    def of_branch(cls, repo_store: RepoStore, entry: LogEntry) -> "Resolved":
        """Return a branch as it is now, given its newest entry."""
        return replace(cls.of_entry(entry), view=View.now(repo_store, entry), is_head=True)

    @classmethod
    def of_commit(cls, record: CommitRecord) -> "Resolved":
        return cls(view=View(head=record), branch=None, version=record.commit.manifest_version)

    @property
    def record(self) -> CommitRecord:
        return self.view.record

    def get_commit(self) -> GraphCommit:
        """The commit that holds exactly these tables."""
        if not self.view.is_recorded:
            problem = f"live branch '{self.branch}' shows tables of main that no commit of its own records"
            raise InvalidInputError(problem, hint="name a commit or main, or make a pinned branch from it first")
        return self.view.commit


def resolve(ref: Ref, repo_store: RepoStore) -> Resolved:
    if ref.version is not None:
        return Resolved.of_entry(repo_store.heads.get_numbered(BranchName.parse(ref.name), ref.version), is_old=True)
    if ref.at is not None:
        entry = _entry_at(ref, repo_store)
        # A live branch showed main as it was at that time, whatever its own commits recorded and main shows now.
        main = _entry_at(replace(ref, name=MAIN), repo_store).head if entry.state.is_live else None
        return replace(Resolved.of_entry(entry, is_old=True), view=View.of(entry, main))
    start = _resolve_name(ref.name, repo_store)
    return _ancestor(start, ref, repo_store) if ref.steps else start


def _resolve_name(name: str, repo_store: RepoStore) -> Resolved:
    """A full commit id is one request; anything else is a branch first, then a tag."""
    with suppress(InvalidInputError):
        return Resolved.of_commit(repo_store.commits.get(CommitId.parse(name).value))
    branch = BranchName.parse(name)
    entry = repo_store.heads.find(branch)
    # A deleted branch may share its name with a tag or a prefix, so that it is reported only if nothing else matches.
    if entry is not None and not entry.state.is_deleted:
        return Resolved.of_branch(repo_store, entry)
    # The name of a tag has no slash.
    if "/" not in name and (tag := find_tag(repo_store, TagName.parse(name))) is not None:
        return Resolved.of_commit(repo_store.commits.get(tag.commit_id))
    if _PREFIX.fullmatch(name) and (record := _by_prefix(name.upper(), repo_store)) is not None:
        return Resolved.of_commit(record)
    if entry is not None:
        repo_store.heads.get(branch)  # raises, because the branch is deleted
    raise _unknown_ref(name, repo_store)


def _unknown_ref(name: str, repo_store: RepoStore) -> BranchNotFoundError:
    similar = [*repo_store.heads.names.list_similar(name), *list_similar_tags(repo_store, name)]
    lists = "see `branch_list()`, `tag_list()` and `list_commits()`"
    hint = suggest(name, similar, hint_for_ref(name, otherwise=lists))
    if name == "HEAD":
        hint = "write the name of a branch, such as main or main~1; without a ref, the current branch counts"
    return BranchNotFoundError(f"there is no branch, tag or commit '{name}'", hint=hint)


def _by_prefix(prefix: str, repo_store: RepoStore) -> CommitRecord | None:
    # A commit object may be one that lost its race or died before publishing: only the log shows that it was
    # published. Commits inside a run do not make a prefix ambiguous.
    objects = repo_store.commits.list_by_prefix(prefix)
    public = [record for record in objects if not BranchName(record.commit.branch).is_internal]
    found = [record for record in public if _is_published(record, repo_store)]
    if len(found) > 1:
        ids = ", ".join(record.commit.graph_commit_id for record in found[:3])
        raise InvalidInputError(f"commit {prefix!r} is ambiguous: {ids}", hint="give more characters")
    return found[0] if found else None


def refuse_internal(found: Resolved) -> None:
    """Refuse the hidden branch of a run, and the commits on it."""
    commit = found.record.commit
    if any(BranchName(name).is_internal for name in (commit.branch, str(found.branch or MAIN))):
        hint = "read it through its run, with `run_get()`"
        raise CommitNotFoundError(f"commit {commit.graph_commit_id} is inside a run", hint=hint)


def require_published(found: Resolved, repo_store: RepoStore) -> Resolved:
    """Refuse a commit that was stored but never published: its writer lost a race, or died."""
    if found.branch is None and not _is_published(found.record, repo_store):
        hint = "list the commits with `list_commits()`"
        raise CommitNotFoundError(f"commit {found.record.commit.graph_commit_id} was never published", hint=hint)
    return found


def require_kept(found: Resolved, repo_store: RepoStore) -> Resolved:
    """Refuse a collected commit. A log entry does not record that, so the commit of an old entry is looked up."""
    refuse_collected(found.view.head)
    if found.is_old:
        for commit_id in found.view.commit_ids:
            require_uncollected(repo_store.config, commit_id)
    return found


def _is_published(record: CommitRecord, repo_store: RepoStore) -> bool:
    commit = record.commit
    try:
        entry = repo_store.heads.get_numbered(BranchName(commit.branch), commit.manifest_version)
    except VersionNotFoundError:
        return False
    return is_made_by(entry, commit, repo_store)


def is_made_by(entry: LogEntry, commit: GraphCommit, repo_store: RepoStore) -> bool:
    """Whether an entry published a commit: as its head, or below it, since a rebase makes many at once."""
    made = takewhile(lambda found: found.manifest_version == entry.number, repo_store.commits.iter_history(entry.head))
    return any(found.graph_commit_id == commit.graph_commit_id for found in made)


def _ancestor(start: Resolved, ref: Ref, repo_store: RepoStore) -> Resolved:
    """Follow the steps of a ref. The branch is kept as long as they follow first parents."""
    record, branch = start.record, start.branch
    for step in ref.steps:
        if step.mark == "~":
            commit = next(islice(repo_store.commits.iter_history(record), step.count, None), None)
            if commit is None:
                most = sum(1 for _ in repo_store.commits.iter_history(record)) - 1
                hint = f"go back at most {most:,} commits"
                raise CommitNotFoundError(f"{ref} goes back before the first commit", hint=hint)
            parent: str | None = commit.graph_commit_id
        else:
            # The merged commit belongs to another branch, so that the start does not name it any more.
            parent, branch = record.commit.merged_parent_commit_id, None
        if parent is None:
            raise CommitNotFoundError(
                f"{ref} does not exist: commit {record.commit.graph_commit_id} has one parent",
                hint="'^2' is what a merge commit has merged; `iter_graph()` shows the merges",
            )
        record = repo_store.commits.get(parent)
    return replace(Resolved.of_commit(record), branch=branch, created_as=start.created_as)


def _entry_at(ref: Ref, repo_store: RepoStore) -> LogEntry:
    time = datetime.fromisoformat(ref.at or "")  # `Ref.parse` refuses other texts
    # A local zone would give one ref different meanings on different machines.
    wanted = to_microseconds(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
    head = repo_store.heads.find(BranchName.parse(ref.name))
    if head is None:
        hint = repo_store.heads.names.hint_for(BranchName(ref.name))
        raise BranchNotFoundError(f"there is no branch '{ref.name}'", hint=hint)
    entry = _find_entry_at(repo_store, head, wanted)
    if entry is None:
        raise CommitNotFoundError(f"branch '{ref.name}' did not exist at {ref.at}", hint="give a later time")
    if (now := entry.state.renamed_to) is not None:
        problem = f"branch '{entry.branch}' was renamed to '{now}' before {ref.at}"
        raise BranchNotFoundError(problem, hint="use that name, or an earlier time")
    if entry.state.is_deleted:
        raise BranchNotFoundError(f"branch '{ref.name}' was deleted at {ref.at}", hint="give another time")
    return entry


def _find_entry_at(repo_store: RepoStore, head: LogEntry, wanted: int) -> LogEntry | None:
    number = _number_at(repo_store, head, 0, wanted)
    entry = repo_store.heads.get_numbered(head.branch, number) if number > 0 else None
    # Before a rename, the branch is found by its former names, unless another branch had this name at that time.
    if number < head.state.created_as and (entry is None or entry.state.is_deleted):
        return _find_former(repo_store, head, wanted) or entry
    return entry


def _find_former(repo_store: RepoStore, head: LogEntry, wanted: int) -> LogEntry | None:
    """Return the entry that was the newest at a time in the logs of the former names of a branch."""
    for former in reversed(head.state.former_names):
        last = repo_store.heads.get_numbered(former.branch, former.until)
        # Only the entries of this branch: others may have had the name before and after it.
        number = _number_at(repo_store, last, former.created_as - 1, wanted)
        if number >= former.created_as:
            return repo_store.heads.get_numbered(former.branch, number)
    return None


def _number_at(repo_store: RepoStore, last: LogEntry, before: int, wanted: int) -> int:
    """Return the number of the newest entry of a log that is not younger than a time, `before` if there is none.

    Only the entries after `before`, up to `last`, are searched, by bisection: times never decrease along a log. Entries
    that a clock ahead of the store has dated are found by the store's times.
    """
    low = _last(repo_store, last, before, lambda entry: entry.at <= wanted)
    # Entries from a clock that was ahead seem later than the wanted time: a ref to now would show the state before.
    if before < low < last.number and (ahead := _find_ahead(repo_store, last, low)) is not None:

        def is_put(entry: LogEntry) -> bool:
            # Of an entry with the time of a clock that was ahead, the store's time decides.
            at = _written_at(repo_store.config, entry) if entry.at == ahead else entry.at
            return at is not None and at <= wanted

        low = _last(repo_store, last, low, is_put)
    return low


def _last(repo_store: RepoStore, head: LogEntry, low: int, is_made: Callable[[LogEntry], bool]) -> int:
    """Return the number of the last entry, `low` if none after it, for which something holds that holds up to there."""
    numbers = range(low + 1, head.number + 1)
    get = partial(repo_store.heads.get_numbered, head.branch)
    return low + bisect_left(numbers, True, key=lambda number: not is_made(get(number)))  # noqa: FBT003


def _find_ahead(repo_store: RepoStore, head: LogEntry, low: int) -> int | None:
    """Return the time of the entries right after `low` if a clock that was ahead has dated them. None if it is right.

    The store's times alone are not enough: they change when a repository is copied. So only an entry is checked whose
    time is in the future, or is also the time of the next entry.
    """
    config, heads = repo_store.config, repo_store.heads
    before, first = heads.get_numbered(head.branch, low), heads.get_numbered(head.branch, low + 1)
    tolerance = int((config.clock_tolerance or timedelta(minutes=5)) / timedelta(microseconds=1))
    is_future = first.at > config.clock() + tolerance
    # A clock that was ahead gives its time to all entries until that time is reached: two equal times are its trace.
    following = first.number + 1
    if not is_future and (following > head.number or heads.get_numbered(head.branch, following).at != first.at):
        return None
    written = _written_at(config, first)
    if written is None or written + tolerance >= first.at:
        return None
    # The file of an entry with a right time is much younger than that if the repository was copied.
    copied = _written_at(config, before)
    if copied is not None and copied > before.at + tolerance:
        raise CommitNotFoundError(
            f"the time of version {first.number} of branch '{first.branch}' is unknown: a clock that was ahead has"
            f" dated it {as_text(first.at)}, and the store's times were changed when the repository was copied",
            hint=f"use a version number instead of a time, such as {first.branch}@v{first.number}",
        )
    return first.at


def _written_at(config: RepoConfig, entry: LogEntry) -> int | None:
    found = config.store.find_info(config.branch_log(entry.branch).path(entry.number))
    return None if found is None else to_microseconds(found.modified)
