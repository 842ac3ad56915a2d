"""`anabranch dataset base|move|report|layout`: which files a dataset has, and where."""

from typing import TYPE_CHECKING, Annotated

from anabranch.cli.command import DATASET, Here, command, group
from anabranch.cli.commands.dataset_upkeep import CleanupPolicy, cleanup_sentences
from anabranch.cli.documents import document_of
from anabranch.cli.options import DatasetBranch, DryRun, Uri, argument, flag, option
from anabranch.cli.output import Answer, count, usage_text
from anabranch.cli.tables import Table
from anabranch.display import human_size
from anabranch.errors import InvalidInputError
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.format.bases.tiering import MoveReport
    from anabranch.format.layout.listing import LayoutFile

app = group()
bases = group(help="List, add and remove bases: more locations for files.")
app.add_typer(bases, name="base")


@command(bases, "add", "dataset base add lake/orders.lance s3://cold/orders --name cold --dataset-root", on=DATASET)
def add(
    here: Here,
    uri: Uri,
    path: Annotated[str, argument("PATH", "Location of the new base.")],
    name: Annotated[str, option("--name", "NAME", "Name of the base.")],
    dataset_root: Annotated[
        bool, flag("--dataset-root", "Use the folders data/, _deletions/ and _indices/ in the base.")
    ] = False,
    branch: DatasetBranch = MAIN,
) -> Answer:
    """Add a base: another location for files of the dataset.

    A base that is added on a branch is added on main too.
    """
    base = here.dataset(uri, branch=branch).base_add(path, name=name, is_dataset_root=dataset_root)
    return Answer(base, f"added base {name} (id {base.id}) at {base.path}")


@command(bases, "list", "dataset base list lake/orders.lance --branch dev", on=DATASET)
def list_(here: Here, uri: Uri, branch: DatasetBranch = MAIN) -> Answer:
    """List the bases of the newest version of a branch."""
    found = here.dataset(uri, branch=branch).base_list()
    rows = [(base.id, base.name, base.is_dataset_root, base.path) for base in found]
    table = Table(("id", "name", "dataset root", "path"), rows, empty="no bases besides the root itself")
    return Answer({"branch": branch, "bases": found}, tables=[table])


@command(bases, "remove", "dataset base remove lake/orders.lance cold --dry-run", on=DATASET)
def remove(
    here: Here,
    uri: Uri,
    name: Annotated[str, argument("NAME", "Name or path of the base.")],
    dry_run: DryRun = False,
) -> Answer:
    """Remove a base that no version uses, from main and all branches.

    A base in which any version has files is not removed: move them and clean up older versions first. Files in the base
    are not deleted. Concurrent writers fail and can try again.
    """
    done = here.dataset(uri).base_remove(name, dry_run=dry_run)
    document = {
        **document_of(done.base),
        "versions": done.versions,
        "unused_files": done.unused_files,
        "dry_run": done.dry_run,
    }
    would = "would remove" if done.dry_run else "removed"
    sentences = [f"{would} base {name} from {', '.join(sorted(done.versions))}"]
    if done.unused_files:
        sentences.append(f"{count(done.unused_files, 'unused file')} left in {done.base.path}")
    return Answer(document, *sentences)


