"""What a process does to a repository, and may be killed at."""

import base64
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

import anabranch as ab
from anabranch import testing
from anabranch.errors import AnabranchError
from anabranch.repo.repository import Repository
from tests.handles import open_with
from tests.model.operations import Operation
from tests.repo.programs import killing

# So long that no heartbeat is due while a history lasts: time passes only where a history has it pass.
LEASE = timedelta(days=1)


class Deed(Protocol):
    """One thing that can be done."""

    def do(self, repo: Repository) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A method of the repository."""

    method: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def do(self, repo: Repository) -> object:
        return getattr(repo, self.method)(**self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A transaction."""

    branch: str
    operations: Sequence[Operation]

    def do(self, repo: Repository) -> object:
        with repo.transaction(self.branch) as tx:
            for operation in self.operations:
                operation.do(tx)
        return tx.published


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRun:
    run_id: str

    def do(self, repo: Repository) -> object:
        return repo.run_get(self.run_id).publish()


def open_patiently(uri: str, *, branch: str = "main", storage_options: Mapping[str, str] | None = None) -> Repository:
    """A handle that has seen nothing, for which no lease expires within a day."""
    context = testing.config_of(ab.open(uri, branch=branch, storage_options=dict(storage_options or {}), actor="ada"))
    return open_with(replace(context, lease=LEASE), branch=branch)


def as_text(deed: Deed) -> str:
    return base64.b64encode(pickle.dumps(deed)).decode()


def do_or_die(uri: str, reported: str, *, fatal: int, last_words: int) -> dict[str, Any]:
    """Do a deed up to a fatal point; whether it was refused, if it was passed by."""
    deed: Deed = pickle.loads(base64.b64decode(reported))  # noqa: S301 - the test that started this process wrote it
    points = killing.Points(fatal, last_words)
    killing._install(points)
    try:
        deed.do(open_patiently(uri))
    except AnabranchError as err:
        return {"refused": str(err)}
    return {"points": len(points.passed)}
