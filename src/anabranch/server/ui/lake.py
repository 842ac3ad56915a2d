"""The repository of a page, and what its visitor may do there."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, ClassVar

from anabranch.ids import MAIN, BranchName
from anabranch.repo.io.prepared_table import LoadMode
from anabranch.repo.repository import Repository
from anabranch.server.auth import Scope
from anabranch.server.files import keep_file
from anabranch.server.imports import errors_about, format_of

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


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A repository, the path below which its pages are, and what its visitor may do there.

    This one is on this machine: its owner may do everything. A service creates and deletes branches in its own way, and
    its tokens limit the visitor: it overrides the methods below. `made_at` differs for a repository that was made where
    another one was deleted.
    """

    repository: Repository
    path: str
    name: str
    made_at: datetime | None = None
    # Whether the visitor chooses the source and the mode of a new branch.
    has_free_branches: ClassVar[bool] = True

    def allows(self, scope: Scope, branch: str | None = None) -> bool:  # noqa: ARG002 - everything is allowed
        """Return whether the visitor may do what needs a scope, to a branch if one is given."""
        return True

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The names that people gave to branches, by their names in the repository, where they differ."""
        return {}

    def create_branch(
        self, name: str, *, source: str, mode: str, description: str, expires_in: timedelta | None
    ) -> str:
        """Create a branch and return its name in the repository."""
        made = self.repository.branch_create(name, source, mode=mode, description=description, expires_in=expires_in)
        return made.name

    def delete_branch(self, name: str) -> None:
        self.repository.branch_delete(name)

    def public_text(self, text: str) -> str:
        """Return a text of a report as the visitor may read it."""
        return text

    def can_rename(self, name: str) -> bool:  # noqa: ARG002 - everything is allowed
        """Return whether the visitor may rename a branch here."""
        return True

    def rename_branch(self, name: str, new: str) -> None:
        """Rename a branch of the repository. Raise InvalidInputError if it is not renamed here."""
        self.repository.branch_rename(name, new)

    def check_revert(self, commit_id: str, branch: str) -> None:
        """Raise an error if a commit is not reverted on a branch here."""

    def check_merge(self, source: str, into: str) -> None:
        """Raise InvalidInputError if these two are not merged here."""

    def load(self, order: LoadOrder) -> str:
        """Load a file into a table and return a message about it."""
        table = self.repository.snapshot_of(order.branch).get(order.table)
        mode = LoadMode.APPEND
        if table is not None and not order.is_incremental:
            mode = LoadMode.OVERWRITE
        elif table is not None and table.primary_key:
            mode = LoadMode.UPSERT
        with TemporaryDirectory(prefix="anabranch-") as folder:
            upload = keep_file(order.file, order.name, Path(folder) / "upload")
            with errors_about(upload):
                loaded = self.repository.load(
                    order.table,
                    upload.path,
                    format=format_of(None, upload),
                    mode=mode,
                    branch=order.branch,
                    primary_key=order.primary_key or None,
                    message=f"Load {upload.name} into {order.table}",
                )
        return loaded_message(order, rows=loaded.rows_loaded, commit_id=loaded.commit_id, created=loaded.created)

    @property
    def identity(self) -> Hashable:
        """The key of the lake, unique among all lakes of this process, including deleted ones."""
        return self.repository.uri, self.made_at

    def name_of(self, branch: str) -> str:
        return self.names.get(branch, branch)

    def can_write(self, branch: str | None = None) -> bool:
        """Return whether the visitor may write to a branch, or make and delete branches."""
        return self.allows(Scope.BRANCH, branch)

    def list_choices(self) -> RefChoices:
        """Return the names that fields for refs suggest. Deleted branches and tags are left out."""
        found = [branch.name for branch in self.repository.branch_list(limit=_MOST_NAMES)]
        # main is always there, also if it comes after the maximum number of names.
        branches = [MAIN, *(name for name in found if name != MAIN and not BranchName(name).is_internal)]
        return RefChoices(
            branches={name: self.name_of(name) for name in branches},
            tags=tuple(tag.name for tag in self.repository.tag_list(limit=_MOST_NAMES)),
        )

    def count_branches(self) -> int:
        """Return the number of branches; of very many, deleted ones count too, because no branch is read."""
        count = len(self.repository.branch_names())
        return count if count > _MOST_NAMES else len(self.repository.branch_list())

    def count_tags(self) -> int:
        """Return the number of tags; of very many, deleted ones count too, because no tag is read."""
        count = len(self.repository.tag_names())
        return count if count > _MOST_NAMES else len(self.repository.tag_list())

    @property
    def can_administer(self) -> bool:
        """Whether the visitor may do what concerns the whole repository."""
        return self.allows(Scope.PROJECT)


def loaded_message(order: LoadOrder, *, rows: int | None, commit_id: str | None, created: bool = False) -> str:
    """Return the message about a load for its visitor."""
    if commit_id is None:
        return f"{order.table} has all rows of {order.name} already: nothing changed."
    number = "" if rows is None else "1 row of " if rows == 1 else f"{rows:,} rows of "
    return f"Loaded {number}{order.name} into {'the new table ' if created else ''}{order.table} on {order.branch}."
