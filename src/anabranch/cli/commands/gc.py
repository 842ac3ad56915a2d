"""`anabranch gc` and `anabranch storage`: what files are needed for, and freeing the others."""

from typing import TYPE_CHECKING, Annotated

from anabranch.cli.command import WRITES, Here, command, group
from anabranch.cli.documents import document_of
from anabranch.cli.options import KeepPolicy, TableNames, flag, option
from anabranch.cli.output import GENERAL, Answer, count, usage_text
from anabranch.cli.tables import Table
from anabranch.display import human_size, to_datetime

if TYPE_CHECKING:
    from anabranch.format.storage_report import Usage
    from anabranch.repo.gc.reports import GcReport, Holding, RepositoryStorage

app = group()

_PARTS = ("own", "shared", "head", "history", "total")


@command(app, "gc", "gc --dry-run --list", "gc --keep-newer-than 30d --keep-last 10", "gc --grace 30m", on=WRITES)
def gc(
    here: Here,
    dry_run: Annotated[bool, flag("--dry-run", "Report what would be deleted. Delete nothing.")] = False,
    list_objects: Annotated[bool, flag("--list", "List every file that gc deletes, with the reason.")] = False,
    *,
    policy: KeepPolicy,
) -> Answer:
    """Delete data that is no longer needed (vacuum).

    gc deletes the data of deleted branches, of commits that were undone, and of writes that were never committed. By
    default, all commits that 'anabranch log' lists for a branch or a tag stay readable. To delete the data of old
    commits too, use --keep-newer-than or --keep-last. With both options, gc keeps a commit if one of the options keeps
    it. Other processes can read and write while gc runs. If files of a table are missing, gc deletes no files of that
    table, and the exit code is 1.
    """
    with here.output.progress("collecting garbage") as progress:
        report = here.repository.gc(dry_run=dry_run, progress=progress, **policy.parsed())
    return Answer(
        report,
        *_gc_sentences(report),
        tables=_gc_tables(report, in_full=list_objects),
        exit_code=GENERAL if report.damaged else 0,
    )


def _gc_sentences(report: "GcReport") -> list[str]:
    would, was, be = ("would free", "would be", "would") if report.dry_run else ("freed", "was", "")
    size = human_size(report.bytes)
    found = [f"{would} {size} in {count(len(report.objects), 'object')}" if report.objects else "nothing to free"]
    if report.commits:
        cannot = "would no longer be readable" if be else "can no longer be read"
        found.append(f"{count(len(report.commits), 'commit')} {cannot}, {report.retained_commits} can")
    found += [f"branch {name} expired and {was} deleted" for name in report.branches]
    found += [f"the lease of run {run_id} expired, and it {was} ended" for run_id in report.runs]
    if report.waiting_since is not None:
        since = to_datetime(report.waiting_since).strftime("%Y-%m-%d %H:%M:%S")
        found.append(f"a writer is active since {since} UTC, so newer files were kept")
    if report.damaged:
        found.append(
            f"{count(len(report.damaged), 'file')} that commits need {'is' if len(report.damaged) == 1 else 'are'}"
            " missing, so nothing of these tables was deleted; run 'anabranch doctor'"
        )
    return found


def _gc_tables(report: "GcReport", *, in_full: bool) -> list[Table]:
    reasons = [(reason, files, human_size(size)) for reason, (files, size) in report.by_reason.items()]
    found = [Table(("reason", "objects", "size"), reasons)] if reasons else []
    if in_full and report.objects:
        rows = [(each.path, human_size(each.bytes), each.reason) for each in report.objects]
        found.append(Table(("path", "size", "reason"), rows, title="objects"))
    if report.damaged:
        missing = [(path,) for path in report.damaged]
        found.append(Table(("path",), missing, title="missing files"))
    return found


@command(app, "storage", "storage", "storage --branch dev", "storage --keep-last 10", on=WRITES)
def storage(
    here: Here,
    branch: Annotated[
        str | None,
        option(
            "--branch -b",
            "NAME",
            "Report only this branch: each of its tables, and which other branches and tags need the same files.",
        ),
    ] = None,
    table: TableNames = None,
    *,
    policy: KeepPolicy,
) -> Answer:
    """Report the storage that branches, tags and clones need.

    'own' is the space that becomes free if you delete the branch or tag, and run gc. 'shared' is the space that other
    branches, tags or clones need too. The report also shows what gc would free. --keep-newer-than, --keep-last and
    --grace have the same meaning as for gc.
    """
    with here.output.progress("measuring") as progress:
        report = here.repository.storage_report(
            branch=branch,
            tables=table or None,
            progress=progress,
            **policy.parsed(),
        )
    document = document_of(report)
    if branch is not None:
        document |= {
            "branch": branch,
            "branch_tables": report.tables_of(branch),
            "pinned_by": report.pinned_by(branch),
        }
    tables = _storage_tables(report) if branch is None else _branch_tables(report, branch)
    return Answer(document, *_storage_sentences(report), tables=tables)


def _storage_sentences(report: "RepositoryStorage") -> list[str]:
    found = [f"{usage_text(report.total)} in total; gc would free {human_size(report.freeable.bytes)}"]
    if report.damaged:
        found.append(f"missing: {count(len(report.damaged), 'file')} that commits need; run 'anabranch doctor'")
    return found


def _storage_tables(report: "RepositoryStorage") -> list[Table]:
    holders = [(each.name, each.kind.value, *_cells(each)) for each in report.holders]
    datasets = [
        (", ".join(each.tables) or f"{each.dataset} (dropped)", *map(_size, (each.needed, each.garbage, each.unjudged)))
        for each in report.tables
    ]
    beside = [(name, usage_text(usage)) for name, usage in report.metadata.items() if usage.files]
    reasons = [(reason, usage_text(usage)) for reason, usage in report.freeable_by_reason.items()]
    found = [
        Table(("ref", "kind", *_PARTS), holders, empty="no refs", right=frozenset(range(2, 7))),
        Table(
            ("table", "needed", "garbage", "not judged"),
            datasets,
            title="tables",
            empty="no tables",
            right=frozenset(range(1, 4)),
        ),
    ]
    if beside:
        found.append(Table(("folder", "size"), beside, title="metadata"))
    if reasons:
        found.append(Table(("reason", "size"), reasons, title="what gc would free"))
    return found


def _branch_tables(report: "RepositoryStorage", branch: str) -> list[Table]:
    rows = [(each.table, *_cells(each)) for each in report.tables_of(branch)]
    total = ("total", *_cells(report.holder(branch)))
    version_refs = [(name, usage_text(usage)) for name, usage in report.pinned_by(branch).items()]
    return [
        Table(("table", *_PARTS), (*rows, total), right=frozenset(range(1, 6))),
        Table(("ref", "size"), version_refs, title="shared with", empty="no other ref"),
    ]


def _cells(holding: "Holding") -> tuple[str, ...]:
    return tuple(_size(getattr(holding, part)) for part in _PARTS)


def _size(usage: "Usage") -> str:
    return human_size(usage.bytes) if usage.files else "-"
