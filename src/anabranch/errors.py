"""All errors that Anabranch raises, grouped by what a caller does about them.

    AnabranchError
    ├── NotFoundError        name something else: it does not exist
    │   ├── CommitNotFoundError
    │   │   └── CollectedError
    │   ├── NotInHistoryError
    │   ├── TableNotFoundError
    │   ├── RepositoryNotFoundError
    │   ├── DatasetNotFoundError
    │   ├── BranchNotFoundError
    │   ├── TagNotFoundError
    │   ├── RunNotFoundError
    │   ├── ProjectNotFoundError
    │   ├── BucketNotFoundError
    │   ├── TokenNotFoundError
    │   ├── JobNotFoundError
    │   ├── FileMissingError
    │   ├── VersionNotFoundError
    │   ├── BaseNotFoundError
    │   └── ObjectNotFoundError
    ├── ConflictError        decide: the request contradicts the current state
    │   ├── BranchProtectedError
    │   ├── TableExistsError
    │   ├── RepositoryExistsError
    │   ├── BaseExistsError
    │   ├── BranchExistsError
    │   ├── BranchInUseError
    │   ├── ProjectExistsError
    │   ├── BucketExistsError
    │   ├── BucketNotEmptyError
    │   ├── DataInUseError
    │   ├── JobCancelledError
    │   ├── JobNotQueuedError
    │   ├── IdempotencyKeyReusedError
    │   ├── RunEndedError
    │   ├── ClockSkewError
    │   ├── CheckFailedError
    │   ├── TagExistsError
    │   ├── DatasetExistsError
    │   ├── DatasetInUseError
    │   ├── ObjectExistsError
    │   ├── KeyConflictError
    │   ├── DestructiveChangeError
    │   ├── MergeConflictError
    │   └── ExternalWriteError
    ├── InvalidInputError    correct the call
    │   ├── BadRecordError
    │   ├── ForkError
    │   ├── InvalidNameError
    │   ├── InvalidPathError
    │   ├── InvalidExpressionError
    │   ├── InvalidPipelineError
    │   ├── InvalidSchemaError
    │   └── SchemaMismatchError
    ├── BusyError            try again: another process was faster
    │   ├── JobInterruptedError
    │   └── WriteConflictError
    ├── AccessError          authenticate, or ask for more permissions
    │   ├── UnauthenticatedError
    │   └── ForbiddenError
    ├── LimitError           request less, or later
    │   ├── TooLargeError
    │   ├── TooManyRequestsError
    │   └── TooSlowError
    ├── MissingDependencyError    install the missing program or library
    ├── StepFailedError      fix a step of a pipeline: see its log
    ├── StorageError         the store failed, or refused access
    │   ├── StorageUnavailableError
    │   ├── StorageDeniedError
    │   └── StorageFullError
    └── CorruptError         stored data is damaged
        ├── UnsupportedFormatError
        ├── DamagedFileError
        ├── LinkError
        └── StaleBaseError

Codes are stable: programs match on `code`, people read the message. The last part of a message is a hint: what to do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

__all__ = [
    "AccessError",
    "AnabranchError",
    "BadRecordError",
    "BaseExistsError",
    "BaseNotFoundError",
    "BranchExistsError",
    "BranchInUseError",
    "BranchNotFoundError",
    "BranchProtectedError",
    "BucketExistsError",
    "BucketNotEmptyError",
    "BucketNotFoundError",
    "BusyError",
    "CheckFailedError",
    "ClockSkewError",
    "CollectedError",
    "CommitNotFoundError",
    "ConflictError",
    "CorruptError",
    "DamagedFileError",
    "DataInUseError",
    "DatasetExistsError",
    "DatasetInUseError",
    "DatasetNotFoundError",
    "DestructiveChangeError",
    "ExternalWriteError",
    "FileMissingError",
    "ForbiddenError",
    "ForkError",
    "IdempotencyKeyReusedError",
    "InvalidExpressionError",
    "InvalidInputError",
    "InvalidNameError",
    "InvalidPathError",
    "InvalidPipelineError",
    "InvalidSchemaError",
    "JobCancelledError",
    "JobInterruptedError",
    "JobNotFoundError",
    "JobNotQueuedError",
    "KeyConflictError",
    "LimitError",
    "LinkError",
    "MergeConflictError",
    "MissingDependencyError",
    "NotFoundError",
    "NotInHistoryError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "ProjectExistsError",
    "ProjectNotFoundError",
    "RepositoryExistsError",
    "RepositoryNotFoundError",
    "RunEndedError",
    "RunNotFoundError",
    "SchemaMismatchError",
    "StaleBaseError",
    "StepFailedError",
    "StorageDeniedError",
    "StorageError",
    "StorageFullError",
    "StorageUnavailableError",
    "TableExistsError",
    "TableNotFoundError",
    "TagExistsError",
    "TagNotFoundError",
    "TokenNotFoundError",
    "TooLargeError",
    "TooManyRequestsError",
    "TooSlowError",
    "UnauthenticatedError",
    "UnsupportedFormatError",
    "VersionNotFoundError",
    "WriteConflictError",
]

E = TypeVar("E", bound="AnabranchError")


class AnabranchError(Exception):
    """The base class of all errors of Anabranch.

    `problem` states what is wrong, `hint` what to do about it. `details` are values for programs, such as the file and
    line of a record.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, problem: str, *, hint: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint
        self.details = dict(details or {})

    def __str__(self) -> str:
        return f"{self.problem}; {self.hint}"

    def reworded(self, problem: str, *, hint: str | None = None) -> Self:
        """Return an error of the same class and with the same values, with another text."""
        error = _rebuild(type(self), problem, self.hint if hint is None else hint, self.details)
        # Some classes have more attributes, such as the conflicts of a merge.
        vars(error).update({name: value for name, value in vars(self).items() if name not in ("problem", "hint")})
        return error

    def __reduce__(self) -> tuple[object, ...]:
        # The default pickling does not support keyword-only arguments, and Spark passes errors between processes.
        return _rebuild, (type(self), self.problem, self.hint, self.details)


