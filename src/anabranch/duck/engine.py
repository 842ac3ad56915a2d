"""SQL over the tables of a repository, by DuckDB inside this process: its database, sessions and errors."""

import functools
import itertools
import os
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from anabranch.column_types import show_type
from anabranch.duck.sources import Source, find_sources
from anabranch.duck.statement import Statement, parse_statement, quoted
from anabranch.errors import (
    AnabranchError,
    InvalidExpressionError,
    InvalidInputError,
    SchemaMismatchError,
    TooSlowError,
)
from anabranch.format.scan import ArrowDataset
from anabranch.hints import suggest
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.write.publish_checks import Parameters

_MOST_THREADS = 8
_INTERRUPT_SECONDS = 0.05
# Statements come from users. They must reach neither files, nor the network, nor variables of this process.
_SETTINGS = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
}


class Database:
    """One DuckDB in memory for all queries, which share its threads and memory. Opening one takes 25 ms.

    It cannot access files or the network, has only its built-in extensions, and its settings are locked. It uses at
    most eight threads and 40% of the memory, half of DuckDB's default.
    """

    def __init__(self, *, threads: int = _MOST_THREADS) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._names = itertools.count(1)

    def session(self, *, timeout: float | None = None) -> "Session":
        """Return a new session. With a timeout, it is interrupted after this many seconds."""
        with self._lock:
            if self._connection is None:
                self._connection = _connect(threads=min(self._threads, os.cpu_count() or 1))
            return Session(self._connection, name=f"query {next(self._names)}", timeout=timeout)

    def forget(self) -> None:
        """Open a new database next time: the present one failed permanently."""
        with self._lock:
            self._connection = None


def _connect(*, threads: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={**_SETTINGS, "threads": threads})
    # The zone of the machine would change the results of casts between text and times.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    size = connection.execute("SELECT current_setting('memory_limit')").fetchone()
    amount, unit = str(size[0] if size else "4 GiB").split()
    connection.execute(f"SET GLOBAL memory_limit = '{float(amount) / 2} {unit}'")
    # Locked last: after this, no statement can change a setting above.
    connection.execute("SET GLOBAL lock_configuration = true")
    return connection


