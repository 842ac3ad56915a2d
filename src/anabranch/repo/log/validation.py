"""Checks of values before they are used as paths, names or numbers: of a repository, and of a caller.

A repository may be a copy from an untrusted source. Each `check_` function returns its argument, or raises ValueError
or InvalidNameError. The decoder converts that into a CorruptError that names the file.

Each `checked_` function converts an argument of a caller, or raises InvalidInputError.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_number
from anabranch.hints import suggest
from anabranch.ids import BranchName, TableKey, are_table_keys
from anabranch.repo.log.entries import (
    BranchMode,
    BranchState,
    CommitKind,
    CommitRecord,
    GraphCommit,
    LogEntry,
    TableEntry,
)
from anabranch.repo.log.run_state import RunState

# `{bucket}/{table}.lance` below `tables/`; a table that replaces another has a suffix, see `free_dataset`.
_DATASET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,254}/[A-Za-z0-9_][A-Za-z0-9_-]{0,254}\.lance")
_ID = re.compile(r"[0-9A-Za-z]{1,64}")
_MAX_NUMBER = 2**64 - 1
# The last time that `datetime` can represent, in microseconds.
_MAX_TIME = 253_402_300_799_999_999
# A URI that is longer than any file system or store accepts.
_LONGEST_ROOT = 8192
_MAX_EXPIRY = timedelta(days=36_525)


def check_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} {value!r:.100} is not a string")
    return value


def check_optional_text(value: Any, what: str) -> str | None:
    return None if value is None else check_text(value, what)


def check_integer(value: Any, what: str, *, most: int = _MAX_NUMBER) -> int:
    # In Python, a bool is an int.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{what} {value!r:.100} is not an integer from 0 to {most}")
    return value


def check_time(value: Any, what: str) -> int:
    return check_integer(value, what, most=_MAX_TIME)


def check_commit_id(value: Any, what: str = "commit id") -> str:
    """Accept letters and digits only: an id becomes a file name."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError(f"{what} {value!r:.100} is not an id")
    return value


def check_optional_id(value: Any, what: str) -> str | None:
    return None if value is None else check_commit_id(value, what)


def check_root(value: Any, what: str) -> str:
    """Accept the URI of a repository. The caller decides whether to open it."""
    text = check_text(value, what)
    if not text or len(text) > _LONGEST_ROOT or not text.isprintable():
        raise ValueError(f"{what} {text!r:.100} is not a URI")
    return text


def check_tables(keys: Iterable[Any]) -> None:
    names = tuple(keys)
    # One pass over all names decides. The loop only finds the name for the error.
    if not are_table_keys(names):
        for key in names:
            TableKey.parse(key)


def check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, Mapping):
        raise ValueError(f"metadata {metadata!r:.100} is not a mapping")
    for name, value in metadata.items():
        check_text(name, "metadata key")
        check_text(value, f"metadata {name!r:.100}")


def check_home(home: str | None) -> None:
    """Accept None, or a Lance branch name, which becomes a path below `tree/` of the dataset."""
    if home is not None:
        BranchName.parse(home)


def check_table(entry: TableEntry) -> TableEntry:
    """Accept only a dataset below `tables/` of the repository and a home below that dataset."""
    if not _DATASET.fullmatch(check_text(entry.dataset, "dataset")):
        raise ValueError(f"dataset {entry.dataset!r:.200} is not of the form 'bucket/table.lance'")
    check_home(entry.home)
    check_integer(entry.version, "version")
    check_integer(entry.head, "head")
    check_integer(entry.rows, "rows")
    for column in entry.primary_key:
        check_text(column, "key column")
    if entry.forked_from is not None:
        check_home(entry.forked_from[0])
        check_integer(entry.forked_from[1], "version")
    return entry


def check_commit(commit: GraphCommit) -> GraphCommit:
    check_commit_id(commit.graph_commit_id)
    if commit.manifest_branch is not None:
        BranchName.parse(commit.manifest_branch)
    check_integer(commit.manifest_version, "version")
    check_optional_id(commit.parent_commit_id, "parent")
    check_optional_id(commit.merged_parent_commit_id, "merged parent")
    check_optional_text(commit.actor_id, "actor")
    check_time(commit.created_at, "time")
    check_text(commit.message, "message")
    check_metadata(commit.metadata)
    check_tables(commit.tables)
    check_integer(commit.generation, "generation")
    return commit


