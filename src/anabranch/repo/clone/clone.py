"""Clone: make a new repository from one commit of another. `relocate` adapts a repository that was moved or copied.

The tables are written first, then their commit, then the mark that makes the folder a repository. The clone is
registered in the source before anything is read from it. An interrupted clone leaves a folder without a mark, and the
next attempt clears it.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from anabranch.errors import (
    AnabranchError,
    ConflictError,
    InvalidPathError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    StorageDeniedError,
    TableNotFoundError,
)
from anabranch.format.arguments import require_names
from anabranch.format.clone.clone import Draft, draft_clone, put_clone, refuse_mixed_stores
from anabranch.format.staging import VersionRef
from anabranch.hints import suggest
from anabranch.ids import MAIN, BranchName, Ref, TableKey
from anabranch.repo.log.clones import (
    ORIGIN,
    Attempt,
    AttemptState,
    CloneKind,
    Clones,
    Registration,
    begin,
    find_origin,
    finish,
    refuse_overtaken,
)
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.commits import Commits
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.creation import Mark, check_repository, first_entry, first_record, has_mark, put_mark
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, TableEntry, TableMap
from anabranch.repo.log.heads import Heads
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.resolve import refuse_internal, require_kept, require_published, resolve
from anabranch.repo.write.homes import free_dataset
from anabranch.storage import in_parallel, is_below_file, open_store
from anabranch.storage.requests import Steps
from anabranch.storage.uris import relative_to
from anabranch.warnings import UnregisteredCloneWarning

# Called with the number done and the total: tables of a shallow clone, files of a deep one.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest:
    """The tables of a commit to clone, and the location of the clone."""

    source: RepoStore
    commit: GraphCommit
    tables: TableMap
    kind: CloneKind
    target: RepoConfig


def request_clone(
    source: RepoStore, target: RepoConfig, *, ref: str, tables: Sequence[str] | None, kind: CloneKind
) -> CloneRequest:
    """Return a request to clone all tables of a ref, or some of them."""
    found = require_kept(require_published(resolve(Ref.parse(ref), source), source), source)
    refuse_internal(found)
    return CloneRequest(
        source=source,
        commit=found.get_commit(),
        tables=_select(source.commits.tables_of(found.record), tables),
        kind=kind,
        target=target,
    )


def _select(tables: TableMap, wanted: Sequence[str] | None) -> TableMap:
    """Return the requested tables. Raise TableNotFoundError if one does not exist."""
    if wanted is None:
        return tables
    require_names(wanted, "tables")
    keys = [TableKey.parse(key) for key in wanted]
    for key in keys:
        if key not in tables:
            hint = suggest(str(key), map(str, tables), "list the tables with `tables()`", by_parts=True)
            raise TableNotFoundError(f"there is no table '{key}' to clone", hint=hint)
    return {key: tables[key] for key in keys}


def clone_repository(request: CloneRequest, progress: Progress = lambda _done, _total: None) -> None:
    """Make a repository whose main starts with one commit that has the requested tables.

    An interrupted clone at the target starts again. If only its last step is missing, that step is completed.
    """
    target, options = request.target, request.source.config.storage_options
    before = find_origin(target)
    # All files are there, and only the first entry and the mark are missing. If this request wants another clone, the
    # completed one makes it fail as for any existing repository.
    if before is not None and before.state is AttemptState.FINISHED and not has_mark(target):
        _complete(target, before, options)
        if before.has_same_result(_attempt(request, before, ())):
            return
    _check_target(request, is_unfinished=before is not None)
    attempt = _attempt(request, before, _register(request))
    try:
        # Begin before anything is deleted: from here on, the earlier attempt cannot finish, so that no finished clone
        # loses its files.
        begin(target, attempt)
        _clear(target, before, options)
        record, tables = _clone_tables(request, attempt, progress)
        target.store.sync_all()  # the tables must be durable before the log that refers to them
        Commits(target).put(record, tables)
    except BaseException as err:
        # If the release fails, too, the registrations stay. They do no harm, and clone_list() shows them.
        with suppress(AnabranchError):
            _release(attempt.registrations, options, target=target.root)
        # An attempt that took over deletes the files of this one, so that any error may be a consequence of that.
        if isinstance(err, AnabranchError):
            refuse_overtaken(target, attempt)
        raise
    _complete(target, finish(target, attempt, first_commit_id=record.commit.graph_commit_id), options)


def _attempt(request: CloneRequest, before: Attempt | None, registrations: tuple[Registration, ...]) -> Attempt:
    source = request.source.config
    return Attempt(
        number=1 if before is None else before.number + 1,
        state=AttemptState.BEGUN,
        source=source.root,
        source_id=check_repository(source).id,
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
            raise InvalidPathError(
                f"the clone {target.root!r} and its source {source.root!r} overlap: one is inside the other",
                hint="choose a folder outside the source",
            )
    if is_below_file(target.root):
        raise InvalidPathError(f"clone {target.root!r} is a file, or is below one", hint="choose another folder")
    if has_mark(target):
        raise RepositoryExistsError(f"a repository already exists at {target.root!r}", hint="choose another folder")
    # Files of an unfinished clone are deleted later. Other files are not ours to delete.
    if not is_unfinished and any(True for _ in target.store.list()):
        raise ConflictError(f"the folder {target.root!r} is not empty", hint="choose an empty folder")


def _register(request: CloneRequest) -> tuple[Registration, ...]:
    """Register the clone in the source and, for a shallow clone, in the sources of the source.

    A shallow clone of a shallow clone reads the files of both. A read-only source gets no registration, so its
    garbage collection does not know of the clone.
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
    origin = find_origin(source)
    if origin is None or origin.kind is not CloneKind.SHALLOW:
        return ()
    for each in origin.registrations:
        if not has_mark(_at(each.repository, source.storage_options)):
            raise RepositoryNotFoundError(
                f"{source.root!r} is a shallow clone of {each.repository!r}, which does not exist",
                hint="restore that repository, or relocate the clone, then clone again",
            )
    return origin.registrations


