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
    line of a record. The `code` of a class is given with its name; a subclass without one has that of its base.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: str | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code

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


class NotFoundError(AnabranchError, code="not_found"):
    """The requested thing does not exist."""


class CommitNotFoundError(NotFoundError, code="commit_not_found"): ...


class CollectedError(CommitNotFoundError, code="collected"):
    """Garbage collection has removed the data of the commit."""


class NotInHistoryError(NotFoundError, code="not_in_history"):
    """A commit exists, but is not in the history of another one, for example because a branch was reset."""


class TableNotFoundError(NotFoundError, KeyError, code="table_not_found"):
    """Also a KeyError, because a snapshot is a mapping of tables."""


class RepositoryNotFoundError(NotFoundError, code="repository_not_found"): ...


class DatasetNotFoundError(NotFoundError, code="dataset_not_found"): ...


class BranchNotFoundError(NotFoundError, code="branch_not_found"):
    # The present name, if the branch was renamed.
    renamed_to: str | None = None


class RunNotFoundError(NotFoundError, code="run_not_found"): ...


class TagNotFoundError(NotFoundError, code="tag_not_found"): ...


class ProjectNotFoundError(NotFoundError, code="project_not_found"): ...


class BucketNotFoundError(NotFoundError, code="bucket_not_found"): ...


class TokenNotFoundError(NotFoundError, code="token_not_found"): ...


class JobNotFoundError(NotFoundError, code="job_not_found"): ...


class FileMissingError(NotFoundError, code="file_not_found"):
    """The service has no such file: it was never uploaded, was deleted, or has expired."""


class VersionNotFoundError(NotFoundError, code="version_not_found"): ...


class BaseNotFoundError(NotFoundError, code="base_not_found"): ...


class ObjectNotFoundError(NotFoundError, code="object_not_found"): ...


class ConflictError(AnabranchError, code="conflict"):
    """The request contradicts the current state."""


class BranchProtectedError(ConflictError, code="branch_protected"): ...


class TableExistsError(ConflictError, code="table_exists"): ...


class RepositoryExistsError(ConflictError, code="repository_exists"): ...


class BaseExistsError(ConflictError, code="base_exists"): ...


class BranchExistsError(ConflictError, code="branch_exists"): ...


class BranchInUseError(ConflictError, code="branch_in_use"): ...


class ProjectExistsError(ConflictError, code="project_exists"): ...


class BucketExistsError(ConflictError, code="bucket_exists"): ...


class BucketNotEmptyError(ConflictError, code="bucket_not_empty"): ...


class DataInUseError(ConflictError, code="data_in_use"):
    """Another process serves the same data."""


class JobCancelledError(ConflictError, code="job_cancelled"):
    """The job was cancelled. Nothing was changed."""


class JobNotQueuedError(ConflictError, code="job_not_queued"):
    """The job has already ended."""


class IdempotencyKeyReusedError(ConflictError, code="idempotency_key_reused"):
    """An idempotency key was sent again with a different request."""


class RunEndedError(ConflictError, code="run_ended"):
    """The run was published, was aborted or has failed, and cannot be changed any more."""


class ClockSkewError(ConflictError, code="clock_skew"):
    """The clocks of this machine and of the store differ too much to date a commit."""


class CheckFailedError(ConflictError, code="check_failed"):
    """A check rejected the state before it was published. Nothing was published."""


class TagExistsError(ConflictError, code="tag_exists"): ...


class DatasetExistsError(ConflictError, code="dataset_exists"): ...


class DatasetInUseError(ConflictError, code="dataset_in_use"):
    """Other datasets read the files of this one."""


class ObjectExistsError(ConflictError, code="object_exists"): ...


class KeyConflictError(ConflictError, code="key_conflict"):
    """Rows violate the primary key: a key is null or occurs twice."""


class MergeConflictError(ConflictError, code="merge_conflict"):
    """Both sides of a merge changed the same thing. `conflicts` are the first of `count`. Nothing was merged."""

    def __init__(self, problem: str, *, hint: str, conflicts: Sequence[Any] = (), count: int = 0) -> None:
        super().__init__(problem, hint=hint)
        self.conflicts = tuple(conflicts)
        self.count = count


class DestructiveChangeError(ConflictError, code="destructive_change"):
    """A schema change would lose data, and the call does not allow that."""


class ExternalWriteError(ConflictError, code="external_write"):
    """Another Lance tool has written to the dataset (an external write)."""


class InvalidInputError(AnabranchError, code="invalid_input"):
    """The call itself is wrong: a retry will fail, too."""


class BadRecordError(InvalidInputError, code="bad_record"):
    """A record of a file cannot be loaded into the table."""


class ForkError(InvalidInputError, code="fork"):
    """The process was forked from one that had opened a repository, and cannot use it. Use the spawn method."""


class InvalidNameError(InvalidInputError, code="invalid_name"): ...


class InvalidPathError(InvalidInputError, code="invalid_path"): ...


class InvalidExpressionError(InvalidInputError, code="invalid_expression"): ...


class InvalidPipelineError(InvalidInputError, code="invalid_pipeline"):
    """A pipeline file is invalid, or was called with unknown parameters."""


class InvalidSchemaError(InvalidInputError, code="invalid_schema"):
    """A desired schema is invalid or impossible."""


class SchemaMismatchError(InvalidInputError, code="schema_mismatch"): ...


class BusyError(AnabranchError, code="busy"):
    """Another process was faster. The same call may succeed next time."""

    retryable = True


class JobInterruptedError(BusyError, code="interrupted"):
    """The service stopped before the job ended. Nothing was done."""


class WriteConflictError(BusyError, code="write_conflict"):
    """Another writer published a change to the same table first."""


class AccessError(AnabranchError, code="access"):
    """The service refuses the request of this caller."""


class UnauthenticatedError(AccessError, code="unauthenticated"):
    """The caller is unknown: the token is missing, invalid, expired or revoked."""


class ForbiddenError(AccessError, code="forbidden"):
    """The token is valid, but does not allow this."""


class LimitError(AnabranchError, code="limit"):
    """The request exceeds a limit of the service."""


class TooLargeError(LimitError, code="too_large"): ...


class TooManyRequestsError(LimitError, code="too_many_requests"):
    """The service has too many requests. The same call may succeed later."""

    retryable = True


class TooSlowError(LimitError, code="too_slow"):
    """The request took longer than allowed. What it started may still complete."""

    retryable = True


class MissingDependencyError(AnabranchError, code="missing_dependency"):
    """A required program or library is missing or too old."""


class StepFailedError(AnabranchError, code="step_failed"):
    """An output of a pipeline could not be built. Nothing was published."""


class StorageError(AnabranchError, code="storage"):
    """The object store failed or refused a request."""


class StorageUnavailableError(StorageError, code="storage_unavailable"):
    """The store could not be reached, or did not answer in time."""

    retryable = True


class StorageDeniedError(StorageError, code="storage_denied"):
    """The store refused access: wrong credentials, or missing permissions."""


class StorageFullError(StorageError, code="storage_full"):
    """There is no space left to write."""


class CorruptError(AnabranchError, code="corrupt"):
    """Stored data is damaged or contradicts itself."""


class UnsupportedFormatError(CorruptError, code="unsupported_format"):
    """Stored data was written by a newer version of Anabranch."""


class DamagedFileError(CorruptError, code="damaged_file"):
    """A file does not have the content that its name promises."""


class LinkError(CorruptError, code="link"):
    """A folder or file below a root is a symbolic link, which is never followed."""


class StaleBaseError(CorruptError, code="stale_base"):
    """A branch refers to a former root of the dataset, as after a copy or a move."""
