"""Encode and decode commits, log entries and table entries as JSON objects (see `storage.documents`).

Decoders check each value: a repository may come from an untrusted source (see `validation`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

from anabranch.errors import CorruptError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import (
    BranchEvent,
    BranchMode,
    BranchState,
    CheckOutcome,
    CheckResult,
    CommitKind,
    CommitRecord,
    FormerName,
    FrozenDict,
    GraphCommit,
    LogEntry,
    Origin,
    Parent,
    Rename,
    RunPhase,
    RunState,
    TableEntry,
)
from anabranch.repo.log.validation import (
    check_commit_id,
    check_dataset,
    check_home,
    check_integer,
    check_metadata,
    check_optional,
    check_tables,
    check_text,
    check_time,
)
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
# The fields of a stored commit. A summary has them, too, except for the parent.
_COMMIT = (*_SUMMARY[:-2], "parent_commit_id")
# The fields of a branch and of a run that are stored under their own names and as they are.
_STATE = ("created_at", "created_as", "created_by", "description", "expires_at", "is_deleted", "is_protected", "mode")
_RUN = ("commit_id", "error", "metadata", "origin", "phase", "published_after", "target_created_as")
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
        hint = "run doctor on the repository"
        raise CorruptError(f"{path!r} contains another object: {found!r} instead of {expected!r}", hint=hint)


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
    """Accept only a dataset below `tables/` of the repository and a home below that dataset."""
    forked = fields.get("forked_from")
    return TableEntry(
        dataset=check_dataset(fields["dataset"]),
        home=check_home(fields.get("home")),
        version=check_integer(int(fields["version"]), "version"),
        head=check_integer(int(fields["head"]), "head"),
        primary_key=tuple(check_text(column, "key column") for column in fields.get("primary_key", ())),
        rows=check_integer(fields["rows"], "rows"),
        forked_from=None if forked is None else (check_home(forked[0]), check_integer(int(forked[1]), "version")),
    )


def _decode_graph_commit(fields: Mapping[str, Any]) -> GraphCommit:
    return GraphCommit(
        graph_commit_id=check_commit_id(fields["graph_commit_id"]),
        manifest_branch=check_home(fields["manifest_branch"]),
        manifest_version=check_integer(fields["manifest_version"], "version"),
        parent_commit_id=check_optional(check_commit_id, fields["parent_commit_id"], "parent"),
        merged_parent_commit_id=check_optional(check_commit_id, fields["merged_parent_commit_id"], "merged parent"),
        actor_id=check_optional(check_text, fields["actor_id"], "actor"),
        created_at=check_time(fields["created_at"], "time"),
        message=check_text(fields["message"], "message"),
        kind=CommitKind(fields["kind"]),
        metadata=FrozenDict(check_metadata(fields["metadata"])),
        tables=check_tables(fields["tables"]),
        generation=check_integer(fields["generation"], "generation"),
    )


def next_page(parent: CommitRecord) -> tuple[tuple[tuple[Any, ...], ...], str | None]:
    """Return the fields `recent` and `older` of a commit on top of `parent`."""
    fields = {name: getattr(parent.commit, name) for name in _COMMIT}
    fields |= {"metadata": dict(parent.commit.metadata), "tables": list(parent.commit.tables)}
    fields |= {"made_on": parent.made_on, "taken_from": parent.taken_from}
    page = (tuple(fields[name] for name in _SUMMARY), *parent.recent)
    weight = 0
    for message, metadata, tables, _, made_on, taken_from in (one[_MESSAGE:] for one in page):
        texts = (message, made_on or "", taken_from or "", *tables, *metadata, *metadata.values())
        # 130 bytes for the fields of about constant size: ids, numbers, the kind and punctuation.
        weight += 130 + sum(map(len, texts))
    if len(page) >= _PAGE or weight > _PAGE_BYTES:
        # The new page starts empty and names the parent, whose own object repeats the page before it.
        return (), parent.commit.graph_commit_id
    return page, parent.older


def iter_origins(record: CommitRecord) -> Iterator[Origin]:
    """Yield the commits before one, back to the start of its page, newest first, with their sources."""
    # A summary omits its parent: that is the next summary, and for the last one the start of the next page.
    parents = (*(summary[0] for summary in record.recent), record.older)[1:]
    for summary, parent in zip(record.recent, parents, strict=True):
        fields = dict(zip(_SUMMARY, summary, strict=True))
        commit = _decode_graph_commit({**fields, "parent_commit_id": parent})
        yield Origin(commit=commit, made_on=fields["made_on"], taken_from=fields["taken_from"])


@dataclass(frozen=True, slots=True)
class CommitOutline:
    """The fields that select a commit in a page of summaries. Only the id is checked."""

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
        yield CommitOutline(check_commit_id(commit_id), kind, list(tables), *sources)


def encode_commit(record: CommitRecord, full_map: Mapping[TableKey, TableEntry] | None = None) -> dict[str, Any]:
    """Return the fields of a commit. A commit that is a base for others also has the full map."""
    fields: dict[str, Any] = {
        "commit": {name: getattr(record.commit, name) for name in _COMMIT},
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
    commit = _decode_graph_commit(fields["commit"])
    # Summaries of format 1 have no merges, so their generation can be computed.
    recent = tuple(
        tuple(summary) if len(summary) == len(_SUMMARY) else (*summary, commit.generation - position, None, None)
        for position, summary in enumerate(fields["recent"], start=1)
    )
    # Objects of format 1 have only `saw`, the commit of main below a live branch when the commit was made.
    made_on = fields.get("made_on", fields["saw"])
    return CommitRecord(
        commit=commit,
        base=check_commit_id(fields["base"], "base commit"),
        changes=changes,
        recent=recent,
        older=check_optional(check_commit_id, fields["older"], "older commit"),
        main_id=check_optional(check_commit_id, fields["saw"], "commit of main"),
        made_on=check_optional(check_commit_id, made_on, "commit below"),
        taken_from=check_optional(check_commit_id, fields.get("taken_from"), "source commit"),
        collected_at=check_optional(check_time, fields.get("collected_at"), "time of collection"),
    )


def decode_full_map(fields: Mapping[str, Any]) -> dict[TableKey, TableEntry]:
    return {TableKey.parse(key): decode_table(entry) for key, entry in fields["full_map"].items()}


def _encode_run(run: RunState) -> dict[str, Any]:
    fields = {name: getattr(run, name) for name in _RUN}
    fields |= {"target": str(run.target), "saw": run.main_id}
    return fields | ({"outcomes": [asdict(outcome) for outcome in run.outcomes]} if run.outcomes else {})


def _decode_run(fields: Mapping[str, Any]) -> RunState:
    return RunState(
        target=BranchName.parse(fields["target"]),
        target_created_as=check_integer(fields["target_created_as"], "log entry"),
        origin=check_commit_id(fields["origin"], "origin"),
        phase=RunPhase(fields["phase"]),
        metadata=check_metadata(fields["metadata"]),
        main_id=check_optional(check_commit_id, fields["saw"], "commit of main"),
        published_after=check_optional(check_integer, fields["published_after"], "version"),
        commit_id=check_optional(check_commit_id, fields["commit_id"], "commit id"),
        error=check_optional(check_text, fields["error"], "error"),
        outcomes=tuple(
            CheckOutcome(
                name=check_text(one["name"], "check"),
                sql=check_text(one["sql"], "check"),
                result=CheckResult(one["result"]),
                problem=check_text(one["problem"], "check"),
            )
            for one in fields.get("outcomes", ())
        ),
    )


def _encode_parent(parent: Parent) -> dict[str, Any]:
    created_as = {} if parent.created_as is None else {"created_as": parent.created_as}
    return {"branch": parent.branch and str(parent.branch), "commit": parent.commit, **created_as}


def _decode_parent(fields: Mapping[str, Any]) -> Parent:
    return Parent(
        branch=None if fields["branch"] is None else BranchName.parse(fields["branch"]),
        commit=check_commit_id(fields["commit"]),
        created_as=check_optional(check_integer, fields.get("created_as"), "log entry"),
    )


def _decode_rename(created_as: Any, to: Any, to_created_as: Any) -> Rename:
    return Rename(
        created_as=check_integer(created_as, "log entry"),
        to=BranchName.parse(to),
        to_created_as=check_integer(to_created_as, "log entry"),
    )


def _decode_former_name(name: Any, created_as: Any, until: Any) -> FormerName:
    return FormerName(
        branch=BranchName.parse(name),
        created_as=check_integer(created_as, "log entry"),
        until=check_integer(until, "log entry"),
    )


def _decode_state(fields: Mapping[str, Any]) -> BranchState:
    return BranchState(
        mode=BranchMode(fields["mode"]),
        parent=None if fields["parent"] is None else _decode_parent(fields["parent"]),
        created_at=check_time(fields["created_at"], "time"),
        created_by=check_optional(check_text, fields["created_by"], "actor"),
        created_as=check_integer(fields["created_as"], "log entry"),
        description=check_text(fields["description"], "description"),
        expires_at=check_optional(check_time, fields["expires_at"], "time of expiry"),
        is_deleted=fields["is_deleted"],
        is_protected=fields["is_protected"],
        own=tuple(TableKey.parse(key) for key in fields["own"]),
        checks=tuple((check_text(name, "check"), check_text(sql, "check")) for name, sql in fields.get("checks", ())),
        run=_decode_run(fields["run"]) if "run" in fields else None,
        renames=tuple(_decode_rename(*each) for each in fields.get("renames", ())),
        former_names=tuple(_decode_former_name(*each) for each in fields.get("former_names", ())),
    )


def encode_entry(entry: LogEntry) -> bytes:
    state = entry.state
    # Most branches have none of these fields, and older releases ignore them.
    optional: dict[str, Any] = {
        "checks": state.checks,
        "run": state.run and _encode_run(state.run),
        "renames": [[rename.created_as, str(rename.to), rename.to_created_as] for rename in state.renames],
        "former_names": [[str(name.branch), name.created_as, name.until] for name in state.former_names],
    }
    return dump(
        {
            "branch": entry.branch.value,
            "number": entry.number,
            "event": entry.event,
            "at": entry.at,
            "actor": entry.actor,
            **({} if entry.restores is None else {"restores": entry.restores}),
            "state": {
                **{name: getattr(state, name) for name in _STATE},
                "parent": state.parent and _encode_parent(state.parent),
                "own": list(map(str, state.own)),
                **{name: value for name, value in optional.items() if value},
            },
            "head": encode_commit(entry.head),
        }
    )


def decode_entry(data: bytes, *, path: str) -> LogEntry:
    fields = load(data, path=path)
    with damage_named(path):
        number = check_integer(fields["number"], "number")
        restores = fields.get("restores")
        if restores is not None:
            check_integer(restores, "restored entry", most=max(number - 1, 0))
        return LogEntry(
            branch=BranchName.parse(fields["branch"]),
            number=number,
            event=BranchEvent(fields["event"]),
            at=check_time(fields["at"], "time"),
            actor=check_optional(check_text, fields["actor"], "actor"),
            state=_decode_state(fields["state"]),
            head=decode_commit(fields["head"]),
            restores=restores,
        )
