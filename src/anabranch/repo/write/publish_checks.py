"""Checks on a state before it is published: SQL that must return no rows, or Python functions."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.errors import (
    AnabranchError,
    CheckFailedError,
    InvalidExpressionError,
    InvalidInputError,
    TableNotFoundError,
)
from anabranch.repo.log.entries import CheckOutcome, CheckResult
from anabranch.repo.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa


# Values for `?` or `$name` in SQL.
Parameters = Sequence[Any] | Mapping[str, Any]
# SQL, or a function of the snapshot that returns False or raises if the check fails.
Check = str | Callable[[Snapshot], object]
Checks = Sequence[Check] | Mapping[str, Check]
NamedCheck = tuple[str, Check]
Query = Callable[[str, Snapshot, Parameters | None], "pa.RecordBatchReader"]

_ROWS_SHOWN = 3
_LONGEST_NAME = 80
_LONGEST_PROBLEM = 2000


def checked_checks(given: object) -> tuple[NamedCheck, ...]:
    """Return the checks with their names; the default name is the text or the name of the function."""
    if isinstance(given, Mapping):
        named = list(given.items())
    # A single text would be read as a list of checks of one character each.
    elif isinstance(given, Sequence) and not isinstance(given, str):
        named = [(_name(check), check) for check in given]
    else:
        raise InvalidInputError(f"{given!r} is not a list of checks", hint="give a list, or a dict of names to checks")
    for name, check in named:
        if not isinstance(name, str) or not (isinstance(check, str) or callable(check)):
            raise InvalidInputError(f"the check {check!r} is neither SQL nor a function", hint="give one of them")
    return tuple(named)


def recorded_checks(checks: Sequence[NamedCheck]) -> tuple[tuple[str, str], ...]:
    """Return the checks in the form of a log entry. A function is recorded by its name, with empty SQL."""
    for name, check in checks:
        if isinstance(check, str) and not check.strip():
            raise InvalidInputError(f"the check {name!r} is empty", hint="give SQL, or a function")
    return tuple((name, check if isinstance(check, str) else "") for name, check in checks)


def callable_checks(checks: Sequence[NamedCheck]) -> tuple[NamedCheck, ...]:
    """Return the checks if this process can run all of them. It cannot run functions of other processes."""
    for name, check in checks:
        if check == "":
            hint = "publish the run there, or begin it with checks in SQL"
            raise InvalidInputError(f"the check {name!r} is a function of the process that began the run", hint=hint)
    return tuple(checks)


def run_checks(
    checks: Sequence[NamedCheck],
    snapshot: Snapshot,
    query: Query,
    *,
    record: Callable[[CheckOutcome], None] = lambda _: None,
) -> None:
    """Run checks. Raise an error at the first one that fails. `record` gets the result of each check that ran."""
    for name, check in checks:
        outcome = _outcome(name, check, CheckResult.PASSED)
        try:
            if isinstance(check, str):
                _require_no_rows(name, check, snapshot, query)
            else:
                _require_success(name, check, snapshot)
        # Other errors, such as those of the store, are not a result of the check.
        except (CheckFailedError, InvalidExpressionError, TableNotFoundError) as err:
            record(replace(outcome, result=CheckResult.FAILED, problem=err.problem[:_LONGEST_PROBLEM]))
            raise
        record(outcome)


def outcomes_of(checks: Sequence[NamedCheck], ran: Sequence[CheckOutcome]) -> tuple[CheckOutcome, ...]:
    """Return the outcomes of all checks, in their order, given those of the first ones, which ran."""
    return (*ran, *(_outcome(name, check, CheckResult.NOT_RUN) for name, check in checks[len(ran) :]))


def _outcome(name: str, check: Check, result: CheckResult) -> CheckOutcome:
    return CheckOutcome(name=name, sql=check if isinstance(check, str) else "", result=result)


def _require_no_rows(name: str, sql: str, snapshot: Snapshot, query: Query) -> None:
    rows: list[object] = []
    try:
        with query(sql, snapshot, None) as found:
            for batch in found:
                # A few rows are enough for the error. The result of a check that fails may be as large as the table.
                rows += batch.slice(0, _ROWS_SHOWN - len(rows)).to_pylist()
                if len(rows) >= _ROWS_SHOWN:
                    break
    except (InvalidExpressionError, TableNotFoundError) as err:
        raise err.reworded(f"the check {name!r} cannot be run: {err.problem}") from err
    if rows:
        raise _failed(name, f"found rows, such as {', '.join(map(str, rows))}")


def _require_success(name: str, check: Callable[[Snapshot], object], snapshot: Snapshot) -> None:
    try:
        answer = check(snapshot)
    # An error of the store or a missing table is not an answer of the check.
    except AnabranchError:
        raise
    except Exception as err:
        raise _failed(name, f"failed: {err!r}") from err
    if inspect.isawaitable(answer) or inspect.isgenerator(answer):
        # The function has not run yet, so it has checked nothing.
        if inspect.iscoroutine(answer):
            answer.close()
        hint = "give an ordinary function, not an async one or one that yields"
        raise CheckFailedError(f"the check {name!r} returned a {type(answer).__name__} and checked nothing", hint=hint)
    if _is_false(answer):
        raise _failed(name, "failed")


def _failed(name: str, problem: str) -> CheckFailedError:
    hint = "correct the data, then publish again"
    return CheckFailedError(f"the check {name!r} {problem}", hint=hint, details={"check": name})


def _is_false(answer: object) -> bool:
    """Return whether a result is False, of Python, numpy or Arrow. An empty result or 0 is not False."""
    import numpy as np
    import pyarrow as pa

    plain = answer.as_py() if isinstance(answer, pa.BooleanScalar) else answer
    return isinstance(plain, bool | np.bool_) and not plain


def _name(check: object) -> str:
    if isinstance(check, str):
        text = " ".join(check.split())
        return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 3] + "..."
    return str(getattr(check, "__name__", check))
