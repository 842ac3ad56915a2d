"""`metadata.duckdb`: its tables and its connection. One file, one process, many threads."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from anabranch.errors import CorruptError, DataInUseError, InvalidPathError

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row of a table."""

    table: str
    row: Row


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement with its parameters."""

    sql: str
    params: Sequence[Any] = ()


Change = Insert | Statement


@dataclass(slots=True)
class _Write:
    """Changes that wait to be committed together."""

    changes: Sequence[Change]
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Database:
    """The connection to `metadata.duckdb`. Each thread reads through a cursor of its own.

    One thread writes at a time. It commits all writes that wait in one transaction, because each commit waits for the
    disk.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._connection = _connect(file)
        # Reentrant: a thread that has the turn writes in transactions, which take the lock again.
        self._writing = threading.RLock()
        self._turn_of: int | None = None
        self._queueing = threading.Lock()
        self._queue: list[_Write] = []
        self._local = threading.local()
        # After a kill DuckDB's index may lack rows that are in the table, and then fails whenever one is deleted.
        self.write("DROP INDEX IF EXISTS idx_branches_project")
        with self.transaction() as cursor:
            cursor.execute(TABLES)

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a query, each as a mapping of columns to values."""
        return _rows(self._cursor().execute(sql, list(params)))

    def read_one(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        found = self.read(sql, params)
        return found[0] if found else None

    def insert(self, table: str, row: Row) -> None:
        """Add a row to a table. It is on disk when this returns."""
        self.write_all([Insert(table, row)])

    def write(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run one statement. It is on disk when this returns."""
        self.write_all([Statement(sql, params)])

    def write_all(self, changes: Sequence[Change]) -> None:
        """Make all changes or none. They are on disk when this returns.

        Changes of other threads that wait may be committed in the same transaction. Inside a turn, the changes are a
        transaction of their own.
        """
        write = _Write(changes)
        if self._turn_of == threading.get_ident():
            # Inside a turn no other write may come between what was read and what is written.
            self._commit([write])
        else:
            with self._queueing:
                self._queue.append(write)
                is_first = len(self._queue) == 1
            if is_first:
                # The thread of the first write commits all writes that arrive before its turn.
                with self._writing:
                    with self._queueing:
                        queue, self._queue = self._queue, []
                    self._commit(queue)
            else:
                write.done.wait()
        if write.error is not None:
            raise write.error

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Run all statements or none. They are on disk when the block ends; other writers wait until then.

        Delete rows before the rows that they refer to, in a transaction of their own.
        """
        with self._writing:
            cursor = self._cursor()
            cursor.execute("BEGIN")
            try:
                yield cursor
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Keep other writers out while this thread reads and then writes, in one or more transactions."""
        with self._writing:
            # Turns may be nested: the deletion of a project contains that of its branches.
            before, self._turn_of = self._turn_of, threading.get_ident()
            try:
                yield
            finally:
                self._turn_of = before

    def _commit(self, writes: Sequence[_Write]) -> None:
        """Commit writes in one transaction. If one of them fails, commit each by itself."""
        try:
            if len(writes) > 1 and self._commit_together(writes):
                return
        except BaseException as err:
            # Something stopped this thread. The other threads must not wait forever.
            for write in writes:
                write.error = err
                write.done.set()
            raise
        for write in writes:
            try:
                with self.transaction() as cursor:
                    _run(cursor, write.changes)
            except BaseException as err:  # noqa: BLE001 - raised in the thread that waits for this write
                write.error = err
            write.done.set()

    def _commit_together(self, writes: Sequence[_Write]) -> bool:
        try:
            with self.transaction() as cursor:
                _run(cursor, [change for write in writes for change in write.changes])
        except Exception:  # noqa: BLE001 - the write that fails reports it when it runs by itself
            # The transaction was rolled back. Some writes cannot share one: DuckDB refuses to delete a row and the
            # rows that name it together.
            return False
        for write in writes:
            write.done.set()
        return True

    def close(self) -> None:
        self._connection.close()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        cursor: duckdb.DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = self._connection.cursor()
        return cursor


def row_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass. `asdict` copies each value, which takes longer."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _run(cursor: duckdb.DuckDBPyConnection, changes: Sequence[Change]) -> None:
    """Run changes in order. Insert successive new rows of one table by one statement.

    DuckDB takes about 0.7 ms to plan an INSERT, whatever the number of its rows.
    """
    inserts: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for change in changes:
        if isinstance(change, Insert):
            inserts.setdefault((change.table, tuple(change.row)), []).append(change.row)
        else:
            _insert(cursor, inserts)
            inserts = {}
            cursor.execute(change.sql, list(change.params))
    _insert(cursor, inserts)


