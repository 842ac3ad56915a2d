"""Which exit code each group of errors has."""

from anabranch.errors import (
    AnabranchError,
    BusyError,
    CheckFailedError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    MergeConflictError,
    NotFoundError,
    StorageError,
)

__all__ = ["CONFLICTS", "DIFFERENT", "EXIT_CODES", "GENERAL", "USAGE", "exit_code"]

GENERAL = 1
USAGE = 2
# No error: what was run again has other outputs than before.
DIFFERENT = 8
# Also of a dry run that found conflicts, which is not an error.
CONFLICTS = 9

EXIT_CODES: dict[type[AnabranchError], int] = {
    MergeConflictError: CONFLICTS,
    CheckFailedError: 10,
    InvalidInputError: USAGE,
    NotFoundError: 3,
    ConflictError: 4,
    BusyError: 5,
    StorageError: 6,
    CorruptError: 7,
    AnabranchError: GENERAL,
}


def exit_code(error: type[AnabranchError]) -> int:
    """The code of the nearest group that an error belongs to."""
    return next(EXIT_CODES[group] for group in error.__mro__ if group in EXIT_CODES)
