"""The repository of a page, and what differs between one on this machine and a project of a service."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from anabranch.repo.repository import Repository
from anabranch.server.auth import Scope

__all__ = ["Host", "Lake", "RepositoryHost"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A repository, the path below which its pages are, and the visitor's rights."""

    repository: Repository
    path: str
    name: str
    host: Host

    def can_write(self, branch: str | None = None) -> bool:
        """Return whether the visitor may write to a branch, or make and delete branches."""
        return self.host.allows(Scope.BRANCH, branch)

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
