"""`anabranch branch`: the branches of a repository."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    REF_FORMS,
    Actor,
    AfterName,
    AsJson,
    MaxListed,
    NamePrefix,
    Repo,
    StorageOptions,
    TableName,
    example,
    parse_duration,
)
from anabranch.cli.commits import mode_text, short_id
from anabranch.cli.groups import ListGroup
from anabranch.cli.merging import CheckFiles, read_checks
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import Session, open_session
from anabranch.errors import InvalidInputError
from anabranch.ids import MAIN
from anabranch.repo.log.entries import BranchMode

if TYPE_CHECKING:
    from anabranch.repo.refs.branches import BranchInfo

__all__ = ["app", "create_branch"]


class _Branches(ListGroup):
    otherwise = "anabranch branch create"


app = typer.Typer(cls=_Branches, help="List, create, show, delete, restore and protect branches.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The branch's name.", show_default=False)]


@app.command("create", epilog=example("branch create dev", "branch create fix --from main~3 --expires-in 30d"))
def create(
    name: Name,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="REF", show_default=False, help=f"{REF_FORMS} A live branch follows main."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="See main as it is at any time, but for the tables written on the branch.")
    ] = False,
    expires_in: Annotated[
        str | None,
        typer.Option(
            "--expires-in",
            metavar="TIME",
            show_default=False,
            help="Time after which gc may delete the branch, such as 30d or 12h.",
        ),
    ] = None,
    description: Annotated[
        str, typer.Option("--description", metavar="TEXT", show_default=False, help="What it is for.")
    ] = "",
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Create a branch.

    No table is touched and no data is copied. It sees its source as of now, or, if it is live, main as it is at any
    time. It does not become the current branch: switch to it.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    lifetime = parse_duration(expires_in, option="--expires-in")
    branch = create_branch(here, name, source=source, live=live, description=description, expires_in=lifetime)
    if live:
        sentence = f"created live branch {branch.name}, which follows main, now at {short_id(branch.head_commit_id)}"
    else:
        sentence = f"created branch {branch.name} at {_origin(branch)}"
    output_for(as_json=as_json).show(Answer(document=_document(branch), sentences=[sentence]))


@app.command("list", epilog=example("branch list", "branch list --prefix team/ --limit 50 --json"))
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="List hidden branches too.")] = False,
    prefix: NamePrefix = None,
    after: AfterName = None,
    limit: MaxListed = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the branches; a star marks the current one."""
    here = open_session(repo=repo, storage_options=storage_option)
    branches = here.repository.branch_list(internal=internal, prefix=prefix, after=after, limit=limit)
    rows = tuple(
        (
            "*" if branch.name == here.repository.branch else "",
            branch.name,
            mode_text(branch),
            short_id(branch.head_commit_id),
            branch.parent,
            branch.created,
            branch.created_by,
            branch.description,
        )
        for branch in branches
    )
    columns = ("", "branch", "mode", "head", "from", "created (UTC)", "by", "description")
    document = {"current": here.repository.branch, "branches": [_document(branch) for branch in branches]}
    output_for(as_json=as_json).show(Answer(document=document, tables=[Table(columns=columns, rows=rows)]))


