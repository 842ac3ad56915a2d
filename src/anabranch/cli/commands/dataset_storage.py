"""`anabranch dataset base|move|report|layout|cleanup|relocate|doctor`: the files of a dataset, and upkeep of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.cli.command import DATASET, Here, command, group
from anabranch.cli.commands.maintenance import health_answer, path_tables, removal_tables
from anabranch.cli.options import (
    DatasetBranch,
    DryRun,
    KeepPolicy,
    Uri,
    argument,
    flag,
    option,
    parse_duration,
    parse_pairs,
)
from anabranch.cli.output import GENERAL, Answer, document_of
from anabranch.cli.texts import Table, count, usage_text
from anabranch.display import human_size
from anabranch.errors import InvalidInputError
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.format.clone.relocate import HoldChange
    from anabranch.format.layout.listing import LayoutFile
    from anabranch.format.retention import CleanupReport
    from anabranch.format.tiering import MoveReport

app = group()
upkeep = group()

Clones = Annotated[
    list[str] | None, option("--clone", "URI", "Keep the files of this clone, made by another tool. Repeatable.")
]


@dataclass(frozen=True, kw_only=True)
class CleanupPolicy(KeepPolicy):
    """The options about which versions and files a cleanup keeps: those of a repository, and bases."""

    base: list[str] | None = option(
        "--base", "BASE", "Remove unused files in this base too. No other dataset may use the base. Repeatable."
    )

    def parsed(self) -> dict[str, Any]:
        """Return the arguments of `cleanup` and `move_fragments`."""
        return {**super().parsed(), "bases": self.base or ()}


@command(
    upkeep,
    "cleanup",
    "dataset cleanup lake/orders.lance --keep-last 10 --dry-run",
    "dataset cleanup lake/orders.lance --keep-newer-than 7d --base cold",
    on=DATASET,
)
def cleanup(
    here: Here,
    uri: Uri,
    clone: Clones = None,
    dry_run: DryRun = False,
    list_files: bool = flag("--list", "List every file with its reason."),
    *,
    policy: CleanupPolicy,
) -> Answer:
    """Remove old versions, and files that no version needs.

    All branches are cleaned. The first and the newest version of each branch, tagged versions, versions that a clone or
    branch was made from, and everything younger than --grace are always kept. Without --keep-last and --keep-newer-than
    all versions are kept. A table of a repository is refused: use 'anabranch gc'. The exit code is 1 if files are
    missing or damaged; nothing is removed then.
    """
    dataset = here.dataset(uri)
    with here.output.progress("cleaning up") as progress:
        report = dataset.cleanup(clones=clone or (), dry_run=dry_run, progress=progress, **policy.parsed())
    removed = [(file.path, human_size(file.bytes), file.reason) for file in report.files] if list_files else []
    tables = removal_tables(report, "files", removed, damage="missing or damaged")
    return Answer(report, *cleanup_sentences(report), tables=tables, exit_code=GENERAL if report.damaged else 0)


def cleanup_sentences(report: "CleanupReport") -> list[str]:
    if report.damaged:
        return [
            f"{count(len(report.damaged), 'file')} of kept versions missing or damaged, so nothing was removed;"
            " run 'anabranch dataset doctor'"
        ]
    would = "would remove" if report.dry_run else "removed"
    files, versions = count(len(report.files), "file"), count(len(report.versions), "version")
    found = [f"{would} {files} ({human_size(report.bytes)}) and {versions}; {report.kept} kept"]
    if report.too_young:
        found.append(
            f"{count(report.too_young, 'version')} kept only because of the grace period; clean up again later"
        )
    found += [
        f"{count(base.files, 'file')} unused in base {base.name}; add --base {base.name} if no other dataset uses it"
        for base in report.unused_in_bases
    ]
    return found


@command(
    upkeep,
    "relocate",
    "dataset relocate new-location/orders.lance",
    "dataset relocate new-location/orders.lance --mapping s3://old-cold=s3://new-cold",
    on=DATASET,
)
def relocate(
    here: Here,
    uri: Uri,
    mapping: list[str] | None = option(
        "--mapping", "OLD=NEW", "Old and new path of another location that moved. Repeatable."
    ),
    dry_run: DryRun = False,
) -> Answer:
    """Rewrite the paths in a dataset that was moved or copied.

    URI is the new location. If the dataset is a shallow clone, its source records the new location. Run it while there
    are no writers, and run it again after an interruption.
    """
    dataset = here.dataset(uri)
    with here.output.progress("relocating") as progress:
        report = dataset.relocate(mapping=parse_pairs(mapping, option="--mapping"), progress=progress, dry_run=dry_run)
    document = {**document_of(report), "unchanged": len(report.unchanged)}
    tables = [Table(("old", "new"), tuple(report.changes.items()), empty="no paths changed")]
    if report.unexplained:
        rows = [(base.branch, base.path) for base in report.unexplained]
        title = "bases that lie elsewhere (if they moved, name their new paths with --mapping)"
        tables.append(Table(("branch", "path"), rows, title=title))
    did = "would rewrite" if report.dry_run else "rewrote"
    sentences = [f"{did} {count(len(report.rewritten), 'manifest')}, {len(report.unchanged)} needed no change"]
    sentences += [_hold_sentence(hold, dry_run=report.dry_run) for hold in report.holds]
    return Answer(document, *sentences, tables=tables)


def _hold_sentence(hold: "HoldChange", *, dry_run: bool) -> str:
    would = "would record" if dry_run else "recorded"
    match hold.outcome:
        case "unchanged":
            return f"the source {hold.source} knows this clone"
        case "updated":
            return f"{would} the new address in the source {hold.source} (tag {hold.tag})"
        case "added":
            return f"{would} this clone in the source {hold.source}, which did not know it"
    return f"the source {hold.source} does not know this clone: {hold.problem}"


@command(upkeep, "doctor", "dataset doctor lake/orders.lance --repair", on=DATASET)
def doctor(
    here: Here,
    uri: Uri,
    repair: bool = flag("--repair", "Repair what can be repaired safely."),
    grace: str = option(
        "--grace", "TIME", "Change nothing that is younger than this: a writer may still need it.", default="15m"
    ),
    clone: Clones = None,
) -> Answer:
    """Find problems that crashes and other tools left in a dataset.

    Works on a damaged dataset too. The exit code is 1 if a problem was found and not repaired.
    """
    # Not opened by Lance, which fails for the datasets that need this command most.
    dataset = here.damaged_dataset(uri)
    with here.output.progress("examining versions") as progress:
        report = dataset.doctor(
            repair=repair, grace=parse_duration(grace, option="--grace"), clones=clone or (), progress=progress
        )
    return health_answer(report)


bases = group(help="List, add and remove bases: more locations for files.")
app.add_typer(bases, name="base")


@command(bases, "add", "dataset base add lake/orders.lance s3://cold/orders --name cold --dataset-root", on=DATASET)
def add(
    here: Here,
    uri: Uri,
    path: str = argument("PATH", "Location of the new base."),
    name: str = option("--name", "NAME", "Name of the base.", default=...),
    dataset_root: bool = flag("--dataset-root", "Use the folders data/, _deletions/ and _indices/ in the base."),
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
    here: Here, uri: Uri, name: str = argument("NAME", "Name or path of the base."), dry_run: DryRun = False
) -> Answer:
    """Remove a base that no version uses, from main and all branches.

    A base in which any version has files is not removed: move them and clean up older versions first. Files in the base
    are not deleted. Concurrent writers fail and can try again.
    """
    done = here.dataset(uri).base_remove(name, dry_run=dry_run)
    rest = document_of(done)
    document = {**rest.pop("base"), **rest}
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
    to: str = option("--to", "BASE", "Target base, or 'root' for the dataset itself.", default=...),
    where: str | None = option("--where", "SQL", "Move fragments whose rows all match this condition."),
    fragment: list[int] | None = option("--fragment", "ID", "Move this fragment. Repeatable."),
    prune: bool = flag("--prune", "Clean up afterwards, with --keep-last or --keep-newer-than."),
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
    tables = [Table(("base", "path", *kinds), rows), *path_tables("missing files", found.missing)]
    document = {"uri": found.uri, "branch": branch, **document_of(found)}
    return Answer(document, f"version {found.version}: {usage_text(found.total)}", tables=tables)


@command(app, "layout", "dataset layout lake/orders.lance --files", on=DATASET)
def layout(here: Here, uri: Uri, files: bool = flag("--files", "List every file.")) -> Answer:
    """List the files of a dataset by kind, and unknown files.

    Files of all branches and versions are listed. Works on a damaged dataset too.
    """
    found = here.damaged_dataset(uri).layout()
    totals = [(kind.value, total.files, human_size(total.bytes)) for kind, total in found.by_kind.items()]
    branches = [(name or MAIN, total.files, human_size(total.bytes)) for name, total in found.by_branch.items()]
    tables = [Table(("kind", "files", "size"), totals), Table(("branch", "files", "size"), branches)]
    if files:
        tables.append(_file_table("files", found.files))
    if found.unknown_files:
        tables.append(_file_table("unknown files", found.unknown_files))
    if found.unreferenced_trees:
        trees = [(name,) for name in found.unreferenced_trees]
        tables.append(Table(("name",), trees, title="trees without a branch (see doctor)"))
    return Answer(found, tables=tables)


def _file_table(title: str, files: "tuple[LayoutFile, ...]") -> Table:
    rows = [(file.path, file.kind, human_size(file.size), file.modified) for file in files]
    return Table(("path", "kind", "size", "modified (UTC)"), rows, title=title)


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)
