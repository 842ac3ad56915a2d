"""Encode and decode commits, log entries and table entries as JSON objects (see `storage.documents`).

Decoders also check the values: a repository may come from an untrusted source (see `validation`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

from anabranch.errors import CorruptError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log import validation
from anabranch.repo.log.entries import (
    BranchEvent,
    BranchMode,
    BranchState,
    CommitKind,
    CommitRecord,
    FormerName,
    FrozenDict,
    GraphCommit,
    LogEntry,
    Origin,
    Parent,
    Rename,
    TableEntry,
)
from anabranch.repo.log.run_state import CheckOutcome, CheckResult, RunPhase, RunState
from anabranch.storage.documents import damage_named, dump, load

# The fields of a summary, in this order. Every commit repeats a page of summaries of the commits before it, so they are
# short: values without names, and without the parent, which is the next summary.
_SUMMARY = (
    "graph_commit_id",
    "manifest_branch",
    "manifest_version",
    "merged_parent_commit_id",
    "actor_id",
    "created_at",
    "kind",
    "message",
    "metadata",
    "tables",
    "generation",
    "made_on",
    "taken_from",
)
_MESSAGE = _SUMMARY.index("message")
_OUTLINE = ("graph_commit_id", "kind", "tables", "merged_parent_commit_id", "made_on", "taken_from")
_outline = itemgetter(*map(_SUMMARY.index, _OUTLINE))
# A commit repeats the summaries of the commits before it, back to the start of its page, so that reading n commits
# costs n/_PAGE requests. A page also ends when its summaries become too large, for example with very many tables.
_PAGE = 64
_PAGE_BYTES = 16 * 1024


def check_identity(path: str, found: object, expected: object) -> None:
    """Raise CorruptError if an object does not have the id that belongs to its path."""
    if found != expected:
        raise CorruptError(
            f"{path!r} contains another object: {found!r} instead of {expected!r}", hint="run doctor on the repository"
        )


def encode_table(entry: TableEntry) -> dict[str, Any]:
    # Versions are strings, because staged versions exceed the numbers of other JSON readers.
    fields: dict[str, Any] = {
        "dataset": entry.dataset,
        "version": str(entry.version),
        "head": str(entry.head),
        "rows": entry.rows,
    }
    # There are many entries, so fields that most of them do not have are omitted.
    if entry.home is not None:
        fields["home"] = entry.home
    if entry.primary_key:
        fields["primary_key"] = list(entry.primary_key)
    if entry.forked_from is not None:
        fields["forked_from"] = [entry.forked_from[0], str(entry.forked_from[1])]
    return fields


def decode_table(fields: Mapping[str, Any]) -> TableEntry:
    forked = fields.get("forked_from")
    entry = TableEntry(
        dataset=fields["dataset"],
        home=fields.get("home"),
        version=int(fields["version"]),
        head=int(fields["head"]),
        primary_key=tuple(fields.get("primary_key", ())),
        rows=fields["rows"],
        forked_from=None if forked is None else (forked[0], int(forked[1])),
    )
    return validation.check_table(entry)


def decode_graph_commit(fields: Mapping[str, Any]) -> GraphCommit:
    commit = GraphCommit(
        graph_commit_id=fields["graph_commit_id"],
        manifest_branch=fields["manifest_branch"],
        manifest_version=fields["manifest_version"],
        parent_commit_id=fields["parent_commit_id"],
        merged_parent_commit_id=fields["merged_parent_commit_id"],
        actor_id=fields["actor_id"],
        created_at=fields["created_at"],
        message=fields["message"],
        kind=CommitKind(fields["kind"]),
        metadata=FrozenDict(fields["metadata"]),
        tables=tuple(fields["tables"]),
        generation=fields["generation"],
    )
    return validation.check_commit(commit)


def next_page(parent: CommitRecord) -> tuple[tuple[tuple[Any, ...], ...], str | None]:
    """Return the fields `recent` and `older` of a commit on top of `parent`."""
    commit = parent.commit
    summary = (
        commit.graph_commit_id,
        commit.manifest_branch,
        commit.manifest_version,
        commit.merged_parent_commit_id,
        commit.actor_id,
        commit.created_at,
        commit.kind,
        commit.message,
        dict(commit.metadata),
        list(commit.tables),
        commit.generation,
        parent.made_on,
        parent.taken_from,
    )
    page = (summary, *parent.recent)
    weight = 0
    for message, metadata, tables, _, made_on, taken_from in (one[_MESSAGE:] for one in page):
        texts = (message, made_on or "", taken_from or "", *tables, *metadata, *metadata.values())
        # 130 bytes for the fields of about constant size: ids, numbers, the kind and punctuation.
        weight += 130 + sum(map(len, texts))
    if len(page) >= _PAGE or weight > _PAGE_BYTES:
        # The new page starts empty and names the parent, whose own object repeats the page before it.
        return (), commit.graph_commit_id
    return page, parent.older


def iter_summaries(record: CommitRecord) -> Iterator[GraphCommit]:
    """Yield the commits before one, back to the start of its page, newest first."""
    return (origin.commit for origin in iter_origins(record))


def iter_origins(record: CommitRecord) -> Iterator[Origin]:
    """Yield the commits before one, back to the start of its page, newest first, with their sources."""
    # A summary omits its parent: that is the next summary, and for the last one the start of the next page.
    parents = (*(summary[0] for summary in record.recent), record.older)[1:]
    for summary, parent in zip(record.recent, parents, strict=True):
        fields = dict(zip(_SUMMARY, summary, strict=True))
        commit = decode_graph_commit({**fields, "parent_commit_id": parent})
        yield Origin(commit=commit, made_on=fields["made_on"], taken_from=fields["taken_from"])


@dataclass(frozen=True, slots=True)
class CommitOutline:
    """What is needed to choose a commit from a page of summaries. Only the id is checked."""

    commit_id: str
    kind: str
    tables: Sequence[str]
    merged_parent: str | None
    made_on: str | None
    taken_from: str | None


def iter_outlines(record: CommitRecord) -> Iterator[CommitOutline]:
    """Yield the outlines of a commit and of the commits before it, back to the start of its page, newest first."""
    own = record.commit
    first = (own.graph_commit_id, own.kind, own.tables, own.merged_parent_commit_id, record.made_on, record.taken_from)
    for commit_id, kind, tables, *sources in (first, *map(_outline, record.recent)):
        validation.check_commit_id(commit_id)
        yield CommitOutline(commit_id, kind, list(tables), *sources)


def _decode_summary(summary: Sequence[Any], *, generation: int) -> tuple[Any, ...]:
    """Return a summary in the current format. Those of format 1 have no merges, so `generation` can be computed."""
    return tuple(summary) if len(summary) == len(_SUMMARY) else (*summary, generation, None, None)


def encode_commit(record: CommitRecord, full_map: Mapping[TableKey, TableEntry] | None = None) -> dict[str, Any]:
    """Return the fields of a commit. A commit that is a base for others also has the full map."""
    commit = record.commit
    fields: dict[str, Any] = {
        "commit": {
            "graph_commit_id": commit.graph_commit_id,
            "manifest_branch": commit.manifest_branch,
            "manifest_version": commit.manifest_version,
            "parent_commit_id": commit.parent_commit_id,
            "merged_parent_commit_id": commit.merged_parent_commit_id,
            "actor_id": commit.actor_id,
            "created_at": commit.created_at,
            "message": commit.message,
            "kind": commit.kind,
            "metadata": dict(commit.metadata),
            "tables": list(commit.tables),
            "generation": commit.generation,
        },
        "base": record.base,
        "changes": {str(key): entry and encode_table(entry) for key, entry in record.changes.items()},
        "recent": list(record.recent),
        "older": record.older,
        # The stored names stay as they are, so that all releases of a format read the same objects.
        "saw": record.main_id,
        "made_on": record.made_on,
        "taken_from": record.taken_from,
    }
    if full_map is not None:
        fields["full_map"] = {str(key): encode_table(entry) for key, entry in full_map.items()}
    return fields


def decode_commit(fields: Mapping[str, Any]) -> CommitRecord:
    changes = {TableKey.parse(key): entry and decode_table(entry) for key, entry in fields["changes"].items()}
    commit = decode_graph_commit(fields["commit"])
    recent = tuple(
        _decode_summary(summary, generation=commit.generation - place)
        for place, summary in enumerate(fields["recent"], start=1)
    )
    record = CommitRecord(
        commit=commit,
        base=fields["base"],
        changes=changes,
        recent=recent,
        older=fields["older"],
        main_id=fields["saw"],
        # Objects of format 1 have only `saw`, the commit of main below a live branch when the commit was made.
        made_on=fields.get("made_on", fields["saw"]),
        taken_from=fields.get("taken_from"),
        collected_at=fields.get("collected_at"),
    )
    return validation.check_record(record)


def decode_full_map(fields: Mapping[str, Any]) -> dict[TableKey, TableEntry]:
    return {TableKey.parse(key): decode_table(entry) for key, entry in fields["full_map"].items()}


def encode_run(run: RunState) -> dict[str, Any]:
    return {
        "target": str(run.target),
        "target_created_as": run.target_created_as,
        "origin": run.origin,
        "phase": run.phase,
        "metadata": dict(run.metadata),
        "saw": run.main_id,
        "published_after": run.published_after,
        "commit_id": run.commit_id,
        "error": run.error,
        **({"outcomes": [asdict(outcome) for outcome in run.outcomes]} if run.outcomes else {}),
    }


def decode_run(fields: Mapping[str, Any]) -> RunState:
    run = RunState(
        target=BranchName(fields["target"]),
        target_created_as=fields["target_created_as"],
        origin=fields["origin"],
        phase=RunPhase(fields["phase"]),
        metadata=fields["metadata"],
        main_id=fields["saw"],
        published_after=fields["published_after"],
        commit_id=fields["commit_id"],
        error=fields["error"],
        outcomes=tuple(
            CheckOutcome(name=one["name"], sql=one["sql"], result=CheckResult(one["result"]), problem=one["problem"])
            for one in fields.get("outcomes", ())
        ),
    )
    return validation.check_run(run)


def decode_parent(fields: Mapping[str, Any] | None) -> Parent | None:
    if fields is None:
        return None
    return Parent(
        branch=fields["branch"] and BranchName(fields["branch"]),
        commit=fields["commit"],
        created_as=fields.get("created_as"),
    )


def decode_names(state: Mapping[str, Any]) -> dict[str, Any]:
    renames, former = state.get("renames", ()), state.get("former_names", ())
    return {
        "renames": tuple(Rename(created_as=old, to=BranchName(to), to_created_as=new) for old, to, new in renames),
        "former_names": tuple(
            FormerName(branch=BranchName(name), created_as=created_as, until=until)
            for name, created_as, until in former
        ),
    }


def encode_entry(entry: LogEntry) -> bytes:
    state, parent = entry.state, entry.state.parent
    # Most branches have none of these fields, and older releases ignore them.
    optional: dict[str, Any] = {
        "checks": [list(check) for check in state.checks],
        "run": state.run and encode_run(state.run),
        "renames": [[rename.created_as, str(rename.to), rename.to_created_as] for rename in state.renames],
        "former_names": [[str(name.branch), name.created_as, name.until] for name in state.former_names],
    }
    since = {} if parent is None or parent.created_as is None else {"created_as": parent.created_as}
    return dump(
        {
            "branch": entry.branch.value,
            "number": entry.number,
            "event": entry.event,
            "at": entry.at,
            "actor": entry.actor,
            **({} if entry.restores is None else {"restores": entry.restores}),
            "state": {
                "mode": state.mode,
                "parent": parent and {"branch": parent.branch and str(parent.branch), "commit": parent.commit, **since},
                "created_at": state.created_at,
                "created_by": state.created_by,
                "created_as": state.created_as,
                "description": state.description,
                "expires_at": state.expires_at,
                "is_deleted": state.is_deleted,
                "is_protected": state.is_protected,
                "own": [str(key) for key in state.own],
                **{name: value for name, value in optional.items() if value},
            },
            "head": encode_commit(entry.head),
        }
    )


def decode_entry(data: bytes, *, path: str) -> LogEntry:
    fields = load(data, path=path)
    with damage_named(path):
        state = fields["state"]
        entry = LogEntry(
            branch=BranchName(fields["branch"]),
            number=fields["number"],
            event=BranchEvent(fields["event"]),
            at=fields["at"],
            actor=fields["actor"],
            state=BranchState(
                mode=BranchMode(state["mode"]),
                parent=decode_parent(state["parent"]),
                created_at=state["created_at"],
                created_by=state["created_by"],
                created_as=state["created_as"],
                description=state["description"],
                expires_at=state["expires_at"],
                is_deleted=state["is_deleted"],
                is_protected=state["is_protected"],
                own=tuple(TableKey.parse(key) for key in state["own"]),
                checks=tuple((name, sql) for name, sql in state.get("checks", ())),
                run=decode_run(state["run"]) if "run" in state else None,
                **decode_names(state),
            ),
            head=decode_commit(fields["head"]),
            restores=fields.get("restores"),
        )
        return validation.check_entry(entry)
