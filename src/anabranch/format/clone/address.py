"""The address of a clone as its source records it: in the hold that keeps the clone's version.

A clone that was moved has a hold that names its former address. A clone that was copied shares the hold of the
original, and would lose its files when the original is dropped. Relocation puts both right.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import uuid4

import lance

from anabranch.errors import AnabranchError
from anabranch.format.clone.files import has_manifest
from anabranch.format.clone.holds import Hold, list_holds, record_address, take_hold
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.manifest import BasePath
from anabranch.format.refs.tags import find_tag
from anabranch.format.staging.external_versions import find_transaction
from anabranch.storage import open_store
from anabranch.storage.uris import follow_links, relative_to

__all__ = ["HoldChange", "HoldOutcome", "record_clone"]


class HoldOutcome(StrEnum):
    """What became of the hold of a clone in its source."""

    UNCHANGED = "unchanged"
    UPDATED = "updated"
    ADDED = "added"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChange:
    """The hold of a relocated clone in its source.

    UPDATED: it named the former address of a clone that was moved. ADDED: the clone had no hold of its own, because it
    was copied or was made by another tool. NOT_FOUND: the source cannot be read or changed, or the version that the
    clone was made from is unknown; `tag` is then None and `problem` is the reason.
    """

    source: str
    tag: str | None
    outcome: HoldOutcome
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Origin:
    """A version of the source that may be what the clone was made from."""

    branch: str | None
    version: int


def record_clone(clone: Home, bases: Iterable[BasePath], *, dry_run: bool = False) -> tuple[HoldChange, ...]:
    """Make the source of a shallow clone hold what the clone reads, under the clone's present address.

    `bases` are those of the clone's main branch. The answer is empty for a dataset that is not a clone. An error in the
    source is reported, not raised: the clone itself has been relocated by then.
    """
    known = tuple(bases)
    made = _clone_operation(clone)
    roots = _source_roots(clone, known, made)
    if not roots:
        return ()
    # A clone of a clone inherits from several datasets, and only the last of them holds it.
    recorded = _recorded_root(made)
    source = Home.at(recorded if recorded in roots else roots[-1], clone.storage_options)
    try:
        return (_record(source, clone, _Clues.of(known, made), dry_run=dry_run),)
    except AnabranchError as err:
        return (HoldChange(source=source.root, tag=None, outcome=HoldOutcome.NOT_FOUND, problem=err.problem),)


def _source_roots(clone: Home, bases: Iterable[BasePath], made: lance.LanceOperation.Clone | None) -> list[str]:
    """The roots of other datasets from which the clone inherits files; that of the newest base comes last."""
    roots: list[str] = []
    own = follow_links(clone.root)
    for base in sorted(bases, key=lambda base: base.id):
        root, is_branch, _ = base.path.rstrip("/").partition("/tree/")
        if not base.is_dataset_root or relative_to(follow_links(root), own) is not None:
            continue
        # A base may be a plain folder of files. Only these three prove that it is the root of a dataset.
        if is_branch or root == _recorded_root(made) or _holds_dataset(root, clone):
            # A root that occurs again moves to the end: the last one is the direct source.
            roots = [*(known for known in roots if known != root), root]
    return roots


def _recorded_root(made: lance.LanceOperation.Clone | None) -> str | None:
    return None if made is None else made.ref_path.rstrip("/").partition("/tree/")[0]


def _holds_dataset(root: str, clone: Home) -> bool:
    """Whether a dataset root holds a dataset; a tier holds only files."""
    try:
        return has_manifest(open_store(root, clone.storage_options))
    except AnabranchError:
        return False


def _clone_operation(clone: Home) -> lance.LanceOperation.Clone | None:
    """How the clone was made, as its oldest version records; None if that version was removed."""
    try:
        with lance_errors(clone.root, clone.storage_options):
            # Only the oldest version has the Clone operation, which names the source.
            first = min(int(ref["version"]) for ref in clone.open().version_refs())
        made = find_transaction(clone, clone.open(first), first)
    except AnabranchError:
        return None
    return made.operation if made is not None and isinstance(made.operation, lance.LanceOperation.Clone) else None


@dataclass(frozen=True, slots=True)
class _Clues:
    """What a clone knows of its origin: the names of its bases, and the transaction that made it."""

    names: frozenset[str]
    made: lance.LanceOperation.Clone | None

    @classmethod
    def of(cls, bases: Iterable[BasePath], made: lance.LanceOperation.Clone | None) -> "_Clues":
        return cls(frozenset(base.name for base in bases if base.name is not None), made)

    def origins(self, source: Home) -> list[_Origin]:
        """The versions that the clone may have been made from: by its first transaction, else by a tag's name."""
        if self.made is not None:
            return [_Origin(self.made.ref_name, self.made.ref_version)]
        tags = (find_tag(source, name) for name in sorted(self.names))
        return [_Origin(tag.branch, tag.version) for tag in tags if tag is not None]


def _record(source: Home, clone: Home, clues: _Clues, *, dry_run: bool) -> HoldChange:
    holds = list_holds(source)
    for hold in holds:
        # The source knows the clone under this address: there was no move, or it is recorded already.
        if hold.clone_uri == clone.root:
            return HoldChange(source=source.root, tag=hold.name, outcome=HoldOutcome.UNCHANGED)
    origins = clues.origins(source)
    own = [hold for hold in holds if hold.name in clues.names]
    # A hold that the clone names is its own. Otherwise each hold of the version that it was made from may be.
    candidates = own or [hold for hold in holds if _kept(hold) in origins]
    moved = [hold for hold in candidates if not _exists(hold, clone)]
    if len(moved) == 1:
        if not dry_run:
            record_address(source, moved[0].name, clone.root)
        return HoldChange(source=source.root, tag=moved[0].name, outcome=HoldOutcome.UPDATED)
    # The original is still there, or several clones of one version moved: a hold too many does no harm.
    origin = next(iter([*map(_kept, own), *origins]), None)
    if origin is None:
        problem = "the version that the clone was made from is not known"
        return HoldChange(source=source.root, tag=None, outcome=HoldOutcome.NOT_FOUND, problem=problem)
    return _add_hold(source, clone, origin, dry_run=dry_run)


def _add_hold(source: Home, clone: Home, origin: _Origin, *, dry_run: bool) -> HoldChange:
    hold_id = uuid4().hex[:16]
    if dry_run:
        source.on(origin.branch).open(origin.version)
        return HoldChange(source=source.root, tag=None, outcome=HoldOutcome.ADDED)
    made = take_hold(source, branch=origin.branch, version=origin.version, clone_uri=clone.root, hold_id=hold_id)
    return HoldChange(source=source.root, tag=made.name, outcome=HoldOutcome.ADDED)


def _kept(hold: Hold) -> _Origin:
    return _Origin(hold.kept_branch, hold.kept_version)


def _exists(hold: Hold, clone: Home) -> bool:
    """Whether another dataset is at the address in the hold; if that cannot be found out, assume one is."""
    if hold.clone_uri is None:
        return False
    try:
        return has_manifest(open_store(hold.clone_uri, clone.storage_options))
    except AnabranchError:
        return True
