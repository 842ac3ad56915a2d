"""`anabranch log`, `show`, `merge-base`, `reflog`, `undo`, `redo`, `reset`: commits, and the positions of a branch."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from anabranch.cli.command import COMMITS, WRITES, Here, command, group
from anabranch.cli.options import REF_FORMS, Limit, argument, flag, option, parse_duration
from anabranch.cli.output import Answer, Line, document_of
from anabranch.cli.texts import Table, commit_line, count, first_line, first_page, never_changed, subject
from anabranch.display import short_id
from anabranch.errors import InvalidInputError
from anabranch.ids import TableKey
from anabranch.repo.history.commit_graph import newest_first
from anabranch.repo.log.entries import BranchEvent

if TYPE_CHECKING:
    from anabranch.repo.history.lineage import PipelineRecord
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.refs.reset_and_undo import Movement
    from anabranch.repo.snapshot import Snapshot

app = group()


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The options that select commits of a list, and not of a drawing."""

    author: str | None = option("--author", "NAME", "Only commits by this actor: the name in the column 'by'.")
    since: str | None = option(
        "--since",
        "TIME",
        "Only commits since a date, such as 2026-11-15 (from 00:00 UTC), or of the last days or hours, such as 7d or"
        " 12h.",
    )
    after: str | None = option(
        "--after", "REF", "Next page of the list. REF is the last commit that the previous page shows."
    )
    prefix: str | None = option("--prefix", "TEXT", "Only commits with an id that starts with TEXT.")
    table: str | None = option("--table", "TABLE", "Only commits that changed this table.")

    def choose(self, here: Here, ref: str | None) -> "Iterator[GraphCommit]":
        since = _moment(self.since)
        for commit in here.repository.iter_commits(ref, table=self.table, after=self.after, prefix=self.prefix):
            if since is not None and commit.created < since:
                return  # the others are older: the time of a commit is never before that of its parent
            if self.author is None or commit.actor_id == self.author:
                yield commit


@command(app, "log", "log --oneline", "log --graph --svg graph.svg", "log dev --author ada --since 7d")
def log(
    here: Here,
    ref: str | None = argument("REF", REF_FORMS, default=None),
    graph: bool = flag("--graph", "Draw the commit graph: the history of REF, or, without REF, of all branches."),
    oneline: bool = flag("--oneline", "Print each commit in one line."),
    svg: str | None = option("--svg", "FILE", "Write the commit graph to this SVG file."),
    limit: Limit = 20,
    *,
    which: Selection,
) -> Answer:
    """List the commits of a branch, tag or commit, newest first.

    A merge is shown as one commit. --graph also shows the commits of the merged branch.
    """
    if graph or svg is not None:
        return _drawn(here, ref, svg, which, limit=limit)
    commits, has_more, sentences = first_page(which.choose(here, ref), limit, "newest", "commit")
    # Only if nothing was found, because the check may read the whole history.
    if which.table is not None and not commits:
        _require_changes(here, which.table, ref)
    document = {"ref": ref or here.repository.branch, "commits": commits, "has_more": has_more}
    if oneline:
        return Answer(document, *sentences, lines=[Line(commit_line(commit)) for commit in commits])
    rows = [
        (short_id(one.id), one.created, one.actor_id, one.kind, subject(one), ", ".join(one.tables)) for one in commits
    ]
    columns = ("commit", "time (UTC)", "by", "kind", "message", "tables")
    return Answer(document, *sentences, tables=[Table(columns, rows, empty="no commits")])


def _require_changes(here: Here, table: str, ref: str | None) -> None:
    """Refuse a table that does not exist and never did. Other filters may leave out all commits of a table."""
    snapshot = here.snapshot(ref)
    if table not in snapshot and next(iter(here.repository.iter_commits(ref, table=table)), None) is None:
        raise never_changed(table, ref or here.repository.branch, snapshot)