def check_record(record: CommitRecord) -> CommitRecord:
    """Check the fields of a commit record except its commit and its table entries."""
    check_commit_id(record.base, "base commit")
    named = {
        "older commit": record.older,
        "commit of main": record.main_id,
        "commit below": record.made_on,
        "source commit": record.taken_from,
    }
    for what, value in named.items():
        check_optional_id(value, what)
    if record.collected_at is not None:
        check_time(record.collected_at, "time of collection")
    return record


def check_run(run: RunState) -> RunState:
    BranchName.parse(run.target.value)
    check_integer(run.target_created_as, "log entry")
    check_commit_id(run.origin, "origin")
    check_optional_id(run.main_id, "commit of main")
    check_optional_id(run.commit_id, "commit id")
    if run.published_after is not None:
        check_integer(run.published_after, "version")
    check_optional_text(run.error, "error")
    for outcome in run.outcomes:
        for text in (outcome.name, outcome.sql, outcome.problem):
            check_text(text, "check")
    check_metadata(run.metadata)
    return run


def check_entry(entry: LogEntry) -> LogEntry:
    """Check the fields of a log entry except its head, its run and its table keys."""
    BranchName.parse(entry.branch.value)
    check_integer(entry.number, "number")
    check_time(entry.at, "time")
    check_optional_text(entry.actor, "actor")
    if entry.restores is not None:
        check_integer(entry.restores, "restored entry", most=max(entry.number - 1, 0))
    state = entry.state
    if state.parent is not None:
        if state.parent.branch is not None:
            BranchName.parse(state.parent.branch.value)
        check_commit_id(state.parent.commit)
        if state.parent.created_as is not None:
            check_integer(state.parent.created_as, "log entry")
    _check_names(state)
    check_time(state.created_at, "time")
    check_optional_text(state.created_by, "actor")
    check_integer(state.created_as, "log entry")
    check_text(state.description, "description")
    if state.expires_at is not None:
        check_time(state.expires_at, "time of expiry")
    for name, sql in state.checks:
        check_text(name, "check")
        check_text(sql, "check")
    return entry


def _check_names(state: BranchState) -> None:
    for rename in state.renames:
        BranchName.parse(rename.to.value)
        check_integer(rename.created_as, "log entry")
        check_integer(rename.to_created_as, "log entry")
    for former in state.former_names:
        BranchName.parse(former.branch.value)
        check_integer(former.created_as, "log entry")
        check_integer(former.until, "log entry")


def check_collected(commits: Any) -> frozenset[str]:
    if not isinstance(commits, list):
        raise ValueError(f"commits {commits!r:.100} is not a list")
    return frozenset(check_commit_id(commit_id) for commit_id in commits)


E = TypeVar("E", bound=StrEnum)


def checked_choice(kind: type[E], text: str, what: str) -> E:
    """Return the member of an enum with this value. Raise InvalidInputError if there is none."""
    try:
        return kind(text)
    except ValueError:
        hint = suggest(str(text), list(kind), f"use one of {', '.join(repr(member.value) for member in kind)}")
        raise InvalidInputError(f"{what} is {text!r}, which is not known", hint=hint) from None


def checked_kind(kind: str) -> CommitKind:
    try:
        return CommitKind(kind)
    except ValueError:
        known = ", ".join(CommitKind)
        raise InvalidInputError(f"the commit kind {kind!r} is not known", hint=f"use one of {known}") from None


def checked_mode(mode: str) -> BranchMode:
    try:
        return BranchMode(mode)
    except ValueError:
        raise InvalidInputError(f"branch mode {mode!r} is not known", hint="use 'pinned' or 'live'") from None


def checked_version(version: Any) -> int:
    return checked_number(version, "version", hint="pass the number of an entry in the branch's log, such as 7")


def _show(span: object) -> str:
    return str(span) if isinstance(span, timedelta) else repr(span)


def checked_expiry(expires_in: object) -> int:
    """Return the time until a branch expires, in microseconds."""
    if not isinstance(expires_in, timedelta) or not timedelta(0) < expires_in <= _MAX_EXPIRY:
        raise InvalidInputError(
            f"the branch cannot expire in {_show(expires_in)}", hint="pass a timedelta above 0 and up to 100 years"
        )
    return expires_in // timedelta(microseconds=1)
