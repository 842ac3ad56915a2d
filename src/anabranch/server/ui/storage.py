"""Storage and upkeep: bytes by branch, garbage collection and the doctor.

Each is done on demand by a thread of its own, because it reads the whole lake. As long as it runs, the page shows how
far it is and loads itself again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.format.doctor.findings import DoctorReport
from anabranch.repo.gc.reports import GcReport, HolderStorage, RepositoryStorage
from anabranch.server.auth import Scope
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post
from anabranch.server.ui.workshop import Work, Workshop
from anabranch.storage.requests import OnProgress

__all__ = ["PAGES", "Bar", "Policy", "StorageView"]

_HOLDERS = 100
_OBJECTS = 200
_FINDINGS = 200
_RELOAD_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which history a garbage collection keeps, as the form has it. Empty keeps all."""

    keep_last: str
    keep_days: str

    @classmethod
    def of(cls, keep_last: str, keep_days: str) -> "Policy":
        for name, text in (("number of commits", keep_last), ("number of days", keep_days)):
            if text and not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= 36_500):
                raise InvalidInputError(f"the {name} must be from 1 to 36500, got {text[:50]!r}", hint="for example 30")
        return cls(keep_last=keep_last, keep_days=keep_days)

    @property
    def last(self) -> int | None:
        return int(self.keep_last) if self.keep_last else None

    @property
    def newer_than(self) -> timedelta | None:
        return timedelta(days=int(self.keep_days)) if self.keep_days else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A branch, tag, run or clone, and its bytes as parts of the widest bar, in percent."""

    holder: HolderStorage
    name: str
    own: float
    shared: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageView:
    """What was requested: a measurement, a dry run of the garbage collection, or the report of the doctor."""

    policy: Policy
    # What still runs.
    work: Work | None = None
    reload_seconds: int = _RELOAD_SECONDS
    storage: RepositoryStorage | None = None
    bars: tuple[Bar, ...] = ()
    gc: GcReport | None = None
    doctor: DoctorReport | None = None
    most_objects: int = _OBJECTS
    most_findings: int = _FINDINGS


def show_storage(visit: Visit) -> Shown:
    """Measure, try a garbage collection, or run the doctor, as the visitor requests."""
    repository, show = visit.lake.repository, visit.query("show")
    policy = Policy.of(visit.query("keep_last"), visit.query("keep_days"))
    kept: dict[str, Any] = {"keep_last": policy.last, "keep_newer_than": policy.newer_than}
    makers: Mapping[str, Callable[[OnProgress], Any]] = {
        "storage": lambda progress: repository.storage_report(**kept, progress=progress),
        # A GET request deletes nothing: a link of another page could cause it. The deletion is a form with a token.
        "gc": lambda progress: repository.gc(**kept, dry_run=True, progress=progress),
        "doctor": lambda progress: repository.doctor(progress=progress),
    }
    if show not in makers:
        return Shown("storage.html", StorageView(policy=policy))
    workshop: Workshop = visit.request.app.state.workshop
    work = workshop.request((visit.lake.identity, show, policy), makers[show])
    if not work.future.done():
        # A header, because a page that reloads itself by an element is not accessible to all readers of screens.
        headers = {"Refresh": str(_RELOAD_SECONDS)}
        return Shown("storage.html", StorageView(policy=policy, work=work), headers=headers)
    found = work.future.result()
    view = StorageView(policy=policy, **{show: found}, bars=_bars(visit, found) if show == "storage" else ())
    return Shown("storage.html", view)


def _bars(visit: Visit, storage: RepositoryStorage) -> tuple[Bar, ...]:
    names = visit.lake.host.branch_names()
    holders = sorted(storage.holders, key=lambda holder: -holder.total.bytes)[:_HOLDERS]
    widest = max((holder.total.bytes for holder in holders), default=0) or 1
    return tuple(
        Bar(
            holder=holder,
            name=names.get(holder.name, holder.name),
            own=round(100 * holder.own.bytes / widest, 2),
            shared=round(100 * holder.shared.bytes / widest, 2),
        )
        for holder in holders
    )


def collect_garbage(visit: Visit) -> Redirect:
    """Free the space of data that the policy does not keep."""
    policy = Policy.of(visit.field("keep_last"), visit.field("keep_days"))
    report = visit.lake.repository.gc(keep_last=policy.last, keep_newer_than=policy.newer_than)
    return Redirect("/storage", f"Deleted {len(report.objects):,} objects of {report.bytes:,} bytes.")


PAGES: tuple[Page, ...] = (
    get("/storage", show_storage, needs=Scope.PROJECT),
    post("/storage/gc", collect_garbage),
)
