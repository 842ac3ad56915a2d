"""Lance's errors, translated once, and scans that a damaged index does not stop.

Lance raises ValueError and OSError, and panics with a BaseException. Only their messages distinguish them.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.errors import (
    AnabranchError,
    BaseExistsError,
    BranchExistsError,
    BranchInUseError,
    BranchNotFoundError,
    BusyError,
    DamagedFileError,
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidExpressionError,
    InvalidInputError,
    InvalidNameError,
    SchemaMismatchError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
    TagExistsError,
    TagNotFoundError,
    UnsupportedFormatError,
    VersionNotFoundError,
)
from anabranch.storage.options import redact
from anabranch.storage.requests import check_process

if TYPE_CHECKING:
    import lance
    import pyarrow as pa


# The first match counts: a pattern of Lance's message, the error to raise, and its hint.
_TABLE: tuple[tuple[str, type[AnabranchError], str], ...] = (
    (
        r"cannot be (read|written) by this version of Lance",
        UnsupportedFormatError,
        "upgrade pylance; for overlay files, set LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES=1 or compact them away",
    ),
    (r"Ref not found error: tag", TagNotFoundError, "list the tags to see which exist"),
    (r"Ref not found error: [Bb]ranch", BranchNotFoundError, "list the branches to see which exist"),
    (r"Not found: .*_refs/(branches|tags)/", BusyError, "another process is deleting it: try again"),
    (r"Ref conflict error: tag", TagExistsError, "update the tag, or choose another name"),
    (r"Ref conflict error: [Bb]ranch .* already exists", BranchExistsError, "choose another name"),
    (r"Ref conflict error", BranchInUseError, "delete its branches and tags, and drop its clones, first"),
    (r"Base path with name .* already exists", BaseExistsError, "choose another name and path"),
    (r"Ref is invalid", InvalidNameError, "choose a name of ASCII letters, digits, '.', '-', '_'"),
    (r"Version not found error|_versions/d?\d+\.manifest was not found", VersionNotFoundError, "list the versions"),
    # The second is the message of Lance when another process writes the first manifest at the same moment.
    (
        r"Dataset already exists|Clone operation should not enter",
        DatasetExistsError,
        "choose another path, or remove it first",
    ),
    (r"Dataset at path .* was not found|Not found: .*_versions\b", DatasetNotFoundError, "check the path"),
    (r"No space left on device|StorageFull|Disk quota exceeded", StorageFullError, "free some space and try again"),
    (r"Read-only file system", StorageDeniedError, "mount it with write access"),
    (r"error sending request|timed? ?out|dns error|Connection refused", StorageUnavailableError, "check the endpoint"),
    (
        r"403 Forbidden|401 Unauthorized|AccessDenied|Permission ?denied|Failed to get AWS credentials",
        StorageDeniedError,
        "check the credentials",
    ),
    (r"v1 manifest paths", InvalidInputError, "call migrate_manifest_paths_v2() on it with pylance first"),
    (r"NoSuchBucket|[Bb]ucket .* not found", DatasetNotFoundError, "check the bucket's name"),
    (
        r"file size is too small|sufficient data|Invalid range|magic|[Pp]rotobuf|decode|Invalid format|corrupt"
        r"|out of range",
        DamagedFileError,
        "run `Dataset.doctor()` on it, or restore the file from a backup",
    ),
    (r"Not found: ", DamagedFileError, "a file of this version is missing: garbage was collected, or run doctor"),
    (r"Too many concurrent writers|[Cc]ommit conflict|Incompatible transaction", BusyError, "try again"),
    (
        r"[Ss]chema|column .* not found|No field named|does not exist in the dataset",
        SchemaMismatchError,
        "see its schema",
    ),
    (r"SQL|sql parser|Invalid user input|Error during planning", InvalidExpressionError, "correct the expression"),
)


def is_damaged_file(error: Exception) -> bool:
    """Return whether an error of Lance is about a damaged or missing file."""
    return isinstance(_translate(str(error), uri="", options={}), DamagedFileError)


@contextmanager
def lance_errors(uri: str, storage_options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Translate errors that Lance raises inside into errors of Anabranch that name the dataset."""
    check_process()
    try:
        yield
    except AnabranchError:
        raise
    except BaseException as err:
        # Compare the type's name: pyarrow takes long to load, and the type of Rust's panics cannot be imported.
        name, options = type(err).__name__, storage_options or {}
        if name == "PanicException":
            problem = f"Lance gave up on {uri!r}: {_clean(str(err), options)}"
            raise DamagedFileError(problem, hint="run `Dataset.doctor()` on it, or restore it from a backup") from err
        # The last is for data that does not fit a file. All else here is an interrupt or an exit.
        if isinstance(err, OSError | ValueError | RuntimeError) or name == "ArrowException":
            raise _translate(str(err), uri=uri, options=options) from err
        raise


def _translate(message: str, *, uri: str, options: Mapping[str, str]) -> AnabranchError:
    text = _clean(message, options)
    for pattern, kind, hint in _TABLE:
        if re.search(pattern, message):
            return kind(f"dataset {uri!r}: {text}", hint=hint)
    return StorageError(f"dataset {uri!r}: {text}", hint="see Lance's own message above")


def _clean(message: str, options: Mapping[str, str]) -> str:
    """Return Lance's message without source locations and credentials."""
    # Lance appends positions in its source, and S3 the XML of its answer.
    text = re.sub(r",? ?/[^ ,]*/rust/[^ ,]*\.rs:\d+:\d+|: <\?xml.*", "", message, flags=re.DOTALL)
    return redact(" ".join(text.split()), options)[:500]


def iter_batches(dataset: "lance.LanceDataset", **options: Any) -> "Iterator[pa.RecordBatch]":
    """Read a scan. If it fails on a damaged file before its first row, read it without indices.

    An index only finds rows, so that a write does not need it. If a file of the rows is damaged, the second
    scan fails too.
    """
    has_begun = False
    try:
        for batch in dataset.scanner(**options).to_batches():
            has_begun = True
            yield batch
    except (OSError, ValueError, RuntimeError) as err:
        # After the first batch, a second scan would return rows twice. Without a filter no index is used.
        if has_begun or options.get("filter") is None or not is_damaged_file(err):
            raise
        yield from dataset.scanner(**options, use_scalar_index=False).to_batches()
