"""`anabranch dataset`: one Lance dataset, made by Anabranch or by anyone."""

import typer

from anabranch.cli.arguments import AsJson, Branch, StorageOptions, Uri, example, open_dataset
from anabranch.cli.commands import (
    dataset_base,
    dataset_branch,
    dataset_cleanup,
    dataset_clone,
    dataset_history,
    dataset_storage,
    dataset_tag,
    dataset_upkeep,
)
from anabranch.cli.commands.dataset_branch import branch_document, branch_table
from anabranch.cli.commands.dataset_tag import tag_document, tag_table
from anabranch.cli.dataset_refs import list_refs, report_unreadable, unreadable_document
from anabranch.cli.output import Answer, Table, output_for
from anabranch.ids import MAIN

__all__ = ["app"]

app = typer.Typer(help="Work with one Lance dataset.")
app.add_typer(dataset_branch.app, name="branch")
app.add_typer(dataset_tag.app, name="tag")
app.add_typer(dataset_base.app, name="base")
app.add_typer(dataset_clone.app, name="clone")


@app.command("show", epilog=example("dataset show lake/orders.lance --branch dev"))
def show(uri: Uri, branch: Branch = MAIN, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Show a dataset: version, rows, schema, branches and tags."""
    dataset = open_dataset(uri, storage_option, branch=branch)
    branches, tags = list_refs(dataset.branch_list), list_refs(dataset.tag_list)
    facts = {"uri": dataset.uri, "branch": branch, "version": dataset.version, "rows": dataset.count_rows()}
    fields = [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in dataset.schema]
    document = {
        **facts,
        "schema": fields,
        "branches": [branch_document(one) for one in branches],
        "tags": [tag_document(one) for one in tags],
        "unreadable": unreadable_document(branches, tags),
    }
    columns = tuple((field["name"], field["type"], field["nullable"]) for field in fields)
    tables = [
        Table(columns=("", ""), rows=tuple(facts.items())),
        Table(title="schema", columns=("column", "type", "nullable"), rows=columns),
        branch_table(branches, title="branches"),
        tag_table(tags, title="tags"),
    ]
    report_unreadable(branches, tags, as_json=as_json)
    output_for(as_json=as_json).show(Answer(document=document, tables=tables))


dataset_history.add_commands(app)
dataset_storage.add_commands(app)
dataset_cleanup.add_commands(app)
dataset_upkeep.add_commands(app)
