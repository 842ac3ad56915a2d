"""Requests that may be sent twice and are done once: those with an `Idempotency-Key`."""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from anabranch.errors import (
    AccessError,
    AnabranchError,
    BusyError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    NotFoundError,
)
from anabranch.ids import MAIN
from anabranch.repo.log.commits import Once
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.repository import Repository
from anabranch.server.auth import DEFAULT_BRANCH, Token
from anabranch.server.database import Database, Insert, Statement, row_of
from anabranch.server.envelope import answer_error, status_of, without_data_folder

# Names in the metadata of commits.
IDEMPOTENCY_KEY = "idempotency_key"
JOB_ID = "job_id"

# The times of rows and of commits come from two clocks, and the row is written first.
_SLACK = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt of a request that has a key. Commits name the request by its `digest`.

    For a repeated attempt, `since` is the time of the first attempt. `commit` is its commit if only the answer was
    lost.
    """

    digest: str
    since: datetime | None = None
    commit: GraphCommit | None = None

    def once(self, branch: str) -> Once | None:
        """Return the mark by which a repeated request is done once on a branch; None for the first attempt."""
        return None if self.since is None else _once(IDEMPOTENCY_KEY, self.digest, branch=branch, since=self.since)

    def find_commit(self, repository: Repository, branch: str) -> GraphCommit | None:
        """Return the commit of an earlier attempt on a branch, or None."""
        once = self.once(branch)
        return None if once is None else once.find(repository.iter_commits(branch))


def find_commit_of_job(repository: Repository, branch: str, job_id: str, *, since: datetime) -> GraphCommit | None:
    """Return the commit that a job has made on a branch, or None. The job was created at `since`."""
    return _once(JOB_ID, job_id, branch=branch, since=since).find(repository.iter_commits(branch))


def _once(key: str, value: str, *, branch: str, since: datetime) -> Once:
    return Once(
        key=key,
        value=value,
        # The history of a dev branch continues with that of main, where the request was not made.
        is_relevant=lambda commit: commit.branch == branch,
        since=int((since - _SLACK).timestamp() * 1_000_000),
    )


HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replay"
HEADER_PARAMETER: Mapping[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "Identifies this request. A request that is sent again with its key is done only once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
_LONGEST = 255
# The other headers, such as the length, are computed again for a stored answer.
_KEPT_HEADERS = ("content-type", "location")
_SWEEP_SECONDS = 60.0


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request with a key, in the form in which repeated requests are compared. The table of keys has its fields."""

    token_id: str
    key: str
    method: str
    path: str
    body_hash: str

    @property
    def digest(self) -> str:
        """The name of the request in commits. Readers of the history cannot derive the key from it."""
        return hashlib.sha256(f"{self.token_id}\n{self.key}".encode()).hexdigest()


