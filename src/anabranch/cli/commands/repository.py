"""`anabranch init`, `demo`, `clone`, `status` and `relocate`: a repository as a whole."""

from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.command import (
    DATASET,
    NEW,
    READS_BRANCH,
    SERVICE,
    WRITES,
    Here,
    add_group,
    command,
    group,
    remembered,
)
from anabranch.cli.options import argument, flag, option, parse_pairs
from anabranch.cli.output import GENERAL, Answer
from anabranch.cli.texts import Table, commit_line, count, mode_text, size_text, snapshot_size
from anabranch.config import Source, new_repository_settings, remember
from anabranch.display import short_id
from anabranch.errors import BranchNotFoundError, RepositoryExistsError
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.repo.refs.branches import BranchInfo
    from anabranch.repo.snapshot import Snapshot

app = group()


@command(app, "init", "init lake", "init s3://bucket/lake", on=NEW)
def init(
    here: Here,
    path: str | None = argument(
        "PATH",
        "Location of the repository: a folder, or an s3://, gs:// or az:// address (default: the variable"
        " ANABRANCH_REPO, or else the current folder).",
        default=None,
    ),
) -> Answer:
    """Create a repository.

    The current folder remembers the repository: later commands in this folder, or below it, do not need --repo. If the
    folder already remembers another repository, you must give the location of the new repository: pass PATH, or set the
    variable ANABRANCH_REPO. Then the folder remembers the new repository and no longer the old one.
    """
    import anabranch

    options = here.storage_options
    settings = new_repository_settings(path, actor=here.actor)
    # Not around the repository that the folder remembers, unless the path of the new one is given.
    if settings.memory is not None and settings.repository_source is Source.DEFAULT:
        raise RepositoryExistsError(
            f"this folder works with the repository {settings.memory.repository!r} already",
            hint="see it with 'anabranch status'; to make another one, pass its path, such as 'anabranch init other'",
        )
    repository = anabranch.init(settings.repository, storage_options=options, actor=settings.actor)
    memory = remember(repository=repository.uri, branch=repository.branch, memory=settings.memory)
    commit_id = repository.head_commit_id_for_branch(repository.branch)
    made = f"made a repository at {repository.uri}, with branch {repository.branch} at {short_id(commit_id)}"
    return remembered(memory, made, commit_id=commit_id, before=settings.memory)


@command(app, "status", "status", "status --json", on=READS_BRANCH)
def status(here: Here) -> Answer:
    """Show the current repository, branch and commit.

    The parent is the branch from which this branch was created. 'ahead' is the number of commits that only this branch
    has. 'behind' is the number of commits that only the parent has. The output also lists the tables that were changed
    on this branch, and the tables with external writes. An external write is a write by another Lance tool.
    """
    current, snapshot = here.current(), here.snapshot(None)
    external = here.repository.list_external_writes()
    distance = _distance(here, current)
    drift = here.repository.branch_drift(current.name) if current.name != MAIN else []
    document = {
        "repository": here.repository.uri,
        "branch": here.repository.branch,
        "branch_source": here.settings.branch_source,
        "mode": current.mode,
        "own_tables": current.own_tables,
        "version": snapshot.version,
        "head": snapshot.commit,
        **snapshot_size(snapshot),
        "external_writes": external,
        "parent": current.parent,
        "ahead": None if distance is None else distance[0],
        "behind": None if distance is None else distance[1],
        "changed_tables": drift,
    }
    tables = [Table(("", ""), _facts(current, snapshot, distance, uri=here.repository.uri))]
    if drift:
        changed = [(one.table, one.branch_rows, one.main_rows, one.has_drifted) for one in drift]
        columns = ("table", "rows", "rows on main", "changed on main")
        tables.append(Table(columns, changed, title=f"changed on {current.name}"))
    if external:
        title = "external writes: accept with 'table adopt TABLE', discard with 'table settle TABLE --force'"
        tables.append(Table(("table", "problem"), [(one.table, one.problem) for one in external], title=title))
    return Answer(document, tables=tables)


def _distance(here: Here, current: "BranchInfo") -> tuple[int, int] | None:
    """Return how many commits a branch is ahead of its parent and behind it, or None without a parent."""
    if current.parent is None:
        return None
    try:
        return here.repository.ahead_behind([current.name], current.parent)[current.name]
    except BranchNotFoundError:
        return None  # the parent was deleted


def _facts(
    current: "BranchInfo", snapshot: "Snapshot", distance: tuple[int, int] | None, *, uri: str
) -> tuple[tuple[str, object], ...]:
    commit = snapshot.commit
    return (
        ("repository", uri),
        ("branch", current.name),
        ("mode", mode_text(current)),
        *([("parent", f"{current.parent}: {distance[0]:,} ahead, {distance[1]:,} behind")] if distance else []),
        ("head", commit_line(commit)),
        ("committed (UTC)", commit.created),
        ("by", commit.actor_id),
        ("tables", size_text(snapshot)),
    )


