"""The merge that a visitor prepares: its conflicts, both sides, and the decisions, which travel in the form."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from markupsafe import escape

from anabranch.display import Cell, cell_of, short_id
from anabranch.errors import InvalidInputError, WriteConflictError
from anabranch.json_values import json_value
from anabranch.repo.merge.conflict_resolution import Strategy
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind
from anabranch.repo.repository import Repository
from anabranch.server.ui.site import Visit

# Rows are matched in this process: a page does not wait for a JVM.
ENGINE = "local"
SIDES = ("source", "target", "base")
# More conflicts are counted, and can be decided by rules, but are not listed.
MOST_LISTED = 10_000
# A longer value of a decision is kept, but not shown in its input.
_LONGEST_VALUE = 500
# A conflict with a longer key can only be decided by a rule.
_LONGEST_ID = 1000
_KINDS: Mapping[ConflictKind, str] = {
    ConflictKind.DIVERGENT_UPDATE: "both changed the cell",
    ConflictKind.DIVERGENT_INSERT: "both inserted the row",
    ConflictKind.DELETE_VS_UPDATE: "one deleted it, the other changed it",
    ConflictKind.SCHEMA: "both changed the columns",
    ConflictKind.KEYLESS: "the table has no key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictView:
    """A conflict, its three sides as cells, and the decision on it.

    The id is empty if the conflict can be decided by rules only. `row` is the id of its row, empty if it is not about a
    row. `sides` are those that can be taken. `choice` is empty without a decision. `value` is that of the decision, or
    empty if it is too long to show: then `kept` is the number of its characters.
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
    choice: Mapping[str, Any]
    value: str
    kept: int

    @property
    def take(self) -> str:
        """The option of the page for the decision: a side, 'null' or 'value', and '' without a decision."""
        # A decision may be to set null, so the value alone does not show whether there is a decision.
        if "value" in self.choice:
            return "null" if self.choice["value"] is None else "value"
        return str(self.choice.get("take", ""))


def list_all(repository: Repository, source: str, into: str) -> tuple[dict[str, Conflict], int]:
    """Return the conflicts without any decision by their ids, and their number if not all are listed."""
    found = by_id(islice(repository.conflicts(source, into, engine=ENGINE), MOST_LISTED))
    if len(found) < MOST_LISTED:
        return found, len(found)
    return found, repository.merge(source, into, dry_run=True, engine=ENGINE).plan.conflict_count


def by_id(conflicts: Iterable[Conflict]) -> dict[str, Conflict]:
    return {_id_of(conflict): conflict for conflict in conflicts}


def _id_of(conflict: Conflict) -> str:
    """Return the id of a conflict: the fields of its resolution in JSON."""
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


def order_of(item: tuple[str, Conflict]) -> tuple[Any, ...]:
    """Order conflicts so that those of tables and columns come first, and those of one row are together."""
    conflict = item[1]
    # Numbers before texts: values of different types cannot be compared.
    key = [
        (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))
        for value in (conflict.key or {}).values()
    ]
    return conflict.key is not None, conflict.table, key, conflict.column or "", conflict.path or ""


def row_id(conflict: Conflict) -> str:
    """Return the id of the row of a conflict, in JSON."""
    return json.dumps([conflict.table, json_value(conflict.key)], ensure_ascii=False, sort_keys=True)


def view_of(name: str, conflict: Conflict, *, choice: Mapping[str, Any], is_open: bool) -> ConflictView:
    """Return a conflict as the page shows it. The choice is the decision on it, empty if there is none."""
    value = "" if choice.get("value") is None else str(choice["value"])
    is_shown = len(value) <= _LONGEST_VALUE
    has_id = len(name) <= _LONGEST_ID
    key = row = ""
    if conflict.key is not None:
        key = json.dumps(json_value(conflict.key), ensure_ascii=False)
        row = row_id(conflict) if has_id else ""
    return ConflictView(
        id=name if has_id else "",
        row=row,
        table=conflict.table,
        key=key,
        column=".".join(name for name in (conflict.column, conflict.path) if name is not None),
        kind=conflict.problem or _KINDS[conflict.kind],
        base=cell_of(_plain(conflict.base)),
        source=cell_of(_plain(conflict.source)),
        target=cell_of(_plain(conflict.target)),
        sides=SIDES if conflict.key is not None else SIDES[:2],
        can_set=conflict.key is not None and conflict.column is not None,
        is_open=is_open,
        choice=choice,
        value=value if is_shown else "",
        kept=0 if is_shown else len(value),
    )


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


