"""`anabranch dataset branch`: the branches of one dataset."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    AsJson,
    DatasetSource,
    DryRun,
    StorageOptions,
    Uri,
    example,
    open_dataset,
    parse_pairs,
    parse_ref,
)
from anabranch.cli.dataset_refs import (
    ReplaceMetadata,
    SetMetadata,
    UnsetMetadata,
    list_refs,
    report_unreadable,
    show_metadata,
    unreadable_document,
)
from anabranch.cli.output import Answer, Table, count, human_size, output_for
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.format.refs.branches import BranchInfo

__all__ = ["app", "branch_document", "branch_table"]

app = typer.Typer(help="List, create, describe and delete the branches of a dataset.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The branch's name.", show_default=False)]


@app.command("create", epilog=example("dataset branch create lake/orders.lance dev --from v1.0"))
def create(
    uri: Uri, name: Name, source: DatasetSource = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Create a branch.

    It starts at a version, a tag or another branch. No data is copied.
    """
    branch = open_dataset(uri, storage_option).branch_create(name, parse_ref(source))
    start = f"version {branch.parent_version} of {branch.parent_branch or MAIN}"
    output_for(as_json=as_json).show(
        Answer(document=branch_document(branch), sentences=[f"created branch {name} from {start}"])
    )


@app.command("list", epilog=example("dataset branch list lake/orders.lance"))
def list_(uri: Uri, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """List the branches and where each began.

    A branch whose metadata cannot be read is named on stderr, with --json under "unreadable".
    """
    branches = list_refs(open_dataset(uri, storage_option).branch_list)
    document = {
        "branches": [branch_document(branch) for branch in branches],
        "unreadable": unreadable_document(branches),
    }
    report_unreadable(branches, as_json=as_json)
    output_for(as_json=as_json).show(Answer(document=document, tables=[branch_table(branches)]))


@app.command("show", epilog=example("dataset branch show lake/orders.lance dev"))
def show(uri: Uri, name: Name, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Show a branch: where it began, its newest version and its rows."""
    dataset = open_dataset(uri, storage_option)
    branch = dataset.branch_get(name)
    head = dataset.branch_checkout(name)
    now = {"version": head.version, "rows": head.count_rows()}
    rows = (
        ("branch", name),
        ("parent", f"{branch.parent_branch or MAIN} at version {branch.parent_version}"),
        ("created", branch.created_at),
        ("newest version", now["version"]),
        ("rows", now["rows"]),
        *((f"metadata {key}", value) for key, value in branch.metadata.items()),
    )
    document = {**branch_document(branch), **now}
    output_for(as_json=as_json).show(Answer(document=document, tables=[Table(columns=("", ""), rows=rows)]))


@app.command("delete", epilog=example("dataset branch delete lake/orders.lance dev --dry-run"))
def delete(
    uri: Uri, name: Name, dry_run: DryRun = False, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Delete a branch and its files.

    Refused while another branch, a tag or a clone needs it.
    """
    done = open_dataset(uri, storage_option).branch_delete(name, dry_run=dry_run)
    document = {"deleted": name, "files": done.files, "bytes": done.bytes, "dry_run": done.dry_run}
    files = f"{count(done.files, 'file')}, {human_size(done.bytes)}"
    sentence = f"would delete branch {name} ({files})" if dry_run else f"deleted branch {name}"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))


@app.command("metadata", epilog=example("dataset branch metadata lake/orders.lance dev --set owner=ada"))
def metadata(
    uri: Uri,
    name: Name,
    set_: SetMetadata = None,
    unset: UnsetMetadata = None,
    replace: ReplaceMetadata = False,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the metadata of a branch, or change it."""
    dataset = open_dataset(uri, storage_option)
    branch = dataset.branch_get(name)
    if set_ or unset or replace:
        pairs = parse_pairs(set_, option="--set")
        branch = dataset.branch_set_metadata(name, pairs, unset=unset or (), replace=replace)
    show_metadata("branch", name, branch.metadata, as_json=as_json)


def branch_document(branch: "BranchInfo") -> dict[str, object]:
    return {
        "name": branch.name,
        "parent_branch": branch.parent_branch or MAIN,
        "parent_version": branch.parent_version,
        "created_at": branch.created_at,
        "manifest_size": branch.manifest_size,
        "metadata": branch.metadata,
    }


def branch_table(branches: Sequence["BranchInfo"], *, title: str | None = None) -> Table:
    rows = tuple(
        (
            branch.name,
            f"{branch.parent_branch or MAIN}@v{branch.parent_version}",
            branch.created_at,
            human_size(branch.manifest_size),
        )
        for branch in branches
    )
    columns = ("branch", "from", "created (UTC)", "first manifest")
    return Table(title=title, columns=columns, rows=rows, empty="no branches besides main")