@command(
    app,
    "move",
    "dataset move lake/orders.lance --to cold --where \"day < '2026-01-01'\"",
    "dataset move lake/orders.lance --to root --fragment 3 --fragment 4",
    "dataset move lake/orders.lance --to cold --fragment 3 --prune --keep-last 1",
    on=DATASET,
)
def move(
    here: Here,
    uri: Uri,
    to: Annotated[str, option("--to", "BASE", "Target base, or 'root' for the dataset itself.")],
    where: Annotated[
        str | None, option("--where", "SQL", "Move fragments whose rows all match this condition.")
    ] = None,
    fragment: Annotated[list[int] | None, option("--fragment", "ID", "Move this fragment. Repeatable.")] = None,
    prune: Annotated[bool, flag("--prune", "Clean up afterwards, with --keep-last or --keep-newer-than.")] = False,
    dry_run: DryRun = False,
    branch: DatasetBranch = MAIN,
    *,
    policy: CleanupPolicy,
) -> Answer:
    """Move fragments to another base (tiering).

    Row ids and indices stay as they are. The old copies stay for older versions, branches and clones. --prune with
    --keep-last or --keep-newer-than removes copies that no kept version needs. A dry run reports only the move.
    """
    if (where is None) == (not fragment):
        raise InvalidInputError("name the fragments to move in one way", hint="pass either --where or --fragment")
    dataset = here.dataset(uri, branch=branch)
    with here.output.progress(f"moving to {to}") as progress:
        moved = dataset.move_fragments(
            to=to,
            where=where,
            fragments=fragment or None,
            prune=prune,
            dry_run=dry_run,
            progress=progress,
            **policy.parsed(),
        )
    return Answer(moved, *_move_sentences(moved))


def _move_sentences(moved: "MoveReport") -> list[str]:
    did = "would move" if moved.dry_run else "moved"
    sentences = [
        f"{did} {count(len(moved.moved), 'fragment')} ({count(moved.files, 'file')}, {human_size(moved.bytes)})"
        f" to {moved.to}; the dataset is at version {moved.version}"
    ]
    if moved.already_there:
        sentences.append(f"already there: {_listed(moved.already_there)}")
    if moved.partly_matching:
        sentences.append(f"not moved, as only some of their rows match: {_listed(moved.partly_matching)}")
    if moved.pruned is not None:
        sentences += cleanup_sentences(moved.pruned)
    elif moved.left_behind and not moved.dry_run:
        sentences.append(f"{count(len(moved.left_behind), 'file')} stayed behind for older versions")
    return sentences


@command(app, "report", "dataset report lake/orders.lance", on=DATASET)
def report(here: Here, uri: Uri, branch: DatasetBranch = MAIN) -> Answer:
    """Report the files and bytes of the newest version, by base."""
    found = here.dataset(uri, branch=branch).storage_report()
    kinds = ("data", "deletion", "index", "total")
    rows = [(base.name, base.path, *(usage_text(getattr(base, kind)) for kind in kinds)) for base in found.bases]
    tables = [Table(("base", "path", *kinds), rows)]
    if found.missing:
        missing = [(path,) for path in found.missing]
        tables.append(Table(("path",), missing, title="missing files"))
    return Answer(
        {"uri": found.uri, "branch": branch, **document_of(found)},
        f"version {found.version}: {usage_text(found.total)}",
        tables=tables,
    )


@command(app, "layout", "dataset layout lake/orders.lance --files", on=DATASET)
def layout(
    here: Here,
    uri: Uri,
    files: Annotated[bool, flag("--files", "List every file.")] = False,
) -> Answer:
    """List the files of a dataset by kind, and unknown files.

    Files of all branches and versions are listed. Works on a damaged dataset too.
    """
    found = here.damaged_dataset(uri).layout()
    totals = [(kind.value, total.files, human_size(total.bytes)) for kind, total in found.by_kind.items()]
    branches = [(name or MAIN, total.files, human_size(total.bytes)) for name, total in found.by_branch.items()]
    tables = [
        Table(("kind", "files", "size"), totals),
        Table(("branch", "files", "size"), branches),
    ]
    if files:
        tables.append(_file_table("files", found.files))
    if found.unknown_files:
        tables.append(_file_table("unknown files", found.unknown_files))
    if found.unreferenced_trees:
        trees = [(name,) for name in found.unreferenced_trees]
        tables.append(Table(("name",), trees, title="trees without a branch (see doctor)"))
    return Answer(found, tables=tables)


def _file_table(title: str, files: "tuple[LayoutFile, ...]") -> Table:
    rows = [(file.path, file.kind.value, human_size(file.size), file.modified) for file in files]
    return Table(("path", "kind", "size", "modified (UTC)"), rows, title=title)


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)
