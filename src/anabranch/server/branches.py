"""Dev branches: live branches of a project's repository, under free names."""

import logging
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from anabranch.errors import AnabranchError, BranchExistsError, BranchNotFoundError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.log.entries import BranchMode, CommitKind
from anabranch.repo.log.times import to_datetime
from anabranch.repo.refs.branches import BranchInfo
from anabranch.repo.repository import Repository
from anabranch.server.access import DEFAULT_BRANCH, Token
from anabranch.server.attempts import Attempt
from anabranch.server.metadata.audit import AuditLog
from anabranch.server.metadata.branches import Branch, BranchRows, CopiedTable
from anabranch.server.metadata.tokens import Tokens
from anabranch.server.projects import Projects
from anabranch.server.retrying import retried
from anabranch.server.settings import Settings

__all__ = ["Branches", "OpenBranch", "adopt", "moment", "note_copies"]

_log = logging.getLogger("anabranch.server")
_ID_PREFIX = "br_"
_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH = 13
_ID = re.compile(f"{_ID_PREFIX}[{_ID_ALPHABET}]{{{_ID_LENGTH}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBranch:
    """A branch as a request names it, who asks, and the repository to work on it with."""

    project_id: str
    branch_id: str
    repository: Repository
    token: Token
    attempt: Attempt | None = None

    @property
    def is_main(self) -> bool:
        return self.branch_id == DEFAULT_BRANCH

    @property
    def name(self) -> str:
        """What the repository calls it."""
        return MAIN if self.is_main else self.branch_id


class Branches:
    """The dev branches of all projects.

    A row is written after its branch is created, and deleted after its branch is deleted. A start adopts branches
    without a row, and finishes the deletion of branches that have only a row.
    """

    def __init__(
        self,
        settings: Settings,
        projects: Projects,
        rows: BranchRows,
        tokens: Tokens,
        audit: AuditLog,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._projects = projects
        self._rows = rows
        self._tokens = tokens
        self._audit = audit
        self._clock = clock

    def create(self, project_id: str, *, name: str, description: str, token: Token) -> Branch:
        """Make a branch that shows main as it is at any time."""
        repository = self._projects.open(project_id, actor=token.name)
        branch = Branch(
            id=_new_id(),
            project_id=project_id,
            name=name,
            description=description,
            created_at=self._clock(),
            created_by=token.name,
        )
        with self._rows.reserve_name(project_id, name):
            self._create_in_repository(repository, branch)
            try:
                # The row comes last, so that it is committed in one transaction with the audit event. A crash before
                # leaves a branch without a row, which the next start adopts.
                self._rows.insert(branch, write=self._audit.write)
            except BaseException:
                with suppress(AnabranchError):
                    repository.branch_delete(branch.id, purge=True)
                raise
        return branch

    def _create_in_repository(self, repository: Repository, branch: Branch) -> None:
        description = describe(branch.name, branch.description)
        retried(
            lambda: repository.branch_create_from(MAIN, branch.id, mode=BranchMode.LIVE, description=description),
            seconds=self._settings.limits.retry_seconds,
        )

    def list_all(self, project_id: str) -> list[Branch]:
        self._projects.get(project_id)
        return self._rows.list_all(project_id)

    def get(self, project_id: str, branch_id: str) -> Branch:
        self._projects.get(project_id)
        branch = self._rows.find(project_id, branch_id)
        if branch is None:
            raise BranchNotFoundError(
                f"project '{project_id}' has no branch '{branch_id}'", hint="list the branches to see which exist"
            )
        return branch

    def open(self, project_id: str, branch_id: str, token: Token) -> OpenBranch:
        """A dev branch, or main under the name that paths have for it."""
        if branch_id != DEFAULT_BRANCH:
            self.get(project_id, branch_id)
        repository = self._projects.open(project_id, actor=token.name)
        return OpenBranch(project_id=project_id, branch_id=branch_id, repository=repository, token=token)

    def list_copied(self, branch: OpenBranch) -> list[CopiedTable]:
        """The tables that a branch has copied, or made."""
        self.note_copies(branch)
        return self._rows.list_copied(branch.branch_id)

    def delete(self, project_id: str, branch_id: str, token: Token) -> None:
        """Delete a branch with all of its tables."""
        branch = self.open(project_id, self.get(project_id, branch_id).id, token)
        self._finish_delete(branch.repository, project_id, branch_id)

    def pull(self, branch: OpenBranch, key: TableKey) -> bool:
        """Let a table of a branch follow main again; whether it had a copy."""
        was_local = retried(
            lambda: branch.repository.branch_pull(branch.name, str(key)), seconds=self._settings.limits.retry_seconds
        )
        self.note_copies(branch)
        return was_local

    def note_copies(self, branch: OpenBranch) -> None:
        """Bring the rows about copied tables in line with the repository, which alone knows."""
        if not branch.is_main:
            note_copies(self._rows, branch.repository, branch.branch_id)

    def require_there(self, project_id: str, branch_id: str) -> None:
        """Refuse a branch that is gone, also one that is just being deleted."""
        if branch_id != DEFAULT_BRANCH:
            self.get(project_id, branch_id)
            self._projects.open(project_id, actor=None).branch_get(branch_id)

    def recover(self) -> None:
        """Bring the rows in line with the repositories where a crash came between; finish what was being deleted."""
        for project in self._projects.list_all():
            try:
                self._recover(project.id)
            except AnabranchError:
                # The others can be served all the same.
                _log.exception("project %s cannot be looked through", project.id)

    def _recover(self, project_id: str) -> None:
        repository = self._projects.open(project_id, actor=None)
        known = {info.name: info for info in repository.branch_list()}
        for branch in self._rows.list_all(project_id):
            if branch.id not in known:
                self._finish_delete(repository, project_id, branch.id)
            elif known[branch.id].own_tables or self._rows.list_copied(branch.id):
                note_copies(self._rows, repository, branch.id)
        for info in known.values():
            # Only branches of this service: others may be created in the repository by other tools.
            if _ID.fullmatch(info.name) and self._rows.find(project_id, info.name) is None:
                adopt(self._rows, project_id, info)

    def _finish_delete(self, repository: Repository, project_id: str, branch_id: str) -> None:
        """Delete a branch with its files, as far as it is there, and its row last: it says that there is more to do."""
        with suppress(BranchNotFoundError):
            retried(
                lambda: repository.branch_delete(branch_id, purge=True), seconds=self._settings.limits.retry_seconds
            )
        self._tokens.revoke_all(project_id=project_id, branch_id=branch_id)
        self._rows.delete(branch_id)


def _new_id() -> str:
    # One call: each reads the random source of the system.
    numbers = secrets.token_bytes(_ID_LENGTH)
    return _ID_PREFIX + "".join(_ID_ALPHABET[number % len(_ID_ALPHABET)] for number in numbers)


def adopt(rows: BranchRows, project_id: str, info: BranchInfo) -> None:
    """Add the row of a branch that exists in the repository only. If its name is taken, its id becomes its name."""
    name, description = name_and_description(info.description)
    for candidate in (name or info.name, info.name):
        with suppress(BranchExistsError), rows.reserve_name(project_id, candidate):
            rows.insert(
                Branch(
                    id=info.name,
                    project_id=project_id,
                    name=candidate,
                    description=description,
                    created_at=moment(info.created_at),
                    created_by=info.created_by,
                )
            )
            return


def note_copies(rows: BranchRows, repository: Repository, branch_id: str) -> None:
    info, there = repository.branch_get(branch_id), repository.snapshot_of(branch_id)
    own = {TableKey.parse(key) for key in info.own_tables if key in there}
    noted = {TableKey(row.bucket, row.table) for row in rows.list_copied(branch_id)}
    if gone := noted - own:
        rows.remove_copied(branch_id, gone)
    if new := own - noted:
        rows.add_copied(branch_id, _iter_copies(repository, info, new))


def describe(name: str, description: str) -> str:
    """A name and a description as one text, of which the first line is the name."""
    return f"{name}\n\n{description}" if description else name


def name_and_description(text: str) -> tuple[str, str]:
    """What `describe` put together."""
    name, _, description = text.partition("\n\n")
    return name.strip(), description


def moment(microseconds: int) -> datetime:
    return to_datetime(microseconds)


def _iter_copies(repository: Repository, info: BranchInfo, keys: set[TableKey]) -> Iterator[CopiedTable]:
    """When each table was copied: by the first commit on the branch that touched it after its last pull."""
    first = {str(key): info.created_at for key in keys}
    wanted = set(first)
    commits = repository.snapshot_of(info.name).iter_commits()
    for commit in takewhile(lambda one: one.branch == info.name, commits):
        touched = wanted.intersection(commit.tables)
        if commit.kind is CommitKind.PULL:
            wanted -= touched
        else:
            first |= dict.fromkeys(touched, commit.created_at)
    for key in sorted(keys):
        yield CopiedTable(bucket=key.bucket, table=key.table, copied_at=moment(first[str(key)]))
