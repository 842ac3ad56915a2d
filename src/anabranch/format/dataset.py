"""A handle on one Lance dataset, of any origin; each method delegates to the module of its subject."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import PurePath
from typing import Any, Self

import lance
import pyarrow as pa

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.format import bases, scan, tiering
from anabranch.format.cleanup import cleanup
from anabranch.format.clone import clone, holds, relocate
from anabranch.format.doctor import dataset_doctor
from anabranch.format.doctor.findings_and_repairs import DoctorReport
from anabranch.format.home import Home, VersionRef, refuse_managed
from anabranch.format.layout import fragment_rows, listing
from anabranch.format.layout.listing import branch_ref_path
from anabranch.format.layout.manifest import BasePath
from anabranch.format.refs import branches, refs
from anabranch.format.refs.ref_files import RefList, warn_unreadable
from anabranch.format.retention import CleanupReport, checked_retention, record_branch, record_clone_files
from anabranch.format.staging.compaction import CompactReport, compact_bases
from anabranch.ids import MAIN
from anabranch.storage import open_store
from anabranch.storage.requests import OnProgress, counting

# A position in history: a version number, the name of a branch or tag, or (branch, version).
Ref = int | str | tuple[str | None, int | None]


def open_dataset(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> "Dataset":
    """Open the dataset at a path or URI on its main branch; raise DatasetNotFoundError if there is none.

    The folder of a branch, `{root}/tree/{branch}`, is opened as that branch: by itself it would know no refs, and read
    the original of a copied dataset.

    >>> orders = ab.dataset("shop/tables/shop/orders.lance")
    >>> orders.branch_create("experiment").name, orders.tag_create("v1").version == orders.version
    ('experiment', True)
    """
    home = Home.at(uri, storage_options)
    root, separator, branch = home.root.rpartition("/tree/")
    # Only with a ref: a dataset may be in a folder that is called `tree` by chance.
    if separator and refs.find_branch(replace(home, root=root), branch) is not None:
        return Dataset(replace(home, root=root)).branch_checkout(branch)
    handle = Dataset(home)
    handle.open()
    return handle


def open_damaged_dataset(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> "Dataset":
    """Return a handle for doctor and layout on a dataset that Lance may fail to open. Nothing is read yet."""
    home = Home.at(uri, storage_options)
    root, separator, branch = home.root.rpartition("/tree/")
    if separator and open_store(root, home.storage_options).find_info(branch_ref_path(branch)) is not None:
        home = replace(home, root=root)
    return Dataset(home)


class Dataset:
    """One dataset on one branch: at its newest version, or at the version it was checked out at."""

    def __init__(self, home: Home, *, version: int | None = None) -> None:
        self._home = home
        self._pinned = version

    def __repr__(self) -> str:
        return f"Dataset({self._home.root!r}, branch={self.branch!r}, version={self._pinned or 'newest'})"

    @property
    def uri(self) -> str:
        """The root of the dataset, the same on all branches."""
        return self._home.root

    @property
    def home(self) -> Home:
        """The location of the dataset and its branch, for the layers above."""
        return self._home

    @property
    def branch(self) -> str:
        """The branch that this handle is on."""
        return self._home.branch or MAIN

    @property
    def version(self) -> int:
        """The version that this handle reads."""
        return int(self.open().version)

    @property
    def schema(self) -> pa.Schema:
        """The columns, as an Arrow schema."""
        return self.open().schema

    def open(self) -> lance.LanceDataset:
        """The underlying pylance dataset."""
        return self._home.open(self._pinned)

    def count_rows(self, where: str | None = None) -> int:
        """Return the number of rows, or of those that match a predicate."""
        return self._version_ref.count_rows() if where is None else scan.count_rows(self._version_ref, where)

    def to_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        base: str | None = None,
    ) -> pa.Table:
        """Read rows; with a base, only those of the fragments kept there ('root' is the dataset's own root)."""
        return scan.read_table(self._version_ref, columns=columns, where=where, limit=limit, base=base)

    def version_list(self) -> list[int]:
        """List the ordinary versions of this branch, oldest first."""
        with self._home.errors():
            return sorted(int(ref["version"]) for ref in self._home.open().version_refs())

    def versions(self) -> list[refs.VersionInfo]:
        """List the ordinary versions of this branch with their times, tags and branches, oldest first."""
        return list(refs.list_versions(self._home))

    def restore(self, version: int) -> int:
        """Make an older version of this branch the newest again, as a new version, and return its number.

        Later versions stay in the history. Bases added since then stay listed.
        """
        self._refuse_pinned()
        refuse_managed(self._root, "a restore", instead="reset")
        return refs.restore_version(self._home, version)

    # Branches

    def branch_create(self, name: str, source: Ref | None = None) -> refs.BranchInfo:
        """Branch from this handle's version, or from another version, tag or branch."""
        holds.refuse_hold_name(name)
        return branches.create_branch(self._root, name, self._source(source))

    def branch_list(self) -> RefList[refs.BranchInfo]:
        """List the branches and their origins.

        A branch whose metadata cannot be read is left out, named in the list's `unreadable`, and warned of.
        """
        return warn_unreadable(refs.list_branches(self._root), self.uri)

    def branch_get(self, name: str) -> refs.BranchInfo:
        """Return a branch and its origin."""
        return refs.get_branch(self._root, name)

    def branch_checkout(self, name: str, version: int | None = None) -> Self:
        """Return a handle on a branch or 'main'. Raise an error if the branch reads the dataset's former location."""
        home = self._root if name == MAIN else self._root.on(name)
        if home.branch is not None:
            refs.get_branch(self._root, name)
            bases.check_bases(home)
        home.open(version)
        return type(self)(home, version=version)

    def branch_delete(self, name: str, *, dry_run: bool = False) -> branches.DeletedBranch:
        """Delete a branch and its files. Raise an error while another branch, a tag or a clone needs it."""
        holds.refuse_held_branch(self._root, name)
        return branches.delete_branch(self._root, name, on_removal=record_branch, dry_run=dry_run)

    def branch_set_metadata(
        self, name: str, metadata: Mapping[str, str], *, unset: Sequence[str] = (), replace: bool = False
    ) -> refs.BranchInfo:
        """Set keys of a branch's metadata and remove others; with `replace`, all other keys are removed."""
        return refs.set_branch_metadata(self._root, name, metadata, unset=unset, replace=replace)

    def fork_branch_from_state(
        self, source_branch: str | None, target_branch: str, source_version: int
    ) -> refs.BranchInfo:
        """Fork copy-on-write from exactly one version of a branch; no data is copied."""
        holds.refuse_hold_name(target_branch)
        source = None if source_branch == MAIN else source_branch
        if source is not None:
            refs.get_branch(self._root, source)
        return branches.create_branch(self._root, target_branch, (source, source_version))

    # Tags

    def tag_create(self, name: str, ref: Ref | None = None) -> refs.TagInfo:
        """Name a version, by default that of this handle."""
        holds.refuse_hold_name(name)
        return refs.create_tag(self._root, name, self._source(ref))

    def tag_update(self, name: str, ref: Ref | None = None) -> refs.TagInfo:
        """Move a tag to another version; refused for a tag that holds a version for a clone."""
        holds.refuse_hold(self._root, name)
        return refs.update_tag(self._root, name, self._source(ref))

    def tag_list(self) -> RefList[refs.TagInfo]:
        """List the tags, those on branches included.

        A tag that cannot be read is left out, named in the list's `unreadable`, and warned of.
        """
        return warn_unreadable(refs.list_tags(self._root), self.uri)

    def tag_get(self, name: str) -> refs.TagInfo:
        """Return a tag and its target."""
        return refs.get_tag(self._root, name)

    def tag_checkout(self, name: str) -> Self:
        """Return a handle on the target of a tag."""
        tag = refs.get_tag(self._root, name)
        return self.branch_checkout(tag.branch or MAIN, tag.version)

    def tag_delete(self, name: str) -> None:
        """Delete a tag; its version stays. Refused for a tag that holds a version for a clone."""
        holds.refuse_hold(self._root, name)
        refs.delete_tag(self._root, name)

    def tag_set_metadata(
        self, name: str, metadata: Mapping[str, str], *, unset: Sequence[str] = (), replace: bool = False
    ) -> refs.TagInfo:
        """Set keys of a tag's metadata and remove others; with `replace`, all other keys are removed."""
        holds.refuse_hold(self._root, name)
        return refs.set_tag_metadata(self._root, name, metadata, unset=unset, replace=replace)

    # Base paths and tiers

    def base_add(self, path: str | PurePath, *, name: str, is_dataset_root: bool = False) -> BasePath:
        """Register one more location for files; on a branch it is listed on main too."""
        self._refuse_pinned()
        return bases.add_base(self._home, str(path), name=name, is_dataset_root=is_dataset_root)

    def base_remove(self, name: str, *, dry_run: bool = False) -> tiering.BaseRemoval:
        """Remove a base from the lists of main and all branches; refused while any version has files in it.

        Concurrent writers fail and can try again. Older versions still list the base, and files stay where they are.
        """
        return tiering.remove_base(self._root, name, dry_run=dry_run)

    def base_list(self) -> list[BasePath]:
        """List the locations that files of this branch's newest version may have besides the dataset's root."""
        return list(bases.list_bases(self._home, self._pinned))

    def append(self, data: Any, *, base: str | None = None) -> int:
        """Append rows as the branch's next version, their files in the named base if one is given."""
        self._refuse_pinned()
        return bases.append_to_base(self._home, data, base=base)

    def move_fragments(  # noqa: PLR0913 - what to move and where, and what to keep of the copies left behind
        self,
        *,
        to: str,
        where: str | None = None,
        fragments: Sequence[int] | None = None,
        prune: bool = False,
        keep_last: int | None = None,
        keep_newer_than: timedelta | None = None,
        grace: timedelta | None = None,
        bases: Sequence[str] = (),
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> tiering.MoveReport:
        """Move fragments to another base, chosen by their ids, or by a predicate that all of their rows match.

        Older versions read the copies that are left behind. With `prune` a cleanup follows, which removes the versions
        that `keep_last` or `keep_newer_than` does not keep, and the copies that no kept version needs; see `cleanup`
        for `grace` and `bases`. A dry run reports the move alone.
        """
        self._refuse_pinned()
        clean_up = partial(self.cleanup, keep_last=keep_last, keep_newer_than=keep_newer_than, grace=grace, bases=bases)
        if prune:
            if keep_last is None and keep_newer_than is None:
                raise InvalidInputError(
                    "prune needs to know which versions to keep",
                    hint="give `keep_last` or `keep_newer_than`; `keep_last=1` keeps the newest version of each branch",
                )
            clean_up(dry_run=True)  # checks all arguments before anything moves
        elif any(value is not None for value in (keep_last, keep_newer_than, grace, bases or None)):
            raise InvalidInputError("versions are removed only by a move with prune", hint="add `prune=True`")
        moved = tiering.move_fragments(
            self._home, to=to, where=where, ids=fragments, progress=counting(progress, "fragments"), dry_run=dry_run
        )
        if not prune or dry_run:
            return moved
        return replace(moved, pruned=clean_up())

    def compact(self) -> CompactReport:
        """Merge small fragments, each within the base it is kept in. A table of a repository is refused."""
        self._refuse_pinned()
        refuse_managed(self._root, "a compaction", instead="compact")
        return compact_bases(self._home)

    def cleanup(  # noqa: PLR0913 - what to keep, where to look, and how
        self,
        *,
        keep_last: int | None = None,
        keep_newer_than: timedelta | None = None,
        grace: timedelta | None = None,
        bases: Sequence[str] = (),
        clones: Sequence[str] = (),
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> CleanupReport:
        """Remove versions that are not kept, on all branches, and files that no kept version needs.

        Always kept are the newest version of each branch, tagged versions (also those held for clones), versions that
        branches were made from, staged versions, and everything younger than `grace`, one day by default. Without
        `keep_last` and `keep_newer_than` all versions are kept. Files in a base are removed only if `bases` names it:
        name a base that no other dataset writes to or reads. Name clones made by another tool in `clones`.
        """
        return cleanup(
            self._root,
            checked_retention(keep_last=keep_last, keep_newer_than=keep_newer_than, grace=grace),
            bases=bases,
            clones=[Home.at(uri, self._home.storage_options) for uri in clones],
            dry_run=dry_run,
            progress=counting(progress, "files"),
        )

    def storage_report(self) -> bases.StorageReport:
        """Count the files that this handle's version reads, and their bytes, by base."""
        return bases.storage_report(self._home, self._pinned)

    # Clones, moving, housekeeping

    def shallow_clone(
        self, target: str | PurePath, ref: Ref | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> holds.CloneInfo:
        """Make a dataset that reads this one's data files. This dataset keeps them until the clone is dropped."""
        wanted = self._clone_source(ref)
        return clone.shallow_clone(self._root, str(target), ref=wanted, storage_options=storage_options)

    def deep_clone(
        self, target: str | PurePath, ref: Ref | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> holds.CloneInfo:
        """Make a dataset with copies of all files, independent of this one."""
        wanted = self._clone_source(ref)
        return clone.deep_clone(self._root, str(target), ref=wanted, storage_options=storage_options)

    def clone_list(self, *, storage_options: Mapping[str, str] | None = None) -> list[holds.CloneInfo]:
        """List the shallow clones; the options reach the clones, and are this dataset's by default."""
        return list(holds.list_clones(self._root, storage_options=storage_options))

    def clone_drop(
        self, target: str | PurePath, *, storage_options: Mapping[str, str] | None = None, dry_run: bool = False
    ) -> holds.DroppedClone:
        """Delete a shallow clone and stop keeping its files. The options reach the clone."""
        return holds.drop_clone(
            self._root, str(target), storage_options=storage_options, on_removal=record_clone_files, dry_run=dry_run
        )

    def clone_release(self, tag: str) -> None:
        """Stop keeping the files of a clone that is deleted or independent. The clone is not changed."""
        holds.release_clone(self._root, tag)

    def relocate(
        self, *, mapping: Mapping[str, str] | None = None, progress: OnProgress | None = None, dry_run: bool = False
    ) -> relocate.RelocateReport:
        """Make a moved or copied dataset read only its new address. The source of a clone records the new address."""
        return relocate.relocate(self._root, mapping=mapping, progress=counting(progress, "versions"), dry_run=dry_run)

    def layout(self) -> listing.Layout:
        """Classify every file of the dataset, all branches included."""
        return listing.layout(self._root)

    def deleted_offsets(self, fragment_id: int) -> fragment_rows.Offsets:
        """Return the deleted rows of a fragment at this handle's version, as sorted offsets into the fragment."""
        return fragment_rows.deleted_offsets(self._home, self._pinned, fragment_id)

    def doctor(
        self,
        *,
        repair: bool = False,
        grace: timedelta = dataset_doctor.GRACE,
        clones: Sequence[str] = (),
        progress: OnProgress | None = None,
    ) -> DoctorReport:
        """Report problems. With `repair`, make safe repairs first. Nothing younger than `grace` is changed.

        Clones that plain pylance made are unknown here. Name them to keep their files. `progress` is called
        with the number of versions that were read, and the number of all.
        """
        others = [Home.at(uri, self._home.storage_options) for uri in clones]
        return dataset_doctor.doctor(
            self._root, repair=repair, grace=grace, clones=others, progress=counting(progress, "versions")
        )

    @property
    def _version_ref(self) -> VersionRef:
        return VersionRef(home=self._home, version=self.version)

    @property
    def _root(self) -> Home:
        return self._home.on(None)

    def _refuse_pinned(self) -> None:
        if self._pinned is not None:
            raise InvalidInputError(
                f"this handle is checked out at version {self._pinned}",
                hint=f"check out the branch {self.branch!r} itself, which follows the newest version",
            )

    def _source(self, ref: Ref | None) -> refs.Source:
        """Return the version that a ref names, or by default the version of this handle."""
        match ref:
            case None:
                return self._home.branch, self._pinned
            case int():
                return self._home.branch, ref
            case str():
                return self._named_source(ref)
            case (branch, version):
                return (None if branch == MAIN else branch), version
        raise InvalidInputError(
            f"{ref!r} is not a ref", hint="give a version, a branch or tag name, or (branch, version)"
        )

    def _clone_source(self, ref: Ref | None) -> clone.CloneRef:
        source = self._source(ref)
        if not isinstance(ref, str) or ref == MAIN or refs.find_branch(self._root, ref) is not None:
            return source
        return ref  # a tag stays a name: the clone's base path is called after it

    def _named_source(self, name: str) -> refs.Source:
        if name == MAIN:
            return None, None
        tag, branch = refs.find_tag(self._root, name), refs.find_branch(self._root, name)
        # Lance allows a tag and a branch of one name, so the name alone is ambiguous.
        if tag is not None and branch is not None:
            raise InvalidInputError(f"{name!r} is a branch and a tag", hint="give a version of the branch instead")
        if tag is not None:
            return tag.branch, tag.version
        if branch is not None:
            return name, None
        raise NotFoundError(
            f"{name!r} is neither a branch nor a tag of {self.uri!r}", hint="list both to see which exist"
        )