def _moment(text: str | None) -> datetime | None:
    """Parse a time span before now, or a date."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        # A text such as 2026-13-45 is a wrong date, not a wrong time span.
        if not text[:1].isdigit() or "-" in text:
            raise InvalidInputError(
                f"--since {text!r} is not a time", hint="pass a time span such as 7d, or a date such as 2026-11-15"
            ) from None
        return datetime.now(UTC) - parse_duration(text, option="--since")
    # The log shows times in UTC, so a time without a zone is read as UTC too.
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _drawn(here: Here, ref: str | None, svg: str | None, which: Selection, *, limit: int) -> Answer:
    for name, value in vars(which).items():
        if value is not None:
            drawing = "--graph" if svg is None else "--svg"
            raise InvalidInputError(f"{drawing} and --{name} do not go together", hint="leave one out")
    # By name, the commit of each branch and of each tag.
    heads = {branch.name: branch.head_commit_id for branch in here.repository.branch_list()}
    tags = {tag.name: tag.commit_id for tag in here.repository.tag_list()}
    names: dict[str, object] = {"heads": heads, "tags": tags}
    if svg is not None:
        drawn = here.repository.graph(ref, limit=limit)
        here.write_file(svg, drawn.to_svg())
        document = {"ref": ref, "commits": drawn.commits, **names, "has_more": drawn.has_more, "svg": svg}
        return Answer(document, f"drew {count(len(drawn), 'commit')} into {svg}")
    found, has_more, _ = first_page(here.repository.iter_graph(ref), limit, "newest", "commit")
    commits = {commit.id: commit for commit in found}
    nodes = newest_first(commits)
    labels = {commit_id: _label(commit, heads, tags) for commit_id, commit in commits.items()}
    return Answer({"ref": ref, "commits": nodes, **names, "has_more": has_more}, *draw(nodes, labels))


def _label(commit: "GraphCommit", heads: dict[str, str], tags: dict[str, str]) -> str:
    here = [name for name, head in heads.items() if head == commit.id]
    here += [f"tag: {name}" for name, commit_id in tags.items() if commit_id == commit.id]
    names = f"({', '.join(here)})" if here else ""
    return " ".join(part for part in (short_id(commit.id), names, subject(commit)) if part)


def draw(nodes: "Sequence[GraphCommit]", labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a drawing of commits, which are given newest first.

    Each column belongs to a commit that is not drawn yet: the parent of the commit above.
    """
    columns: list[str] = []
    for node in nodes:
        if node.id not in columns:
            columns.append(node.id)
        at = columns.index(node.id)
        # Several children wait for this commit. Their columns join above its line, from the right, so that `at` stays
        # valid. The columns on the right of one that joins move to the left.
        while columns.count(node.id) > 1:
            joining = len(columns) - 1 - columns[::-1].index(node.id)
            joined = "|" + " |" * at + "_|" * (joining - at - 1) + "/ " * (len(columns) - joining)
            yield joined.rstrip()
            del columns[joining]
        yield "| " * at + "* " + "| " * len(columns[at + 1 :]) + labels[node.id]
        if not node.parents:
            del columns[at]
            # The columns on the right of the one that has ended move to the left.
            if columns[at:]:
                yield "| " * at + " /" * len(columns[at:])
            continue
        columns[at] = node.parents[0]
        for merged in node.parents[1:]:
            # A column begins on the right, and the columns behind it move to the right.
            yield "| " * at + "|\\" + " \\" * len(columns[at + 1 :])
            columns.insert(at + 1, merged)


# Enough of the hash of a file to distinguish its versions.
_SHORT_HASH = 12


@command(app, "show", "show", "show main~3")
def show(
    here: Here,
    ref: str | None = argument(
        "REF",
        "A commit id or its beginning, a branch, tag, main~3 or main@v7 (default: the newest commit).",
        default=None,
    ),
) -> Answer:
    """Show a commit and the tables that it changed.

    Shows also the pipeline that made the commit, with its parameters and outputs.
    """
    # Not at the top: a help text needs none of it.
    from anabranch.repo.history.lineage import PipelineRecord

    after = here.snapshot(ref)
    if after.main_commit_id is not None:
        # A live branch shows the present main, but the commit was made on an earlier state of main.
        after = here.repository.snapshot_of(after.id)
    parent = after.commit.parent_commit_id
    changes = _changes(after, None if parent is None else here.repository.snapshot_of(parent))
    made = PipelineRecord.find(after.commit.metadata)
    document = {**document_of(after.commit), "changes": changes}
    if made is not None:
        document["pipeline"] = made
    rows = [tuple(change.values()) for change in changes]
    tables = [
        Table(("", ""), _facts(after.commit, made)),
        Table(("table", "change", "rows before", "rows"), rows, title="changed tables", empty="no tables"),
    ]
    if made is not None and made.outputs:
        outputs = [
            (key, output.write, output.kind, ", ".join(output.inputs) or None, output.rows, output.seconds)
            for key, output in made.outputs.items()
        ]
        tables.append(Table(("table", "write", "by", "from", "rows", "seconds"), outputs, title="pipeline outputs"))
    return Answer(document, tables=tables)


