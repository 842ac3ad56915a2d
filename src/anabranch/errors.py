"""Everything Anabranch raises, grouped by what a caller does about it.

    AnabranchError
    ├── NotFoundError        ask for something else: it is not there
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
    ├── ConflictError        decide: the request contradicts what is there
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
    │   └── ForeignWriteError
    ├── InvalidInputError    correct the call
    │   ├── BadRecordError
    │   ├── ForkError
    │   ├── InvalidNameError
    │   ├── InvalidPathError
    │   ├── InvalidExpressionError
    │   ├── InvalidPipelineError
    │   ├── InvalidSchemaError
    │   └── SchemaMismatchError
    ├── BusyError            try again: someone else was faster
    │   ├── JobInterruptedError
    │   └── WriteConflictError
    ├── AccessError          show who you are, or ask for more rights
    │   ├── UnauthenticatedError
    │   └── ForbiddenError
    ├── LimitError           ask for less, or later
    │   ├── TooLargeError
    │   ├── TooManyRequestsError
    │   └── TooSlowError
    ├── MissingDependencyError    install what is missing
    ├── StepFailedError      mend a step of a pipeline: its log says more
    ├── StorageError         the store failed, or refused us
    │   ├── StorageUnavailableError
    │   ├── StorageDeniedError
    │   └── StorageFullError
    └── CorruptError         what is stored is damaged
        ├── UnsupportedFormatError
        ├── DamagedFileError
        ├── LinkError
        └── StaleBaseError

Codes are stable: programs match on `code`, people read the message, and the message's last part says what to do next.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

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
    "FileMissingError",
    "ForbiddenError",
    "ForeignWriteError",
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


class AnabranchError(Exception):
    """The root of all errors raised on purpose; `details` are for programs, such as the file and line of a record."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, problem: str, *, hint: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint
        self.details = dict(details or {})

    def __str__(self) -> str:
        return f"{self.problem}; {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling, and errors cross process borders on Spark.
        return _rebuild, (type(self), self.problem, self.hint, self.details)


def _rebuild(cls: type[AnabranchError], problem: str, hint: str, details: Mapping[str, Any]) -> AnabranchError:
    error = cls(problem, hint=hint)
    error.details = dict(details)
    return error


class NotFoundError(AnabranchError):
    """What was asked for does not exist."""

    code = "not_found"


class CommitNotFoundError(NotFoundError):
    code = "commit_not_found"


class CollectedError(CommitNotFoundError):
    code = "collected"


class NotInHistoryError(NotFoundError):
    """A commit is there, but not among those that led to another one: a branch was reset, or is another."""

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
    """A service has no such file: it was never sent, was deleted, or was kept long enough."""

    code = "file_not_found"


class VersionNotFoundError(NotFoundError):
    code = "version_not_found"


class BaseNotFoundError(NotFoundError):
    code = "base_not_found"


class ObjectNotFoundError(NotFoundError):
    code = "object_not_found"


class ConflictError(AnabranchError):
    """The request contradicts what is there."""

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
    """A job was cancelled before it began; nothing was done."""

    code = "job_cancelled"


class JobNotQueuedError(ConflictError):
    """A job has begun already, or has ended."""

    code = "job_not_queued"


class IdempotencyKeyReusedError(ConflictError):
    """A key that names one request was sent with another one."""

    code = "idempotency_key_reused"


class RunEndedError(ConflictError):
    """The run was published, aborted or failed; nothing more can be done with it."""

    code = "run_ended"


class ClockSkewError(ConflictError):
    """The clock of this machine is too far from that of the store to date a commit."""

    code = "clock_skew"


class CheckFailedError(ConflictError):
    """A check found something in a state that was to be published; nothing was."""

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
    """Rows break the primary key: a null or a repeated key."""

    code = "key_conflict"


