"""SQL over the tables of a repository, by DuckDB inside this process."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.duck.session import DUCK_ERRORS, Database, Session, is_about_pushing, is_fatal, translate
from anabranch.duck.sources import Source, find_sources
from anabranch.duck.statement import Statement, parse_statement
from anabranch.errors import AnabranchError, InvalidInputError, TooSlowError
from anabranch.format.arrow_dataset import ArrowDataset
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.write.checks import Parameters

__all__ = ["DuckEngine", "default_engine"]

_ROWS_PER_BATCH = 65_536


@functools.cache
def default_engine() -> "DuckEngine":
    """The engine of this process."""
    return DuckEngine(Database())


class DuckEngine:
    """Answers SQL; may be used from many threads."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def query(  # noqa: PLR0913 - each is one plain choice of the caller
        self,
        repository: Repository,
        sql: str,
        *,
        ref: str,
        params: Parameters | None = None,
        snapshot: Snapshot | None = None,
        timeout: float | None = None,
        batch_rows: int | None = None,
        replaced: Mapping[str, pa.Table] | None = None,
    ) -> pa.RecordBatchReader:
        """Answer one statement. `replaced` are rows to read instead of those of a table, by its key.

        A timeout in seconds stops the statement, also while its answer is read. `batch_rows` is the maximum number of
        rows of a batch.
        """
        _check(sql, params, timeout)
        session = self.database.session(timeout=timeout)
        try:
            statement = parse_statement(sql, session.connection)
            sources = find_sources(statement, repository, ref, snapshot, replaced=replaced or {})
            run = _Run(
                database=self.database,
                session=session,
                statement=statement,
                sources=sources,
                params=params,
                batch_rows=batch_rows or _ROWS_PER_BATCH,
            )
            return run.begin()
        except BaseException:
            session.close()
            raise

    def tables_of(self, sql: str) -> tuple[str, ...]:
        """Return the tables that a statement names. Raise an error if it is not valid."""
        session = self.database.session()
        try:
            uses = parse_statement(sql, session.connection).tables
        finally:
            session.close()
        return tuple(dict.fromkeys(f"{use.bucket}.{use.table}" for use in uses if use.bucket is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One statement on its way through one session."""

    database: Database
    session: Session
    statement: Statement
    sources: Sequence[Source]
    params: Parameters | None
    batch_rows: int

    def begin(self) -> pa.RecordBatchReader:
        """Begin with filters pushed down; if one of them cannot be, DuckDB applies them all."""
        try:
            return self._begin(push_filters=True)
        except DUCK_ERRORS as err:
            # A real error of the statement. The second attempt would only repeat it.
            if not is_about_pushing(err) and not any(rows.has_refused for rows in self._datasets()):
                raise self._failure(err) from err
        try:
            return self._begin(push_filters=False)
        except DUCK_ERRORS as err:
            raise self._failure(err) from err

    def _begin(self, *, push_filters: bool) -> pa.RecordBatchReader:
        connection = self.session.connection
        names = self.session.show(self.sources, push_filters=push_filters)
        text = self.statement.with_names(names, connection, catalogs=self.session.catalogs)
        connection.execute(text, self.params)
        answer = connection.to_arrow_reader(self.batch_rows)
        # Read the first batch here, so that an early error is raised by this call and not by the reader.
        first = list(itertools.islice(answer, 1))
        batches = self._read(first, answer)
        # Run the generator to its first yield: only then does its cleanup close the session.
        next(batches)
        return pa.RecordBatchReader.from_batches(answer.schema, batches)

    def _read(self, first: list[pa.RecordBatch], rest: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield pa.record_batch({})  # a generator that has begun runs its cleanup, even if it is not read
            yield from first
            yield from rest
        except DUCK_ERRORS as err:
            raise self._failure(err) from err
        finally:
            rest.close()
            self.session.close()

    def _datasets(self) -> Iterator[ArrowDataset]:
        return (source.rows for source in self.sources if isinstance(source.rows, ArrowDataset))

    def _failure(self, error: Exception) -> AnabranchError:
        """Return our own error if reading a table failed, else an error with DuckDB's message."""
        for rows in self._datasets():
            if rows.failure is not None:
                return rows.failure
        if self.session.is_late:
            seconds = f"{self.session.timeout:g} seconds"
            return TooSlowError(f"the SQL took more than {seconds}", hint="read fewer rows, or allow more time")
        # After an internal error DuckDB refuses every further query, of all sessions.
        if is_fatal(error):
            self.database.forget()
        return translate(self.session.without_catalog(str(error)), self.statement.body.decode())


def _check(sql: Any, params: Any, timeout: Any) -> None:
    if not isinstance(sql, str):
        raise InvalidInputError(f"{sql!r} is not SQL", hint="give text")
    try:
        # DuckDB takes UTF-8, which half of a surrogate pair does not have.
        sql.encode()
    except UnicodeEncodeError:
        raise InvalidInputError("the SQL is not valid Unicode", hint="remove the broken characters") from None
    if not (params is None or isinstance(params, list | tuple | Mapping)):
        raise InvalidInputError(f"{params!r} is neither a list nor a dict", hint="give a list for ?, a dict for $name")
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and timeout > 0):
        raise InvalidInputError(f"the timeout {timeout!r} is not a number of seconds", hint="give for example 30")