def _at(root: str, storage_options: Mapping[str, str], actor: str | None = None) -> RepoConfig:
    return RepoConfig(root=root, store=open_store(root, storage_options), storage_options=storage_options, actor=actor)


def _release(registrations: Sequence[Registration], storage_options: Mapping[str, str], *, target: str) -> None:
    """Release the registrations of a clone at `target`.

    Registrations of other clones stay: the list may come from a folder that was copied, and releasing them would remove
    the protection of another clone.
    """
    for each in registrations:
        clones = Clones(_at(each.repository, storage_options))
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

    def draft(key: TableKey) -> tuple[VersionRef, Draft]:
        entry = request.tables[key]
        version_ref = VersionRef(home=request.source.config.home_of(entry), version=entry.version)
        return version_ref, draft_clone(version_ref, name=attempt.clone_id, is_deep=is_deep)

    # All manifests are drafted before the first file is copied, so that the total for the progress is known.
    drafts = dict(zip(locations, in_parallel(draft, locations), strict=True))
    files = sum(len(drawn.copies) for _, drawn in drafts.values())
    step = Steps(progress, files if is_deep else len(drafts))

    def put(key: TableKey) -> TableEntry:
        version_ref, drawn = drafts[key]
        root = request.target.dataset_root(locations[key])
        made = put_clone(version_ref.home, root, drawn, on_copied=step.done if is_deep else lambda: None)
        if not is_deep:
            step.done()
        old = request.tables[key]
        return replace(
            old, dataset=locations[key], home=None, version=made.version, head=made.version, forked_from=None
        )

    # The files of one table are already copied in parallel.
    made = map(put, locations) if is_deep else in_parallel(put, locations)
    tables = dict(zip(locations, made, strict=True))
    return _first_record(request, attempt), tables


def _first_record(request: CloneRequest, attempt: Attempt) -> CommitRecord:
    return first_record(
        request.target,
        message=f"Clone {attempt.source}",
        kind=CommitKind.CLONE,
        # The first commit of the clone must not seem older than the commit that it has the tables of.
        since=request.commit.created_at,
        metadata={
            "source": attempt.source,
            "source_id": attempt.source_id,
            "source_commit_id": attempt.commit_id,
            "clone_id": attempt.clone_id,
        },
        tables=attempt.tables,
    )


def _complete(target: RepoConfig, finished: Attempt, storage_options: Mapping[str, str]) -> None:
    """Write the first entry of main, then the mark. Concurrent calls for the same attempt write the same objects."""
    record = Commits(target).get(str(finished.first_commit_id))
    if Heads(target).create(BranchName(MAIN), lambda _: first_entry(record)) is None:
        raise RepositoryExistsError(
            f"another process has created a repository at {target.root!r}", hint="choose another folder"
        )
    put_mark(target, Mark(id=finished.repository_id, root=target.root, created_at=record.commit.created_at))
    # From here on a deep clone reads its own copies only. It is complete, so a failed release is not its error: the
    # registration stays in the source, which keeps more than it needs, and clone_list() shows it.
    if finished.kind is CloneKind.DEEP:
        with suppress(AnabranchError):
            _release(finished.registrations, storage_options, target=target.root)
