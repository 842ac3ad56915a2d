"""`anabranch branch`: the branches of a repository."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions, example
from anabranch.cli.commits import moment, short_id
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.branches import BranchInfo

__all__ = ["app"]

app = typer.Typer(help="Create, list, show, delete and restore branches.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The branch's name.", show_default=False)]


@app.command("create", epilog=example("branch create dev", "branch create fix --from main~3 --description 'Repair'"))
def create(
    name: Name,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="REF",
            show_default=False,
            help="A branch, a commit, main~3, main@v7 or main@{2026-11-15T10:00:00Z}; by default the current branch.",
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

    No table is touched and no data is copied. It does not become the current branch: switch to it.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    if source is None:
        with here.on_current_branch():
            branch = here.repository.branch_create(name, description=description)
    else:
        branch = here.repository.branch_create_from(source, name, description=description)
    output_for(as_json=as_json).show(
        Answer(document=_document(branch), sentences=[f"created branch {branch.name} at {_origin(branch)}"])
    )


@app.command("list", epilog=example("branch list", "branch list --json"))
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="List hidden branches too.")] = False,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the branches; a star marks the current one."""
    here = open_session(repo=repo, storage_options=storage_option)
    branches = here.repository.branch_list(internal=internal)
    rows = tuple(
        (
            "*" if branch.name == here.repository.branch else "",
            branch.name,
            short_id(branch.head_commit_id),
            branch.parent,
            moment(branch.created_at),
            branch.created_by,
            branch.description,
        )
        for branch in branches
    )
    columns = ("", "branch", "head", "from", "created (UTC)", "by", "description")
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
        ("mode", branch.mode.value),
        ("from", _origin(branch)),
        ("created (UTC)", moment(branch.created_at)),
        ("by", branch.created_by),
        ("head", short_id(branch.head_commit_id)),
        ("version", branch.version),
        ("tables", f"{count(len(snapshot), 'table')}, {count(count_of_rows, 'row')}"),
    )
    document = {**_document(branch), "tables": len(snapshot), "rows": count_of_rows}
    output_for(as_json=as_json).show(Answer(document=document, tables=[Table(columns=("", ""), rows=rows)]))


@app.command("delete", epilog=example("branch delete dev"))
def delete(
    name: Name, repo: Repo = None, actor: Actor = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Delete a branch.

    Refused while another branch was made from it. It can be restored until garbage is collected.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    here.repository.branch_delete(name)
    sentences = [f"deleted branch {name}; 'anabranch branch restore {name}' brings it back"]
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


def _document(branch: "BranchInfo") -> dict[str, object]:
    return {
        "name": branch.name,
        "mode": branch.mode,
        "parent": branch.parent,
        "parent_commit_id": branch.parent_commit_id,
        "head_commit_id": branch.head_commit_id,
        "version": branch.version,
        "created_at": moment(branch.created_at),
        "created_by": branch.created_by,
        "description": branch.description,
        "expires_at": None if branch.expires_at is None else moment(branch.expires_at),
    }


def _origin(branch: "BranchInfo") -> str | None:
    if branch.parent_commit_id is None:
        return None
    commit = short_id(branch.parent_commit_id)
    return commit if branch.parent is None else f"{commit} of {branch.parent}"
