"""`anabranch status`: where this folder is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.cli.arguments import AsJson, BranchOption, Repo, StorageOptions
from anabranch.cli.commits import commit_document, mode_text, short_id, subject
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.refs.branches import BranchInfo
    from anabranch.repo.snapshot import Snapshot
    from anabranch.repo.write.settle import ExternalWrite

__all__ = ["status"]


def status(
    branch: BranchOption = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the current repository, branch and commit.

    Tables with external writes are listed too, if this branch has written to them.
    """
    here = open_session(repo=repo, storage_options=storage_option, branch=branch)
    current, snapshot = here.current(), here.snapshot(None)
    external = here.repository.list_external_writes()
    document = {
        "repository": here.repository.uri,
        "branch": here.repository.branch,
        "branch_source": here.settings.branch_source,
        "mode": current.mode,
        "own_tables": current.own_tables,
        "version": snapshot.version,
        "head": commit_document(snapshot.commit),
        "tables": len(snapshot),
        "rows": sum(entry.rows for entry in snapshot.entries.values()),
        "external_writes": [{"table": one.table, "home": one.home, "problem": one.problem} for one in external],
    }
    tables = [Table(columns=("", ""), rows=_facts(current, snapshot, uri=here.repository.uri))]
    if external:
        tables.append(_external_writes_table(external))
    output_for(as_json=as_json).show(Answer(document=document, tables=tables))


def _facts(current: "BranchInfo", snapshot: "Snapshot", *, uri: str) -> tuple[tuple[str, object], ...]:
    commit = snapshot.commit
    rows = sum(entry.rows for entry in snapshot.entries.values())
    return (
        ("repository", uri),
        ("branch", current.name),
        ("mode", mode_text(current)),
        ("head", f"{short_id(snapshot.id)} {subject(commit)}".rstrip()),
        ("committed (UTC)", commit.created),
        ("by", commit.actor_id),
        ("tables", f"{count(len(snapshot), 'table')}, {count(rows, 'row')}"),
    )


def _external_writes_table(external: "Sequence[ExternalWrite]") -> Table:
    return Table(
        title="written to by another tool; 'table adopt TABLE' takes it in, 'table settle TABLE --force' sets it aside",
        columns=("table", "what happened"),
        rows=tuple((one.table, one.problem) for one in external),
    )
