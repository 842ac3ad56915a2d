"""The errors of failed steps: the output, the reason in one sentence, and where the full error is kept."""

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, CheckFailedError, StepFailedError, StorageError
from anabranch.pipelines.declarations import DeclaredCheck, Output
from anabranch.storage import open_store
from anabranch.storage.uris import join_uri

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository

__all__ = ["RunLog", "check_failed", "failed", "list_logs", "reason_of"]

_FOLDER = "_logs"
_LONGEST = 400
# The last line of a Python traceback on a worker.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
_TAIL = re.compile(r"\s*(?:SQLSTATE: \w+|;?\s*line \d+,? pos \d+|\(TID \d+\)).*$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """What a failed step of a run left behind."""

    output: str
    uri: str


def failed(repo: "Repository", run_id: str, output: Output, error: BaseException) -> StepFailedError:
    """The error to raise instead of what a step raised; its whole text is kept in the repository."""
    problem = f"{output.location}: building '{output.key}' failed: {reason_of(error)}"
    path = f"{_FOLDER}/{run_id}/{output.key}.log"
    try:
        store = open_store(repo.uri, repo.storage_options)
        store.put(path, "".join(traceback.format_exception(error)).encode(errors="replace"))
    except StorageError:
        return StepFailedError(problem, hint="fix it and run again; its log could not be kept")
    return StepFailedError(problem, hint=f"fix it and run again; its log is {join_uri(repo.uri, path)}")


def check_failed(checks: Sequence[DeclaredCheck], error: CheckFailedError) -> CheckFailedError:
    """Return the error to raise instead of a failed check's own: a run of a pipeline is over, and has to run again."""
    location = next((f"{check.location}: " for check in checks if check.name == error.details.get("check")), "")
    hint = "correct the data, the model or the check, and run again; nothing was published"
    return CheckFailedError(f"{location}{error.problem}", hint=hint, details=error.details)


def list_logs(repo: "Repository", run_id: str) -> tuple[RunLog, ...]:
    """The logs of the steps of a run that failed."""
    found = open_store(repo.uri, repo.storage_options).list(f"{_FOLDER}/{run_id}")
    names = {info.path.rpartition("/")[2].removesuffix(".log"): join_uri(repo.uri, info.path) for info in found}
    return tuple(RunLog(output=name, uri=names[name]) for name in sorted(names))


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in one line, without the stack traces of Spark."""
    if isinstance(error, AnabranchError):
        return str(error)
    text = str(error).strip()
    raised = _RAISED.findall(text)
    text = raised[-1] if raised else _TAIL.sub("", next(iter(text.splitlines()), ""))
    text = text.strip(" .;")
    if not raised and not type(error).__module__.startswith("pyspark"):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
