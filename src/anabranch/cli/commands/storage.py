"""`anabranch storage`: how many bytes branches, tags, runs and clones need, and what gc would free."""

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
from anabranch.cli.output import Answer, Table, amount, count, human_size, output_for, usage_text
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.format.storage_report import Usage
    from anabranch.repo.gc.usage import Holding, RepositoryStorage

__all__ = ["storage"]

_PARTS = ("own", "shared", "head", "history", "total")


def storage(
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch",
            "-b",
            metavar="NAME",
            show_default=False,
            help="Report one branch: its tables, and what pins them.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="TABLE", show_default=False, help="Only this table. May be repeated."),
    ] = None,
    keep_newer_than: KeepNewerThan = None,
    keep_last: KeepLast = None,
    grace: Grace = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Report which refs keep bytes, and what gc would free.

    Bytes of its own would be freed with a ref; shared bytes are needed by others too. The policy is that of gc.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    output = output_for(as_json=as_json)
    with output.progress("measuring") as progress:
        report = here.repository.storage_report(
            branch=branch,
            tables=table or None,
            keep_newer_than=parse_duration(keep_newer_than, option="--keep-newer-than"),
            keep_last=keep_last,
            grace=parse_duration(grace, option="--grace"),
            progress=progress,
        )
    document = _document(report) | ({} if branch is None else _branch_document(report, branch))
    tables = _tables(report) if branch is None else _branch_tables(report, branch)
    output.show(Answer(document=document, sentences=_sentences(report), tables=tables))


def _document(report: "RepositoryStorage") -> dict[str, object]:
    return {
        "root": report.root,
        "total": amount(report.total),
        "needed": amount(report.needed),
        "freeable": amount(report.freeable),
        "freeable_by_reason": _amounts(report.freeable_by_reason),
        "metadata": _amounts(dict(report.metadata)),
        "holders": [{"kind": each.kind, "name": each.name, **_holding(each)} for each in report.holders],
        "tables": [
            {
                "dataset": each.dataset,
                "tables": each.tables,
                "needed": amount(each.needed),
                "garbage": amount(each.garbage),
                "unjudged": amount(each.unjudged),
            }
            for each in report.tables
        ],
        "damaged": report.damaged,
    }


def _branch_document(report: "RepositoryStorage", branch: str) -> dict[str, object]:
    of_branch = [{"table": each.table, **_holding(each)} for each in report.tables_of(branch)]
    return {"branch": branch, "branch_tables": of_branch, "pinned_by": _amounts(report.pinned_by(branch))}


def _holding(holding: "Holding") -> dict[str, object]:
    return {part: amount(getattr(holding, part)) for part in _PARTS}


def _amounts(usages: "dict[str, Usage]") -> dict[str, object]:
    return {name: amount(usage) for name, usage in usages.items()}


def _sentences(report: "RepositoryStorage") -> list[str]:
    found = [f"{usage_text(report.total)} in all, of which gc would free {human_size(report.freeable.bytes)}"]
    if report.damaged:
        found.append(f"missing: {count(len(report.damaged), 'file')} that commits need; run 'anabranch doctor'")
    return found


def _tables(report: "RepositoryStorage") -> list[Table]:
    holders = tuple((each.name, each.kind.value, *_cells(each)) for each in report.holders)
    datasets = tuple(
        (", ".join(each.tables) or f"{each.dataset} (dropped)", *map(_size, (each.needed, each.garbage, each.unjudged)))
        for each in report.tables
    )
    beside = tuple((name, usage_text(usage)) for name, usage in report.metadata.items() if usage.files)
    reasons = tuple((reason, usage_text(usage)) for reason, usage in report.freeable_by_reason.items())
    found = [
        Table(columns=("who", "kind", *_PARTS), rows=holders, empty="nothing is needed"),
        Table(title="tables", columns=("table", "needed", "garbage", "not judged"), rows=datasets, empty="no tables"),
    ]
    if beside:
        found.append(Table(title="metadata", columns=("folder", "size"), rows=beside))
    if reasons:
        found.append(Table(title="what gc would free", columns=("reason", "size"), rows=reasons))
    return found


def _branch_tables(report: "RepositoryStorage", branch: str) -> list[Table]:
    rows = tuple((each.table, *_cells(each)) for each in report.tables_of(branch))
    total = ("in all", *_cells(report.holder(branch)))
    version_refs = tuple((name, usage_text(usage)) for name, usage in report.pinned_by(branch).items())
    return [
        Table(columns=("table", *_PARTS), rows=(*rows, total)),
        Table(
            title="needed by others too",
            columns=("who", "size"),
            rows=version_refs,
            empty="nothing else needs any of it",
        ),
    ]


def _cells(holding: "Holding") -> tuple[str, ...]:
    return tuple(_size(getattr(holding, part)) for part in _PARTS)


def _size(usage: "Usage") -> str:
    return human_size(usage.bytes) if usage.files else "-"
