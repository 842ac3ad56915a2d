"""`anabranch dataset`: one Lance dataset, made by Anabranch or by another tool."""

from typing import Annotated

from anabranch.cli.command import DATASET, Here, command, group
from anabranch.cli.commands import dataset_clone, dataset_refs, dataset_storage, dataset_upkeep
from anabranch.cli.commands.dataset_refs import branch_table, list_refs, list_unreadable, report_unreadable, tag_table
from anabranch.cli.documents import document_of
from anabranch.cli.options import DatasetBranch, Uri, argument
from anabranch.cli.output import Answer, count
from anabranch.cli.tables import Table
from anabranch.ids import MAIN

app = group()
datasets = group(help="Work with one Lance dataset, without a repository.")
app.add_typer(datasets, name="dataset")


@command(datasets, "show", "dataset show lake/orders.lance --branch dev", on=DATASET)
def show(here: Here, uri: Uri, branch: DatasetBranch = MAIN) -> Answer:
    """Show the version, rows, schema, branches and tags of a dataset."""
    dataset = here.dataset(uri, branch=branch)
    branches, tags = list_refs(dataset.branch_list), list_refs(dataset.tag_list)
    facts = {"uri": dataset.uri, "branch": branch, "version": dataset.version, "rows": dataset.count_rows()}
    fields = [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in dataset.schema]
    document = {
        **facts,
        "schema": fields,
        "branches": branches,
        "tags": tags,
        "unreadable": list_unreadable(branches, tags),
    }
    columns = [(field["name"], field["type"], field["nullable"]) for field in fields]
    tables = [
        Table(("", ""), tuple(facts.items())),
        Table(("column", "type", "nullable"), columns, title="schema"),
        branch_table(branches, title="branches"),
        tag_table(tags, title="tags"),
    ]
    report_unreadable(here, branches, tags)
    return Answer(document, tables=tables)


@command(datasets, "versions", "dataset versions lake/orders.lance --branch dev", on=DATASET)
def versions(here: Here, uri: Uri, branch: DatasetBranch = MAIN) -> Answer:
    """List the versions of a branch, with their tags and branches."""
    found = here.dataset(uri, branch=branch).versions()
    rows = [
        (one.version, one.created_at, ", ".join(one.tags) or None, ", ".join(one.branches) or None) for one in found
    ]
    document = {
        "branch": branch,
        "versions": found,
    }
    return Answer(document, tables=[Table(("version", "created (UTC)", "tags", "branches from it"), rows)])


@command(datasets, "restore", "dataset restore lake/orders.lance 7", on=DATASET)
def restore(
    here: Here,
    uri: Uri,
    version: Annotated[int, argument("VERSION", "Number of the version.", min=1)],
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


for _commands in (dataset_refs, dataset_storage, dataset_clone, dataset_upkeep):
    datasets.add_typer(_commands.app)
