"""`anabranch dataset`: one Lance dataset, made by Anabranch or by another tool. Its branches, tags and clones."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from anabranch.cli.command import DATASET, Here, command, group
from anabranch.cli.commands import dataset_storage
from anabranch.cli.options import (
    DatasetBranch,
    DatasetRef,
    DatasetSource,
    DryRun,
    Uri,
    argument,
    flag,
    option,
    parse_pairs,
    parse_ref,
)
from anabranch.cli.output import Answer, document_of
from anabranch.cli.texts import Table, count, list_columns, schema_table
from anabranch.display import human_size, printable
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.format.refs.ref_files import RefList, UnreadableRef
    from anabranch.format.refs.refs import BranchInfo, TagInfo

    _Ref = BranchInfo | TagInfo

app = group()
datasets = group(help="Work with one Lance dataset, without a repository.")
branches = group(help="List, create and delete the branches of a dataset.")
tags = group(help="List, create, move and delete the tags of a dataset.")
clones = group(help="Clone a dataset, and list, drop or release its shallow clones.")
app.add_typer(datasets, name="dataset")
# In the order of the help.
datasets.add_typer(branches, name="branch")
datasets.add_typer(tags, name="tag")
datasets.add_typer(dataset_storage.app)
datasets.add_typer(clones, name="clone")
datasets.add_typer(dataset_storage.upkeep)


@command(datasets, "show", "dataset show lake/orders.lance --branch dev", on=DATASET)
def show(here: Here, uri: Uri, branch: DatasetBranch = MAIN) -> Answer:
    """Show the version, rows, schema, branches and tags of a dataset."""
    dataset = here.dataset(uri, branch=branch)
    branches, tags = list_refs(dataset.branch_list), list_refs(dataset.tag_list)
    facts = {"uri": dataset.uri, "branch": branch, "version": dataset.version, "rows": dataset.count_rows()}
    columns = list_columns(dataset.schema)
    lists = {"schema": columns, "branches": branches, "tags": tags, "unreadable": _unreadable(here, branches, tags)}
    tables = [
        Table(("", ""), tuple(facts.items())),
        schema_table(columns),
        branch_table(branches, title="branches"),
        tag_table(tags, title="tags"),
    ]
    return Answer({**facts, **lists}, tables=tables)


@command(datasets, "versions", "dataset versions lake/orders.lance --branch dev", on=DATASET)
def versions(here: Here, uri: Uri, branch: DatasetBranch = MAIN) -> Answer:
    """List the versions of a branch, with their tags and branches."""
    found = here.dataset(uri, branch=branch).versions()
    rows = [
        (one.version, one.created_at, ", ".join(one.tags) or None, ", ".join(one.branches) or None) for one in found
    ]
    shown = Table(("version", "created (UTC)", "tags", "branches from it"), rows)
    return Answer({"branch": branch, "versions": found}, tables=[shown])


@command(datasets, "restore", "dataset restore lake/orders.lance 7", on=DATASET)
def restore(
    here: Here,
    uri: Uri,
    version: int = argument("VERSION", "Number of the version.", min=1),
    branch: DatasetBranch = MAIN,
) -> Answer:
    """Restore an older version as a new version.

    Later versions stay in the history. A table of a repository is refused: use 'anabranch reset' or 'revert'.
    """
    made = here.dataset(uri, branch=branch).restore(version)
    document = {"branch": branch, "restored": version, "version": made}
    return Answer(document, f"restored version {version} of {branch} as version {made}")


@command(datasets, "compact", "dataset compact lake/orders.lance", on=DATASET)
def compact(here: Here, uri: Uri, branch: DatasetBranch = MAIN) -> Answer:
    """Merge small fragments into larger ones, and remove deleted rows.

    Each fragment stays in its base. The files of older versions stay until 'anabranch dataset cleanup'.
    """
    dataset = here.dataset(uri, branch=branch)
    with here.output.progress("compacting"):
        done = dataset.compact()
    document = {"branch": branch, **document_of(done)}
    merged = f"merged {count(done.fragments_removed, 'fragment')} into {done.fragments_added}"
    sentence = f"{merged if done.fragments_removed else 'nothing to merge'}; {branch} is at version {done.version}"
    return Answer(document, sentence)


@dataclass(frozen=True, kw_only=True)
class MetadataChange:
    """The options that change metadata."""

    set_: list[str] | None = option("--set", "KEY=VALUE", "Set a key. Repeatable.")
    unset: list[str] | None = option("--unset", "KEY", "Remove a key. Repeatable.")
    replace: bool = flag("--replace", "Remove all other keys.")

    def answer(
        self, kind: str, name: str, ref: "BranchInfo | TagInfo", save: "Callable[..., BranchInfo | TagInfo]"
    ) -> Answer:
        """Save the change, if there is one, and show the metadata."""
        if self.set_ or self.unset or self.replace:
            ref = save(name, parse_pairs(self.set_, option="--set"), unset=self.unset or (), replace=self.replace)
        table = Table(("key", "value"), tuple(sorted(ref.metadata.items())), empty="no metadata")
        return Answer({kind: name, "metadata": ref.metadata}, tables=[table])


BranchName = Annotated[str, argument("BRANCH", "Name of the branch.")]
TagName = Annotated[str, argument("TAG", "Name of the tag.")]

Refs = TypeVar("Refs", bound="RefList[Any]")


def list_refs(read: Callable[[], Refs]) -> Refs:
    """List branches or tags without Python's warning, which the command reports in its own way."""
    from anabranch.warnings import UnreadableRefWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreadableRefWarning)
        return read()