class Session:
    """A connection with catalogs that only its query knows: one, and one more for each ref that the query names.

    So `b.o AT 'dev'` is a table `o` of the schema `b`, and its columns are qualified as those of any other.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection, *, name: str, timeout: float | None = None) -> None:
        self._database = database
        self.connection = database.cursor()
        self._name = name
        self._catalogs: dict[str | None, str] = {}
        self.timeout = timeout
        self.is_late = False
        self._is_closed = threading.Event()
        if timeout is not None:
            threading.Thread(target=self._interrupt_later, args=[timeout], daemon=True).start()

    def _interrupt_later(self, seconds: float) -> None:
        """Interrupt the query after some time, repeatedly: an interrupt between two commands has no effect."""
        if self._is_closed.wait(seconds):
            return
        self.is_late = True
        while not self._is_closed.wait(_INTERRUPT_SECONDS):
            self.connection.interrupt()

    @property
    def catalogs(self) -> Collection[str]:
        return self._catalogs.values()

    def show(self, sources: Sequence[Source], *, push_filters: bool) -> list[str]:
        """Make a view of each source, and return the spelling of each."""
        names: dict[int, str] = {}
        commands = []
        # DuckDB pushes no filter through an expression, not even that of a join.
        columns = "*" if push_filters else "CASE WHEN COLUMNS(*) IS NULL THEN NULL ELSE COLUMNS(*) END"
        for number, source in enumerate(sources):
            # The same table several times in one statement is read through one view.
            if id(source) in names:
                continue
            if source.ref not in self._catalogs:
                self._catalogs[source.ref] = f"{self._name}, {len(self._catalogs)}"
                commands.append(f"ATTACH ':memory:' AS {quoted(self._catalogs[source.ref])}")
            schema = f"{quoted(self._catalogs[source.ref])}.{quoted(source.schema)}"
            name = names[id(source)] = f"{schema}.{quoted(source.table)}"
            rows = f"source {number}"
            self._register(rows, source)
            commands.append(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            commands.append(f"CREATE OR REPLACE VIEW {name} AS FROM temp.main.{quoted(rows)} SELECT {columns}")
        if commands:
            self.connection.execute(";".join(commands))
        return [names[id(source)] for source in sources]

    def _register(self, name: str, source: Source) -> None:
        try:
            self.connection.register(name, source.rows)
        except duckdb.NotImplementedException:
            # DuckDB names the type and not the column, so try each column alone.
            for field in source.rows.schema:
                self._check_type(field, source)
            raise

    def _check_type(self, field: pa.Field, source: Source) -> None:
        try:
            self.connection.cursor().register("column", pa.schema([field]).empty_table())
        except duckdb.NotImplementedException:
            raise SchemaMismatchError(
                f"column '{field.name}' of table '{source.schema}.{source.table}' is of type "
                f"{show_type(field.type)}, which SQL does not know",
                hint="read the table without SQL, or change the type",
            ) from None

    def close(self) -> None:
        """End the query in any state, and detach its catalogs."""
        self._is_closed.set()
        self.connection.close()
        if self._catalogs:
            # The session's own connection is closed by now, maybe in the middle of a query.
            other = self._database.cursor()
            other.execute(";".join(f"DETACH DATABASE IF EXISTS {quoted(catalog)}" for catalog in self.catalogs))
            other.close()
            self._catalogs.clear()


# While rows are read, Arrow raises DuckDB's errors as errors of its own.
DUCK_ERRORS = (duckdb.Error, OSError, RuntimeError, ValueError)

_HINTS: tuple[tuple[str, str], ...] = (
    ("Invalid Input Error: Values were not provided", "pass a value for each parameter of the SQL"),
    ("Invalid Input Error: Parameter argument/count", "pass one value for each parameter of the SQL"),
    ("Out of Memory Error", "select fewer rows or columns, or aggregate them"),
    ("Permission Error", "SQL here reads tables of the repository only"),
)
# A name that does not exist, and DuckDB's suggestions, which need not be similar.
_UNKNOWN = re.compile(r'Referenced column "([^"]+)" not found')
_CANDIDATES = re.compile(r'"([^"]+)"')


def is_fatal(error: Exception) -> bool:
    """Return whether the database can no longer be used."""
    return isinstance(error, duckdb.FatalException | duckdb.InternalException)


def is_about_pushing(error: Exception) -> bool:
    """Return whether DuckDB failed to convert a filter to Arrow, as for times of nanoseconds and large numbers."""
    message = str(error)
    return "Filter Pushdown" in message or "Pushdown Filter" in message or "OverflowError" in message


def translate(message: str, sql: str = "") -> AnabranchError:
    """Return the error for a message of DuckDB about a statement."""
    # Omit DuckDB's hints for too little memory: they are settings, which a statement cannot change here.
    ends = ("\n\nLINE ", "\n\nAt:", "\n\nPossible solutions:")
    problem = " ".join(min((message.partition(end)[0] for end in ends), key=len).split())
    hint = next((hint for start, hint in _HINTS if problem.startswith(start)), "correct the SQL")
    if unknown := _UNKNOWN.search(problem):
        name = unknown[1]
        # Other databases take text in double quotes. Here it is the name of a column.
        hint = f"write text in single quotes: '{name}'" if f'"{name}"' in sql else hint
        hint = suggest(name, _CANDIDATES.findall(problem.partition("Candidate bindings: ")[2]), hint)
    return InvalidExpressionError(f"the SQL does not work: {problem}", hint=hint)


_ROWS_PER_BATCH = 65_536


@functools.cache
def default_engine() -> "DuckEngine":
    """Return the engine of this process."""
    return DuckEngine(Database())


class DuckEngine:
    """Runs SQL. It may be used from many threads."""

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
        """Run one statement. `replaced` are rows to read instead of those of a table, by its key.

        A timeout in seconds stops the statement, also while its result is read. `batch_rows` is the maximum number of
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
        with closing(self.database.session()) as session:
            uses = parse_statement(sql, session.connection).tables
        return tuple(dict.fromkeys(f"{use.bucket}.{use.table}" for use in uses if use.bucket is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The run of one statement in one session."""

    database: Database
    session: Session
    statement: Statement
    sources: Sequence[Source]
    params: Parameters | None
    batch_rows: int

    def begin(self) -> pa.RecordBatchReader:
        """Begin with filters pushed down. If that fails for one of them, DuckDB applies all of them."""
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
        message = str(error)
        for catalog in self.session.catalogs:
            message = message.replace(f"{quoted(catalog)}.", "")
        return translate(message, self.statement.body.decode())


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