def _changes(after: "Snapshot", before: "Snapshot | None") -> list[dict[str, object]]:
    changes: list[dict[str, object]] = []
    for name in after.commit.tables:
        key = TableKey.parse(name)
        old = None if before is None else before.entries.get(key)
        new = after.entries.get(key)
        kind = "dropped" if new is None else "created" if old is None else "changed"
        rows_before, rows = (None if entry is None else entry.rows for entry in (old, new))
        changes.append({"table": name, "change": kind, "rows_before": rows_before, "rows": rows})
    return changes


def _facts(commit: "GraphCommit", made: "PipelineRecord | None") -> tuple[tuple[str, object], ...]:
    metadata: Mapping[str, object] = commit.metadata
    if made is not None:
        metadata = {key: value for key, value in metadata.items() if key.partition(".")[0] != "pipeline"}
    return (
        ("commit", commit.id),
        ("parent", commit.parent_commit_id),
        *([("merged", commit.merged_parent_commit_id)] if commit.merged_parent_commit_id else []),
        ("branch", f"{commit.branch}@v{commit.manifest_version}"),
        ("by", commit.actor_id),
        ("time (UTC)", commit.created),
        ("kind", commit.kind),
        ("message", commit.message or None),
        *(_iter_pipeline_facts(made) if made is not None else ()),
        *((f"metadata {key}", value) for key, value in metadata.items()),
    )


def _iter_pipeline_facts(made: "PipelineRecord") -> Iterator[tuple[str, object]]:
    yield "pipeline", made.name
    source = " ".join(filter(None, (made.file, made.source_hash and f"({made.source_hash[:_SHORT_HASH]})")))
    if source:
        yield "source", source
    yield from ((f"parameter {name}", _shown(value)) for name, value in made.parameters.items())
    if made.input is not None:
        yield "inputs read at", short_id(made.input)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@command(app, "merge-base", "merge-base main dev", "merge-base main dev --all")
def merge_base(
    here: Here,
    a: str = argument("A", "A branch, tag, commit or main~3."),
    b: str | None = argument("B", "Another ref (default: the current branch).", default=None),
    all_bases: bool = flag("--all", "Show all of them, if there are several: each side was merged into the other."),
) -> Answer:
    """Show the newest common ancestor of two refs."""
    found = here.repository.merge_bases(a, b or here.repository.branch)
    document = {**document_of(found[0]), "all": [commit.id for commit in found]}
    return Answer(document, *map(commit_line, found if all_bases else found[:1]))


Steps = Annotated[int, option("--steps", "N", "Number of changes.", min=1)]
_Branch = Annotated[
    str | None, argument("BRANCH", "Name of a branch. A deleted branch works too (default: the current branch).")
]


@command(app, "reflog", "reflog", "reflog dev --limit 5")
def reflog(here: Here, branch: _Branch = None, limit: Limit = 20) -> Answer:
    """List all changes of a branch, newest first.

    A change is, for example, a commit, a merge, a reset, an undo, or the deletion of the branch. Each change has a
    number. 'anabranch reset dev@v7 --branch dev' returns the branch dev to its state after change 7.
    """
    name = branch or here.repository.branch
    found = here.repository.reflog(name, limit=limit + 1)
    movements, has_more, sentences = first_page(found, limit, "newest", "change")
    rows = [
        (f"{name}@v{one.number}", one.change, one.moved, one.actor, short_id(one.commit_id), first_line(one.message))
        for one in movements
    ]
    document = {"branch": name, "movements": movements, "has_more": has_more}
    shown = Table(("version", "event", "time (UTC)", "by", "commit", "message"), rows)
    former = next((movement.renamed_from for movement in reversed(movements) if movement.renamed_from), None)
    if former is not None:
        sentences.append(f"the branch was called {former} before: 'anabranch reflog {former}' shows more")
    return Answer(document, *sentences, tables=[shown])