def _unreadable(here: Here, *lists: "RefList[Any]") -> "list[UnreadableRef]":
    """Return the files that could not be read, for the document, and warn of them if there is none."""
    found = [ref for refs in lists for ref in refs.unreadable]
    for ref in found if not here.as_json else ():
        text = f"warning: {ref.path} cannot be read: {ref.problem}; run 'anabranch dataset doctor' with --repair"
        typer.echo(printable(text), err=True)
    return found


def _shown(rows: Sequence[tuple[str, object]], metadata: Mapping[str, str], document: Mapping[str, object]) -> Answer:
    facts = (*rows, *((f"metadata {key}", value) for key, value in metadata.items()))
    return Answer(document, tables=[Table(("", ""), facts)])


@command(branches, "create", "dataset branch create lake/orders.lance dev --from v1.0", on=DATASET)
def branch_create(here: Here, uri: Uri, name: BranchName, source: DatasetSource = None) -> Answer:
    """Create a branch from a version, tag or branch. No data is copied."""
    branch = here.dataset(uri).branch_create(name, parse_ref(source))
    start = f"version {branch.parent_version} of {branch.parent_branch or MAIN}"
    return Answer(branch, f"created branch {name} from {start}")


@command(branches, "list", "dataset branch list lake/orders.lance", on=DATASET)
def branch_list(here: Here, uri: Uri) -> Answer:
    """List branches.

    A branch that cannot be read is reported on stderr, or with --json as "unreadable".
    """
    found = list_refs(here.dataset(uri).branch_list)
    return Answer({"branches": found, "unreadable": _unreadable(here, found)}, tables=[branch_table(found)])


@command(branches, "show", "dataset branch show lake/orders.lance dev", on=DATASET)
def branch_show(here: Here, uri: Uri, name: BranchName) -> Answer:
    """Show where a branch began, its newest version and its rows."""
    dataset = here.dataset(uri)
    branch = dataset.branch_get(name)
    head = dataset.branch_checkout(name)
    now = {"version": head.version, "rows": head.count_rows()}
    rows = (
        ("branch", name),
        ("parent", f"{branch.parent_branch or MAIN} at version {branch.parent_version}"),
        ("created", branch.created_at),
        ("newest version", now["version"]),
        ("rows", now["rows"]),
    )
    return _shown(rows, branch.metadata, {**document_of(branch), **now})


@command(branches, "delete", "dataset branch delete lake/orders.lance dev --dry-run", on=DATASET)
def branch_delete(here: Here, uri: Uri, name: BranchName, dry_run: DryRun = False) -> Answer:
    """Delete a branch and its files.

    A branch that another branch, a tag or a clone needs is not deleted.
    """
    done = here.dataset(uri).branch_delete(name, dry_run=dry_run)
    document = {"deleted": name, "files": done.files, "bytes": done.bytes, "dry_run": done.dry_run}
    files = f"{count(done.files, 'file')}, {human_size(done.bytes)}"
    return Answer(document, f"would delete branch {name} ({files})" if dry_run else f"deleted branch {name}")


@command(branches, "metadata", "dataset branch metadata lake/orders.lance dev --set owner=ada", on=DATASET)
def branch_metadata(here: Here, uri: Uri, name: BranchName, *, change: MetadataChange) -> Answer:
    """Show or change the metadata of a branch."""
    dataset = here.dataset(uri)
    return change.answer("branch", name, dataset.branch_get(name), dataset.branch_set_metadata)


def branch_table(found: Sequence["BranchInfo"], *, title: str | None = None) -> Table:
    rows = []
    for branch in found:
        start = f"{branch.parent_branch or MAIN}@v{branch.parent_version}"
        rows.append((branch.name, start, branch.created_at, human_size(branch.manifest_size)))
    columns = ("branch", "from", "created (UTC)", "first manifest")
    return Table(columns, rows, title=title, empty="no branches besides main")


@command(tags, "create", "dataset tag create lake/orders.lance v1.0 --ref dev", on=DATASET)
def tag_create(here: Here, uri: Uri, name: TagName, ref: DatasetRef = None) -> Answer:
    """Create a tag: a name for a version."""
    tag = here.dataset(uri).tag_create(name, parse_ref(ref))
    return Answer(tag, f"created tag {tag.name} at {_position(tag)}")


