"""`metadata.duckdb`: one file, one process, many threads."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from anabranch.errors import CorruptError, DataInUseError, InvalidPathError
from anabranch.server.metadata.schema import TABLES

__all__ = ["Database", "Row"]

Row = Mapping[str, Any]


class Database:
    """The connection. Each thread reads through a cursor of its own; writers take turns."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._connection = _connect(file)
        self._writing = threading.RLock()
        self._cursors = threading.local()
        # After a kill DuckDB's index may lack rows that are in the table, and then fails for good when one is deleted.
        self.write("DROP INDEX IF EXISTS idx_branches_project")
        with self.transaction() as cursor:
            cursor.execute(TABLES)

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """The rows that a statement answers, by column."""
        return _rows(self._cursor().execute(sql, list(params)))

    def read_one(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        found = self.read(sql, params)
        return found[0] if found else None

    def write(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run one statement as a transaction of its own."""
        with self.transaction() as cursor:
            cursor.execute(sql, list(params))

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """All statements or none, and nobody else writes meanwhile; it is on disk when this is left.

        Delete rows before the rows that they name, each kind in a transaction of its own.
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
        """Let nobody else write between what is read and what is written here, by one or more transactions."""
        with self._writing:
            yield

    def close(self) -> None:
        self._connection.close()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        cursor: duckdb.DuckDBPyConnection | None = getattr(self._cursors, "cursor", None)
        if cursor is None:
            cursor = self._cursors.cursor = self._connection.cursor()
        return cursor


def _rows(answer: duckdb.DuckDBPyConnection) -> list[Row]:
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, map(_in_utc, row), strict=True)) for row in answer.fetchall()]


def _in_utc(value: Any) -> Any:
    # DuckDB tells times in the zone of the machine.
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _connect(file: Path) -> duckdb.DuckDBPyConnection:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise InvalidPathError(
            f"'{file.parent}' cannot be a folder: {err.strerror}", hint="name one that is there, or can be made"
        ) from err
    try:
        # Nothing is to be fetched from anywhere. Statements are about a few rows: to wake threads of DuckDB's own for
        # them takes more of the processor than they do.
        return duckdb.connect(str(file), config={"autoinstall_known_extensions": "false", "threads": "1"})
    except duckdb.IOException as err:
        if "Could not set lock" not in str(err):
            raise CorruptError(
                f"'{file}' cannot be opened: {err}", hint="move it away and start with --rebuild-metadata"
            ) from err
        raise DataInUseError(
            f"another process serves the data in '{file.parent}'", hint="stop it first, or name another folder"
        ) from err
    except duckdb.Error as err:
        raise CorruptError(
            f"'{file}' is no database: {err}", hint="move it away and start with --rebuild-metadata"
        ) from err
