"""Clones and relocation: make a repository from one commit of another, and adapt one that was moved or copied.

The tables of a clone are written first, then their commit, then the mark that makes the folder a repository. The clone
is registered in the source before anything is read from it. An interrupted clone has no mark: the next one clears it.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from anabranch.errors import (
    AnabranchError,
    ConflictError,
    InvalidInputError,
    InvalidPathError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    StorageDeniedError,
)
from anabranch.format.arguments import require_names, unknown_table
from anabranch.format.clone.clone import Draft, draft_clone, put_clone, refuse_mixed_stores
from anabranch.format.clone.relocate import moved_path, relocate_with
from anabranch.format.home import Home, VersionRef
from anabranch.ids import MAIN, BranchName, Ref, TableKey
from anabranch.repo.log import clones as clone_log
from anabranch.repo.log import creation
from anabranch.repo.log.clones import CLONES, ORIGIN, Attempt, AttemptState, CloneKind, Clones, Registration
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.commits import Commits
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, TableEntry, TableMap
from anabranch.repo.log.heads import Heads
from anabranch.repo.log.numbered_log import BRANCHES, RUNS, TAGS, NumberedLog
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.refs.resolve import refuse_internal, require_kept, require_published, resolve
from anabranch.repo.write.homes import free_dataset
from anabranch.storage import in_parallel, is_below_file, iter_in_parallel, open_store
from anabranch.storage.requests import Steps
from anabranch.storage.uris import normalise_uri, relative_to
from anabranch.warnings import UnregisteredCloneWarning

# Called with the finished and the total number of tables, or of files for a deep clone.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest:
    """The tables of a commit to clone, and the location of the clone."""

    source: RepoStore
    commit: GraphCommit
    tables: TableMap
    kind: CloneKind
    target: RepoConfig


def _select(tables: TableMap, wanted: Sequence[str] | None) -> TableMap:
    if wanted is None:
        return tables
    require_names(wanted, "tables")
    keys = [TableKey.parse(key) for key in wanted]
    for key in keys:
        if key not in tables:
            raise unknown_table(key, "to clone", tables)
    return {key: tables[key] for key in keys}


def clone_repository(
    source: RepoStore,
    target: RepoConfig,
    *,
    ref: str,
    tables: Sequence[str] | None,
    kind: CloneKind,
    progress: Progress = lambda _done, _total: None,
) -> None:
    """Make a repository whose main starts with one commit of all tables of a ref, or some of them.

    An interrupted clone at the target starts again. If only its last step is missing, that step is completed.
    """
    found = require_kept(require_published(resolve(Ref.parse(ref), source), source), source)
    refuse_internal(found)
    selected = _select(source.commits.tables_of(found.record), tables)
    request = CloneRequest(source=source, commit=found.get_commit(), tables=selected, kind=kind, target=target)
    before, options = clone_log.find_origin(target), source.config.storage_options
    # Only the first entry and the mark are missing. A request for another clone fails as for any existing repository.
    if before is not None and before.state is AttemptState.FINISHED and not creation.has_mark(target):
        _complete(target, before, options)
        if before.has_same_result(_attempt(request, before, ())):
            return
    _check_target(request, is_unfinished=before is not None)
    attempt = _attempt(request, before, _register(request))
    try:
        # Begin before anything is deleted: now the earlier attempt cannot finish, so no finished clone loses files.
        clone_log.put_attempt(target, attempt)
        _clear(target, before, options)
        record, copied = _clone_tables(request, attempt, progress)
        target.store.sync_all()  # the tables must be durable before the log that refers to them
        Commits(target).put(record, copied)
    except BaseException as err:
        # If the release fails, too, the registrations stay. They do no harm, and clone_list() shows them.
        with suppress(AnabranchError):
            _release(attempt.registrations, options, target=target.root)
        # An attempt that took over deletes the files of this one, so that any error may be a consequence of that.
        if isinstance(err, AnabranchError):
            clone_log.refuse_overtaken(target, attempt)
        raise
    _complete(target, clone_log.finish(target, attempt, first_commit_id=record.commit.graph_commit_id), options)


def _attempt(request: CloneRequest, before: Attempt | None, registrations: tuple[Registration, ...]) -> Attempt:
    source = request.source.config
    return Attempt(
        number=1 if before is None else before.number + 1,
        state=AttemptState.BEGUN,
        source=source.root,
        source_id=creation.check_repository(source).id,
        commit_id=request.commit.graph_commit_id,
        kind=request.kind,
        tables=tuple(sorted(map(str, request.tables))),
        registrations=registrations,
        repository_id=request.target.new_id(),
    )


def _check_target(request: CloneRequest, *, is_unfinished: bool) -> None:
    """Raise an error if the target is not empty, or if source and target are nested."""
    source, target = request.source.config, request.target
    if request.kind is CloneKind.SHALLOW:
        refuse_mixed_stores(source.root, target.root)
    for inner, outer in ((source.root, target.root), (target.root, source.root)):
        if relative_to(inner, outer) is not None:
            problem = f"the clone {target.root!r} and its source {source.root!r} overlap: one is inside the other"
            raise InvalidPathError(problem, hint="choose a folder outside the source")
    creation.refuse_inside_repository(target)
    if is_below_file(target.root):
        raise InvalidPathError(f"clone {target.root!r} is a file, or is below one", hint="choose another folder")
    if creation.has_mark(target):
        raise RepositoryExistsError(f"a repository already exists at {target.root!r}", hint="choose another folder")
    # Files of an unfinished clone are deleted later. Other files are never deleted.
    if not is_unfinished and any(True for _ in target.store.list()):
        raise ConflictError(f"the folder {target.root!r} is not empty", hint="choose an empty folder")


def _register(request: CloneRequest) -> tuple[Registration, ...]:
    """Register the clone in the source and, for a shallow clone, in the sources of the source.

    A shallow clone of a shallow clone reads the files of both. The gc of a read-only source does not know its clones.
    """
    source, target = request.source.config, request.target.root
    try:
        held = Clones(source).register(
            target=target, kind=request.kind, commit_id=request.commit.graph_commit_id, keys=tuple(request.tables)
        )
    except StorageDeniedError:
        if request.kind is CloneKind.SHALLOW:
            warnings.warn(
                f"{source.root!r} is read-only, so this clone is not registered there: "
                "garbage collection in the source may delete files that the clone reads",
                UnregisteredCloneWarning,
                stacklevel=2,
            )
        return ()
    made = [Registration(repository=source.root, clone_id=held.id)]
    try:
        # The registration is put before the mark is read. Garbage collection marks first and then reads the
        # registrations, so that one of the two sees the other.
        require_uncollected(source, request.commit.graph_commit_id)
        # If the source is released or deleted later, these registrations still protect the files that the clone reads.
        for other in _registrations_of(source) if request.kind is CloneKind.SHALLOW else ():
            above = Clones(_at(other.repository, source.storage_options, actor=source.actor))
            theirs = above.get(other.clone_id)
            if theirs.is_held:
                keys = [TableKey.parse(key) for key in theirs.tables]
                again = above.register(target=target, kind=request.kind, commit_id=theirs.commit_id, keys=keys)
                made.append(Registration(repository=other.repository, clone_id=again.id))
                require_uncollected(above.config, theirs.commit_id)
    except BaseException:
        with suppress(AnabranchError):
            _release(made, source.storage_options, target=target)
        raise
    return tuple(made)


def _registrations_of(source: RepoConfig) -> tuple[Registration, ...]:
    """Return the registrations of the source, if it is itself a shallow clone."""
    origin = clone_log.find_origin(source)
    if origin is None or origin.kind is not CloneKind.SHALLOW:
        return ()
    for each in origin.registrations:
        if not creation.has_mark(_at(each.repository, source.storage_options)):
            raise RepositoryNotFoundError(
                f"{source.root!r} is a shallow clone of {each.repository!r}, which does not exist",
                hint="restore that repository, or relocate the clone, then clone again",
            )
    return origin.registrations


def _at(root: str, storage_options: Mapping[str, str], actor: str | None = None) -> RepoConfig:
    return RepoConfig(root=root, store=open_store(root, storage_options), storage_options=storage_options, actor=actor)


def _release(registrations: Sequence[Registration], storage_options: Mapping[str, str], *, target: str) -> None:
    for each in registrations:
        clones = Clones(_at(each.repository, storage_options))
        # The list may come from a folder that was copied: then it names the protection of another clone, which stays.
        if clones.get(each.clone_id).target == target:
            clones.release(each.clone_id)


def _clear(target: RepoConfig, before: Attempt | None, storage_options: Mapping[str, str]) -> None:
    """Delete the files and registrations of an earlier attempt, which can no longer finish."""
    if before is None:
        return
    # The log of attempts stays: without its numbers, an earlier attempt that was only suspended could finish.
    paths = [info.path for info in target.store.list() if not info.path.startswith(f"{ORIGIN}/")]
    in_parallel(target.store.delete, paths)
    for each in before.registrations:
        # The source of the earlier attempt may be deleted or unreachable.
        with suppress(AnabranchError):
            _release([each], storage_options, target=target.root)


def _clone_tables(request: CloneRequest, attempt: Attempt, progress: Progress) -> tuple[CommitRecord, TableMap]:
    """Write the tables of a clone. Return its first commit and its tables."""
    # A later attempt uses new folders: an earlier one may still be writing.
    locations = {
        key: f"{key.bucket}/{key.table}.lance" if attempt.number == 1 else free_dataset(request.target, key)
        for key in sorted(request.tables)
    }
    is_deep = request.kind is CloneKind.DEEP

    def home_of(key: TableKey) -> Home:
        return request.source.config.home_of(request.tables[key])

    def draft(key: TableKey) -> Draft:
        version_ref = VersionRef(home=home_of(key), version=request.tables[key].version)
        return draft_clone(version_ref, name=attempt.clone_id, is_deep=is_deep)

    # All manifests are drafted before the first file is copied, so that the total for the progress is known.
    drafts = dict(zip(locations, in_parallel(draft, locations), strict=True))
    step = Steps(progress, sum(len(drawn.copies) for drawn in drafts.values()) if is_deep else len(drafts))

    def put(key: TableKey) -> TableEntry:
        root = request.target.dataset_root(locations[key])
        version = put_clone(home_of(key), root, drafts[key], on_copied=step.done if is_deep else lambda: None).version
        if not is_deep:
            step.done()
        copied = replace(request.tables[key], dataset=locations[key], home=None, forked_from=None)
        return replace(copied, version=version, head=version)

    # The files of one table are already copied in parallel.
    made = map(put, locations) if is_deep else in_parallel(put, locations)
    tables = dict(zip(locations, made, strict=True))
    record = creation.first_record(
        request.target,
        message=f"Clone {attempt.source}",
        kind=CommitKind.CLONE,
        # The first commit of the clone must not seem older than the cloned commit.
        since=request.commit.created_at,
        metadata={
            "source": attempt.source,
            "source_id": attempt.source_id,
            "source_commit_id": attempt.commit_id,
            "clone_id": attempt.clone_id,
        },
        tables=attempt.tables,
    )
    return record, tables


def _complete(target: RepoConfig, finished: Attempt, storage_options: Mapping[str, str]) -> None:
    """Write the first entry of main, then the mark. Concurrent calls for the same attempt write the same objects."""
    record = Commits(target).get(str(finished.first_commit_id))
    if Heads(target).create(BranchName(MAIN), lambda _: creation.first_entry(record)) is None:
        hint = "choose another folder"
        raise RepositoryExistsError(f"another process has created a repository at {target.root!r}", hint=hint)
    mark = creation.Mark(id=finished.repository_id, root=target.root, created_at=record.commit.created_at)
    creation.put_mark(target, mark)
    # From here on a deep clone reads its own copies only. It is complete, so a failed release is not its error: the
    # registration stays in the source, which keeps more than it needs, and clone_list() shows it.
    if finished.kind is CloneKind.DEEP:
        with suppress(AnabranchError):
            _release(finished.registrations, storage_options, target=target.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexplained:
    """A home that reads an unknown location: neither a former root of the repository nor a base of the table."""

    dataset: str
    home: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """The result of a relocation. If `unexplained` is not empty, it is incomplete and those homes cannot be read."""

    root: str
    former_root: str
    datasets: int
    rewritten: int
    unexplained: tuple[Unexplained, ...]

    @property
    def is_complete(self) -> bool:
        """Whether no table reads an unknown location."""
        return not self.unexplained


def relocate_repository(
    config: RepoConfig, *, mapping: Mapping[str, str] | None = None, progress: Progress = lambda _done, _total: None
) -> Relocation:
    """Make the tables of a repository read its current location instead of the former one.

    `mapping` (old prefix to new) is for other locations that moved: tiers, or the source of a shallow clone. Each
    manifest is replaced in one step and the mark is written last, so an interrupted relocation can be run again.
    """
    mark = creation.check_repository(config)
    moved = _checked(mapping or {})
    # Before the own root joins the mapping: the source of a clone does not move together with the clone.
    clone_log.follow_source(config, lambda path: moved_path(path, moved))
    if mark.root != config.root:
        moved[mark.root] = config.root
    datasets, reports = _list_lance_folders(config), []
    for report in iter_in_parallel(lambda path: relocate_with(config.home_at(path), moved), datasets):
        reports.append(report)
        progress(len(reports), len(datasets))
    relocation = Relocation(
        root=config.root,
        former_root=mark.root,
        datasets=len(datasets),
        rewritten=sum(len(report.rewritten) for report in reports),
        unexplained=tuple(
            Unexplained(dataset=dataset, home=base.branch, path=base.path)
            for dataset, report in zip(datasets, reports, strict=True)
            for base in report.unexplained
        ),
    )
    # The mark is last. While it names the former root, homes are checked when they are opened, and gc refuses to run.
    if relocation.is_complete and mark.root != config.root:
        _repair_hints(config)
        creation.replace_mark(config, replace(mark, root=config.root))
    return relocation


def _list_lance_folders(config: RepoConfig) -> list[str]:
    """Return the folders of the history tables and of all tables, also of those that no commit names.

    Homes of deleted branches and old versions must read the new location, too.
    """
    tables = [f"{TABLES}/{dataset}" for dataset in config.list_datasets()]
    return sorted(path for path in (*tables, *config.store.list_folders()) if path.endswith(".lance"))


def _checked(mapping: Mapping[str, str]) -> dict[str, str]:
    checked = {normalise_uri(old): normalise_uri(new) for old, new in mapping.items()}
    for old, new in checked.items():
        if old == new:
            raise InvalidInputError(f"{old!r} is mapped to itself", hint="leave it out of the mapping")
    return checked


def _repair_hints(config: RepoConfig) -> None:
    """Make the hints of logs agree with the logs: in a copy made during writes, a hint may be ahead of its log.

    A hint that is the next entry of its log is appended. One further ahead is deleted: entries before it are missing.
    """
    if config.store.lists_sorted:
        return  # hints are used only on local disk
    folders = [path for folder in (BRANCHES, RUNS, TAGS, CLONES) for path in config.store.list_folders(folder)]

    def repair(folder: str) -> None:
        log = NumberedLog(config.store, folder)
        hint = log.find_hint()
        if hint is None or log.find(hint[0]) is not None:
            return
        if log.find(hint[0] - 1) is None or not log.append(*hint):
            config.store.delete(log.hint_path)

    in_parallel(repair, folders)