@command(app, "undo", "undo", "undo dev", "undo --steps 3", on=WRITES)
def undo(here: Here, branch: _Branch = None, steps: Steps = 1) -> Answer:
    """Undo the last change of a branch.

    The change can be a commit, a merge, a reset, a 'branch pull' or the deletion of the branch. A second undo undoes
    the change before. No data is deleted. 'anabranch redo' restores the change that was undone. 'anabranch reflog'
    lists all changes.
    """
    name = branch or here.repository.branch
    return _repeat(here, here.repository.undo, name, steps, verb="undid", key="undone")


@command(app, "redo", "redo", "redo dev", "redo --steps 3", on=WRITES)
def redo(here: Here, branch: _Branch = None, steps: Steps = 1) -> Answer:
    """Restore the change that was undone last.

    If several changes were undone, each redo restores one change: first the change that was undone last. After a new
    change of the branch, such as a commit, there is nothing to redo. But 'anabranch reset' can still move the branch to
    any state in its reflog.
    """
    name = branch or here.repository.branch
    return _repeat(here, here.repository.redo, name, steps, verb="redid", key="redone")


def _repeat(here: Here, move: "Callable[[str], Movement]", name: str, steps: int, *, verb: str, key: str) -> Answer:
    """Undo or redo several changes, or as many as there are. Raise an error if there is none."""
    movement, done = move(name), 1
    # After the first step an error would be wrong: the branch has moved, and errors mean that nothing changed.
    with suppress(InvalidInputError):
        while done < steps:
            movement, done = move(name), done + 1
    # Read the reflog, which a deleted branch also has: an undo or redo may leave the branch deleted.
    (now,) = here.repository.reflog(name, limit=1)
    document = {
        "branch": name,
        "version": now.number,
        "head_commit_id": None if now.is_deleted else now.commit_id,
        key: movement,
        "steps": done,
    }
    where = f"{name} is deleted" if now.is_deleted else f"{name} is at {short_id(now.commit_id)}"
    message = first_line(movement.message) if movement.event is BranchEvent.COMMITTED else ""
    change = f"{movement.event}: {message}" if message else movement.change
    sentences = [f"{verb} change {movement.number} of {name} ({change}); {where}"]
    if done < steps:
        sentences.append(f"{verb} {done} of {steps} changes: there are no more")
    if movement.event is BranchEvent.PROTECTED:
        is_protected = here.repository.branch_get(name).is_protected
        sentences.append(f"{name} is {'protected again' if is_protected else 'not protected any more'}")
    return Answer(document, *sentences)


@command(app, "reset", "reset main~1", "reset dev@v7 --branch dev", on=COMMITS)
def reset(
    here: Here,
    to: str = argument(
        "REF",
        "New position: a branch, a tag, a commit, or an older state such as main~3, main@v7 or"
        " main@{2026-11-15T10:00:00Z}. 'anabranch help refs' explains these forms.",
    ),
) -> Answer:
    """Move the current branch to another commit. The old position stays in the reflog.

    After a reset, 'anabranch undo' moves the branch back. A live branch can only be moved to one of its own states,
    such as dev@v7.
    """
    before = here.current()
    here.repository.reset(before.name, to=to)
    after = here.repository.branch_get(before.name)
    document = {
        "branch": after.name,
        "head_commit_id": after.head_commit_id,
        "previous_commit_id": before.head_commit_id,
        "version": after.version,
    }
    way = f"from {short_id(before.head_commit_id)} to {short_id(after.head_commit_id)}"
    return Answer(document, f"reset {after.name} {way}; 'anabranch undo {after.name}' restores it")
