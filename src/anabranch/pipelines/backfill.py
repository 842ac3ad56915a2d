"""Run a pipeline once for each value of a parameter. Each value is a run and a commit of its own.

Only the commits record the progress of a backfill: each names the backfill, its value and the range. So it continues
after a failure or a kill, and after a reset from the new position of the branch.
"""

import calendar
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.ids import new_ulid
from anabranch.pipelines.declarations import bind_parameters, written
from anabranch.pipelines.definition import PipelineDefinition
from anabranch.pipelines.plan import Plan
from anabranch.pipelines.run import Manner, PipelineRun, run_plan
from anabranch.repo.history.lineage import BACKFILL, NAME
from anabranch.storage.requests import Progress

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository


# Each value is a run and a commit of its own.
_MOST_VALUES = 10_000
_STEP = re.compile(r"(\d{1,6})([dwm])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillProgress(Progress):
    """One value of a backfill that is done. `stage` is 'values'; `run` is None if an earlier call has built it."""

    value: Any
    run: PipelineRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The result of a backfill: the runs of this call, and the values that an earlier call had built."""

    pipeline: str
    branch: str
    parameter: str
    values: tuple[Any, ...]
    skipped: tuple[Any, ...]
    runs: tuple[PipelineRun, ...]


def run_backfill(  # noqa: PLR0913 - all but the pipeline and the repository by their names
    pipeline: PipelineDefinition,
    repo: "Repository",
    *,
    parameter: str,
    values: tuple[Any, ...],
    plan: Callable[[Any], Plan],
    manner: Manner,
    again: bool,
) -> Backfill:
    """Run a pipeline for each value of a parameter. `plan` plans the run of one value."""
    # Check everything before the first value is built.
    first = plan(values[0])
    spec = _spec(first.parameters, [step.key for step in first.steps], values, parameter)
    backfill_id, done = new_ulid(), frozenset[str]()
    if not again:
        backfill_id, done = _find_unfinished(pipeline, repo, first.branch, spec) or (backfill_id, done)
    runs: list[PipelineRun] = []
    for number, value in enumerate(values, start=1):
        run = None
        if str(value) not in done:
            record = {"id": backfill_id, "spec": spec, "value": str(value), "number": number, "of": len(values)}
            message = f"Run the pipeline {pipeline.name} for {parameter}={value}"
            about = replace(manner, metadata={BACKFILL: json.dumps(record)}, message=message)
            try:
                run = run_plan(plan(value), repo, about)
            except AnabranchError as err:
                problem = f"the backfill stopped at {parameter}={value} ({number} of {len(values)}): {err.problem}"
                # Of the same class, so that the exit code is that of the cause.
                raise err.reworded(problem, hint=f"{err.hint}; the same command continues there") from err
            runs.append(run)
        manner.progress(BackfillProgress(stage="values", done=number, total=len(values), value=value, run=run))
    return Backfill(
        pipeline=pipeline.name,
        branch=first.branch,
        parameter=parameter,
        values=values,
        skipped=tuple(value for value in values if str(value) in done),
        runs=tuple(runs),
    )


def list_values(
    pipeline: PipelineDefinition, name: str, start: Any, end: Any, step: str | int | None
) -> tuple[Any, ...]:
    """Return the values of a parameter in a range, both ends included."""
    parameter = pipeline.parameters.get(name)
    if parameter is None:
        # Refuses an unknown name, and lists the declared ones.
        bind_parameters(pipeline.parameters, {name: start}, pipeline.location)
    if parameter is None or parameter.kind not in (date, int):
        raise InvalidInputError(
            f"the parameter {name!r} is not a date or an int", hint="declare it by such a default or type"
        )
    start, end = (bind_parameters({name: parameter}, {name: given}, pipeline.location)[name] for given in (start, end))
    if end < start:
        raise InvalidInputError(f"the range ends at {end}, before it starts at {start}", hint="swap the two")
    found = tuple(islice(_iter_range(start, end, step), _MOST_VALUES + 1))
    if len(found) > _MOST_VALUES:
        raise InvalidInputError(
            f"there are more than {_MOST_VALUES:,} values from {start} to {end}", hint="use a larger step"
        )
    return found


def _iter_range(start: Any, end: Any, step: str | int | None) -> Iterator[Any]:
    found = _STEP.fullmatch("1" if step is None else str(step))
    count, unit = (int(found[1]), found[2]) if found else (0, None)
    if count < 1 or (unit is not None and not isinstance(start, date)):
        hint = "give a number from 1 on, for dates also such as 7d, 2w or 1m"
        raise InvalidInputError(f"the step is {step!r}", hint=hint)
    number, value = 0, start
    while value <= end:
        yield value
        number += 1
        try:
            # Count from the start, not from the value before: otherwise the 31st would stay the 28th after a February.
            value = _moved(start, number * count, unit)
        except (OverflowError, ValueError):  # beyond the year 9999
            return


def _moved(start: Any, count: int, unit: str | None) -> Any:
    if not isinstance(start, date):
        return start + count
    if unit != "m":
        return start + timedelta(weeks=count) if unit == "w" else start + timedelta(days=count)
    years, month = divmod(start.month - 1 + count, 12)
    year = start.year + years
    return date(year, month + 1, min(start.day, calendar.monthrange(year, month + 1)[1]))


def _spec(parameters: Mapping[str, Any], outputs: list[str], values: tuple[Any, ...], parameter: str) -> str:
    """Return a hash that identifies a backfill. It excludes the code, which may be fixed before it continues."""
    others = {name: value for name, value in written(parameters).items() if name != parameter}
    parts = [parameter, [str(value) for value in values], others, outputs]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _find_unfinished(
    pipeline: PipelineDefinition, repo: "Repository", branch: str, spec: str
) -> tuple[str, frozenset[str]] | None:
    """Return the newest backfill of this kind on the branch: its id, and the values that it has built."""
    backfill_id, done = None, set[str]()
    for commit in repo.iter_graph(branch):
        record = _read_record(commit.metadata, pipeline.name)
        if record is None or record.get("spec") != spec or backfill_id not in (None, record.get("id")):
            continue
        backfill_id = str(record.get("id"))
        done.add(str(record.get("value")))
        # Values are built in order, so older commits belong to another backfill.
        if record.get("number") == 1:
            break
    return None if backfill_id is None else (backfill_id, frozenset(done))


def _read_record(metadata: Mapping[str, str], pipeline: str) -> dict[str, Any] | None:
    if metadata.get(NAME) != pipeline or BACKFILL not in metadata:
        return None
    try:
        found = json.loads(metadata[BACKFILL])
    # Any writer can set the metadata of a commit, so a text that is not JSON is ignored.
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
