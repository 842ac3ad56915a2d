"""`anabranch dataset clone`: datasets that began as a version of another."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import AsJson, DatasetRef, DryRun, StorageOptions, Uri, example, open_dataset, parse_ref
from anabranch.cli.output import Answer, Table, count, human_size, output_for
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.format.clone.clone import CloneInfo

__all__ = ["app"]

app = typer.Typer(help="Clone a dataset; list its shallow clones, drop or release one.")

Target = Annotated[str, typer.Argument(metavar="TARGET", help="Where the clone is or goes.", show_default=False)]


@app.command("create", epilog=example("dataset clone create lake/orders.lance scratch/orders.lance --ref v1.0"))
def create(
    uri: Uri,
    target: Target,
    ref: DatasetRef = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Copy the files too, so that it needs the source no more.")
    ] = False,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Make a new dataset from one version.

    A shallow clone reads the source's files where they are and writes its own; the source keeps what it needs.
    """
    output = output_for(as_json=as_json)
    dataset, wanted = open_dataset(uri, storage_option), parse_ref(ref)
    with output.progress("cloning"):
        clone = dataset.deep_clone(target, wanted) if deep else dataset.shallow_clone(target, wanted)
    kind = "deep" if deep else "shallow"
    start = f"version {clone.source_version} of {clone.branch or MAIN}"
    output.show(
        Answer(
            document={"kind": kind, **_document(clone)}, sentences=[f"made a {kind} clone of {start} at {clone.uri}"]
        )
    )


@app.command("list", epilog=example("dataset clone list lake/orders.lance"))
def list_(uri: Uri, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """List the shallow clones of a dataset."""
    clones = open_dataset(uri, storage_option).clone_list()
    rows = tuple(
        (clone.uri, f"{clone.branch or MAIN}@v{clone.source_version}", clone.tag, clone.created_at, clone.exists)
        for clone in clones
    )
    table = Table(columns=("clone", "of", "held by", "created (UTC)", "exists"), rows=rows, empty="no shallow clones")
    output_for(as_json=as_json).show(
        Answer(document={"clones": [_document(clone) for clone in clones]}, tables=[table])
    )


@app.command("drop", epilog=example("dataset clone drop lake/orders.lance scratch/orders.lance"))
def drop(
    uri: Uri, target: Target, dry_run: DryRun = False, storage_option: StorageOptions = None, as_json: AsJson = False
) -> None:
    """Delete a shallow clone.

    The source may then clean up what only the clone needed.
    """
    done = open_dataset(uri, storage_option).clone_drop(target, dry_run=dry_run)
    document = {
        "dropped": target,
        "tags": done.tags,
        "files": done.files,
        "bytes": done.bytes,
        "dry_run": done.dry_run,
    }
    files = f"{count(done.files, 'file')}, {human_size(done.bytes)}"
    sentence = f"would drop clone {target} ({files})" if dry_run else f"dropped clone {target}"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))


@app.command("release", epilog=example("dataset clone release lake/orders.lance clone-1f0c9a7be24d3856"))
def release(
    uri: Uri,
    tag: Annotated[
        str, typer.Argument(metavar="TAG", help="What holds the version, as 'list' shows it.", show_default=False)
    ],
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Stop keeping what a clone needs.

    The clone itself is left alone: for one that is gone, or that a crash left half made.
    """
    open_dataset(uri, storage_option).clone_release(tag)
    output_for(as_json=as_json).show(Answer(document={"released": tag}, sentences=[f"released {tag}"]))


def _document(clone: "CloneInfo") -> dict[str, object]:
    return {
        "uri": clone.uri,
        "source_branch": clone.branch or MAIN,
        "source_version": clone.source_version,
        "tag": clone.tag,
        "created_at": clone.created_at,
        "exists": clone.exists,
    }