class MergeConflictError(ConflictError):
    """Both sides of a merge changed the same thing. `conflicts` are the first of `count`; nothing was merged."""

    code = "merge_conflict"

    def __init__(self, problem: str, *, hint: str, conflicts: Sequence[Any] = (), count: int = 0) -> None:
        super().__init__(problem, hint=hint)
        self.conflicts = tuple(conflicts)
        self.count = count


class DestructiveChangeError(ConflictError):
    """A change of the schema would lose data, and nobody said that it may."""

    code = "destructive_change"


class ForeignWriteError(ConflictError):
    """Somebody wrote to the dataset with another tool while, or before, we did."""

    code = "foreign_write"


class InvalidInputError(AnabranchError):
    """The call itself is wrong and will be wrong again."""

    code = "invalid_input"


class BadRecordError(InvalidInputError):
    """A record of a file is no row of the table it was to be loaded into."""

    code = "bad_record"


class ForkError(InvalidInputError):
    """A process was forked from one that had opened a repository, and cannot use it: start it with spawn."""

    code = "fork"


class InvalidNameError(InvalidInputError):
    code = "invalid_name"


class InvalidPathError(InvalidInputError):
    code = "invalid_path"


class InvalidExpressionError(InvalidInputError):
    code = "invalid_expression"


class InvalidPipelineError(InvalidInputError):
    """A pipeline file declares what cannot be built, or is called with what it does not take."""

    code = "invalid_pipeline"


class InvalidSchemaError(InvalidInputError):
    """A desired schema says something that cannot be, or that nobody understands."""

    code = "invalid_schema"


class SchemaMismatchError(InvalidInputError):
    code = "schema_mismatch"


class BusyError(AnabranchError):
    """Someone else was faster; the same call may succeed next time."""

    code = "busy"
    retryable = True


class JobInterruptedError(BusyError):
    """A service stopped before a job ended; nothing was done."""

    code = "interrupted"


class WriteConflictError(BusyError):
    """Somebody published a change to the same table first."""

    code = "write_conflict"


class AccessError(AnabranchError):
    """The service does not do this for whoever asks."""

    code = "access"


class UnauthenticatedError(AccessError):
    """Nobody knows who asks: no token, or one that is unknown, expired or revoked."""

    code = "unauthenticated"


class ForbiddenError(AccessError):
    """The token is a good one, for other things."""

    code = "forbidden"


class LimitError(AnabranchError):
    """The request is more than the service takes."""

    code = "limit"


class TooLargeError(LimitError):
    code = "too_large"


class TooManyRequestsError(LimitError):
    """There is too much to do already; the same call may succeed later."""

    code = "too_many_requests"
    retryable = True


class TooSlowError(LimitError):
    """The request took longer than it may; what it began may still be done."""

    code = "too_slow"
    retryable = True


class MissingDependencyError(AnabranchError):
    """A program or library that this needs is not there, or is too old."""

    code = "missing_dependency"


class StepFailedError(AnabranchError):
    """An output of a pipeline could not be built; nothing was published."""

    code = "step_failed"


class StorageError(AnabranchError):
    """The object store failed or refused a request."""

    code = "storage"


class StorageUnavailableError(StorageError):
    """The store could not be reached, or did not answer in time."""

    code = "storage_unavailable"
    retryable = True


class StorageDeniedError(StorageError):
    """The store knows us and says no, or does not know us."""

    code = "storage_denied"


class StorageFullError(StorageError):
    """There is no space left to write to."""

    code = "storage_full"


class CorruptError(AnabranchError):
    """What is stored contradicts itself."""

    code = "corrupt"


class UnsupportedFormatError(CorruptError):
    """What is stored was written by a newer version."""

    code = "unsupported_format"


class DamagedFileError(CorruptError):
    """A file is not what its name says."""

    code = "damaged_file"


class LinkError(CorruptError):
    """A folder or file below a root is a symbolic link, which is never followed."""

    code = "link"


class StaleBaseError(CorruptError):
    """A branch points to a root that the dataset no longer has, as after a copy or a move."""

    code = "stale_base"