_MOST_DECISIONS = 1000
# The decisions and rules travel in the page, where a quote takes five characters. A page has at most 300 KB.
_MOST_CHARACTERS = 120_000
# The choice that leaves a decision as it is.
_KEEP = "keep"
# Resolutions by the id of their conflict.
Decisions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A merge that a visitor prepares: the two sides, and what was decided so far.

    `rules` are resolvers by the name of a table or column. `decisions` are resolutions by the id of their conflict.
    """

    source: str
    into: str
    strategy: Strategy = Strategy.FAIL
    rules: Mapping[str, str] = field(default_factory=dict)
    decisions: Decisions = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Return the decisions as the arguments of a merge."""
        # The id of a conflict is its resolution in JSON without the decision, so no ids are kept between two requests.
        resolutions = [{**json.loads(name), **choice} for name, choice in self.decisions.items()]
        return {"strategy": self.strategy, "resolvers": dict(self.rules), "resolutions": resolutions, "engine": ENGINE}

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
class Heads:
    """The commits of both sides that a plan was made of, and those of main below live branches."""

    source: str
    target: str
    source_main: str
    target_main: str

    @classmethod
    def now(cls, visit: Visit, draft: Draft) -> "Heads":
        source, target = (visit.repository.snapshot_of(ref) for ref in (draft.source, draft.into))
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


def draft_of(visit: Visit) -> Draft:
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
        # The id of a conflict is an object. The library checks its fields.
        decisions={name: _choice_of(choice) for name, choice in decisions.items() if _parse_object(name) is not None},
    )


def _object_of(visit: Visit, name: str) -> dict[str, Any]:
    found = _parse_object(visit.field(name) or "{}")
    if found is None:
        raise InvalidInputError(f"the field {name} of the form is not valid", hint="open the page again")
    return found


def _choice_of(choice: Any) -> dict[str, Any]:
    if isinstance(choice, dict) and choice.get("take") in SIDES:
        return {"take": choice["take"]}
    # The default is neither a str nor None, so that a missing value is refused. Null is a value.
    if isinstance(choice, dict) and isinstance(choice.get("value", 0), str | None):
        return {"value": choice["value"]}
    raise InvalidInputError(f"the decision {str(choice)[:200]!r} is not valid", hint="open the page again")


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return an object in JSON that came from the browser, None for any other text."""
    # Deeply nested JSON raises RecursionError, which is not a ValueError.
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        return found if isinstance(found, dict) else None
    return None


def with_new_decisions(visit: Visit, draft: Draft) -> Draft:
    """Add what the visitor chose on the page. Raise InvalidInputError if there are too many decisions."""
    decisions = _with_rows(visit, draft, _with_single(visit, draft.decisions))
    found = replace(draft, decisions=decisions, rules=_with_rule(visit, draft.rules))
    if len(found.decisions) > _MOST_DECISIONS or found.size > _MOST_CHARACTERS:
        raise InvalidInputError(
            f"{len(found.decisions):,} single decisions of {found.size:,} characters are too many",
            hint="decide by a rule, or set long values on the branch before you merge",
        )
    return found


def _with_single(visit: Visit, before: Decisions) -> Decisions:
    """Add the decisions on single conflicts, and remove those that the visitor cleared."""
    decisions = dict(before)
    ids = [str(name) for name in visit.form.getlist("conflict")]
    for number, name in enumerate(ids):
        if _parse_object(name) is None:
            continue
        take = visit.field(f"take.{number}")
        if take == _KEEP and name in decisions:
            continue
        # Removed first: if the visitor cleared the choice, the conflict is open again.
        decisions.pop(name, None)
        if take in SIDES:
            decisions[name] = {"take": take}
        elif take in ("value", "null"):
            decisions[name] = {"value": None if take == "null" else visit.field(f"value.{number}")}
    return decisions


def _with_rows(visit: Visit, draft: Draft, decisions: Decisions) -> Decisions:
    """Add the decisions on whole rows: one for each cell of the row that is in conflict."""
    wanted = {
        str(name): take
        for number, name in enumerate(visit.form.getlist("row"))
        if (take := visit.field(f"row.{number}")) in SIDES
    }
    if not wanted:
        return decisions
    found = dict(decisions)
    # All conflicts of the row, also those on another page.
    for name, conflict in list_all(visit.repository, draft.source, draft.into)[0].items():
        if conflict.key is not None and (row := row_id(conflict)) in wanted:
            found[name] = {"take": wanted[row]}
    return found


def _with_rule(visit: Visit, rules: Mapping[str, str]) -> Mapping[str, str]:
    subject, rule = visit.field("rule_for"), visit.field("rule")
    if not subject or not rule:
        return rules
    return {**rules, subject: f"latest_by({visit.field('latest_by')})" if rule == "latest_by" else rule}
