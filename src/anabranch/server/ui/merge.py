"""Merge a ref into a branch: the plan, the conflicts with all three sides, and the decisions on them.

Nothing is kept between two requests. The decisions travel in the form, and the merge gets them as resolvers and
resolutions, so that the library decides in the same way here as everywhere.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from anabranch.errors import AnabranchError, InvalidInputError, WriteConflictError
from anabranch.ids import MAIN, BranchName
from anabranch.json_values import json_value
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.repo.merge.plan import MergePlan, TablePlan
from anabranch.server.envelope import status_of
from anabranch.server.ui.lake import RefChoices
from anabranch.server.ui.merge_draft import (
    ENGINE,
    MOST_LISTED,
    ConflictView,
    Draft,
    Heads,
    by_id,
    draft_of,
    list_all,
    order_of,
    view_of,
    with_new_decisions,
)
from anabranch.server.ui.responses import Paged, page_of
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, parse_number, post

_CONFLICTS = 20
_TABLES = 50
# A plan of more tables is made on request: it may take long.
_MOST_PLANNED = 100
_LONGEST_MESSAGE = 4000
_LONGEST_CHECKS = 10_000
_EMPTY: Paged[Any] = page_of((), number=1, size=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeView:
    """The plan of a merge. It is None as long as no source was chosen, or if the request cannot work."""

    draft: Draft
    choices: RefChoices
    plan: MergePlan | None = None
    heads: Heads | None = None
    # How many tables differ, if there are many and the plan was not requested.
    unplanned: int = 0
    tables_page: Paged[TablePlan] = _EMPTY
    kept: tuple[str, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    conflicts: Paged[ConflictView] = _EMPTY
    total: int = 0
    is_cut: bool = False
    is_only_open: bool = False
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    message: str = ""
    checks_text: str = ""
    is_squash: bool = False
    problem: AnabranchError | None = None

    @property
    def open_count(self) -> int:
        return 0 if self.plan is None else self.plan.conflict_count

    @property
    def rows(self) -> list[list[ConflictView]]:
        """The conflicts of the page, those of one row together."""
        found: list[list[ConflictView]] = []
        for conflict in self.conflicts.items:
            if found and conflict.row and found[-1][0].row == conflict.row:
                found[-1].append(conflict)
            else:
                found.append([conflict])
        return found


def show_merge(visit: Visit) -> Shown:
    """Show the plan of a merge, without any decision."""
    draft = Draft(source=visit.query("source"), into=visit.query("into") or MAIN)
    view = MergeView(draft=draft, choices=visit.lake.list_choices())
    if not draft.source:
        return Shown("merge/plan.html", view)
    try:
        visit.lake.check_merge(draft.source, draft.into)
    except InvalidInputError as err:
        return Shown("merge/plan.html", replace(view, problem=err), status=status_of(err))
    if visit.query("plan") != "1":
        repository = visit.repository
        base = repository.merge_base(draft.source, draft.into)
        # No rows are read for the number of tables.
        number = len(repository.diff(base.id, draft.source, engine=ENGINE).tables)
        if number > _MOST_PLANNED:
            return Shown("merge/plan.html", replace(view, unplanned=number))
    return Shown("merge/plan.html", _view(visit, draft))


def decide(visit: Visit) -> Shown:
    """Show the plan with the decisions of the form. Nothing is changed."""
    before = draft = draft_of(visit)
    try:
        draft = with_new_decisions(visit, before)
        view = _view(visit, draft)
        Heads.of_form(visit).check_unmoved(view.heads or Heads.now(visit, draft), draft)
        return Shown("merge/plan.html", view)
    except (InvalidInputError, WriteConflictError) as err:
        return _explain(visit, draft, before, err)


def apply_merge(visit: Visit) -> Shown | Redirect:
    """Merge as decided, or show why that is not possible."""
    before = draft = draft_of(visit)
    try:
        draft = with_new_decisions(visit, before)
        heads = Heads.of_form(visit)
        heads.check_unmoved(Heads.now(visit, draft), draft)
        result = visit.repository.merge(
            draft.source,
            draft.into,
            message=_limited(visit, "message", _LONGEST_MESSAGE) or None,
            checks=_checks_of(visit),
            squash=visit.field("squash") == "1",
            keep_decisions=visit.field("keep") == "1",
            # Checked again at the moment of the merge: both sides may move after the check above.
            expected_head=heads.target,
            expected_source=heads.source,
            **draft.options(),
        )
    except AnabranchError as err:
        return _explain(visit, draft, before, err)
    if result.commit is None:
        return Redirect("/merge", f"{draft.into} has everything of {draft.source} already.", {"into": draft.into})
    notice = f"{draft.source} was merged into {draft.into}."
    return Redirect("/merge/result", notice, {"commit": result.commit.id, "into": draft.into})


def _explain(visit: Visit, draft: Draft, before: Draft, error: AnabranchError) -> Shown:
    """Show the plan and an error. If a new decision does not fit, show the plan without the new ones."""
    try:
        view = _view(visit, draft)
    except InvalidInputError:
        view = _view(visit, before)
    return Shown("merge/plan.html", replace(view, problem=error), status=status_of(error))


def show_result(visit: Visit) -> Shown:
    commit = visit.repository.get_commit(visit.query("commit"))
    return Shown("merge/result.html", {"commit": commit, "into": visit.query("into") or MAIN})


def _view(visit: Visit, draft: Draft) -> MergeView:
    repository = visit.repository
    into = str(BranchName.parse_public(draft.into))
    visit.lake.check_merge(draft.source, into)
    kept = _list_kept(visit, draft)
    heads = Heads.now(visit, draft)
    # The plan is cached by commits and decisions: a visitor sends the form many times, and each plan compares rows.
    state = (*heads.fields().values(), *map(_kept_text, kept))
    plan = visit.cached(
        lambda: repository.merge(draft.source, draft.into, dry_run=True, **draft.options()).plan,
        *("plan", state, draft.key()),
        weigh=lambda plan: 2000 * (1 + len(plan.tables)),
    )
    view = MergeView(
        draft=draft,
        choices=visit.lake.list_choices(),
        plan=plan,
        # Use the commits of the plan if it names them: a side may have moved between the two reads.
        heads=replace(heads, source=plan.source_commit_id, target=plan.target_commit_id),
        tables_page=page_of(plan.tables, number=_number(visit.field("tables") or visit.query("tables")), size=_TABLES),
        kept=tuple(map(_kept_text, kept)),
        checks=repository.branch_get(into).checks,
        message=visit.field("message")[:_LONGEST_MESSAGE],
        checks_text=visit.field("checks")[:_LONGEST_CHECKS],
        is_squash=visit.field("squash") == "1",
        is_only_open=visit.field("only_open") == "1",
    )
    return _with_conflicts(visit, view, plan, state) if plan.conflict_count or draft.is_decided else view


def _list_kept(visit: Visit, draft: Draft) -> list[dict[str, Any]]:
    """Return the decisions that are kept for this pair of branches. The list is empty if the source is not a branch."""
    try:
        return visit.repository.decision_list(draft.source, draft.into)
    except InvalidInputError:
        return []


def _kept_text(one: Mapping[str, Any]) -> str:
    return json.dumps(json_value(one), ensure_ascii=False)


def _checks_of(visit: Visit) -> list[str]:
    lines = _limited(visit, "checks", _LONGEST_CHECKS).splitlines()
    return [line.strip() for line in lines if line.strip()]


def _limited(visit: Visit, name: str, most: int) -> str:
    text = visit.field(name)
    if len(text) > most:
        problem = f"the {name} has {len(text):,} characters, at most {most:,} are allowed"
        raise InvalidInputError(problem, hint="shorten it")
    return text


def clear_decisions(visit: Visit) -> Redirect:
    """Forget the decisions that are kept for a pair of branches."""
    source, into = visit.field("source"), visit.field("into")
    was_any = visit.repository.decision_clear(source, into)
    notice = "The kept decisions were deleted." if was_any else "There were no kept decisions."
    return Redirect("/merge", notice, {"source": source, "into": into})


def _with_conflicts(visit: Visit, view: MergeView, plan: MergePlan, state: tuple[str, ...]) -> MergeView:
    draft = view.draft
    everything, total = visit.cached(
        lambda: list_all(visit.repository, draft.source, draft.into),
        "conflicts",
        state,
        weigh=lambda found: 2000 * (1 + len(found[0])),
    )
    still_open = _list_open(visit, draft, plan) if draft.is_decided else everything
    # A decision about columns may lead to new conflicts of rows.
    listed = {**everything, **still_open}
    shown = [
        view_of(name, conflict, choice=draft.decisions.get(name, {}), is_open=name in still_open)
        for name, conflict in sorted(listed.items(), key=order_of)
        if name in still_open or not view.is_only_open
    ]
    pages = max(1, -(-len(shown) // _CONFLICTS))
    # A decision may shorten the list of open conflicts, so that the page of the form no longer exists.
    number = min(_number(visit.field("page")), pages)
    tables = sorted({conflict.table for conflict in listed.values()})
    columns = sorted({f"{one.table}.{one.column}" for one in listed.values() if one.column is not None})
    return replace(
        view,
        conflicts=page_of(shown, number=number, size=_CONFLICTS),
        total=max(total, len(listed)),
        is_cut=total > len(everything),
        tables=tuple(tables),
        columns=tuple(columns[:200]),
    )


def _list_open(visit: Visit, draft: Draft, plan: MergePlan) -> dict[str, Conflict]:
    """Return the conflicts that the decisions leave open, by their ids."""
    found = visit.repository.conflicts(draft.source, draft.into, **draft.options())
    # Not read if the plan counted none: reading would compare the rows again.
    return by_id(islice(found, MOST_LISTED)) if plan.conflict_count else {}


def _number(text: str) -> int:
    """Return the number of a page. A wrong one is the first page: an error page would lose the decisions."""
    try:
        return parse_number(text, "page", most=10**6, hint="")
    except InvalidInputError:
        return 1


PAGES: tuple[Page, ...] = (
    get("/merge", show_merge),
    get("/merge/result", show_result),
    post("/merge/decide", decide, writes="into"),
    post("/merge/apply", apply_merge, writes="into"),
    post("/merge/forget", clear_decisions, writes="into"),
)
