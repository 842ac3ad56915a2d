"""`anabranch dataset move|report|layout`: which files a dataset has, and where."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import (
    AsJson,
    Branch,
    DryRun,
    StorageOptions,
    Uri,
    example,
    open_damaged_dataset,
    open_dataset,
    parse_duration,
)
from anabranch.cli.commands.dataset_cleanup import (
    CleanBases,
    GraceOption,
    KeepLastVersions,
    KeepNewerVersions,
    cleanup_document,
    cleanup_sentences,
)
from anabranch.cli.output import Answer, Table, amount, count, human_size, output_for, usage_text
from anabranch.errors import InvalidInputError
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.format.bases.tiering import MoveReport
    from anabranch.format.layout.listing import Layout, LayoutFile
    from anabranch.format.storage_report import StorageReport

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    app.command(
        "move",
        epilog=example(
            "dataset move lake/orders.lance --to cold --where \"day < '2026-01-01'\"",
            "dataset move lake/orders.lance --to root --fragment 3 --fragment 4",
            "dataset move lake/orders.lance --to cold --fragment 3 --prune --keep-last 1",
        ),
    )(move)
    app.command("report", epilog=example("dataset report lake/orders.lance"))(report)
    app.command("layout", epilog=example("dataset layout lake/orders.lance --files"))(layout)


def move(
    uri: Uri,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="BASE", help="The base to move to; 'root' is the dataset's own.", show_default=False
        ),
    ],
    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="SQL", help="Move fragments whose rows all match this predicate.", show_default=False
        ),
    ] = None,
    fragment: Annotated[
        list[int] | None,
        typer.Option("--fragment", metavar="ID", help="Move this fragment; repeat it for more.", show_default=False),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Clean up afterwards: remove versions that are not kept, and copies that no kept version needs.",
        ),
    ] = False,
    keep_last: KeepLastVersions = None,
    keep_newer_than: KeepNewerVersions = None,
    grace: GraceOption = None,
    base: CleanBases = None,
    dry_run: DryRun = False,
    branch: Branch = MAIN,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Move fragments to another base (tiering).

    Row ids and indices stay as they are. The copies left behind stay too, for older versions, branches and clones;
    --prune with --keep-last or --keep-newer-than removes those that no kept version needs. A dry run reports the move
    alone.
    """
    if (where is None) == (not fragment):
        raise InvalidInputError("name the fragments to move in one way", hint="give either --where or --fragment")
    output = output_for(as_json=as_json)
    dataset = open_dataset(uri, storage_option, branch=branch)
    with output.progress(f"moving to {to}") as progress:
        moved = dataset.move_fragments(
            to=to,
            where=where,
            fragments=fragment or None,
            prune=prune,
            keep_last=keep_last,
            keep_newer_than=parse_duration(keep_newer_than, option="--keep-newer-than"),
            grace=parse_duration(grace, option="--grace"),
            bases=base or (),
            dry_run=dry_run,
            progress=progress,
        )
    document = {
        "to": moved.to,
        "version": moved.version,
        "moved": moved.moved,
        "already_there": moved.already_there,
        "partly_matching": moved.partly_matching,
        "files": moved.files,
        "bytes": moved.bytes,
        "left_behind": moved.left_behind,
        "dry_run": moved.dry_run,
        "pruned": None if moved.pruned is None else cleanup_document(moved.pruned),
    }
    output.show(Answer(document=document, sentences=_move_sentences(moved)))


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


def report(uri: Uri, branch: Branch = MAIN, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """Report files and bytes by base.

    It counts the files that the newest version reads.
    """
    found = open_dataset(uri, storage_option, branch=branch).storage_report()
    kinds = ("data", "deletion", "index", "total")
    rows = tuple((base.name, base.path, *(usage_text(getattr(base, kind)) for kind in kinds)) for base in found.bases)
    tables = [Table(columns=("base", "path", *kinds), rows=rows)]
    if found.missing:
        missing = tuple((path,) for path in found.missing)
        tables.append(Table(title="missing files", columns=("path",), rows=missing))
    output_for(as_json=as_json).show(
        Answer(
            document=_report_document(found, branch=branch),
            sentences=[f"version {found.version}: {usage_text(found.total)}"],
            tables=tables,
        )
    )


def layout(
    uri: Uri,
    files: Annotated[bool, typer.Option("--files", help="List every file, not only totals and unknown files.")] = False,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Classify every file, and flag unknown files.

    All branches and old versions are included. It works on a damaged dataset too.
    """
    found = open_damaged_dataset(uri, storage_option).layout()
    totals = tuple((kind.value, total.files, human_size(total.bytes)) for kind, total in found.by_kind.items())
    branches = tuple((name or MAIN, total.files, human_size(total.bytes)) for name, total in found.by_branch.items())
    tables = [
        Table(columns=("kind", "files", "size"), rows=totals),
        Table(columns=("branch", "files", "size"), rows=branches),
    ]
    if files:
        tables.append(_file_table("files", found.files))
    if found.unknown_files:
        tables.append(_file_table("unknown files", found.unknown_files))
    if found.unreferenced_trees:
        trees = tuple((name,) for name in found.unreferenced_trees)
        tables.append(Table(title="trees without a branch (see doctor)", columns=("name",), rows=trees))
    output_for(as_json=as_json).show(Answer(document=_layout_document(found), tables=tables))


def _report_document(report: "StorageReport", *, branch: str) -> dict[str, object]:
    bases = [
        {
            "id": None if base.base is None else base.base.id,
            "name": base.name,
            "path": base.path,
            "data": amount(base.data),
            "deletion": amount(base.deletion),
            "index": amount(base.index),
            "total": amount(base.total),
        }
        for base in report.bases
    ]
    return {
        "uri": report.uri,
        "branch": branch,
        "version": report.version,
        "bases": bases,
        "total": amount(report.total),
        "missing": report.missing,
    }


def _layout_document(layout: "Layout") -> dict[str, object]:
    return {
        "root": layout.root,
        "total": amount(layout.total),
        "by_kind": {kind.value: amount(total) for kind, total in layout.by_kind.items()},
        "by_branch": {name or MAIN: amount(total) for name, total in layout.by_branch.items()},
        "unreferenced_trees": layout.unreferenced_trees,
        "unknown_files": [file.path for file in layout.unknown_files],
        "files": [
            {
                "path": file.path,
                "kind": file.kind.value,
                "branch": file.branch or MAIN,
                "has_ref": file.has_ref,
                "size": file.size,
                "modified": file.modified,
            }
            for file in layout.files
        ],
    }


def _file_table(title: str, files: "tuple[LayoutFile, ...]") -> Table:
    rows = tuple((file.path, file.kind.value, human_size(file.size), file.modified) for file in files)
    return Table(title=title, columns=("path", "kind", "size", "modified (UTC)"), rows=rows)


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)
