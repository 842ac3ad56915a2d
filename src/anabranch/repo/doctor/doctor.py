"""Check a whole repository, everything that somebody can reach, and mend what can be rebuilt."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anabranch.errors import (
    BusyError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    TableNotFoundError,
)
from anabranch.ids import TableKey
from anabranch.repo.doctor.commits import diagnose_commits, look_at_rest
from anabranch.repo.doctor.effects import with_effects
from anabranch.repo.doctor.findings import (
    Case,
    FindingKind,
    Placement,
    RepositoryFinding,
    RepositoryReport,
    Severity,
)
from anabranch.repo.doctor.heads import diagnose_homes
from anabranch.repo.doctor.history_tables import diagnose_history, read_told_history
from anabranch.repo.doctor.logs import LogPlace, diagnose_branches, list_logs, look_at_log
from anabranch.repo.doctor.rows import diagnose_rows
from anabranch.repo.doctor.seen import Seen, Use
from anabranch.repo.doctor.surroundings import diagnose_leases, diagnose_mark, diagnose_names, diagnose_records
from anabranch.repo.doctor.tables import DatasetCheck, look_at_dataset
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.store import RepoStore
from anabranch.storage import in_parallel
from anabranch.storage.steps import Steps

__all__ = ["Progress", "Scope", "check_repository"]

# Called with how many logs and datasets are done, of how many that are known by now.
Progress = Callable[[int, int], None]

# A repair may lay bare something else, such as the branches of a log that can be read again.
_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """How much is looked at: some tables or all, and their rows on demand, which takes as long as reading them."""

    tables: frozenset[TableKey] | None = None
    rows: bool = False

    @classmethod
    def of(cls, tables: Sequence[str] | None, *, rows: bool) -> "Scope":
        if isinstance(tables, str):
            raise InvalidInputError(f"{tables!r} is no list of tables", hint=f"give [{tables!r}]")
        return cls(tables=None if tables is None else frozenset(map(TableKey.parse, tables)), rows=rows)


def check_repository(context: RepoConfig, scope: Scope, *, repair: bool, progress: Progress) -> RepositoryReport:
    """Report what is wrong with a repository, and with `repair` put right what can be rebuilt.

    A repair never removes anything that was published, and everything is looked at again after it.
    """
    found = _examine(context, scope, progress)
    treated: dict[tuple[FindingKind, str], RepositoryFinding] = {}
    for _ in range(_ROUNDS if repair else 0):
        done = [case.finding for case in found if _mend(case)]
        if not done:
            break
        treated |= {(finding.kind, finding.subject): finding for finding in done}
        found = _examine(context, scope, progress)
    left = [case.finding for case in found]
    # What is found again was not repaired, whatever was tried.
    for finding in left:
        treated.pop((finding.kind, finding.subject), None)
    return RepositoryReport.of(context.root, [*(replace(one, repaired=True) for one in treated.values()), *left])


def _mend(case: Case) -> bool:
    """Whether something was done about a case; somebody who writes at the same time may be in the way."""
    try:
        return case.mend is not None and case.mend()
    except (BusyError, ConflictError, CorruptError, NotFoundError):
        return False


def _examine(context: RepoConfig, scope: Scope, progress: Progress) -> list[Case]:
    # Nothing is taken from what a handle remembers of earlier reads.
    return _Examination(RepoStore.of(context), scope, Steps(progress)).run()


class _Examination:
    def __init__(self, records: RepoStore, scope: Scope, steps: Steps) -> None:
        self._records = records
        self._context = records.context
        self._scope = scope
        self._steps = steps
        self._seen = Seen(scope.tables)

    def run(self) -> list[Case]:
        seen = self._seen
        told = read_told_history(self._context)
        strangers = self._read_logs()
        mark = diagnose_mark(self._context, seen)
        if mark is not None and mark.finding.kind is FindingKind.NEWER_FORMAT:
            return [mark]
        look_at_rest(self._records, seen)
        cases = [*diagnose_branches(self._records, seen, told), *diagnose_commits(self._records, seen)]
        are_logs_whole = not any(case.finding.severity is Severity.ERROR for case in cases)
        cases += self._check_tables()
        damaged = {place for case in cases for place in case.placements}
        homes = list(diagnose_homes(self._records, seen, damaged))
        if are_logs_whole:
            cases += diagnose_history(self._records, seen, told)
        cases += diagnose_leases(self._context)
        cases += diagnose_records(self._context)
        cases += diagnose_names(self._context, strangers)
        # Looked at again: who has just published needs a moment to settle.
        still = {case.finding for case in diagnose_homes(self._records, seen, damaged)} if homes else set()
        cases += [case for case in homes if case.finding in still]
        # Last, since by the mark others know that all is well.
        return with_effects(self._records, seen, cases if mark is None else [*cases, mark])

    def _read_logs(self) -> list[str]:
        logs, strangers = list_logs(self._context)
        self._steps.expect(len(logs))

        def look_at(place: LogPlace) -> None:
            look_at_log(self._records, self._seen, place)
            self._steps.done()

        in_parallel(look_at, logs)
        return strangers

    def _check_tables(self) -> list[Case]:
        by_dataset: dict[str, dict[Placement, Use]] = defaultdict(dict)
        for place, use in self._seen.uses.items():
            by_dataset[place.dataset][place] = use
        self._refuse_unknown()
        self._steps.expect(len(by_dataset))

        def look_at(dataset: str) -> DatasetCheck:
            found = look_at_dataset(self._context, dataset, by_dataset[dataset])
            self._steps.done()
            return found

        checks = in_parallel(look_at, sorted(by_dataset))
        cases = [
            *(case for check in checks for case in check.cases),
            *self._stale_bases({place: said for check in checks for place, said in check.stale.items()}),
            *self._gone_bases({place: base for check in checks for place, base in check.gone.items()}),
        ]
        if self._scope.rows:
            damaged = {place for case in cases for place in case.placements}
            readable = {place: use for place, use in self._seen.uses.items() if place not in damaged}
            cases += diagnose_rows(self._context, readable)
        return cases

    def _refuse_unknown(self) -> None:
        """Refuse a table that no commit has: that nothing is wrong with it would be no answer."""
        known = {key for use in self._seen.uses.values() for key in use.tables}
        for key in sorted(self._scope.tables or ()):
            if str(key) not in known and not self._seen.broken:
                raise TableNotFoundError(f"no commit has a table '{key}'", hint="list the tables to see which exist")

    def _stale_bases(self, stale: dict[Placement, str]) -> list[Case]:
        """One finding for all of them: they have one cause, and one remedy."""
        if not stale:
            return []
        homes = sorted({f"{TABLES}/{place.dataset}/tree/{place.home}" for place in stale})
        finding = RepositoryFinding(
            kind=FindingKind.STALE_BASE,
            subject=homes[0],
            explanation=f"{len(homes)} branches of tables read files of another place: {min(stale.values())}",
            remedy=f"if the repository was moved or copied here, run 'anabranch relocate {self._context.root}'",
            paths=tuple(homes),
        )
        return [Case(finding=finding, placements=frozenset(stale))]

    def _gone_bases(self, gone: dict[Placement, str]) -> list[Case]:
        """One finding for all of them, too: most likely they are tables of one repository."""
        if not gone:
            return []
        bases = tuple(sorted(set(gone.values())))
        finding = RepositoryFinding(
            kind=FindingKind.MISSING_BASE,
            subject=bases[0],
            explanation=f"tables read files of {len(bases)} other places, and nothing is left there",
            remedy=(
                f"if they moved, run 'anabranch relocate {self._context.root} --map OLD=NEW'; else restore them from a"
                " backup"
            ),
            paths=bases,
        )
        return [Case(finding=finding, placements=frozenset(gone))]
