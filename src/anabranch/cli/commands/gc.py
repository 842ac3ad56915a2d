"""`anabranch gc`: free the space of unreachable data."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    Actor,
    AsJson,
    Grace,
    KeepLast,
    KeepNewerThan,
    Repo,
    StorageOptions,
    parse_duration,
)
from anabranch.cli.exit_codes import GENERAL
from anabranch.cli.output import Answer, Table, count, human_size, output_for
from anabranch.cli.session import open_session
from anabranch.repo.log.times import to_datetime

if TYPE_CHECKING:
    from anabranch.repo.gc.policy import GcReport

__all__ = ["gc"]


def gc(
    keep_newer_than: KeepNewerThan = None,
    keep_last: KeepLast = None,
    grace: Grace = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Dry run: report what would be deleted.")] = False,
    list_objects: Annotated[bool, typer.Option("--list", help="Name every object, with its reason.")] = False,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Free the space of what no branch, tag, run or clone can reach.

    Readers and writers may run concurrently. Without --keep-newer-than and --keep-last, all history of all branches
    is kept, and only deleted and never published data is removed. The exit code is 1 if tables are damaged; nothing
    of them is deleted.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    output = output_for(as_json=as_json)
    with output.progress("collecting garbage") as progress:
        report = here.repository.gc(
            keep_newer_than=parse_duration(keep_newer_than, option="--keep-newer-than"),
            keep_last=keep_last,
            grace=parse_duration(grace, option="--grace"),
            dry_run=dry_run,
            progress=progress,
        )
    output.show(
        Answer(document=_document(report), sentences=_sentences(report), tables=_tables(report, in_full=list_objects))
    )
    if report.damaged:
        raise typer.Exit(GENERAL)


def _document(report: "GcReport") -> dict[str, object]:
    return {
        "dry_run": report.dry_run,
        "files": len(report.objects),
        "bytes": report.bytes,
        "by_reason": {reason: {"files": files, "bytes": size} for reason, (files, size) in report.by_reason.items()},
        "objects": [{"path": each.path, "bytes": each.bytes, "reason": each.reason} for each in report.objects],
        "commits": report.commits,
        "branches": report.branches,
        "runs": report.runs,
        "damaged": report.damaged,
        "retained_commits": report.retained_commits,
        "tables": report.tables,
        "waiting_since": None if report.waiting_since is None else to_datetime(report.waiting_since),
    }


def _sentences(report: "GcReport") -> list[str]:
    would, was, be = ("would free", "would be", "would") if report.dry_run else ("freed", "was", "")
    size = human_size(report.bytes)
    found = [f"{would} {size} in {count(len(report.objects), 'object')}" if report.objects else "nothing to free"]
    if report.commits:
        cannot = "would no longer be readable" if be else "can no longer be read"
        found.append(f"{count(len(report.commits), 'commit')} {cannot}, {report.retained_commits} can")
    found += [f"branch {name} is past its time and {was} deleted" for name in report.branches]
    found += [f"the lease of run {run_id} expired, and it {was} ended" for run_id in report.runs]
    if report.waiting_since is not None:
        since = to_datetime(report.waiting_since).strftime("%Y-%m-%d %H:%M:%S")
        found.append(f"work is alive since {since} UTC, so what was written after that was left alone")
    if report.damaged:
        found.append(
            f"{count(len(report.damaged), 'file')} that commits need {'is' if len(report.damaged) == 1 else 'are'}"
            " missing, so nothing of these tables was touched; run 'anabranch doctor'"
        )
    return found


def _tables(report: "GcReport", *, in_full: bool) -> list[Table]:
    reasons = tuple((reason, files, human_size(size)) for reason, (files, size) in report.by_reason.items())
    found = [Table(columns=("reason", "objects", "size"), rows=reasons)] if reasons else []
    if in_full and report.objects:
        rows = tuple((each.path, human_size(each.bytes), each.reason) for each in report.objects)
        found.append(Table(title="objects", columns=("path", "size", "reason"), rows=rows))
    if report.damaged:
        missing = tuple((path,) for path in report.damaged)
        found.append(Table(title="missing files", columns=("path",), rows=missing))
    return found