def _rebuild(cls: type[E], problem: str, hint: str, details: Mapping[str, Any]) -> E:
    error = cls(problem, hint=hint)
    error.details = dict(details)
    return error


class NotFoundError(AnabranchError):
    """The requested thing does not exist."""

    code = "not_found"


class CommitNotFoundError(NotFoundError):
    code = "commit_not_found"


class CollectedError(CommitNotFoundError):
    """Garbage collection has removed the data of the commit."""

    code = "collected"


class NotInHistoryError(NotFoundError):
    """A commit exists, but is not in the history of another one, for example because a branch was reset."""

    code = "not_in_history"


class TableNotFoundError(NotFoundError, KeyError):
    """Also a KeyError, because a snapshot is a mapping of tables."""

    code = "table_not_found"


class RepositoryNotFoundError(NotFoundError):
    code = "repository_not_found"


class DatasetNotFoundError(NotFoundError):
    code = "dataset_not_found"


class BranchNotFoundError(NotFoundError):
    code = "branch_not_found"
    # The present name, if the branch was renamed.
    renamed_to: str | None = None


class RunNotFoundError(NotFoundError):
    code = "run_not_found"


class TagNotFoundError(NotFoundError):
    code = "tag_not_found"


class ProjectNotFoundError(NotFoundError):
    code = "project_not_found"


class BucketNotFoundError(NotFoundError):
    code = "bucket_not_found"


class TokenNotFoundError(NotFoundError):
    code = "token_not_found"


class JobNotFoundError(NotFoundError):
    code = "job_not_found"


class FileMissingError(NotFoundError):
    """The service has no such file: it was never uploaded, was deleted, or has expired."""

    code = "file_not_found"


class VersionNotFoundError(NotFoundError):
    code = "version_not_found"


class BaseNotFoundError(NotFoundError):
    code = "base_not_found"


class ObjectNotFoundError(NotFoundError):
    code = "object_not_found"


class ConflictError(AnabranchError):
    """The request contradicts the current state."""

    code = "conflict"


class BranchProtectedError(ConflictError):
    code = "branch_protected"


class TableExistsError(ConflictError):
    code = "table_exists"


class RepositoryExistsError(ConflictError):
    code = "repository_exists"


class BaseExistsError(ConflictError):
    code = "base_exists"


class BranchExistsError(ConflictError):
    code = "branch_exists"


class BranchInUseError(ConflictError):
    code = "branch_in_use"


class ProjectExistsError(ConflictError):
    code = "project_exists"


class BucketExistsError(ConflictError):
    code = "bucket_exists"


class BucketNotEmptyError(ConflictError):
    code = "bucket_not_empty"


class DataInUseError(ConflictError):
    """Another process serves the same data."""

    code = "data_in_use"


class JobCancelledError(ConflictError):
    """The job was cancelled. Nothing was changed."""

    code = "job_cancelled"


class JobNotQueuedError(ConflictError):
    """The job has already ended."""

    code = "job_not_queued"


class IdempotencyKeyReusedError(ConflictError):
    """An idempotency key was sent again with a different request."""

    code = "idempotency_key_reused"


class RunEndedError(ConflictError):
    """The run was published, was aborted or has failed, and cannot be changed any more."""

    code = "run_ended"


class ClockSkewError(ConflictError):
    """The clocks of this machine and of the store differ too much to date a commit."""

    code = "clock_skew"


