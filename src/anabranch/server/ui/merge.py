"""Merge a ref into a branch: the plan, the conflicts with all three sides, and the decisions on them.

Nothing is kept between two requests. The decisions travel in the form, and the merge gets them as resolvers and
resolutions, so that the library decides in the same way here as everywhere.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from markupsafe import escape

from anabranch.display import short_id
from anabranch.drawing.texts import Cell, cell_of
from anabranch.errors import AnabranchError, InvalidInputError, WriteConflictError
from anabranch.ids import MAIN, BranchName
from anabranch.json_values import json_value
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.merge.conflicts import Conflict, ConflictKind
from anabranch.repo.merge.plan import MergePlan, TablePlan
from anabranch.repo.merge.resolve import Strategy
from anabranch.server.envelope import status_of
from anabranch.server.ui.lake import RefChoices
from anabranch.server.ui.paging import Paged, page_of
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

__all__ = ["PAGES", "ConflictView", "Draft", "MergeView"]

# Rows are matched in this process: a page does not wait for a JVM.
_ENGINE = "local"
_CONFLICTS = 20
_TABLES = 50
# A plan of more tables is made on request: it may take long.
_MOST_PLANNED = 100
# More conflicts are counted, and can be decided by rules, but are not listed.
_MOST_LISTED = 10_000
_MOST_DECISIONS = 1000
# The decisions and rules travel in the page, where a quote takes five characters. A page has at most 300 KB.
_MOST_CHARACTERS = 120_000
# A longer value of a decision is not shown in its input, but kept.
_LONGEST_VALUE = 500
# A conflict with a longer key can only be decided by a rule.
_LONGEST_ID = 1000
_LONGEST_MESSAGE = 4000
_LONGEST_CHECKS = 10_000
# The choice that leaves a decision as it is.
_KEEP = "keep"
_SIDES = ("source", "target", "base")
_KINDS: Mapping[ConflictKind, str] = {
    ConflictKind.DIVERGENT_UPDATE: "both changed the cell",
    ConflictKind.DIVERGENT_INSERT: "both inserted the row",
    ConflictKind.DELETE_VS_UPDATE: "one deleted it, the other changed it",
    ConflictKind.SCHEMA: "both changed the columns",
    ConflictKind.KEYLESS: "the table has no key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A merge that a visitor prepares: the two sides, and what was decided so far.

    `rules` are resolvers by the name of a table or column. `decisions` are resolutions by the id of their conflict.
    """

    source: str
    into: str
    strategy: Strategy = Strategy.FAIL
    rules: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Return the decisions as the arguments of a merge."""
        # The id of a conflict is its resolution in JSON without the decision, so no ids are kept between two requests.
        resolutions = [{**json.loads(name), **choice} for name, choice in self.decisions.items()]
        return {
            "strategy": self.strategy,
            "resolvers": dict(self.rules),
            "resolutions": resolutions,
            "engine": _ENGINE,
        }

    def key(self) -> tuple[str, ...]:
        """Return all decisions, by which a plan is cached."""
        return str(self.strategy), self.rules_json(), self.decisions_json()

    @property
    def is_decided(self) -> bool:
        return self.strategy is not Strategy.FAIL or bool(self.rules or self.decisions)

    @property
    def size(self) -> int:
        """The number of characters that the decisions take in a page."""
        return len(escape(self.decisions_json())) + len(escape(self.rules_json()))

    def rules_json(self) -> str:
        return json.dumps(dict(self.rules), ensure_ascii=False)

    def decisions_json(self) -> str:
        return json.dumps(dict(self.decisions), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictView:
    """A conflict, its three sides as cells, and the decision on it.

    The id is empty if the conflict can be decided by rules only. `row` is the id of its row, empty if it is not about a
    row. `sides` are those that can be taken. `kept` is the number of characters of a value that is too long to show.
    """

    id: str
    row: str
    table: str
    key: str
    column: str
    kind: str
    base: Cell
    source: Cell
    target: Cell
    sides: tuple[str, ...]
    can_set: bool
    is_open: bool
    take: str
    value: str
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The commits of both sides that a plan was made of, and those of main below live branches."""

    source: str
    target: str
    source_main: str
    target_main: str

    @classmethod
    def now(cls, visit: Visit, draft: Draft) -> "Heads":
        source, target = (visit.lake.repository.snapshot_of(ref) for ref in (draft.source, draft.into))
        return cls(
            source=source.id,
            target=target.id,
            source_main=source.main_commit_id or "",
            target_main=target.main_commit_id or "",
        )

    @classmethod
    def of_form(cls, visit: Visit) -> "Heads":
        """Return the commits of the plan that the visitor saw. Raise InvalidInputError if the form has none."""
        found = cls(**{name: visit.field(f"{name}_head") for name in cls.__slots__})
        if not found.source or not found.target:
            raise InvalidInputError(
                "the form does not state which commits its plan is about", hint="show the plan again, and merge then"
            )
        return found

    def fields(self) -> dict[str, str]:
        """Return the fields of a form that hold these commits."""
        return {f"{name}_head": getattr(self, name) for name in self.__slots__}

    def check_unmoved(self, now: "Heads", draft: Draft) -> None:
        """Raise WriteConflictError if a side moved since these were its commits."""
        named = {"source": draft.source, "target": draft.into}
        moved = [
            f"'{named[side]}' moved from commit {short_id(getattr(self, side))} to {short_id(getattr(now, side))}"
            for side in named
            if getattr(self, side) != getattr(now, side)
        ]
        moved += [
            f"main moved below the live branch '{named[side]}'"
            for side in named
            if getattr(self, f"{side}_main") != getattr(now, f"{side}_main")
        ]
        if moved:
            raise WriteConflictError(
                f"{', and '.join(moved)} since the plan was shown; nothing was merged",
                hint="this is the new plan: read it, then merge again",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeView:
    """The plan of a merge. It is None as long as no source was chosen, or if the request cannot work."""

    draft: Draft
    choices: RefChoices
    plan: MergePlan | None = None
    heads: Heads | None = None
    # How many tables differ, if there are many and the plan was not requested.
    unplanned: int = 0
    tables_page: Paged[TablePlan] = field(
        default_factory=lambda: Paged(items=(), number=1, size=_TABLES, has_more=False)
    )
    kept: tuple[str, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    conflicts: Paged[ConflictView] = field(
        default_factory=lambda: Paged(items=(), number=1, size=_CONFLICTS, has_more=False)
    )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    commit: GraphCommit
    into: str


def show_merge(visit: Visit) -> Shown:
    """Show the plan of a merge, without any decision."""
    draft = Draft(source=visit.query("source"), into=visit.query("into") or MAIN)
    if not draft.source:
        return Shown("merge/plan.html", MergeView(draft=draft, choices=visit.lake.list_choices()))
    try:
        visit.lake.host.check_merge(draft.source, draft.into)
    except InvalidInputError as err:
        view = MergeView(draft=draft, choices=visit.lake.list_choices(), problem=err)
        return Shown("merge/plan.html", view, status=status_of(err))
    number = 0 if visit.query("plan") == "1" else _count_tables(visit, draft)
    if number > _MOST_PLANNED:
        view = MergeView(draft=draft, choices=visit.lake.list_choices(), unplanned=number)
        return Shown("merge/plan.html", view)
    return Shown("merge/plan.html", _view(visit, draft))


def _count_tables(visit: Visit, draft: Draft) -> int:
    """Return how many tables the source has changed since the merge base. No rows are read."""
    repository = visit.lake.repository
    base = repository.merge_base(draft.source, draft.into)
    return len(repository.diff(base.id, draft.source, engine=_ENGINE).tables)


def decide(visit: Visit) -> Shown:
    """Show the plan with the decisions of the form. Nothing is changed."""
    before = draft = _draft_of(visit)
    try:
        draft = _with_new_decisions(visit, before)
        view = _view(visit, draft)
        Heads.of_form(visit).check_unmoved(view.heads or Heads.now(visit, draft), draft)
        return Shown("merge/plan.html", view)
    except (InvalidInputError, WriteConflictError) as err:
        return _explain(visit, draft, before, err)


def apply_merge(visit: Visit) -> Shown | Redirect:
    """Merge as decided, or show why that is not possible."""
    before = draft = _draft_of(visit)
    try:
        draft = _with_new_decisions(visit, before)
        heads = Heads.of_form(visit)
        heads.check_unmoved(Heads.now(visit, draft), draft)
        result = visit.lake.repository.merge(
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
    """Show the commit of a merge, and where to go from there."""
    commit = visit.lake.repository.get_commit(visit.query("commit"))
    return Shown("merge/result.html", ResultView(commit=commit, into=visit.query("into") or MAIN))


def _view(visit: Visit, draft: Draft) -> MergeView:
    repository = visit.lake.repository
    into = str(BranchName.parse_public(draft.into))
    visit.lake.host.check_merge(draft.source, into)
    kept = _list_kept(visit, draft)
    heads = Heads.now(visit, draft)
    # The plan is cached by commits and decisions: a visitor sends the form many times, and each plan compares rows.
    state = (*heads.fields().values(), *map(_kept_text, kept))
    plan = visit.cached(lambda: _plan_of(visit, draft), "plan", state, draft.key(), weigh=_weigh_plan)
    view = MergeView(
        draft=draft,
        choices=visit.lake.list_choices(),
        plan=plan,
        # Of the plan itself, where it names them: a side may have moved between the two reads.
        heads=replace(heads, source=plan.source_commit_id, target=plan.target_commit_id),
        tables_page=page_of(plan.tables, number=_number(visit.field("tables") or visit.query("tables")), size=_TABLES),
        kept=tuple(map(_kept_text, kept)),
        checks=repository.branch_get(into).checks,
        message=visit.field("message")[:_LONGEST_MESSAGE],
        checks_text=visit.field("checks")[:_LONGEST_CHECKS],
        is_squash=visit.field("squash") == "1",
        is_only_open=visit.field("only_open") == "1",
    )
    return _with_conflicts(visit, view, plan, state)


def _list_kept(visit: Visit, draft: Draft) -> list[dict[str, Any]]:
    """Return the decisions that are kept for this pair of branches. The list is empty if the source is not a branch."""
    try:
        return visit.lake.repository.decision_list(draft.source, draft.into)
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
        raise InvalidInputError(
            f"the {name} has {len(text):,} characters, at most {most:,} are allowed", hint="shorten it"
        )
    return text


def _plan_of(visit: Visit, draft: Draft) -> MergePlan:
    return visit.lake.repository.merge(draft.source, draft.into, dry_run=True, **draft.options()).plan


def _weigh_plan(plan: MergePlan) -> int:
    return 2000 * (1 + len(plan.tables))


def clear_decisions(visit: Visit) -> Redirect:
    """Forget the decisions that are kept for a pair of branches."""
    source, into = visit.field("source"), visit.field("into")
    was_any = visit.lake.repository.decision_clear(source, into)
    return Redirect(
        "/merge",
        "The kept decisions were deleted." if was_any else "There were no kept decisions.",
        {"source": source, "into": into},
    )


def _with_conflicts(visit: Visit, view: MergeView, plan: MergePlan, state: tuple[str, ...]) -> MergeView:
    draft = view.draft
    if not plan.conflict_count and not draft.is_decided:
        return view
    everything, total = visit.cached(
        lambda: _list_all(visit, draft), "conflicts", state, weigh=lambda found: 2000 * (1 + len(found[0]))
    )
    still_open = everything
    if draft.is_decided:
        found = visit.lake.repository.conflicts(draft.source, draft.into, **draft.options())
        # Not read if the plan counted none: reading would compare the rows again.
        still_open = _by_id(islice(found, _MOST_LISTED)) if plan.conflict_count else {}
    # A decision about columns may lead to conflicts of rows that were not there before.
    listed = {**everything, **still_open}
    shown = [
        _conflict_view(draft, name, conflict, is_open=name in still_open)
        for name, conflict in sorted(listed.items(), key=_order)
        if name in still_open or not view.is_only_open
    ]
    pages = max(1, -(-len(shown) // _CONFLICTS))
    # A decision may shorten the list of open conflicts, so that the page of the form does not exist any more.
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


def _list_all(visit: Visit, draft: Draft) -> tuple[dict[str, Conflict], int]:
    """Return the conflicts without any decision by their ids, and their number if not all are listed."""
    repository = visit.lake.repository
    found = _by_id(islice(repository.conflicts(draft.source, draft.into, engine=_ENGINE), _MOST_LISTED))
    if len(found) < _MOST_LISTED:
        return found, len(found)
    plan = repository.merge(draft.source, draft.into, dry_run=True, engine=_ENGINE).plan
    return found, plan.conflict_count


def _by_id(conflicts: Iterable[Conflict]) -> dict[str, Conflict]:
    return {_id_of(conflict): conflict for conflict in conflicts}


def _id_of(conflict: Conflict) -> str:
    """Return what identifies a conflict, as the fields of a resolution in JSON."""
    found: dict[str, Any] = {"table": conflict.table, "kind": str(conflict.kind)}
    if conflict.key is not None:
        found["key"] = json_value(conflict.key)
    if conflict.column is not None:
        found["column"] = conflict.column
    if conflict.path is not None:
        found["path"] = conflict.path
    if conflict.key is None:
        # Several conflicts may be about one column: its type, its default.
        found |= {side: json_value(getattr(conflict, side)) for side in ("base", "source", "target")}
    return json.dumps(found, ensure_ascii=False, sort_keys=True)


def _order(item: tuple[str, Conflict]) -> tuple[Any, ...]:
    """Order conflicts so that those of tables and columns come first, and those of one row are together."""
    conflict = item[1]
    # Numbers before texts: values of different types cannot be compared.
    key = [
        (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))
        for value in (conflict.key or {}).values()
    ]
    return conflict.key is not None, conflict.table, key, conflict.column or "", conflict.path or ""


def _conflict_view(draft: Draft, name: str, conflict: Conflict, *, is_open: bool) -> ConflictView:
    choice = draft.decisions.get(name, {})
    key = "" if conflict.key is None else json.dumps(json_value(conflict.key), ensure_ascii=False)
    # A decision may be to set null, so the value alone does not show whether there is a decision.
    value = choice.get("value")
    return ConflictView(
        id=name if len(name) <= _LONGEST_ID else "",
        row="" if conflict.key is None or len(name) > _LONGEST_ID else _row_id(conflict),
        table=conflict.table,
        key=key,
        column=".".join(name for name in (conflict.column, conflict.path) if name is not None),
        kind=conflict.problem or _KINDS[conflict.kind],
        base=cell_of(_plain(conflict.base)),
        source=cell_of(_plain(conflict.source)),
        target=cell_of(_plain(conflict.target)),
        sides=_SIDES if conflict.key is not None else _SIDES[:2],
        can_set=conflict.key is not None and conflict.column is not None,
        is_open=is_open,
        take=choice.get("take") or ("null" if "value" in choice and value is None else "value" if choice else ""),
        value="" if value is None or len(str(value)) > _LONGEST_VALUE else str(value),
        kept=len(str(value)) if len(str(value)) > _LONGEST_VALUE else 0,
    )


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _draft_of(visit: Visit) -> Draft:
    """Return the decisions that the form brought back. Raise InvalidInputError if they are not valid."""
    strategy = visit.field("strategy") or Strategy.FAIL
    if strategy not in set(Strategy):
        raise InvalidInputError(f"there is no strategy {strategy[:50]!r}", hint="use fail, source or target")
    rules, decisions = _object_of(visit, "rules"), _object_of(visit, "decisions")
    removed = {str(name) for name in visit.form.getlist("remove_rule")}
    return Draft(
        source=visit.field("source"),
        into=visit.field("into"),
        strategy=Strategy(strategy),
        rules={name: str(rule) for name, rule in rules.items() if name not in removed},
        decisions={name: _choice_of(choice) for name, choice in decisions.items() if _is_id(name)},
    )


def _object_of(visit: Visit, name: str) -> dict[str, Any]:
    # The field comes from the browser. Deeply nested JSON raises RecursionError, which is not a ValueError.
    text = visit.field(name) or "{}"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInputError(f"the field {name} of the form is not valid", hint="open the page again")
    return found


def _choice_of(choice: Any) -> dict[str, Any]:
    if isinstance(choice, dict) and choice.get("take") in _SIDES:
        return {"take": choice["take"]}
    # The default is neither a str nor None, so that a missing value is refused. Null is a value.
    if isinstance(choice, dict) and isinstance(choice.get("value", 0), str | None):
        return {"value": choice["value"]}
    raise InvalidInputError(f"the decision {str(choice)[:200]!r} is not valid", hint="open the page again")


def _is_id(name: str) -> bool:
    """Return whether a text may be the id of a conflict. The library checks its fields."""
    try:
        return isinstance(json.loads(name), dict)
    except (ValueError, RecursionError):
        return False


def _with_new_decisions(visit: Visit, draft: Draft) -> Draft:
    """Add what the visitor chose on the page. Raise InvalidInputError if there are too many decisions."""
    decisions = dict(draft.decisions)
    ids = [str(name) for name in visit.form.getlist("conflict")]
    for number, name in enumerate(ids):
        if not _is_id(name):
            continue
        take = visit.field(f"take.{number}")
        if take == _KEEP and name in decisions:
            continue
        # Removed first: if the visitor cleared the choice, the conflict is open again.
        decisions.pop(name, None)
        if take in _SIDES:
            decisions[name] = {"take": take}
        elif take in ("value", "null"):
            decisions[name] = {"value": None if take == "null" else visit.field(f"value.{number}")}
    found = replace(draft, decisions=_with_rows(visit, draft, decisions), rules=_with_rule(visit, draft.rules))
    if len(found.decisions) > _MOST_DECISIONS or found.size > _MOST_CHARACTERS:
        raise InvalidInputError(
            f"{len(found.decisions):,} single decisions of {found.size:,} characters are too many",
            hint="decide by a rule, or set long values on the branch before you merge",
        )
    return found


def _with_rows(
    visit: Visit, draft: Draft, decisions: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """Add the decisions on whole rows: one for each cell of the row that is in conflict."""
    wanted = {
        str(name): take
        for number, name in enumerate(visit.form.getlist("row"))
        if (take := visit.field(f"row.{number}")) in _SIDES
    }
    if not wanted:
        return decisions
    found = dict(decisions)
    # All conflicts of the row, also those on another page.
    for name, conflict in _list_all(visit, draft)[0].items():
        if conflict.key is not None and (row := _row_id(conflict)) in wanted:
            found[name] = {"take": wanted[row]}
    return found


def _row_id(conflict: Conflict) -> str:
    """Return what identifies the row of a conflict, in JSON."""
    return json.dumps([conflict.table, json_value(conflict.key)], ensure_ascii=False, sort_keys=True)


def _with_rule(visit: Visit, rules: Mapping[str, str]) -> Mapping[str, str]:
    subject, rule = visit.field("rule_for"), visit.field("rule")
    if not subject or not rule:
        return rules
    return {**rules, subject: f"latest_by({visit.field('latest_by')})" if rule == "latest_by" else rule}


def _number(text: str) -> int:
    # A wrong number shows the first page, because an error page would lose the decisions in the form. isdigit() alone
    # also accepts characters such as '²', for which int() raises.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 and int(text) > 0 else 1


PAGES: tuple[Page, ...] = (
    get("/merge", show_merge),
    get("/merge/result", show_result),
    post("/merge/decide", decide, writes="into"),
    post("/merge/apply", apply_merge, writes="into"),
    post("/merge/forget", clear_decisions, writes="into"),
)
