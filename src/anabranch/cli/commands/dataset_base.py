"""`anabranch dataset base`: the other locations that hold files of one dataset."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import AsJson, Branch, DryRun, StorageOptions, Uri, example, open_dataset
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.format.layout.manifest import BasePath

__all__ = ["app", "base_document"]

app = typer.Typer(help="List, add and remove bases: other locations for files, such as tiers.")


@app.command("add", epilog=example("dataset base add lake/orders.lance s3://cold/orders --name cold --dataset-root"))
def add(
    uri: Uri,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Location of the new base.", show_default=False)],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What to call it.", show_default=False)],
    dataset_root: Annotated[
        bool, typer.Option("--dataset-root", help="Sort files into data/, _deletions/ and _indices/ below it.")
    ] = False,
    branch: Branch = MAIN,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Add a location for files.

    On a branch it is listed on main too.
    """
    base = open_dataset(uri, storage_option, branch=branch).base_add(path, name=name, is_dataset_root=dataset_root)
    output_for(as_json=as_json).show(
        Answer(document=base_document(base), sentences=[f"added base {name} (id {base.id}) at {base.path}"])
    )


@app.command("list", epilog=example("dataset base list lake/orders.lance --branch dev"))
def list_(uri: Uri, branch: Branch = MAIN, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """List the bases of the newest version of a branch."""
    bases = open_dataset(uri, storage_option, branch=branch).base_list()
    rows = tuple((base.id, base.name, base.is_dataset_root, base.path) for base in bases)
    table = Table(columns=("id", "name", "dataset root", "path"), rows=rows, empty="no bases besides the root itself")
    document = {"branch": branch, "bases": [base_document(base) for base in bases]}
    output_for(as_json=as_json).show(Answer(document=document, tables=[table]))


@app.command("remove", epilog=example("dataset base remove lake/orders.lance cold --dry-run"))
def remove(
    uri: Uri,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name or path of the base.", show_default=False)],
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Remove a base that no version uses, from main and all branches.

    Refused while any version has files in it: move them and clean up older versions first. Files in the base are left
    alone. Concurrent writers fail and can try again.
    """
    done = open_dataset(uri, storage_option).base_remove(name, dry_run=dry_run)
    document = {
        **base_document(done.base),
        "versions": done.versions,
        "unused_files": done.unused_files,
        "dry_run": done.dry_run,
    }
    would = "would remove" if done.dry_run else "removed"
    sentences = [f"{would} base {name} from {', '.join(sorted(done.versions))}"]
    if done.unused_files:
        sentences.append(f"{count(done.unused_files, 'unused file')} left in {done.base.path}")
    output_for(as_json=as_json).show(Answer(document=document, sentences=sentences))


def base_document(base: "BasePath") -> dict[str, object]:
    return {"id": base.id, "name": base.name, "is_dataset_root": base.is_dataset_root, "path": base.path}