class CheckFailedError(ConflictError):
    """A check rejected the state before it was published. Nothing was published."""

    code = "check_failed"


class TagExistsError(ConflictError):
    code = "tag_exists"


class DatasetExistsError(ConflictError):
    code = "dataset_exists"


class DatasetInUseError(ConflictError):
    """Other datasets read the files of this one."""

    code = "dataset_in_use"


class ObjectExistsError(ConflictError):
    code = "object_exists"


class KeyConflictError(ConflictError):
    """Rows violate the primary key: a key is null or occurs twice."""

    code = "key_conflict"


class MergeConflictError(ConflictError):
    """Both sides of a merge changed the same thing. `conflicts` are the first of `count`. Nothing was merged."""

    code = "merge_conflict"

    def __init__(self, problem: str, *, hint: str, conflicts: Sequence[Any] = (), count: int = 0) -> None:
        super().__init__(problem, hint=hint)
        self.conflicts = tuple(conflicts)
        self.count = count


class DestructiveChangeError(ConflictError):
    """A schema change would lose data, and the call does not allow that."""

    code = "destructive_change"


class ExternalWriteError(ConflictError):
    """Another Lance tool has written to the dataset (an external write)."""

    code = "external_write"


class InvalidInputError(AnabranchError):
    """The call itself is wrong: a retry will fail, too."""

    code = "invalid_input"


class BadRecordError(InvalidInputError):
    """A record of a file cannot be loaded into the table."""

    code = "bad_record"


class ForkError(InvalidInputError):
    """The process was forked from one that had opened a repository, and cannot use it. Use the spawn method."""

    code = "fork"


class InvalidNameError(InvalidInputError):
    code = "invalid_name"


class InvalidPathError(InvalidInputError):
    code = "invalid_path"


class InvalidExpressionError(InvalidInputError):
    code = "invalid_expression"


class InvalidPipelineError(InvalidInputError):
    """A pipeline file is invalid, or was called with unknown parameters."""

    code = "invalid_pipeline"


class InvalidSchemaError(InvalidInputError):
    """A desired schema is invalid or impossible."""

    code = "invalid_schema"


class SchemaMismatchError(InvalidInputError):
    code = "schema_mismatch"


class BusyError(AnabranchError):
    """Another process was faster. The same call may succeed next time."""

    code = "busy"
    retryable = True


class JobInterruptedError(BusyError):
    """The service stopped before the job ended. Nothing was done."""

    code = "interrupted"


class WriteConflictError(BusyError):
    """Another writer published a change to the same table first."""

    code = "write_conflict"


class AccessError(AnabranchError):
    """The service refuses the request of this caller."""

    code = "access"


class UnauthenticatedError(AccessError):
    """The caller is unknown: the token is missing, invalid, expired or revoked."""

    code = "unauthenticated"


class ForbiddenError(AccessError):
    """The token is valid, but does not allow this."""

    code = "forbidden"


class LimitError(AnabranchError):
    """The request exceeds a limit of the service."""

    code = "limit"


class TooLargeError(LimitError):
    code = "too_large"


class TooManyRequestsError(LimitError):
    """The service has too many requests. The same call may succeed later."""

    code = "too_many_requests"
    retryable = True


class TooSlowError(LimitError):
    """The request took longer than allowed. What it started may still complete."""

    code = "too_slow"
    retryable = True


class MissingDependencyError(AnabranchError):
    """A required program or library is missing or too old."""

    code = "missing_dependency"


class StepFailedError(AnabranchError):
    """An output of a pipeline could not be built. Nothing was published."""

    code = "step_failed"


class StorageError(AnabranchError):
    """The object store failed or refused a request."""

    code = "storage"


class StorageUnavailableError(StorageError):
    """The store could not be reached, or did not answer in time."""

    code = "storage_unavailable"
    retryable = True


class StorageDeniedError(StorageError):
    """The store refused access: wrong credentials, or missing permissions."""

    code = "storage_denied"


class StorageFullError(StorageError):
    """There is no space left to write."""

    code = "storage_full"


class CorruptError(AnabranchError):
    """Stored data is damaged or contradicts itself."""

    code = "corrupt"


class UnsupportedFormatError(CorruptError):
    """Stored data was written by a newer version of Anabranch."""

    code = "unsupported_format"


class DamagedFileError(CorruptError):
    """A file does not have the content that its name promises."""

    code = "damaged_file"


class LinkError(CorruptError):
    """A folder or file below a root is a symbolic link, which is never followed."""

    code = "link"


class StaleBaseError(CorruptError):
    """A branch refers to a former root of the dataset, as after a copy or a move."""

    code = "stale_base"