class IdempotencyKeys:
    """The requests with a key, and their answers. `record` writes the last changes of a request, and its audit event.

    A row is written before the work, and its answer after it. If a row has no answer, the process stopped during the
    work: the next attempt searches for the commit of the first.
    """

    def __init__(
        self,
        database: Database,
        *,
        open_repository: Callable[[str], Repository],
        record: Callable[..., None],
        clock: Callable[[], datetime],
        seconds: float,
    ) -> None:
        self._database = database
        self._open_repository = open_repository
        self._record = record
        self._clock = clock
        self._life = timedelta(seconds=seconds)
        # Requests that are running, by their digest. In memory: only one process serves the data, and a request of an
        # earlier process does not run any more.
        self._tasks: dict[str, asyncio.Task[Response]] = {}
        self._swept_at: datetime | None = None

    async def answer(self, request: Request, asked: Asked, handle: Handler) -> Response:
        """Answer a request, with the stored answer if it was answered before."""
        # No lock is needed: the event loop runs nothing else between the check and the new task.
        if asked.digest in self._tasks:
            raise BusyError(f"a request with the key {asked.key!r} is running", hint="wait until it is answered")
        # The client may disconnect. The work continues in a task of its own, so that its answer is stored.
        task = self._tasks[asked.digest] = asyncio.create_task(self._work(request, asked, handle))
        task.add_done_callback(lambda _: self._tasks.pop(asked.digest))
        return await asyncio.shield(task)

    async def _work(self, request: Request, asked: Asked, handle: Handler) -> Response:
        found = await run_in_threadpool(self._begin, asked, request.path_params)
        if isinstance(found, Response):
            return found
        request.state.attempt = found
        try:
            response = await _answered(request, handle)
        except (RequestValidationError, HTTPException):
            # The request was malformed and did nothing, so the client may correct it and use the key again.
            await run_in_threadpool(self._database.write_all, [_deletion(asked)])
            raise
        # A repeated request does not get the answer of one that the client is asked to retry.
        body = response.body
        if response.status_code < 500 and "retry-after" not in response.headers and isinstance(body, bytes):
            headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
            kept = json.dumps({"body": body.decode(), "headers": headers})
            update = Statement(
                "UPDATE idempotency_keys SET status = ?, response = ? WHERE token_id = ? AND key = ?",
                [response.status_code, kept, asked.token_id, asked.key],
            )
            await run_in_threadpool(self._record, [update], status=response.status_code)
        return response

    def _begin(self, asked: Asked, parameters: Mapping[str, str]) -> Response | Attempt:
        """Return the stored answer of a request, or the attempt that the route makes now."""
        self._sweep()
        row = self._database.read_one(
            "SELECT * FROM idempotency_keys WHERE token_id = ? AND key = ? AND created_at > ?",
            [asked.token_id, asked.key, self._clock() - self._life],
        )
        if row is None:
            row = {**row_of(asked), "created_at": self._clock()}
            # The deletion is of a row that is too old and was not swept yet.
            self._database.write_all([_deletion(asked), Insert("idempotency_keys", row)])
            return Attempt(digest=asked.digest)
        if (row["method"], row["path"], row["body_hash"]) != (asked.method, asked.path, asked.body_hash):
            raise IdempotencyKeyReusedError(
                f"the key {asked.key!r} was sent with another request", hint="use a new key for each request"
            )
        if row["status"] is None:
            # The first attempt was interrupted. Its commit shows whether the work was done.
            attempt = Attempt(digest=asked.digest, since=row["created_at"])
            # Without a branch in the path, the branch to search is unknown. A merge has it in its body and searches
            # itself.
            if "branch_id" in parameters:
                name = MAIN if parameters["branch_id"] == DEFAULT_BRANCH else parameters["branch_id"]
                with suppress(NotFoundError):
                    found = attempt.find_commit(self._open_repository(parameters["project_id"]), name)
                    return replace(attempt, commit=found)
            return attempt
        kept = json.loads(row["response"])
        return Response(kept["body"], status_code=row["status"], headers={**kept["headers"], REPLAYED: "true"})

    def _sweep(self) -> None:
        """Delete expired keys, at most once a minute."""
        now = self._clock()
        if self._swept_at is not None and now - self._swept_at < timedelta(seconds=_SWEEP_SECONDS):
            return
        self._swept_at = now
        self._database.write("DELETE FROM idempotency_keys WHERE created_at <= ?", [now - self._life])


async def answer_once(
    request: Request, *, handle: Handler, authenticate: Callable[[Request], Token], has_secret: bool, takes_file: bool
) -> Response:
    """Handle a request, which may have a key. Answers with a secret are not stored, so such a route refuses keys."""
    if HEADER not in request.headers:
        return await handle(request)
    # `handle` checks the token too, but only later. A refused request must not use up its key.
    token = authenticate(request)
    key = request.headers[HEADER]
    # The rule of HEADER_PARAMETER, which FastAPI only describes and does not check.
    if not re.fullmatch(rf"[!-~]{{1,{_LONGEST}}}", key):
        raise InvalidInputError(
            f"the {HEADER} {key[:40]!r} is not valid", hint=f"use 1 to {_LONGEST} printable ASCII characters, no space"
        )
    if has_secret:
        raise InvalidInputError(
            f"{HEADER} is not supported here: the answer contains a secret",
            hint="omit the header, and revoke tokens that were created twice",
        )
    # The boundary of a form differs each time it is sent, so a file is compared by its content.
    is_file = takes_file and request.headers.get("content-type", "").startswith("multipart/")
    service = request.app.state.service
    body: bytes = (await service.files.upload_of(request)).fingerprint if is_file else await request.body()
    # Without the time that the request waits for its answer.
    query = sorted((name, value) for name, value in request.query_params.multi_items() if name != "wait")
    asked = Asked(
        token_id=token.id,
        key=key,
        method=request.method,
        path=request.url.path,
        body_hash=hashlib.sha256(json.dumps(query).encode() + b"\n" + body).hexdigest(),
    )
    keys: IdempotencyKeys = service.idempotency
    return await keys.answer(request, asked, handle)


def _deletion(asked: Asked) -> Statement:
    return Statement("DELETE FROM idempotency_keys WHERE token_id = ? AND key = ?", [asked.token_id, asked.key])


async def _answered(request: Request, handle: Handler) -> Response:
    """Return the answer of a route, or the error as an answer if a repeated request would get the same error."""
    try:
        return await handle(request)
    except AnabranchError as err:
        # The cause of these errors may disappear, so a repeated request must be tried again and not get a stored
        # error.
        if err.retryable or status_of(err) >= 500 or isinstance(err, AccessError):
            raise
        return answer_error(without_data_folder(err, request.app.state.service.settings.data))
