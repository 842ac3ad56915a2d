"""DuckDB's errors, translated once."""

import duckdb

from anabranch.errors import AnabranchError, InvalidExpressionError

__all__ = ["DUCK_ERRORS", "is_about_pushing", "is_fatal", "translate"]

# While rows are read, Arrow passes DuckDB's words on as its own.
DUCK_ERRORS = (duckdb.Error, OSError, RuntimeError, ValueError)

_HINTS: tuple[tuple[str, str], ...] = (
    ("Out of Memory Error", "select fewer rows or columns, or aggregate them"),
    ("Permission Error", "SQL here reads tables of the repository only"),
)


def is_fatal(error: Exception) -> bool:
    """Whether the database is of no use any more."""
    return isinstance(error, duckdb.FatalException | duckdb.InternalException)


def is_about_pushing(error: Exception) -> bool:
    """Whether DuckDB failed to put a filter into Arrow's words, as with times of nanoseconds and large numbers."""
    said = str(error)
    return "Filter Pushdown" in said or "Pushdown Filter" in said or "OverflowError" in said


def translate(said: str) -> AnabranchError:
    problem = " ".join(said.partition("\n\nLINE ")[0].partition("\n\nAt:")[0].split())
    hint = next((hint for start, hint in _HINTS if problem.startswith(start)), "correct the SQL")
    return InvalidExpressionError(f"the SQL does not work: {problem}", hint=hint)
