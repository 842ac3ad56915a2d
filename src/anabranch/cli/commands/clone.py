"""`anabranch clone`: a new repository from the tables of another one, and the clones of a repository."""

from typing import Annotated

from anabranch.cli.command import NEW, WRITES, Here, add_group, command, group
from anabranch.cli.options import argument, flag, option, parse_pairs
from anabranch.cli.output import Answer, count
from anabranch.cli.tables import Table
from anabranch.config import new_repository_settings
from anabranch.display import short_id
from anabranch.ids import MAIN

app = group()
clones = add_group(app, "clone", help="Clone a repository, and list its clones.", otherwise="anabranch clone create")


@command(
    clones, "create", "clone create lake experiment", "clone create s3://bucket/lake backup --deep --ref v1.0", on=NEW
)
def create(
    here: Here,
    source: Annotated[str, argument("SOURCE", "Repository to clone: a folder, or an s3://, gs:// or az:// address.")],
    target: Annotated[str, argument("TARGET", "Location of the clone, which must be empty.")],
    ref: Annotated[
        str, option("--ref", "REF", "Branch, tag or commit of the source, such as main~3 or main@v7.")
    ] = MAIN,
    table: Annotated[list[str] | None, option("--table -t", "TABLE", "Clone only this table. Repeatable.")] = None,
    deep: Annotated[bool, flag("--deep", "Copy and verify all files. The clone does not need the source.")] = False,
    target_storage_option: Annotated[
        list[str] | None,
        option(
            "--target-storage-option",
            "KEY=VALUE",
            "Storage option of the target, if it differs from the source. Repeatable.",
            envvar="ANABRANCH_TARGET_OPTIONS",
        ),
    ] = None,
) -> Answer:
    """Create a repository from the tables of another repository.

    A shallow clone copies no data: it reads the files of the source and writes its own. The source keeps the files that
    the clone needs.
    """
    import anabranch

    settings = new_repository_settings(target, actor=here.actor)
    with here.output.progress("cloning") as progress:
        made = anabranch.clone(
            source,
            settings.repository,
            ref=ref,
            tables=table or None,
            shallow=not deep,
            storage_options=here.storage_options,
            target_storage_options=parse_pairs(target_storage_option, option="--target-storage-option") or None,
            actor=settings.actor,
            progress=progress,
        )
    snapshot = made.snapshot()
    kind, metadata = "deep" if deep else "shallow", snapshot.commit.metadata
    document = {
        "repository": made.uri,
        "kind": kind,
        "source": metadata["source"],
        "source_commit_id": metadata["source_commit_id"],
        "clone_id": metadata["clone_id"],
        "head_commit_id": snapshot.id,
        "tables": list(snapshot),
    }
    sentence = (
        f"made a {kind} clone of {metadata['source']} at {short_id(metadata['source_commit_id'])}"
        f" in {made.uri}: {count(len(snapshot), 'table')}"
    )
    return Answer(document, sentence)


@command(clones, "list", "clone list", "clone list --json")
def list_(here: Here) -> Answer:
    """List the clones of the repository.

    Garbage collection keeps the files that registered clones read.
    """
    found = here.repository.clone_list()
    rows = [
        (
            clone.id,
            clone.target,
            clone.kind.value,
            short_id(clone.commit_id),
            count(len(clone.tables), "table"),
            clone.created,
            clone.state.value,
        )
        for clone in found
    ]
    columns = ("id", "clone", "kind", "of", "reads", "created (UTC)", "state")
    return Answer({"clones": found}, tables=[Table(columns, rows, empty="no clones")])


@command(clones, "release", "clone release 01M7GMZB03Y0YAE5N3J2R7K9QX", on=WRITES)
def release(
    here: Here,
    clone_id: Annotated[str, argument("ID", "Id of the clone; see 'anabranch clone list'.")],
) -> Answer:
    """Stop keeping files for a clone.

    Use it for a clone that was deleted or never completed. A clone that still reads the source will break.
    """
    clone = here.repository.clone_release(clone_id)
    return Answer(clone, f"released {clone.id}, the clone at {clone.target}")