@command(
    app, "relocate", "relocate /mnt/new/lake", "relocate clone --mapping s3://bucket/lake=s3://other/lake", on=DATASET
)
def relocate(
    here: Here,
    uri: str = argument("URI", "New location of the repository."),
    mapping: list[str] | None = option(
        "--mapping",
        "OLD=NEW",
        "Old and new path of another location that moved, such as the source of a clone. Repeatable.",
    ),
) -> Answer:
    """Rewrite the paths in a repository that was moved or copied.

    Run it again after an interruption. The exit code is 1 if a table still reads an unknown location.
    """
    import anabranch

    with here.output.progress("relocating") as progress:
        report = anabranch.relocate(
            uri,
            mapping=parse_pairs(mapping, option="--mapping"),
            storage_options=here.storage_options,
            progress=progress,
        )
    came = "" if report.former_root == report.root else f", which was at {report.former_root}"
    looked = f"{count(report.datasets, 'dataset')} of {report.root}{came}"
    sentences = [f"checked {looked}; rewrote {count(report.rewritten, 'manifest')}"]
    tables = []
    if report.unexplained:
        rows = [(found.dataset, found.home, found.path) for found in report.unexplained]
        sentences.append(
            "not complete: name the new paths of these with --mapping if they moved, or add them as bases of the tables"
        )
        tables.append(Table(("dataset", "home", "reads"), rows))
    return Answer(report, *sentences, tables=tables, exit_code=0 if report.is_complete else GENERAL)


# The commands to try next, in this order: each one shows the result of the one before.
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
    folder: str | None = argument("FOLDER", "A new or empty folder (default: anabranch-demo, here).", default=None),
) -> Answer:
    """Create a small shop lake to try commands on.

    It has tables, commits by two people, branches, a conflict, a tag and a pipeline run. No Spark is needed.
    """
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
    purposes = [(one.name, mode_text(one), one.description or "the main branch") for one in branches]
    made = f"{len(tables)} tables, {len(commits)} commits, {len(branches)} branches, {count(len(tags), 'tag')}"
    shown = [
        Table(("table", "rows"), [(key, entry.rows) for key, entry in tables.entries.items()]),
        Table(("branch", "mode", "purpose"), purposes, title="branches"),
        Table(("", ""), ((f"cd {target}", "go to the folder"), *NEXT), title="try these next"),
    ]
    return Answer(document, f"made a shop lake in {target}: {made}", tables=shown)


clones = add_group(app, "clone", help="Clone a repository, and list its clones.", otherwise="anabranch clone create")


@command(
    clones, "create", "clone create lake experiment", "clone create s3://bucket/lake backup --deep --ref v1.0", on=NEW
)
def clone_create(
    here: Here,
    source: str = argument("SOURCE", "Repository to clone: a folder, or an s3://, gs:// or az:// address."),
    target: str = argument("TARGET", "Location of the clone, which must be empty."),
    ref: str = option("--ref", "REF", "Branch, tag or commit of the source, such as main~3 or main@v7.", default=MAIN),
    table: list[str] | None = option("--table -t", "TABLE", "Clone only this table. Repeatable."),
    deep: bool = flag("--deep", "Copy and verify all files. The clone does not need the source."),
    target_storage_option: list[str] | None = option(
        "--target-storage-option",
        "KEY=VALUE",
        "Storage option of the target, if it differs from the source. Repeatable.",
        envvar="ANABRANCH_TARGET_OPTIONS",
    ),
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
def clone_list(here: Here) -> Answer:
    """List the clones of the repository.

    Garbage collection keeps the files that registered clones read.
    """
    found = here.repository.clone_list()
    rows = [
        (one.id, one.target, one.kind, short_id(one.commit_id), count(len(one.tables), "table"), one.created, one.state)
        for one in found
    ]
    columns = ("id", "clone", "kind", "of", "reads", "created (UTC)", "state")
    return Answer({"clones": found}, tables=[Table(columns, rows, empty="no clones")])


@command(clones, "release", "clone release 01M7GMZB03Y0YAE5N3J2R7K9QX", on=WRITES)
def clone_release(here: Here, clone_id: str = argument("ID", "Id of the clone; see 'anabranch clone list'.")) -> Answer:
    """Stop keeping files for a clone.

    Use it for a clone that was deleted or never completed. A clone that still reads the source will break.
    """
    clone = here.repository.clone_release(clone_id)
    return Answer(clone, f"released {clone.id}, the clone at {clone.target}")
