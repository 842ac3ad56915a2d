"""The repository of a page, and what differs between one on this machine and a project of a service."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Protocol

from anabranch.ids import MAIN, BranchName
from anabranch.repo.io.values import LoadMode
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Table
from anabranch.server.auth import Scope
from anabranch.server.imports import ImportRequest, errors_about, format_of
from anabranch.server.uploads import keep_file

# More names are not suggested, but can be typed.
_MOST_NAMES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """A file to load into a table of a branch, and the name that its sender gave it.

    Its rows replace all rows. With `is_incremental` they are added, and replace those with the same primary key. The
    key in the order is that of a new table.
    """

    table: str
    branch: str
    file: BinaryIO
    name: str
    is_incremental: bool
    primary_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefChoices:
    """The names that a field for refs suggests: branches with the names that people gave them, and tags."""

    branches: Mapping[str, str]
    tags: tuple[str, ...]


class Host(Protocol):
    """What serves a repository: a service creates and deletes branches in its own way, and has tokens."""

    @property
    def has_free_branches(self) -> bool:
        """Whether the visitor chooses the source and the mode of a new branch."""
        ...

    def allows(self, scope: Scope, branch: str | None = None) -> bool:
        """Return whether the visitor may do what needs a scope, to a branch if one is given."""
        ...

    def branch_names(self) -> Mapping[str, str]:
        """Return the names that people gave to branches, by their names in the repository, where they differ."""
        ...

    def create_branch(
        self, name: str, *, source: str, mode: str, description: str, expires_in: timedelta | None
    ) -> str:
        """Create a branch and return its name in the repository."""
        ...

    def delete_branch(self, name: str) -> None: ...

    def public_text(self, text: str) -> str:
        """Return a text of a report as the visitor may read it."""
        ...

    def can_rename(self, name: str) -> bool:
        """Return whether the visitor may rename a branch here."""
        ...

    def rename_branch(self, name: str, new: str) -> None:
        """Rename a branch of the repository. Raise InvalidInputError if it is not renamed here."""
        ...

    def check_revert(self, commit_id: str, branch: str) -> None:
        """Raise an error if a commit is not reverted on a branch here."""
        ...

    def check_merge(self, source: str, into: str) -> None:
        """Raise InvalidInputError if these two are not merged here."""
        ...

    def load(self, order: LoadOrder) -> str:
        """Load a file into a table and return a message about it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A repository, the path below which its pages are, and the visitor's rights.

    `made_at` differs for a repository that was made where another one was deleted.
    """

    repository: Repository
    path: str
    name: str
    host: Host
    made_at: datetime | None = None

    @property
    def identity(self) -> Hashable:
        """What distinguishes the lake from all others of this process, also from deleted ones."""
        return self.repository.uri, self.made_at

    def can_write(self, branch: str | None = None) -> bool:
        """Return whether the visitor may write to a branch, or make and delete branches."""
        return self.host.allows(Scope.BRANCH, branch)

    def list_choices(self) -> RefChoices:
        """Return the names that fields for refs suggest. Deleted branches are left out."""
        names = self.host.branch_names()
        found = [branch.name for branch in self.repository.branch_list(limit=_MOST_NAMES)]
        # main is always there, also if it comes after the maximum number of names.
        branches = [MAIN, *(name for name in found if name != MAIN and not BranchName(name).is_internal)]
        return RefChoices(
            branches={name: names.get(name, name) for name in branches},
            tags=tuple(self.repository.tag_names(limit=_MOST_NAMES)),
        )

    def count_branches(self) -> int:
        """Return the number of branches; of very many, deleted ones count too, because no branch is read."""
        count = len(self.repository.branch_names())
        return count if count > _MOST_NAMES else len(self.repository.branch_list())

    @property
    def can_administer(self) -> bool:
        """Whether the visitor may do what concerns the whole repository."""
        return self.host.allows(Scope.PROJECT)


@dataclass(frozen=True, slots=True)
class RepositoryHost:
    """A repository on this machine: its owner may do everything."""

    repository: Repository
    has_free_branches: bool = True

    def allows(self, scope: Scope, branch: str | None = None) -> bool:  # noqa: ARG002 - everything is allowed
        return True

    def branch_names(self) -> Mapping[str, str]:
        return {}

    def create_branch(
        self, name: str, *, source: str, mode: str, description: str, expires_in: timedelta | None
    ) -> str:
        return self.repository.branch_create(
            name, source, mode=mode, description=description, expires_in=expires_in
        ).name

    def delete_branch(self, name: str) -> None:
        self.repository.branch_delete(name)

    def public_text(self, text: str) -> str:
        return text

    def can_rename(self, name: str) -> bool:  # noqa: ARG002 - everything is allowed
        return True

    def rename_branch(self, name: str, new: str) -> None:
        self.repository.branch_rename(name, new)

    def check_revert(self, commit_id: str, branch: str) -> None:
        """Allow everything: the rule of dev branches is one of services."""

    def check_merge(self, source: str, into: str) -> None:
        """Allow everything: the rule of dev branches is one of services."""

    def load(self, order: LoadOrder) -> str:
        table = self.repository.snapshot_of(order.branch).get(order.table)
        with TemporaryDirectory(prefix="anabranch-") as folder:
            upload = keep_file(order.file, order.name, Path(folder) / "upload")
            with errors_about(upload):
                loaded = self.repository.load(
                    order.table,
                    upload.path,
                    format=format_of(ImportRequest(), upload),
                    mode=_mode_of(order, table),
                    branch=order.branch,
                    primary_key=order.primary_key or None,
                    message=f"Load {upload.name} into {order.table}",
                )
        return loaded_message(order, rows=loaded.rows_loaded, commit_id=loaded.commit_id, created=loaded.created)


def _mode_of(order: LoadOrder, table: Table | None) -> LoadMode:
    if table is None:
        return LoadMode.APPEND
    if not order.is_incremental:
        return LoadMode.OVERWRITE
    return LoadMode.UPSERT if table.primary_key else LoadMode.APPEND


def loaded_message(order: LoadOrder, *, rows: int | None, commit_id: str | None, created: bool = False) -> str:
    """Return what a load did, for its visitor."""
    if commit_id is None:
        return f"{order.table} has all rows of {order.name} already: nothing changed."
    number = "" if rows is None else "1 row of " if rows == 1 else f"{rows:,} rows of "
    return f"Loaded {number}{order.name} into {'the new table ' if created else ''}{order.table} on {order.branch}."
