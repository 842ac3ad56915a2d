"""`anabranch dataset versions|restore|compact`: the versions of one branch of a dataset."""

from typing import Annotated

import typer

from anabranch.cli.arguments import AsJson, Branch, StorageOptions, Uri, example, open_dataset
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.ids import MAIN

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    app.command("versions", epilog=example("dataset versions lake/orders.lance --branch dev"))(versions)
    app.command("restore", epilog=example("dataset restore lake/orders.lance 7"))(restore)
    app.command("compact", epilog=example("dataset compact lake/orders.lance"))(compact)


def versions(uri: Uri, branch: Branch = MAIN, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """List the versions of a branch, with the tags and branches that hold them."""
    found = open_dataset(uri, storage_option, branch=branch).versions()
    rows = tuple(
        (one.version, one.created_at, ", ".join(one.tags) or None, ", ".join(one.branches) or None) for one in found
    )
    document = {
        "branch": branch,
        "versions": [
            {"version": one.version, "created_at": one.created_at, "tags": one.tags, "branches": one.branches}
            for one in found
        ],
    }
    table = Table(columns=("version", "created (UTC)", "tags", "branches from it"), rows=rows)
    output_for(as_json=as_json).show(Answer(document=document, tables=[table]))


def restore(
    uri: Uri,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="The version.", show_default=False)],
    branch: Branch = MAIN,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Make an older version the newest again.

    It becomes a new version; later versions stay in the history. Refused for a table of a repository.
    """
    made = open_dataset(uri, storage_option, branch=branch).restore(version)
    document = {"branch": branch, "restored": version, "version": made}
    sentence = f"restored version {version} of {branch} as version {made}"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))


def compact(uri: Uri, branch: Branch = MAIN, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Merge small fragments into larger ones, and drop deleted rows.

    Each fragment stays in its base. The files of older versions stay until a cleanup.
    """
    output = output_for(as_json=as_json)
    dataset = open_dataset(uri, storage_option, branch=branch)
    with output.progress("compacting"):
        done = dataset.compact()
    document = {
        "branch": branch,
        "version": done.version,
        "fragments_removed": done.fragments_removed,
        "fragments_added": done.fragments_added,
    }
    merged = f"merged {count(done.fragments_removed, 'fragment')} into {done.fragments_added}"
    sentence = f"{merged if done.fragments_removed else 'nothing to merge'}; {branch} is at version {done.version}"
    output.show(Answer(document=document, sentences=[sentence]))