@command(tags, "update", "dataset tag update lake/orders.lance production --ref 12", on=DATASET)
def tag_update(here: Here, uri: Uri, name: TagName, ref: DatasetRef = None) -> Answer:
    """Move a tag to another version."""
    tag = here.dataset(uri).tag_update(name, parse_ref(ref))
    return Answer(tag, f"moved tag {tag.name} to {_position(tag)}")


@command(tags, "list", "dataset tag list lake/orders.lance --json", on=DATASET)
def tag_list(here: Here, uri: Uri) -> Answer:
    """List tags.

    A tag that cannot be read is reported on stderr, or with --json as "unreadable".
    """
    found = list_refs(here.dataset(uri).tag_list)
    return Answer({"tags": found, "unreadable": _unreadable(here, found)}, tables=[tag_table(found)])


@command(tags, "show", "dataset tag show lake/orders.lance v1.0", on=DATASET)
def tag_show(here: Here, uri: Uri, name: TagName) -> Answer:
    """Show the version of a tag, and its rows."""
    dataset = here.dataset(uri)
    tag = dataset.tag_get(name)
    count = dataset.tag_checkout(name).count_rows()
    rows = (
        ("tag", tag.name),
        ("branch", tag.branch or MAIN),
        ("version", tag.version),
        ("rows", count),
        ("created", tag.created_at),
        ("updated", tag.updated_at),
    )
    return _shown(rows, tag.metadata, {**document_of(tag), "rows": count})


@command(tags, "delete", "dataset tag delete lake/orders.lance v1.0", on=DATASET)
def tag_delete(here: Here, uri: Uri, name: TagName) -> Answer:
    """Delete a tag. The version stays."""
    here.dataset(uri).tag_delete(name)
    return Answer({"deleted": name}, f"deleted tag {name}")


@command(tags, "metadata", "dataset tag metadata lake/orders.lance v1.0 --set approved=yes", on=DATASET)
def tag_metadata(here: Here, uri: Uri, name: TagName, *, change: MetadataChange) -> Answer:
    """Show or change the metadata of a tag."""
    dataset = here.dataset(uri)
    return change.answer("tag", name, dataset.tag_get(name), dataset.tag_set_metadata)


def tag_table(found: Sequence["TagInfo"], *, title: str | None = None) -> Table:
    rows = [(tag.name, f"{tag.branch or MAIN}@v{tag.version}", tag.created_at, tag.updated_at) for tag in found]
    return Table(("tag", "version", "created (UTC)", "updated (UTC)"), rows, title=title, empty="no tags")


def _position(tag: "TagInfo") -> str:
    return f"version {tag.version} of {tag.branch or MAIN}"


Target = Annotated[str, argument("TARGET", "Location of the clone.")]


@command(clones, "create", "dataset clone create lake/orders.lance scratch/orders.lance --ref v1.0", on=DATASET)
def clone_create(
    here: Here,
    uri: Uri,
    target: Target,
    ref: DatasetRef = None,
    deep: bool = flag("--deep", "Copy all files. The clone does not need the source."),
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
def clone_list(here: Here, uri: Uri) -> Answer:
    """List the shallow clones of a dataset."""
    found = here.dataset(uri).clone_list()
    rows = [
        (clone.uri, f"{clone.branch or MAIN}@v{clone.source_version}", clone.tag, clone.created_at, clone.exists)
        for clone in found
    ]
    table = Table(("clone", "of", "held by", "created (UTC)", "exists"), rows, empty="no shallow clones")
    return Answer({"clones": found}, tables=[table])


@command(clones, "drop", "dataset clone drop lake/orders.lance scratch/orders.lance", on=DATASET)
def clone_drop(here: Here, uri: Uri, target: Target, dry_run: DryRun = False) -> Answer:
    """Delete a shallow clone.

    A cleanup of the source may then remove files that only the clone needed.
    """
    done = here.dataset(uri).clone_drop(target, dry_run=dry_run)
    document = {"dropped": target, "tags": done.tags, "files": done.files, "bytes": done.bytes, "dry_run": done.dry_run}
    files = f"{count(done.files, 'file')}, {human_size(done.bytes)}"
    return Answer(document, f"would drop clone {target} ({files})" if dry_run else f"dropped clone {target}")


@command(clones, "release", "dataset clone release lake/orders.lance clone-1f0c9a7be24d3856", on=DATASET)
def clone_release(
    here: Here, uri: Uri, tag: str = argument("TAG", "Tag that keeps the version; see 'anabranch dataset clone list'.")
) -> Answer:
    """Stop keeping files for a clone.

    Use it for a clone that was deleted or never completed. The clone itself is not changed.
    """
    here.dataset(uri).clone_release(tag)
    return Answer({"released": tag}, f"released {tag}")
