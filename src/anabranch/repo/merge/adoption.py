"""Adopt data that other Lance tools wrote: an external write to a managed table, or a whole Lance table."""

from collections.abc import Sequence
from dataclasses import replace

from anabranch.errors import ConflictError, NotFoundError, SchemaMismatchError, TableExistsError, WriteConflictError
from anabranch.format import staging
from anabranch.format.clone import clone
from anabranch.format.home import Home
from anabranch.format.staging import VersionRef
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import Changes, CommitKind, LogEntry, TableEntry
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.merge.combiner import Combiner, Sides
from anabranch.repo.write.homes import check_primary_key, free_dataset, home_for_writing
from anabranch.repo.write.publish import Published, publish
from anabranch.repo.write.staged_table import check_unique


def adopt_write(repo_store: RepoStore, branch: BranchName, key: TableKey, combiner: Combiner) -> Published:
    """Publish the external writes to the home of a table, merged with the commits since then.

    The published version is a staged copy, because the cleanup of Lance removes ordinary versions.
    """

    def changes_on(head: LogEntry) -> Changes:
        entry = repo_store.commits.tables_of(head.head).get(key)
        if entry is None or not owns(branch, entry.home):
            problem = f"branch '{branch}' has not written to '{key}', so it has no external writes"
            raise NotFoundError(problem, hint="pass the URI of a Lance table to adopt the whole table")
        return {key: _with_external_write(repo_store, branch, key, entry, combiner)}

    head = repo_store.heads.get(branch)
    spec = CommitSpec(message=f"Adopt a direct write to {key}", kind=CommitKind.ADOPT, metadata={})
    return publish(repo_store, expected=head, changes=changes_on(head), spec=spec, rebase=changes_on)


def _with_external_write(
    repo_store: RepoStore, branch: BranchName, key: TableKey, entry: TableEntry, combiner: Combiner
) -> TableEntry:
    """Return the entry of a table with the external write and with the commits that it does not include."""
    home = repo_store.config.home_of(entry)
    external = staging.list_external_versions(home, since=entry.head)
    if not external:
        hint = "`adopt()` is only needed after a write by another Lance tool"
        raise NotFoundError(f"no external writer changed '{key}' on '{branch}'", hint=hint)
    newest = staging.newest_version(home)
    # Other tools do not sync what they write, and the files of all external versions may be among those of the newest.
    repo_store.config.store.sync_all()
    copied = VersionRef(home=home, version=staging.copy_ordinary(home, newest))
    version_ref = staging.build_wanted(copied)  # the external write may have added the first rows
    check_primary_key(key, version_ref.schema, entry.primary_key)
    # Lance does not enforce keys, so that an external write may have repeated one.
    check_unique(version_ref, entry.primary_key)
    theirs = replace(entry, version=version_ref.version, head=newest, rows=version_ref.count_rows())
    shown = staging.versions_shown_by(home, external[0] - 1)
    # The external write was made on the published version, so that it includes all commits, and nothing is merged.
    if entry.version in shown:
        return theirs
    if not shown:
        raise ConflictError(
            f"the version of '{key}' on which the external write was based no longer exists",
            hint="read the external version, apply it as a change, then set it aside with "
            f"`settle('{key}', force=True)`",
        )
    # Merge our commits into the external version, so that the result descends from the newest ordinary version.
    sides = Sides(base={key: replace(entry, version=shown[0])}, source={key: entry}, target={key: theirs})
    changes = combiner.merge(
        sides,
        f"the external write to '{key}' on '{branch}'",
        hint="undo the commits that changed the same rows, or set the external write aside with "
        f"`settle('{key}', force=True)`",
    )
    return changes.get(key) or theirs


def adopt_table(
    repo_store: RepoStore, branch: BranchName, key: TableKey, *, source: Home, primary_key: Sequence[str]
) -> Published:
    """Publish an existing Lance table as a new table. It is a shallow clone, so no data is copied."""
    head = repo_store.heads.get(branch)
    if View.now(repo_store, head).find_table(repo_store.commits, key) is not None:
        raise TableExistsError(f"table '{key}' already exists", hint="pass another name")
    adopted = VersionRef(home=source, version=source.head_version())
    if not adopted.open().has_stable_row_ids:
        problem = f"the table at {source.uri!r} has no stable row ids, which managed tables need"
        raise SchemaMismatchError(problem, hint="load a copy of the table with `load()`")
    check_primary_key(key, adopted.schema, primary_key)
    check_unique(adopted, primary_key)
    source.store().sync_all()  # the files stay where they are, and the tool that wrote them did not sync them
    dataset = free_dataset(repo_store.config, key)
    root = repo_store.config.dataset_root(dataset)
    clone.shallow_clone(source, root.root, storage_options=repo_store.config.storage_options)
    version_ref = home_for_writing(repo_store.config, branch, VersionRef(home=root, version=root.head_version()))
    entry = TableEntry(
        dataset=dataset,
        home=version_ref.home.branch,
        version=version_ref.version,
        head=version_ref.version,
        primary_key=tuple(primary_key),
        rows=version_ref.count_rows(),
    )

    def changes_on(newer: LogEntry) -> Changes:
        if View.now(repo_store, newer).find_table(repo_store.commits, key) is not None:
            hint = "pass another name"
            raise WriteConflictError(f"table '{key}' was created concurrently by another commit", hint=hint)
        return {key: entry}

    spec = CommitSpec(message=f"Adopt {source.uri} as {key}", kind=CommitKind.ADOPT, metadata={})
    return publish(repo_store, expected=head, changes={key: entry}, spec=spec, rebase=changes_on)
