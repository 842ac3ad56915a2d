"""The exit code of each group of errors."""

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

__all__ = ["CONFLICTS", "DIFFERENT", "EXIT_CODES", "MEANINGS", "GENERAL", "INTERRUPTED", "USAGE", "exit_code"]

GENERAL = 1
USAGE = 2
# Not an error: a reproduced commit has other outputs, or a schema plan with --exit-code has changes.
DIFFERENT = 8
# Also of a dry run that found conflicts, which is not an error.
CONFLICTS = 9
# Ctrl-C, as shells report it: 128 and the number of SIGINT.
INTERRUPTED = 130

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


# What `anabranch help exit-codes` shows.
MEANINGS: dict[int, str] = {
    0: "success",
    GENERAL: "another error, or a negative result: diff --exit-code found differences, doctor found problems",
    USAGE: "wrong command line or input",
    3: "a repository, branch, tag, commit, table or file was not found",
    4: "a conflict: the name exists, the branch is protected, or another writer was faster",
    5: "busy: try again",
    6: "the storage failed",
    7: "damaged data",
    DIFFERENT: "different: a reproduced commit has other outputs, or a schema plan has changes",
    CONFLICTS: "merge conflicts",
    10: "a check failed",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def exit_code(error: type[AnabranchError]) -> int:
    """Return the code of the nearest group that an error belongs to."""
    return next(EXIT_CODES[group] for group in error.__mro__ if group in EXIT_CODES)
