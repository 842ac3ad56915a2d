"""Which outputs of a pipeline are meant: by name, by wildcard, with what is before and after them, and by state."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.hints import suggest
from anabranch.pipelines.declarations import Output
from anabranch.pipelines.definition import PipelineDefinition
from anabranch.pipelines.plan import chosen_outputs, steps_before
from anabranch.pipelines.provenance import find_last_builds, seen_input
from anabranch.repo.history.lineage.provenance import PipelineRecord
from anabranch.repo.log.entries import GraphCommit, StateId
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository

__all__ = ["Selection", "select_outputs"]

_EXPRESSION = re.compile(r"(\+?)([^+]+)(\+?)")
_STATE = "state:"
_CHANGED = "changed"
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a caller asks for: `only` by keys, or `select` by expressions, less those of `exclude`.

    `since` is the ref that `state:changed` compares with; by default the branch itself.
    """

    only: Sequence[str] = ()
    select: Sequence[str] = ()
    exclude: Sequence[str] = ()
    since: str | None = None

    @property
    def is_all(self) -> bool:
        return not (self.only or self.select or self.exclude)


def select_outputs(
    pipeline: PipelineDefinition, repo: "Repository", snapshot: Snapshot, selection: Selection
) -> dict[str, Output]:
    """Return the outputs that are asked for, as they are declared; by default all."""
    for name in ("only", "select", "exclude"):
        # A text is a sequence too, and its characters would be taken for names.
        if isinstance(getattr(selection, name), str):
            given = getattr(selection, name)
            raise InvalidInputError(f"{name} is {given!r}", hint=f"give a list: {name}=[{given!r}]")
    if selection.only and selection.select:
        raise InvalidInputError("both 'only' and 'select' are given", hint="leave one out")
    chosen = chosen_outputs(pipeline.outputs, selection.only, pipeline.location)
    expressions = (*selection.select, *selection.exclude)
    if selection.since is not None and not any(_STATE in each for each in expressions):
        raise InvalidInputError(
            f"'since' is {selection.since!r}, and nothing is selected by state", hint="select 'state:changed'"
        )

    # Called only if an expression asks for the state, because it reads the history of the branch.
    def changed() -> set[str]:
        return _changed_outputs(pipeline, repo, snapshot, since=selection.since)

    if selection.select:
        wanted = _matching(pipeline.outputs, selection.select, changed)
        chosen = {key: output for key, output in chosen.items() if key in wanted}
    unwanted = _matching(pipeline.outputs, selection.exclude, changed)
    return {key: output for key, output in chosen.items() if key not in unwanted}


def _matching(outputs: Mapping[str, Output], expressions: Sequence[str], changed: Callable[[], set[str]]) -> set[str]:
    """Return the outputs that match any of some expressions: `orders`, `+orders`, `mart.*`, `state:changed+`."""
    before = steps_before(outputs)
    after: dict[str, list[str]] = {key: [] for key in outputs}
    for key, names in before.items():
        for name in names:
            after[name].append(key)
    found: set[str] = set()
    for expression in expressions:
        parts = _EXPRESSION.fullmatch(expression.strip())
        if parts is None:
            raise InvalidInputError(
                f"the selection {expression!r} cannot be read", hint="write it like orders, +orders, orders+ or mart.*"
            )
        upwards, name, downwards = parts.groups()
        keys = _with_state(name, changed) if name.startswith(_STATE) else _named(outputs, name)
        found |= keys
        found |= _reachable(keys, before) if upwards else set()
        found |= _reachable(keys, after) if downwards else set()
    return found


def _with_state(name: str, changed: Callable[[], set[str]]) -> set[str]:
    state = name.removeprefix(_STATE)
    if state != _CHANGED:
        raise InvalidInputError(f"the state {state!r} is not known", hint=f"use '{_STATE}{_CHANGED}'")
    return changed()


def _named(outputs: Mapping[str, Output], name: str) -> set[str]:
    """Return the outputs of a name: a key, or the name of a table alone; both may have wildcards."""
    names = {key: key if "." in name else key.partition(".")[2] for key in outputs}
    found = {key for key, own in names.items() if fnmatchcase(own, name)}
    if not found:
        hint = suggest(name, names.values(), f"the outputs are {', '.join(outputs)}")
        raise InvalidInputError(f"the selection {name!r} matches no output", hint=hint)
    # Two buckets may have a table with this name.
    if len(found) > 1 and not _WILDCARDS & set(name):
        raise InvalidInputError(
            f"the selection {name!r} may be {' or '.join(sorted(found))}", hint="write the bucket, too"
        )
    return found


def _reachable(start: Collection[str], edges: Mapping[str, Collection[str]]) -> set[str]:
    found: set[str] = set()
    todo = list(start)
    while todo:
        for name in edges[todo.pop()]:
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def _changed_outputs(
    pipeline: PipelineDefinition, repo: "Repository", snapshot: Snapshot, *, since: str | None
) -> set[str]:
    """Return the outputs whose code or inputs are not those of their last build as of a ref, or that were not built."""
    at = snapshot if since is None else EngineAccess(repo).published_snapshot_of(since)
    builds = find_last_builds(repo, at, pipeline=pipeline.name, outputs=list(pipeline.outputs))
    return {
        key
        for key, output in pipeline.outputs.items()
        if key not in snapshot or key not in builds or _has_changed(output, builds[key], repo, snapshot)
    }


def _has_changed(output: Output, build: GraphCommit, repo: "Repository", snapshot: Snapshot) -> bool:
    record = PipelineRecord.find(build.metadata)
    if record is None or record.outputs[output.key].code_hash != output.code_hash:
        return True
    return any(_state_of(snapshot, key) != _seen_state(repo, build, key) for key in output.inputs)


def _state_of(snapshot: Snapshot, key: str) -> StateId | None:
    return snapshot[key].entry.state if key in snapshot else None


def _seen_state(repo: "Repository", build: GraphCommit, key: str) -> StateId | None:
    try:
        return _state_of(seen_input(repo, build, key), key)
    except NotFoundError:
        return None  # collected since: not known to be the same
