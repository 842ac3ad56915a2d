"""`anabranch dataset clone`: datasets that began as a version of another one."""

from typing import Annotated

from anabranch.cli.command import DATASET, Here, command, group
from anabranch.cli.documents import document_of
from anabranch.cli.options import DatasetRef, DryRun, Uri, argument, flag, parse_ref
from anabranch.cli.output import Answer, count
from anabranch.cli.tables import Table
from anabranch.display import human_size
from anabranch.ids import MAIN

app = group()
clones = group(help="Clone a dataset, and list, drop or release its shallow clones.")
app.add_typer(clones, name="clone")

Target = Annotated[str, argument("TARGET", "Location of the clone.")]


@command(clones, "create", "dataset clone create lake/orders.lance scratch/orders.lance --ref v1.0", on=DATASET)
def create(
    here: Here,
    uri: Uri,
    target: Target,
    ref: DatasetRef = None,
    deep: Annotated[bool, flag("--deep", "Copy all files. The clone does not need the source.")] = False,
) -> Answer:
    """Create a dataset from one version of another.

    A shallow clone copies no data: it reads the files of the source and writes its own. The source keeps the files that
    the clone needs.
    """
    dataset, wanted = here.dataset(uri), parse_ref(ref)
    with here.output.progress("cloning"):
        clone = dataset.deep_clone(target, wanted) if deep else dataset.shallow_clone(target, wanted)
    kind = "deep" if deep else "shallow"
    start = f"version {clone.source_version} of {clone.branch or MAIN}"
    return Answer({"kind": kind, **document_of(clone)}, f"made a {kind} clone of {start} at {clone.uri}")


@command(clones, "list", "dataset clone list lake/orders.lance", on=DATASET)
def list_(here: Here, uri: Uri) -> Answer:
    """List the shallow clones of a dataset."""
    found = here.dataset(uri).clone_list()
    rows = [
        (clone.uri, f"{clone.branch or MAIN}@v{clone.source_version}", clone.tag, clone.created_at, clone.exists)
        for clone in found
    ]
    table = Table(("clone", "of", "held by", "created (UTC)", "exists"), rows, empty="no shallow clones")
    return Answer({"clones": found}, tables=[table])


@command(clones, "drop", "dataset clone drop lake/orders.lance scratch/orders.lance", on=DATASET)
def drop(here: Here, uri: Uri, target: Target, dry_run: DryRun = False) -> Answer:
    """Delete a shallow clone.

    A cleanup of the source may then remove files that only the clone needed.
    """
    done = here.dataset(uri).clone_drop(target, dry_run=dry_run)
    document = {
        "dropped": target,
        "tags": done.tags,
        "files": done.files,
        "bytes": done.bytes,
        "dry_run": done.dry_run,
    }
    files = f"{count(done.files, 'file')}, {human_size(done.bytes)}"
    return Answer(document, f"would drop clone {target} ({files})" if dry_run else f"dropped clone {target}")


@command(clones, "release", "dataset clone release lake/orders.lance clone-1f0c9a7be24d3856", on=DATASET)
def release(
    here: Here,
    uri: Uri,
    tag: Annotated[str, argument("TAG", "Tag that keeps the version; see 'anabranch dataset clone list'.")],
) -> Answer:
    """Stop keeping files for a clone.

    Use it for a clone that was deleted or never completed. The clone itself is not changed.
    """
    here.dataset(uri).clone_release(tag)
    return Answer({"released": tag}, f"released {tag}")
