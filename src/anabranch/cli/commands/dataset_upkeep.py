"""`anabranch dataset cleanup|relocate|doctor`: old versions, moved datasets, and crashes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.cli.command import DATASET, Here, command, group
from anabranch.cli.commands.doctor import health_answer
from anabranch.cli.options import DryRun, KeepPolicy, Uri, flag, option, parse_duration, parse_pairs
from anabranch.cli.output import GENERAL, Answer, count
from anabranch.cli.tables import Table
from anabranch.display import human_size

if TYPE_CHECKING:
    from anabranch.format.cleanup.retention import CleanupReport
    from anabranch.format.clone.holds import HoldChange

app = group()

Clones = Annotated[
    list[str] | None, option("--clone", "URI", "Keep the files of this clone, made by another tool. Repeatable.")
]


@dataclass(frozen=True, kw_only=True)
class CleanupPolicy(KeepPolicy):
    """The options about which versions and files a cleanup keeps: those of a repository, and bases."""

    base: Annotated[
        list[str] | None,
        option(
            "--base", "BASE", "Remove unused files in this base too. No other dataset may use the base. Repeatable."
        ),
    ] = None

    def parsed(self) -> dict[str, Any]:
        """Return the arguments of `cleanup` and `move_fragments`."""
        return {**super().parsed(), "bases": self.base or ()}


@command(
    app,
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
    list_files: Annotated[bool, flag("--list", "List every file with its reason.")] = False,
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
        report = dataset.cleanup(
            clones=clone or (),
            dry_run=dry_run,
            progress=progress,
            **policy.parsed(),
        )
    tables = _tables(report, in_full=list_files)
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


def _tables(report: "CleanupReport", *, in_full: bool) -> list[Table]:
    reasons = [(reason, files, human_size(size)) for reason, (files, size) in report.by_reason.items()]
    found = [Table(("reason", "files", "size"), reasons)] if reasons else []
    if in_full and report.files:
        rows = [(file.path, human_size(file.bytes), file.reason.value) for file in report.files]
        found.append(Table(("path", "size", "reason"), rows, title="files"))
    if report.damaged:
        missing = [(path,) for path in report.damaged]
        found.append(Table(("path",), missing, title="missing or damaged"))
    return found


@command(
    app,
    "relocate",
    "dataset relocate new-location/orders.lance",
    "dataset relocate new-location/orders.lance --mapping s3://old-cold=s3://new-cold",
    on=DATASET,
)
def relocate(
    here: Here,
    uri: Uri,
    mapping: Annotated[
        list[str] | None, option("--mapping", "OLD=NEW", "Old and new path of another location that moved. Repeatable.")
    ] = None,
    dry_run: DryRun = False,
) -> Answer:
    """Rewrite the paths in a dataset that was moved or copied.

    URI is the new location. If the dataset is a shallow clone, its source records the new location. Run it while there
    are no writers, and run it again after an interruption.
    """
    dataset = here.dataset(uri)
    with here.output.progress("relocating") as progress:
        report = dataset.relocate(mapping=parse_pairs(mapping, option="--mapping"), progress=progress, dry_run=dry_run)
    document = {
        "root": report.root,
        "changes": report.changes,
        "rewritten": report.rewritten,
        "unchanged": len(report.unchanged),
        "unexplained": report.unexplained,
        "holds": report.holds,
        "dry_run": report.dry_run,
    }
    changes = Table(("old", "new"), tuple(report.changes.items()), empty="no paths changed")
    tables = [changes]
    if report.unexplained:
        rows = [(base.branch, base.path) for base in report.unexplained]
        tables.append(
            Table(
                ("branch", "path"),
                rows,
                title="bases that lie elsewhere (if they moved, name their new paths with --mapping)",
            )
        )
    did = "would rewrite" if report.dry_run else "rewrote"
    sentences = [f"{did} {count(len(report.rewritten), 'manifest')}, {len(report.unchanged)} needed no change"]
    sentences += [_hold_sentence(hold, dry_run=report.dry_run) for hold in report.holds]
    return Answer(document, *sentences, tables=tables)


def _hold_sentence(hold: "HoldChange", *, dry_run: bool) -> str:
    """Describe what happened to the record that the source of a clone keeps of it."""
    would = "would record" if dry_run else "recorded"
    match hold.outcome.value:
        case "unchanged":
            return f"the source {hold.source} knows this clone"
        case "updated":
            return f"{would} the new address in the source {hold.source} (tag {hold.tag})"
        case "added":
            return f"{would} this clone in the source {hold.source}, which did not know it"
    return f"the source {hold.source} does not know this clone: {hold.problem}"


@command(app, "doctor", "dataset doctor lake/orders.lance --repair", on=DATASET)
def doctor(
    here: Here,
    uri: Uri,
    repair: Annotated[bool, flag("--repair", "Repair what can be repaired safely.")] = False,
    grace: Annotated[
        str, option("--grace", "TIME", "Change nothing that is younger than this: a writer may still need it.")
    ] = "15m",
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