@app.command("show", epilog=example("branch show dev"))
def show(name: Name, repo: Repo = None, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Show a branch: where it began, its head and its tables."""
    here = open_session(repo=repo, storage_options=storage_option, branch=name)
    branch, snapshot = here.repository.branch_get(name), here.repository.snapshot()
    count_of_rows = sum(entry.rows for entry in snapshot.entries.values())
    rows = (
        ("branch", branch.name),
        ("description", branch.description or None),
        ("mode", mode_text(branch)),
        ("from", _origin(branch)),
        ("created (UTC)", branch.created),
        ("by", branch.created_by),
        ("expires (UTC)", branch.expires),
        ("head", short_id(branch.head_commit_id)),
        ("protection", _protection(branch)),
        ("version", branch.version),
        ("tables", f"{count(len(snapshot), 'table')}, {count(count_of_rows, 'row')}"),
    )
    document = {**_document(branch), "tables": len(snapshot), "rows": count_of_rows}
    output_for(as_json=as_json).show(Answer(document=document, tables=[Table(columns=("", ""), rows=rows)]))


@app.command("delete", epilog=example("branch delete dev", "branch delete dev --purge"))
def delete(
    name: Name,
    purge: Annotated[
        bool, typer.Option("--purge", help="Free its space at once. A purged branch cannot be restored.")
    ] = False,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Delete a branch.

    Refused while another branch was made from it. It can be restored until garbage is collected, unless it is purged.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    here.repository.branch_delete(name, purge=purge)
    undo = "its space is free" if purge else f"'anabranch branch restore {name}' brings it back"
    sentences = [f"deleted branch {name}; {undo}"]
    if name == here.repository.branch:
        sentences.append("note: it was the current branch; choose another with 'anabranch switch BRANCH'")
    output_for(as_json=as_json).show(Answer(document={"deleted": name}, sentences=sentences))


@app.command("restore", epilog=example("branch restore dev"))
def restore(
    name: Name, repo: Repo = None, actor: Actor = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Bring a deleted branch back as it was."""
    branch = open_session(repo=repo, storage_options=storage_option, actor=actor).repository.branch_restore(name)
    sentence = f"restored branch {branch.name} at {short_id(branch.head_commit_id)}"
    output_for(as_json=as_json).show(Answer(document=_document(branch), sentences=[sentence]))


@app.command("pull", epilog=example("branch pull dev in_c_sales.orders"))
def pull(
    name: Name,
    key: TableName,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Let a table of a branch be as its source has it.

    A live branch gives up its own copy and follows main again. A pinned one takes the table as the branch it was made
    from has it now. What the branch had stays in its history.
    """
    repository = open_session(repo=repo, storage_options=storage_option, actor=actor).repository
    has_moved = repository.branch_pull(name, key)
    branch = repository.branch_get(name)
    sentence = f"{key} on {name} {_pulled(branch)}" if has_moved else f"{key} on {name} has nothing to pull"
    document = {"branch": name, "table": key, "pulled": has_moved, "head_commit_id": branch.head_commit_id}
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))


@app.command("freeze", epilog=example("branch freeze dev"))
def freeze(
    name: Name, repo: Repo = None, actor: Actor = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Make a live branch pinned: from now on it shows what it shows now."""
    branch = open_session(repo=repo, storage_options=storage_option, actor=actor).repository.branch_freeze(name)
    sentence = f"froze branch {branch.name} at {short_id(branch.head_commit_id)}"
    output_for(as_json=as_json).show(Answer(document=_document(branch), sentences=[sentence]))


@app.command("protect", epilog=example("branch protect main --check totals.sql", "branch protect main --off"))
def protect(
    name: Name,
    check: CheckFiles = None,
    off: Annotated[bool, typer.Option("--off", help="Lift the protection, and forget its checks.")] = False,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Let a branch move by merges only, by those that pass its checks, until the protection is lifted.

    The checks are stored with the branch and run before every merge into it. Protecting it again replaces them.
    """
    if off and check:
        raise InvalidInputError("--off forgets the checks, and --check gives some", hint="leave one of them out")
    checks = read_checks(check)
    repository = open_session(repo=repo, storage_options=storage_option, actor=actor).repository
    branch = repository.branch_unprotect(name) if off else repository.branch_protect(name, checks=checks)
    output_for(as_json=as_json).show(
        Answer(document=_document(branch), sentences=[f"branch {branch.name} is {_protection(branch)}"])
    )


@app.command("drift", epilog=example("branch drift dev"))
def drift(name: Name, repo: Repo = None, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Compare the tables changed on a branch with the current state of main."""
    found = open_session(repo=repo, storage_options=storage_option).repository.branch_drift(name)
    rows = tuple((one.table, one.has_drifted, one.branch_rows, one.main_rows) for one in found)
    shown = Table(
        columns=("table", "changed on main", f"rows on {name}", "rows on main"),
        rows=rows,
        empty=f"branch {name} has no table of its own",
    )
    document = {
        "branch": name,
        "tables": [
            {
                "table": one.table,
                "has_drifted": one.has_drifted,
                "branch_rows": one.branch_rows,
                "main_rows": one.main_rows,
                "forked_version": _text(one.forked_version),
                "main_version": _text(one.main_version),
            }
            for one in found
        ],
    }
    output_for(as_json=as_json).show(Answer(document=document, tables=[shown]))


def create_branch(
    here: Session,
    name: str,
    *,
    source: str | None,
    live: bool,
    description: str = "",
    expires_in: timedelta | None = None,
) -> "BranchInfo":
    """Create a branch from a ref, by default from the current branch. A live branch follows main."""
    return here.repository.branch_create(
        name,
        source or (MAIN if live else here.current().name),
        mode=BranchMode.LIVE if live else BranchMode.PINNED,
        description=description,
        expires_in=expires_in,
    )


def _protection(branch: "BranchInfo") -> str:
    checks = f", with {count(len(branch.checks), 'check')}" if branch.checks else ""
    return f"protected{checks}" if branch.is_protected else "not protected"


def _pulled(branch: "BranchInfo") -> str:
    return "follows main again" if branch.mode is BranchMode.LIVE else f"is as on {branch.parent} now"


def _text(version: int | None) -> str | None:
    return None if version is None else str(version)


def _document(branch: "BranchInfo") -> dict[str, object]:
    return {
        "name": branch.name,
        "mode": branch.mode,
        "parent": branch.parent,
        "parent_commit_id": branch.parent_commit_id,
        "head_commit_id": branch.head_commit_id,
        "version": branch.version,
        "created_at": branch.created,
        "created_by": branch.created_by,
        "description": branch.description,
        "expires_at": branch.expires,
        "own_tables": branch.own_tables,
        "is_protected": branch.is_protected,
        "checks": [{"name": name, "sql": sql} for name, sql in branch.checks],
    }


def _origin(branch: "BranchInfo") -> str | None:
    if branch.parent_commit_id is None:
        return None
    commit = short_id(branch.parent_commit_id)
    return commit if branch.parent is None else f"{commit} of {branch.parent}"
