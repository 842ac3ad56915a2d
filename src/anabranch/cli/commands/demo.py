"""`anabranch demo`: a small shop lake to try things on."""

from pathlib import Path
from typing import Annotated

from anabranch.cli.command import SERVICE, Here, command, group
from anabranch.cli.options import argument
from anabranch.cli.output import Answer, count
from anabranch.cli.tables import Table
from anabranch.cli.texts import mode_text

app = group()

# What to try next, in this order: each command shows what the one before it did.
NEXT = (
    ("anabranch log --graph", "see all commits and branches"),
    ("anabranch diff main...sale --rows", "see what the branch sale changed, row by row"),
    ("anabranch conflicts sale", "see the price that both main and sale changed"),
    ("anabranch merge sale --resolve price=max", "merge it; the higher price wins"),
    ("anabranch undo", "undo the merge"),
)


@command(app, "demo", "demo", "demo my-shop", on=SERVICE)
def demo(
    here: Here,  # noqa: ARG001 - every command gets it
    folder: Annotated[str | None, argument("FOLDER", "A new or empty folder (default: anabranch-demo, here).")] = None,
) -> Answer:
    """Create a small shop lake to try commands on.

    It has tables, commits by two people, branches, a conflict, a tag and a pipeline run. No Spark is needed.
    """
    from anabranch.config import remember
    from anabranch.sample_lake import DEMO_FOLDER, PIPELINE_FILE, make_demo

    target = Path(DEMO_FOLDER if folder is None else folder)
    repository = make_demo(target)
    # In the folder of the demo: the current folder may remember another repository.
    remember(repository=repository.uri, branch=repository.branch, folder=target.absolute())
    tables, commits = repository.snapshot(), list(repository.iter_graph())
    branches, tags = repository.branch_list(), repository.tag_list()
    document = {
        "folder": str(target.absolute()),
        "repository": repository.uri,
        "pipeline": str(target.absolute() / PIPELINE_FILE),
        "tables": {key: entry.rows for key, entry in tables.entries.items()},
        "commits": len(commits),
        "branches": [branch.name for branch in branches],
        "tags": [tag.name for tag in tags],
        "next": [f"cd {target}", *(command for command, _ in NEXT)],
    }
    made = f"{len(tables)} tables, {len(commits)} commits, {len(branches)} branches, {count(len(tags), 'tag')}"
    shown = [
        Table(("table", "rows"), [(key, entry.rows) for key, entry in tables.entries.items()]),
        Table(
            ("branch", "mode", "purpose"),
            [(one.name, mode_text(one), one.description or "the main branch") for one in branches],
            title="branches",
        ),
        Table(("", ""), ((f"cd {target}", "go to the folder"), *NEXT), title="try these next"),
    ]
    return Answer(document, f"made a shop lake in {target}: {made}", tables=shown)
