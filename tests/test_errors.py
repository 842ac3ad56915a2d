"""The error tree: what programs match on must not move."""

import inspect
import pickle
import re

import pytest

from anabranch import errors
from anabranch.errors import AnabranchError

# Codes are a promise to programs: a line of this table may be added, never changed.
CODES = {
    "AccessError": "access",
    "AnabranchError": "error",
    "BadRecordError": "bad_record",
    "BaseExistsError": "base_exists",
    "BaseNotFoundError": "base_not_found",
    "BranchExistsError": "branch_exists",
    "BranchInUseError": "branch_in_use",
    "BranchNotFoundError": "branch_not_found",
    "BranchProtectedError": "branch_protected",
    "BucketExistsError": "bucket_exists",
    "BucketNotEmptyError": "bucket_not_empty",
    "BucketNotFoundError": "bucket_not_found",
    "BusyError": "busy",
    "CheckFailedError": "check_failed",
    "ClockSkewError": "clock_skew",
    "CollectedError": "collected",
    "CommitNotFoundError": "commit_not_found",
    "ConflictError": "conflict",
    "CorruptError": "corrupt",
    "DamagedFileError": "damaged_file",
    "DataInUseError": "data_in_use",
    "DatasetExistsError": "dataset_exists",
    "DatasetInUseError": "dataset_in_use",
    "DatasetNotFoundError": "dataset_not_found",
    "DestructiveChangeError": "destructive_change",
    "ExternalWriteError": "external_write",
    "FileMissingError": "file_not_found",
    "ForbiddenError": "forbidden",
    "ForkError": "fork",
    "IdempotencyKeyReusedError": "idempotency_key_reused",
    "InvalidExpressionError": "invalid_expression",
    "InvalidInputError": "invalid_input",
    "InvalidNameError": "invalid_name",
    "InvalidPathError": "invalid_path",
    "InvalidPipelineError": "invalid_pipeline",
    "InvalidSchemaError": "invalid_schema",
    "JobCancelledError": "job_cancelled",
    "JobInterruptedError": "interrupted",
    "JobNotFoundError": "job_not_found",
    "JobNotQueuedError": "job_not_queued",
    "KeyConflictError": "key_conflict",
    "LimitError": "limit",
    "LinkError": "link",
    "MergeConflictError": "merge_conflict",
    "MissingDependencyError": "missing_dependency",
    "NotFoundError": "not_found",
    "NotInHistoryError": "not_in_history",
    "ObjectExistsError": "object_exists",
    "ObjectNotFoundError": "object_not_found",
    "ProjectExistsError": "project_exists",
    "ProjectNotFoundError": "project_not_found",
    "RepositoryExistsError": "repository_exists",
    "RepositoryNotFoundError": "repository_not_found",
    "RunEndedError": "run_ended",
    "RunNotFoundError": "run_not_found",
    "SchemaMismatchError": "schema_mismatch",
    "StaleBaseError": "stale_base",
    "StepFailedError": "step_failed",
    "StorageDeniedError": "storage_denied",
    "StorageError": "storage",
    "StorageFullError": "storage_full",
    "StorageUnavailableError": "storage_unavailable",
    "TableExistsError": "table_exists",
    "TableNotFoundError": "table_not_found",
    "TagExistsError": "tag_exists",
    "TagNotFoundError": "tag_not_found",
    "TokenNotFoundError": "token_not_found",
    "TooLargeError": "too_large",
    "TooManyRequestsError": "too_many_requests",
    "TooSlowError": "too_slow",
    "UnauthenticatedError": "unauthenticated",
    "UnsupportedFormatError": "unsupported_format",
    "VersionNotFoundError": "version_not_found",
    "WriteConflictError": "write_conflict",
}
RETRYABLE = {
    "BusyError",
    "JobInterruptedError",
    "StorageUnavailableError",
    "TooManyRequestsError",
    "TooSlowError",
    "WriteConflictError",
}

CLASSES: list[type[AnabranchError]] = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, AnabranchError) and value.__module__ == errors.__name__
]


def test_the_codes_are_the_promised_ones() -> None:
    assert {cls.__name__: cls.code for cls in CLASSES} == CODES


def test_no_two_errors_share_a_code() -> None:
    assert len(set(CODES.values())) == len(CODES)


def test_there_is_one_root() -> None:
    raisable = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, BaseException)]
    assert raisable == CLASSES
    assert [cls for cls in CLASSES if cls.__base__ is Exception] == [AnabranchError]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_records_whether_to_try_again(cls: type[AnabranchError]) -> None:
    assert cls.retryable is (cls.__name__ in RETRYABLE)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_shows_its_problem_and_the_next_step(cls: type[AnabranchError]) -> None:
    error = cls("branch 'x' is not there", hint="list the branches")
    assert (error.problem, error.hint) == ("branch 'x' is not there", "list the branches")
    assert str(error) == "branch 'x' is not there; list the branches"
    assert error.args == (error.problem, error.hint)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_crosses_process_borders(cls: type[AnabranchError]) -> None:
    reported = cls("no 'x'", hint="use 'y'")
    reported.details["line"] = 3
    error = pickle.loads(pickle.dumps(reported))  # noqa: S301
    assert type(error) is cls
    assert error.details == {"line": 3}
    assert (error.problem, error.hint, error.code) == ("no 'x'", "use 'y'", cls.code)


def test_an_error_cannot_leave_out_the_next_step() -> None:
    with pytest.raises(TypeError, match="hint"):
        AnabranchError("no 'x'")  # type: ignore[call-arg]


def test_the_drawn_tree_is_the_real_one() -> None:
    """The module's docstring draws the classes; depth in the drawing is depth in the tree."""
    drawn: dict[str, str] = {}
    parents = ["Exception"]
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ([│├└─ ]*)(\w+Error)\b", line):
            depth = len(found[1]) // 4
            drawn[found[2]] = parents[depth]
            parents[depth + 1 :] = [found[2]]
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES}


def test_the_public_names_are_sorted_and_complete() -> None:
    assert errors.__all__ == sorted(cls.__name__ for cls in CLASSES)
