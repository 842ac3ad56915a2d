"""`anabranch dataset cleanup`: remove old versions and files that nothing needs."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import AsJson, DryRun, StorageOptions, Uri, example, open_dataset, parse_duration
from anabranch.cli.exit_codes import GENERAL
from anabranch.cli.output import Answer, Table, count, human_size, output_for

if TYPE_CHECKING:
    from anabranch.format.cleanup.report import CleanupReport

__all__ = [
    "CleanBases",
    "GraceOption",
    "KeepLastVersions",
    "KeepNewerVersions",
    "add_commands",
    "cleanup_document",
    "cleanup_sentences",
]

KeepLastVersions = Annotated[
    int | None,
    typer.Option(
        "--keep-last",
        metavar="N",
        min=1,
        show_default=False,
        help="Keep the newest N versions of each branch, and remove older ones.",
    ),
]
KeepNewerVersions = Annotated[
    str | None,
    typer.Option(
        "--keep-newer-than",
        metavar="TIME",
        show_default=False,
        help="Keep versions that are younger, such as 7d or 12h, and remove older ones.",
    ),
]
GraceOption = Annotated[
    str | None,
    typer.Option(
        "--grace",
        metavar="TIME",
        show_default=False,
        help="Remove nothing younger than this, such as 30m; 1d by default. A writer may be about to commit it.",
    ),
]
CleanBases = Annotated[
    list[str] | None,
    typer.Option(
        "--base",
        metavar="BASE",
        show_default=False,
        help="Remove unused files in this base too. Name only a base that no other dataset uses; repeatable.",
    ),
]


def add_commands(app: typer.Typer) -> None:
    app.command(
        "cleanup",
        epilog=example(
            "dataset cleanup lake/orders.lance --keep-last 10 --dry-run",
            "dataset cleanup lake/orders.lance --keep-newer-than 7d --base cold",
        ),
    )(cleanup)


def cleanup(
    uri: Uri,
    keep_last: KeepLastVersions = None,
    keep_newer_than: KeepNewerVersions = None,
    grace: GraceOption = None,
    base: CleanBases = None,
    clone: Annotated[
        list[str] | None,
        typer.Option("--clone", metavar="URI", help="A clone made by another tool, whose files to keep; repeatable."),
    ] = None,
    dry_run: DryRun = False,
    list_files: Annotated[bool, typer.Option("--list", help="List every file, with its reason.")] = False,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Remove old versions, and files that no kept version needs.

    All branches are cleaned. Always kept are the first and the newest version of each branch, tagged versions, versions
    that a clone or branch was made from, and what is younger than --grace. Without --keep-last and --keep-newer-than
    all versions are kept. A table of a repository is refused: use 'anabranch gc'. The exit code is 1 if files are
    missing or damaged; nothing is removed then.
    """
    output = output_for(as_json=as_json)
    dataset = open_dataset(uri, storage_option)
    with output.progress("cleaning up") as progress:
        report = dataset.cleanup(
            keep_last=keep_last,
            keep_newer_than=parse_duration(keep_newer_than, option="--keep-newer-than"),
            grace=parse_duration(grace, option="--grace"),
            bases=base or (),
            clones=clone or (),
            dry_run=dry_run,
            progress=progress,
        )
    tables = _tables(report, in_full=list_files)
    output.show(Answer(document=cleanup_document(report), sentences=cleanup_sentences(report), tables=tables))
    if report.damaged:
        raise typer.Exit(GENERAL)


def cleanup_document(report: "CleanupReport") -> dict[str, object]:
    return {
        "dry_run": report.dry_run,
        "files": len(report.files),
        "bytes": report.bytes,
        "by_reason": {reason: {"files": files, "bytes": size} for reason, (files, size) in report.by_reason.items()},
        "versions": [{"branch": branch, "version": version} for branch, version in report.versions],
        "removed": [{"path": file.path, "bytes": file.bytes, "reason": file.reason} for file in report.files],
        "kept_versions": report.kept,
        "too_young": report.too_young,
        "unused_in_bases": [
            {"base": base.name, "path": base.path, "files": base.files} for base in report.unused_in_bases
        ],
        "damaged": report.damaged,
    }


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
    reasons = tuple((reason, files, human_size(size)) for reason, (files, size) in report.by_reason.items())
    found = [Table(columns=("reason", "files", "size"), rows=reasons)] if reasons else []
    if in_full and report.files:
        rows = tuple((file.path, human_size(file.bytes), file.reason.value) for file in report.files)
        found.append(Table(title="files", columns=("path", "size", "reason"), rows=rows))
    if report.damaged:
        missing = tuple((path,) for path in report.damaged)
        found.append(Table(title="missing or damaged", columns=("path",), rows=missing))
    return found
