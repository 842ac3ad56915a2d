"""`anabranch gc`, `storage`, `doctor`, `compact` and `index`: free space, find problems, make tables faster."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from anabranch.cli.command import COMMITS, WRITES, Here, command, group
from anabranch.cli.options import KeepPolicy, TableName, TableNames, argument, flag, option
from anabranch.cli.output import GENERAL, Answer, Line, document_of
from anabranch.cli.texts import Table, count, usage_text
from anabranch.display import human_size, short_id, to_datetime, to_text
from anabranch.hints import Door, words_at

if TYPE_CHECKING:
    from anabranch.format.bases import Usage
    from anabranch.format.doctor.findings_and_repairs import DoctorReport, Finding
    from anabranch.format.retention import CleanupReport
    from anabranch.repo.gc.collection import GcReport
    from anabranch.repo.gc.storage_report import Holding, RepositoryStorage

app = group()

_PARTS = ("own", "shared", "head", "history", "total")


@command(app, "gc", "gc --dry-run --list", "gc --keep-newer-than 30d --keep-last 10", "gc --grace 30m", on=WRITES)
def gc(
    here: Here,
    dry_run: bool = flag("--dry-run", "Report what would be deleted. Delete nothing."),
    list_objects: bool = flag("--list", "List every file that gc deletes, with the reason."),
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
    removed = [(each.path, human_size(each.bytes), each.reason) for each in report.objects] if list_objects else []
    tables = removal_tables(report, "objects", removed, damage="missing files")
    return Answer(report, *_gc_sentences(report), tables=tables, exit_code=GENERAL if report.damaged else 0)


def _gc_sentences(report: "GcReport") -> list[str]:
    would, was, cannot = ("freed", "was", "can no longer be read")
    if report.dry_run:
        would, was, cannot = ("would free", "would be", "would no longer be readable")
    size = human_size(report.bytes)
    found = [f"{would} {size} in {count(len(report.objects), 'object')}" if report.objects else "nothing to free"]
    if report.commits:
        found.append(f"{count(len(report.commits), 'commit')} {cannot}, {report.retained_commits} can")
    found += [f"branch {name} expired and {was} deleted" for name in report.branches]
    found += [f"the lease of run {run_id} expired, and it {was} ended" for run_id in report.runs]
    if report.waiting_since is not None:
        since = to_text(to_datetime(report.waiting_since))
        found.append(f"a writer is active since {since} UTC, so newer files were kept")
    if report.damaged:
        found.append(
            f"{count(len(report.damaged), 'file')} that commits need {'is' if len(report.damaged) == 1 else 'are'}"
            " missing, so nothing of these tables was deleted; run 'anabranch doctor'"
        )
    return found


def removal_tables(
    report: "GcReport | CleanupReport", noun: str, removed: Sequence[tuple[object, ...]], *, damage: str
) -> list[Table]:
    """Return tables of the files that gc or a cleanup removes, by reason, of listed files, and of damaged files."""
    reasons = [(reason, files, human_size(size)) for reason, (files, size) in report.by_reason.items()]
    found = [Table(("reason", noun, "size"), reasons)] if reasons else []
    if removed:
        found.append(Table(("path", "size", "reason"), removed, title=noun))
    return found + path_tables(damage, report.damaged)


def path_tables(title: str, paths: Iterable[str]) -> list[Table]:
    rows = [(path,) for path in paths]
    return [Table(("path",), rows, title=title)] if rows else []


@command(app, "storage", "storage", "storage --branch dev", "storage --keep-last 10", on=WRITES)
def storage(
    here: Here,
    branch: str | None = option(
        "--branch -b",
        "NAME",
        "Report only this branch: each of its tables, and which other branches and tags need the same files.",
    ),
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
            branch=branch, tables=table or None, progress=progress, **policy.parsed()
        )
    document = document_of(report)
    if branch is not None:
        document |= {"branch": branch, "branch_tables": report.tables_of(branch), "pinned_by": report.pinned_by(branch)}
    sentences = [f"{usage_text(report.total)} in total; gc would free {human_size(report.freeable.bytes)}"]
    if report.damaged:
        sentences.append(f"missing: {count(len(report.damaged), 'file')} that commits need; run 'anabranch doctor'")
    tables = _storage_tables(report) if branch is None else _branch_tables(report, branch)
    return Answer(document, *sentences, tables=tables)


def _storage_tables(report: "RepositoryStorage") -> list[Table]:
    holders = [(each.name, each.kind, *_cells(each)) for each in report.holders]
    datasets = [
        (", ".join(each.tables) or f"{each.dataset} (dropped)", *map(_size, (each.needed, each.garbage, each.unjudged)))
        for each in report.tables
    ]
    beside = [(name, usage_text(usage)) for name, usage in report.metadata.items() if usage.files]
    reasons = [(reason, usage_text(usage)) for reason, usage in report.freeable_by_reason.items()]
    numbers = frozenset(range(1, 4))
    found = [
        Table(("ref", "kind", *_PARTS), holders, empty="no refs", right=frozenset(range(2, 7))),
        Table(("table", "needed", "garbage", "not judged"), datasets, title="tables", empty="no tables", right=numbers),
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


@command(app, "doctor", "doctor", "doctor --rows --table shop.orders", "doctor --repair", on=WRITES)
def doctor(
    here: Here,
    repair: bool = flag("--repair", "Repair what can be repaired. No committed data is deleted."),
    rows: bool = flag("--rows", "Also read every row, and check that primary keys are unique and not null."),
    table: TableNames = None,
) -> Answer:
    """Check that everything in the repository can be read.

    doctor also works on a repository that other commands cannot open. It changes nothing without --repair. The exit
    code is 1 if there is a problem that was not repaired.
    """
    from anabranch.bootstrap import open_damaged_repository

    settings = here.settings
    repository = open_damaged_repository(
        settings.repository, storage_options=here.storage_options, actor=settings.actor
    )
    with here.output.progress("checking") as progress:
        report = repository.doctor(repair=repair, tables=table or None, rows=rows, progress=progress)
    return health_answer(report)


_COLOURS = {"error": "red", "warning": "yellow", "repaired": "green"}
# The maximum number of names of one kind in a line.
_NAMED = 5


def health_answer(report: "DoctorReport") -> Answer:
    """Show a report. The exit code is 1 if something is wrong and was not repaired."""
    repairable = sum(finding.repairable for finding in report.open)
    state = f"{len(report.repaired)} repaired, {len(report.open)} open, of which --repair can repair {repairable}"
    return Answer(
        report,
        state if report.findings else f"{report.root} is in order",
        lines=[line for finding in report.findings for line in _finding_lines(finding)],
        exit_code=0 if report.is_clean else GENERAL,
    )


def _finding_lines(finding: "Finding") -> Iterator[Line]:
    state = "repaired" if finding.repaired else finding.severity.value
    yield Line("")
    yield Line(f"{state}: ", _COLOURS.get(state), more=[(f"{finding.kind} {finding.subject}", None)])
    yield Line(f"  {finding.explanation}")
    affected = _some(finding.refs)
    if finding.commits:
        affected += [count(len(finding.commits), "commit")]
    if affected:
        tables = f"{', '.join(_some(finding.tables))} on " if finding.tables else ""
        yield Line(f"  affects {tables}{', '.join(affected)}")
    if not finding.repaired:
        yield Line(f"  what to do: {words_at(Door.COMMAND_LINE, finding.remedy)}")


def _some(names: tuple[str, ...]) -> list[str]:
    return [*names[:_NAMED], *([f"{len(names) - _NAMED} more"] if len(names) > _NAMED else [])]


@command(app, "compact", "compact", "compact shop.orders --branch dev", "compact --engine spark", on=COMMITS)
def compact(
    here: Here,
    keys: list[str] | None = argument(
        "[TABLE]...", "Tables to compact (default: all tables changed on the branch).", default=None
    ),
    engine: str = option("--engine", "NAME", "Engine: local, or spark on a cluster.", default="local"),
) -> Answer:
    """Rewrite small files of tables as larger ones.

    Deleted rows are removed from the files, and no row changes. The result is one commit.
    """
    with here.output.progress("compacting") as report:
        done = here.repository.compact(keys or None, engine=engine, progress=report)
    commit_id = None if done.commit is None else done.commit.id
    sentence = "nothing to compact" if commit_id is None else f"compacted by commit {short_id(commit_id)}"
    rows = [(each.table, each.rows, each.fragments_before, each.fragments_after) for each in done.tables]
    shown = Table(("table", "rows", "fragments before", "fragments"), rows, empty="no tables")
    return Answer({"commit_id": commit_id, "tables": done.tables}, sentence, tables=[shown])


@command(app, "index", "index shop.orders id", "index shop.events embedding --type ivf_pq --metric cosine", on=COMMITS)
def index(
    here: Here,
    key: TableName,
    column: str = argument("COLUMN", "Column to index."),
    type_: str = option(
        "--type",
        "TYPE",
        "Kind of index: btree, bitmap, label_list, ngram, zonemap, bloomfilter or inverted; for vectors ivf_flat,"
        " ivf_pq, ivf_sq, ivf_hnsw_flat, ivf_hnsw_pq or ivf_hnsw_sq.",
        default="btree",
    ),
    name: str | None = option("--name", "NAME", "Name of the index (default: COLUMN_idx)."),
    metric: str | None = option("--metric", "NAME", "Vectors: l2 (the default), cosine or dot."),
    partitions: int | None = option("--num-partitions", "N", "Vectors: number of partitions.", min=1),
    sub_vectors: int | None = option("--num-sub-vectors", "N", "Vectors: number of sub-vectors.", min=1),
) -> Answer:
    """Build an index on a column of a table, as one commit."""
    from anabranch.format.staging import VectorOptions  # takes a while to load

    vector = None
    if (metric, partitions, sub_vectors) != (None, None, None):
        vector = VectorOptions(metric=metric or "l2", num_partitions=partitions, num_sub_vectors=sub_vectors)
    with here.output.progress("indexing"):
        commit = here.repository.index(key, column, type=type_, name=name, vector=vector)
    indices = here.repository.snapshot_of(here.repository.branch)[key].indices
    commit_id = None if commit is None else commit.id
    sentences = [] if commit_id is None else [f"indexed {column} of {key} by commit {short_id(commit_id)}"]
    rows = [(found.name, ", ".join(found.columns), found.kind, found.covered_rows) for found in indices]
    shown = Table(("index", "columns", "type", "covered rows"), rows)
    return Answer({"commit_id": commit_id, "indices": indices}, *sentences, tables=[shown])
