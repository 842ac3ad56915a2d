"""Rewrite small and half-deleted fragments as larger ones. Rows keep their ids.

`compact` stages a version. `compact_bases` writes the next version of a dataset without commits, and keeps tiers and
regions: fragments are merged with others of their base only, and stay there. Lance's own compaction merges across bases
and writes everything into the home's own root, which would pull a cold archive back into the hot store. It also writes
a changed index of a branch or clone into the own folder, but records the base that the index was inherited from, so
that the index cannot be read. Inherited indices are copied beforehand.
"""

import json
import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
from lance.optimize import Compaction, CompactionTask

from anabranch.errors import BusyError, InvalidInputError
from anabranch.format.bases import bases_of, get_target
from anabranch.format.home import Home, VersionRef
from anabranch.format.layout.manifest import BasePath, inherited_indices, put_next_version, with_own_indices
from anabranch.format.layout.needed_files import FileKind, files_of_version, resolve_path
from anabranch.format.staging.indices import rebuild_indices, require_rebuildable
from anabranch.format.staging.manifests import stage
from anabranch.format.tiering import DataFileCopier
from anabranch.storage import copy_verified, in_parallel, open_parent, open_store
from anabranch.storage.uris import join_uri

# The default of Lance's own compaction.
TARGET_ROWS = 1 << 20


def compact(version_ref: VersionRef, *, target_rows_per_fragment: int = TARGET_ROWS) -> VersionRef:
    """Stage the same rows in fewer fragments, with all indices built again. Stage nothing if there is nothing to do."""
    tasks = plan_compaction(version_ref, target_rows_per_fragment=target_rows_per_fragment)
    return stage_rewritten(version_ref, [rewrite_fragments(version_ref, task) for task in tasks])


def plan_compaction(version_ref: VersionRef, *, target_rows_per_fragment: int = TARGET_ROWS) -> tuple[bytes, ...]:
    """Return the tasks of a compaction, none if it gains nothing. Any machine that reaches the table can run a task."""
    if target_rows_per_fragment < 1:
        raise InvalidInputError(
            f"a fragment cannot have {target_rows_per_fragment} rows", hint="ask for 1 or more rows per fragment"
        )
    dataset = version_ref.open()
    # Every index is built again afterwards. Refuse before rows are rewritten if one of them cannot be.
    require_rebuildable(dataset)
    with version_ref.home.errors():
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": target_rows_per_fragment})
        return tuple(map(pickle.dumps, plan.tasks))


def rewrite_fragments(version_ref: VersionRef, task: bytes) -> bytes:
    """Run a task: write the rows of its fragments as new ones, which are not visible yet. Return the new fragments."""
    with version_ref.home.errors():
        return pickle.dumps(pickle.loads(task).execute(version_ref.open()))  # noqa: S301 - from plan_compaction


def stage_rewritten(version_ref: VersionRef, rewritten: Sequence[bytes]) -> VersionRef:
    """Stage the version with new fragments for old ones, and all indices built again.

    An old index is never kept: after a compaction it claims fragments that it does not know, or finds no rows in them.
    """
    if not rewritten:
        return version_ref
    # The results have other names than Lance's type stubs.
    done: list[Any] = [pickle.loads(result) for result in rewritten]  # noqa: S301 - our own
    groups = [lance.LanceOperation.RewriteGroup(result.original_fragments, result.new_fragments) for result in done]
    return rebuild_indices(stage(version_ref.open(), version_ref, lance.LanceOperation.Rewrite(groups, [])))


_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """The number of fragments before and after a compaction."""

    version: int
    fragments_removed: int
    fragments_added: int


def compact_bases(home: Home, *, target_rows: int = TARGET_ROWS) -> CompactReport:
    """Merge small fragments and drop deleted rows, base by base.

    Files that a branch or clone inherits are rewritten into its own root, because their base belongs to another home.
    Inherited indices are copied first, as Lance would make them unreadable.
    """
    for _ in range(_ATTEMPTS):
        try:
            with home.errors():
                return _compact(home, home.open(), target_rows)
        except BusyError:
            continue  # no version names the written files
    raise BusyError(f"others keep writing to {home.uri!r}", hint="try again when they are done")


