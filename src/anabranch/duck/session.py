"""A locked-up DuckDB, and the room of its own that each query gets in it."""

import itertools
import os
import re
import threading
from collections.abc import Collection, Sequence

import duckdb
import pyarrow as pa

from anabranch.duck.sources import Source
from anabranch.duck.statement import quoted
from anabranch.errors import AnabranchError, InvalidExpressionError, SchemaMismatchError
from anabranch.hints import suggest

__all__ = ["DUCK_ERRORS", "Database", "Session", "is_about_pushing", "is_fatal", "translate"]

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
    """One DuckDB in memory for all queries, which so share its threads and memory; opening one takes 25 ms.

    It has no files, no network, no extensions beside its own, and its settings cannot be changed any more. It uses at
    most eight threads and half of what DuckDB takes by default, which is 80% of the memory there is.
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
        """Open another one next time: this one has failed for good."""
        with self._lock:
            self._connection = None


def _connect(*, threads: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={**_SETTINGS, "threads": threads})
    # The zone of the machine would change the results of casts between text and times.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    size = connection.execute("SELECT current_setting('memory_limit')").fetchone()
    amount, unit = str(size[0] if size else "4 GiB").split()
    connection.execute(f"SET GLOBAL memory_limit = '{float(amount) / 2} {unit}'")
    # Last: from here on no statement can undo a setting above.
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
        """Interrupt the query after some time, again and again: an interrupt between two commands has no effect."""
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
        # No filter gets past an expression, not even one of a join.
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
            # DuckDB names the type and not the column, so each is tried alone.
            for field in source.rows.schema:
                self._check_type(field, source)
            raise

    def _check_type(self, field: pa.Field, source: Source) -> None:
        try:
            self.connection.cursor().register("column", pa.schema([field]).empty_table())
        except duckdb.NotImplementedException:
            raise SchemaMismatchError(
                f"column '{field.name}' of table '{source.schema}.{source.table}' is of type {field.type}, which SQL "
                "does not know",
                hint="read the table without SQL, or change the type",
            ) from None

    def without_catalog(self, text: str) -> str:
        for catalog in self.catalogs:
            text = text.replace(f"{quoted(catalog)}.", "")
        return text

    def close(self) -> None:
        """End the query, whatever state it is in, and take its catalogs away."""
        self._is_closed.set()
        self.connection.close()
        if self._catalogs:
            # The session's own connection is closed by now, maybe in the middle of a query.
            other = self._database.cursor()
            other.execute(";".join(f"DETACH DATABASE IF EXISTS {quoted(catalog)}" for catalog in self.catalogs))
            other.close()
            self._catalogs.clear()


# While rows are read, Arrow passes DuckDB's words on as its own.
DUCK_ERRORS = (duckdb.Error, OSError, RuntimeError, ValueError)

_HINTS: tuple[tuple[str, str], ...] = (
    ("Invalid Input Error: Values were not provided", "pass a value for each parameter of the SQL"),
    ("Invalid Input Error: Parameter argument/count", "pass one value for each parameter of the SQL"),
    ("Out of Memory Error", "select fewer rows or columns, or aggregate them"),
    ("Permission Error", "SQL here reads tables of the repository only"),
)
# A name that does not exist, and those that DuckDB offers instead, whether they are like it or not.
_UNKNOWN = re.compile(r'Referenced column "([^"]+)" not found')
_CANDIDATES = re.compile(r'"([^"]+)"')


def is_fatal(error: Exception) -> bool:
    """Whether the database is of no use any more."""
    return isinstance(error, duckdb.FatalException | duckdb.InternalException)


def is_about_pushing(error: Exception) -> bool:
    """Whether DuckDB failed to put a filter into Arrow's words, as with times of nanoseconds and large numbers."""
    said = str(error)
    return "Filter Pushdown" in said or "Pushdown Filter" in said or "OverflowError" in said


def translate(said: str, sql: str = "") -> AnabranchError:
    """Return the error for a message of DuckDB about a statement."""
    # What DuckDB proposes for too little memory is settings, which a statement cannot change here.
    ends = ("\n\nLINE ", "\n\nAt:", "\n\nPossible solutions:")
    problem = " ".join(min((said.partition(end)[0] for end in ends), key=len).split())
    hint = next((hint for start, hint in _HINTS if problem.startswith(start)), "correct the SQL")
    if unknown := _UNKNOWN.search(problem):
        name = unknown[1]
        # Other databases take text in double quotes. Here it is the name of a column.
        hint = f"write text in single quotes: '{name}'" if f'"{name}"' in sql else hint
        hint = suggest(name, _CANDIDATES.findall(problem.partition("Candidate bindings: ")[2]), hint)
    return InvalidExpressionError(f"the SQL does not work: {problem}", hint=hint)
