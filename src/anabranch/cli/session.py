"""A repository as one command uses it: opened by its settings, with the current branch in mind."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from anabranch.cli.arguments import parse_pairs
from anabranch.config import BRANCH_VARIABLE, Memory, Settings, Source, load_settings, overriding_variables
from anabranch.errors import BranchNotFoundError
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.refs.branches import BranchInfo
    from anabranch.repo.repository import Repository
    from anabranch.repo.snapshot import Snapshot

__all__ = ["Session", "notes_on", "open_session"]


@dataclass(frozen=True, slots=True)
class Session:
    """An open repository, and the settings that led to it."""

    repository: "Repository"
    settings: Settings

    def current(self) -> "BranchInfo":
        """The current branch as it is now."""
        with self.on_current_branch():
            return self.repository.branch_get(self.repository.branch)

    def snapshot(self, ref: str | None) -> "Snapshot":
        """What a ref stands for, by default the current branch."""
        if ref is not None:
            return self.repository.snapshot_of(ref)
        with self.on_current_branch():
            return self.repository.snapshot()

    def commits(
        self,
        ref: str | None,
        *,
        limit: int,
        table: str | None = None,
        after: str | None = None,
        prefix: str | None = None,
    ) -> "list[GraphCommit]":
        """The commits that led to a ref, by default the current branch."""
        listed = partial(self.repository.list_commits, limit=limit, table=table, after=after, prefix=prefix)
        if ref is not None:
            return listed(ref)
        with self.on_current_branch():
            return listed()

    @contextmanager
    def on_current_branch(self) -> Iterator[None]:
        """Explain where a branch that does not exist was named, if not in the command itself."""
        try:
            yield
        except BranchNotFoundError as err:
            settings = self.settings
            if f"'{settings.branch}'" not in err.problem:
                raise  # it is about a ref that the command names
            match settings.branch_source:
                case Source.FOLDER if settings.memory is not None:
                    where, name = f"of this folder ({settings.memory.file})", settings.branch
                    hint = f"switch with 'anabranch switch {MAIN}'"
                    hint += f", or bring it back with 'anabranch branch restore {name}'"
                case Source.ENVIRONMENT:
                    where, hint = f"by {BRANCH_VARIABLE}", "set the variable to another branch, or unset it"
                case _:
                    raise
            raise BranchNotFoundError(f"{err.problem}, and it is the current branch {where}", hint=hint) from err


def open_session(
    *,
    repo: str | None,
    storage_options: Sequence[str] | None,
    branch: str | None = None,
    actor: str | None = None,
) -> Session:
    from anabranch.bootstrap import bind_repository  # Lance takes a while to load

    options = parse_pairs(storage_options, option="--storage-option")
    settings = load_settings(repository=repo, branch=branch, actor=actor)
    repository = bind_repository(
        settings.repository, branch=settings.branch, actor=settings.actor, storage_options=options
    )
    return Session(repository, settings)


def notes_on(memory: Memory, *, before: Memory | None) -> list[str]:
    """What to know about a folder's new memory: what it replaced, and what wins over it."""
    notes = []
    if before is not None and before.repository != memory.repository:
        notes.append(f"note: this folder worked with {before.repository} before")
    notes += [f"note: {name} is set to another one, and wins" for name in overriding_variables(memory)]
    return notes