def _insert(cursor: duckdb.DuckDBPyConnection, inserts: Mapping[tuple[str, tuple[str, ...]], Sequence[Row]]) -> None:
    for (table, columns), rows in inserts.items():
        values = f"({', '.join('?' * len(columns))})"
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([values] * len(rows))}",  # noqa: S608
            [row[column] for row in rows for column in columns],
        )


def _rows(answer: duckdb.DuckDBPyConnection) -> list[Row]:
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, map(_in_utc, row), strict=True)) for row in answer.fetchall()]


def _in_utc(value: Any) -> Any:
    # DuckDB returns times in the time zone of the machine.
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _connect(file: Path) -> duckdb.DuckDBPyConnection:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise InvalidPathError(
            f"'{file.parent}' cannot be created: {err.strerror}", hint="give a folder that exists or can be created"
        ) from err
    try:
        # No extension is downloaded. Statements concern few rows, so more threads would cost more than they save.
        return duckdb.connect(str(file), config={"autoinstall_known_extensions": "false", "threads": "1"})
    except duckdb.IOException as err:
        # DuckDB has no type of its own for a locked file.
        if "Could not set lock" not in str(err):
            raise CorruptError(
                f"'{file}' cannot be opened: {err}", hint="move it away and start with --rebuild-metadata"
            ) from err
        raise DataInUseError(
            f"another process serves the data in '{file.parent}'", hint="stop it first, or use another folder"
        ) from err
    except duckdb.Error as err:
        raise CorruptError(
            f"'{file}' is not a database: {err}", hint="move it away and start with --rebuild-metadata"
        ) from err


# `intents` are operations on projects that have begun. After a crash, the next start finishes them or rolls them back.
# Only `projects`, `branches` and `branch_tables` have foreign keys. The rows of other tables can be deleted in any
# order: DuckDB refuses to delete a row and the rows that refer to it in one transaction.
TABLES = """
CREATE TABLE IF NOT EXISTS projects (
    id VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    description TEXT,
    created_at TIMESTAMPTZ DEFAULT now(),
    created_by VARCHAR
);

CREATE TABLE IF NOT EXISTS branches (
    id VARCHAR PRIMARY KEY,
    project_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    created_at TIMESTAMPTZ DEFAULT now(),
    created_by VARCHAR,
    description TEXT,

    FOREIGN KEY (project_id) REFERENCES projects(id)
);

CREATE INDEX IF NOT EXISTS idx_branches_project ON branches(project_id);

CREATE TABLE IF NOT EXISTS branch_tables (
    branch_id VARCHAR NOT NULL,
    bucket_name VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    copied_at TIMESTAMPTZ DEFAULT now(),

    PRIMARY KEY (branch_id, bucket_name, table_name),
    FOREIGN KEY (branch_id) REFERENCES branches(id)
);

CREATE TABLE IF NOT EXISTS buckets (
    project_id VARCHAR NOT NULL,
    branch_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    is_hidden BOOLEAN NOT NULL,
    description TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    created_by VARCHAR
);

CREATE TABLE IF NOT EXISTS tokens (
    id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    secret_hash VARCHAR NOT NULL,
    scope VARCHAR NOT NULL,
    project_id VARCHAR,
    branch_id VARCHAR,
    created_at TIMESTAMPTZ NOT NULL,
    created_by VARCHAR,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ
);

CREATE TABLE IF NOT EXISTS jobs (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    branch_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    progress JSON,
    request JSON,
    result JSON,
    error JSON,
    created_at TIMESTAMPTZ NOT NULL,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    token_id VARCHAR NOT NULL
);

CREATE TABLE IF NOT EXISTS files (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    stored_as VARCHAR NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    created_by VARCHAR
);

CREATE TABLE IF NOT EXISTS idempotency_keys (
    token_id VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    path VARCHAR NOT NULL,
    body_hash VARCHAR NOT NULL,
    status INTEGER,
    response JSON,
    created_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE IF NOT EXISTS audit_events (
    happened_at TIMESTAMPTZ NOT NULL,
    request_id VARCHAR NOT NULL,
    token_id VARCHAR,
    actor VARCHAR,
    action VARCHAR NOT NULL,
    project_id VARCHAR,
    branch_id VARCHAR,
    path VARCHAR NOT NULL,
    status INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS intents (
    id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    begun_at TIMESTAMPTZ NOT NULL
);
"""