def _compact(home: Home, dataset: lance.LanceDataset, target_rows: int) -> CompactReport:
    plan = Compaction.plan(dataset, {"target_rows_per_fragment": target_rows})
    targets = _writable(home, bases_of(dataset))
    tasks = [part for whole in plan.tasks for part in _split_by_base(whole, targets)]
    if not tasks:
        return CompactReport(version=int(dataset.version), fragments_removed=0, fragments_added=0)
    # The copies made a new version, so the plan is out of date. The next call finds no inherited index.
    if copy_inherited_indices(home):
        return _compact(home, home.open(), target_rows)
    copier = DataFileCopier(home)
    done = [_put_in_base(home, task.execute(dataset), target, copier) for target, task in tasks]
    metrics = Compaction.commit(dataset, done)
    return CompactReport(
        version=int(dataset.version),
        fragments_removed=metrics.fragments_removed,
        fragments_added=metrics.fragments_added,
    )


def _writable(home: Home, bases: Iterable[BasePath]) -> dict[int, BasePath]:
    """Return the bases that this home may write to, without its own root."""
    found = {}
    for base in bases:
        try:
            target = get_target(home, [base], base.id)
        except InvalidInputError:
            continue
        if target is not None:
            found[base.id] = target
    return found


def _split_by_base(task: Any, writable: Mapping[int, BasePath]) -> list[tuple[BasePath | None, CompactionTask]]:
    """Return a task for each base that has fragments to merge or rows to drop. None is the own root."""
    whole = json.loads(task.json())
    parts: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for fragment in whole["task"]["fragments"]:
        base_id = fragment["files"][0]["base_id"]
        parts[base_id if base_id in writable else None].append(fragment)
    return [
        (
            None if base_id is None else writable[base_id],
            task.from_json(json.dumps({**whole, "task": {**whole["task"], "fragments": fragments}})),
        )
        for base_id, fragments in parts.items()
        # Lance planned the task for several bases together. Its part in one base may be a single whole fragment.
        if len(fragments) > 1 or fragments[0].get("deletion_file")
    ]


def _put_in_base(home: Home, result: Any, target: BasePath | None, copier: DataFileCopier) -> Any:
    """Move the files that Lance wrote from the own root to the base. No version names them yet."""
    if target is None:
        return result
    written = json.loads(result.json())
    for file in [file for fragment in written["new_fragments"] for file in fragment["files"]]:
        source, aim = (
            resolve_path(file["path"], FileKind.DATA, base_id, bases={target.id: target}, dataset_root=home.uri)
            for base_id in (None, target.id)
        )
        # Lance writes compacted files into the own root only. No version names them yet, so they can be moved.
        copier.move(source, aim)
        file["base_id"] = target.id
    return result.from_json(json.dumps(written))


def copy_inherited_indices(home: Home) -> bool:
    """Copy all inherited indices of the newest version, and put a version that reads the copies.

    Return whether there were any. Raise BusyError if another writer changed the indices.
    """
    needed = files_of_version(home, home.head_version()).files
    folders = {file.uri for file in needed if file.kind is FileKind.INDEX and file.mention.base_id is not None}
    if not folders:
        return False
    target = open_store(home.uri, home.storage_options)

    def copy(uri: str) -> str:
        source, uuid = open_parent(uri, home.storage_options)
        for info in list(source.list(uuid)):
            copy_verified(source, info.path, target, join_uri(FileKind.INDEX.folder, info.path))
        return uuid

    copied = set(in_parallel(copy, folders))

    def change(data: bytes) -> bytes:
        # The newest version may have an index that was not copied, and would then point to a missing folder.
        if not inherited_indices(data) <= copied:
            raise BusyError(f"the indices of {home.uri!r} were changed by another writer", hint="try again")
        return with_own_indices(data)

    put_next_version(home, change)
    return True
