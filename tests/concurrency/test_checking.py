"""The judge itself: a sound history passes, and each kind of wrong one is found."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import BranchNotFoundError, StorageUnavailableError
from anabranch.repo.log.entries import BranchEvent, CommitKind
from tests.concurrency import marked_tables
from tests.concurrency.checking import SETUP, Fault, find_violations
from tests.concurrency.evidence import Commit, Entry, Evidence
from tests.concurrency.marked_tables import Change, Do, Rows
from tests.concurrency.recording import Call, Outcome, Recorder, read_calls

FIRST, SECOND, THIRD = {1: "first"}, {1: "first", 7: "0.1"}, {1: "1.1", 7: "0.1"}


def entry(number: int, actor: str, commit: str, event: BranchEvent = BranchEvent.COMMITTED, **more: Any) -> Entry:
    return Entry(
        **{"branch": "main", "at": number * 100, **more}, number=number, event=event, actor=actor, commit_id=commit
    )


def commit(name: str, parent: str | None, version: int, rows: Rows, **other: Rows) -> Commit:
    contents = {key: other.get(key.partition(".")[2], rows) for key in marked_tables.TABLES}
    return Commit(
        id=name, parent=parent, branch="main", version=version, kind=CommitKind.CHANGE, message="", contents=contents
    )


def call(actor: str, kind: str, when: tuple[int, int | None], result: Mapping[str, Any], **more: Any) -> Call:
    outcome = more.pop("outcome", Outcome.DONE)
    code = more.pop("code", "")
    return Call(
        actor=actor, kind=kind, asked=more, began=when[0], ended=when[1], outcome=outcome, code=code, result=result
    )


def wrote(actor: str, when: tuple[int, int], version: int, commit_id: str, change: Change) -> Call:
    result = {"moves": {"main": 1}, "commit": commit_id, "version": version, "own": version}
    return call(actor, "commit", when, result, branch="main", changes=[change.to_dict()])


def seen(version: int, commit_id: str, rows: Rows, **other: Rows) -> dict[str, Any]:
    tables = {key: marked_tables.digest(other.get(key.partition(".")[2], rows)) for key in marked_tables.TABLES}
    return {"branch": "main", "version": version, "commit": commit_id, "main": None, "tables": tables}


ONE = wrote("0.1", (10, 20), 2, "B", Change(Do.APPEND, (7,)))
TWO = wrote("1.1", (15, 40), 3, "C", Change(Do.UPDATE, (1,)))
READ_ONE = call("2.1", "read_head", (25, 30), seen(2, "B", SECOND), branch="main")
READ_TWO = call("2.2", "read_head", (50, 60), seen(3, "C", THIRD), branch="main")
CALLS = [ONE, TWO, READ_ONE, READ_TWO]
LOG = (entry(1, SETUP, "A"), entry(2, "0.1", "B"), entry(3, "1.1", "C"))
COMMITS = {"A": commit("A", None, 1, FIRST), "B": commit("B", "A", 2, SECOND), "C": commit("C", "B", 3, THIRD)}
SOUND = Evidence(logs={"main": LOG}, commits=COMMITS)


def faults(calls: list[Call], evidence: Evidence = SOUND) -> set[Fault]:
    return {violation.fault for violation in find_violations(calls, evidence, grace=1)}


def with_log(*log: Entry, **more: Any) -> Evidence:
    return replace(SOUND, logs={"main": log}, **more)


def test_sound_history_passes() -> None:
    assert find_violations(CALLS, SOUND, grace=1) == []


def test_confirmed_commit_that_is_not_in_the_log_is_lost() -> None:
    assert faults(CALLS[:3], with_log(*LOG[:2])) == {Fault.LOST}


def test_confirmed_commit_that_another_replaced_is_lost() -> None:
    other = replace(COMMITS["C"], id="D")
    evidence = with_log(*LOG[:2], replace(LOG[2], commit_id="D"), commits={**COMMITS, "D": other})
    assert faults(CALLS[:3], evidence) == {Fault.LOST}


def test_commit_that_is_undone_by_a_later_movement_is_not_lost() -> None:
    undo = call("3.1", "undo", (70, 80), {"moves": {"main": 1}}, branch="main")
    assert faults([*CALLS, undo], with_log(*LOG, entry(4, "3.1", "B", BranchEvent.UNDONE))) == set()


def test_call_that_moved_a_branch_twice_is_found() -> None:
    again = replace(COMMITS["C"], id="D", parent="C", version=4)
    evidence = with_log(*LOG, entry(4, "1.1", "D"), commits={**COMMITS, "D": again})
    assert Fault.REPEATED in faults(CALLS, evidence)


def test_call_that_may_find_nothing_to_do_moves_a_branch_once_at_most() -> None:
    rebase = call("3.1", "rebase", (70, 80), {"may_move": "main"})
    log = (*LOG, entry(4, "3.1", "B", BranchEvent.REBASED))
    assert faults([*CALLS, rebase]) == faults([*CALLS, rebase], with_log(*log)) == set()
    twice = with_log(*log, entry(5, "3.1", "C", BranchEvent.REBASED))
    assert faults([*CALLS, rebase], twice) == {Fault.REPEATED}


def test_killed_call_may_have_committed_or_not_but_not_twice() -> None:
    killed = replace(TWO, ended=None, outcome=Outcome.UNKNOWN, result={})
    assert faults([ONE, killed, READ_ONE, READ_TWO]) == set()
    assert faults([ONE, killed, READ_ONE], with_log(*LOG[:2])) == set()
    again = replace(COMMITS["C"], id="D", parent="C", version=4)
    evidence = with_log(*LOG, entry(4, "1.1", "D"), commits={**COMMITS, "D": again})
    assert faults([ONE, killed], evidence) == {Fault.REPEATED}


def test_refused_call_that_left_a_commit_is_found() -> None:
    refused = replace(TWO, outcome=Outcome.REFUSED, code="write_conflict", result={})
    assert faults([ONE, refused, READ_ONE]) == {Fault.LEFT_BEHIND}


def test_refused_call_may_undo_what_it_did() -> None:
    refused = replace(TWO, outcome=Outcome.REFUSED, code="busy", result={})
    back = entry(4, "1.1", "B", BranchEvent.UNDONE)
    assert faults([ONE, refused, READ_ONE], with_log(*LOG, back)) == set()
    elsewhere = entry(4, "1.1", "A", BranchEvent.UNDONE)
    assert faults([ONE, refused, READ_ONE], with_log(*LOG, elsewhere)) == {Fault.LEFT_BEHIND}


def test_run_that_is_aborted_for_another_moves_nothing() -> None:
    gc = call("3.1", "gc", (70, 80), {"moves": {}})
    assert faults([*CALLS, gc], with_log(*LOG, entry(4, "3.1", "C", BranchEvent.ABORTED))) == set()
    assert faults([*CALLS, gc], with_log(*LOG, entry(4, "3.1", "B", BranchEvent.ABORTED))) == {Fault.BROKEN_LOG}


def test_entry_without_a_writer_is_found() -> None:
    assert faults([ONE, READ_ONE], SOUND) == {Fault.FROM_NOWHERE}


def test_commit_that_is_not_made_on_the_one_before_it_is_found() -> None:
    commits = {**COMMITS, "C": commit("C", "A", 3, {1: "1.1"})}
    assert faults([ONE, TWO, READ_ONE], with_log(*LOG, commits=commits)) == {Fault.BROKEN_LOG}


def test_commit_whose_tables_disagree_is_torn() -> None:
    commits = {**COMMITS, "C": commit("C", "B", 3, THIRD, stock=SECOND)}
    assert faults([ONE, TWO, READ_ONE], with_log(*LOG, commits=commits)) == {Fault.TORN}


def test_commit_without_the_rows_of_one_before_it_is_found() -> None:
    commits = {**COMMITS, "C": commit("C", "B", 3, {1: "1.1"})}
    assert faults([ONE, TWO, READ_ONE], with_log(*LOG, commits=commits)) == {Fault.WRONG_ROWS}


def test_rows_that_appeared_concurrently_are_not_those_that_a_call_deleted() -> None:
    prune = [Change(Do.PRUNE).to_dict(), Change(Do.UPSERT, (1,)).to_dict()]
    pruned = replace(TWO, base="A", asked={"branch": "main", "changes": prune})
    rows = {1: "first", 2000: "0.1"}
    made = replace(ONE, asked={"branch": "main", "changes": [Change(Do.APPEND, (2000,)).to_dict()]})
    commits = {**COMMITS, "B": commit("B", "A", 2, rows), "C": commit("C", "B", 3, {**rows, 1: "1.1"})}
    assert faults([made, pruned], with_log(*LOG, commits=commits)) == set()
    assert faults([made, replace(pruned, base="B")], with_log(*LOG, commits=commits)) == {Fault.WRONG_ROWS}


def test_read_whose_tables_disagree_is_torn() -> None:
    torn = replace(READ_ONE, result=seen(2, "B", SECOND, events=FIRST))
    assert Fault.TORN in faults([ONE, TWO, torn])


def test_read_of_other_rows_than_the_commit_has_is_found() -> None:
    assert faults([ONE, TWO, replace(READ_ONE, result=seen(2, "B", FIRST))]) == {Fault.WRONG_ROWS}


def test_read_that_began_after_a_write_was_confirmed_and_misses_it_is_stale() -> None:
    stale = replace(READ_TWO, result=seen(2, "B", SECOND))
    assert faults([ONE, TWO, READ_ONE, stale]) == {Fault.STALE}
    in_time = replace(stale, began=39)
    assert faults([ONE, TWO, READ_ONE, in_time]) == set()


def test_read_that_is_older_than_what_another_saw_before_is_stale() -> None:
    early = call("2.0", "read_head", (22, 24), seen(3, "C", THIRD), branch="main")
    assert faults([*CALLS, early]) == {Fault.STALE}


def test_read_of_what_no_process_had_begun_to_write_is_from_the_future() -> None:
    early = call("2.0", "read_head", (2, 5), seen(2, "B", SECOND), branch="main")
    assert faults([*CALLS, early]) == {Fault.FUTURE}


def test_read_of_a_version_that_never_was_is_found() -> None:
    assert Fault.FROM_NOWHERE in faults([*CALLS, call("2.3", "read_head", (50, 60), seen(4, "D", THIRD))])
    assert Fault.FROM_NOWHERE in faults([*CALLS, call("2.3", "read_old", (50, 60), seen(2, "C", THIRD))])


def test_read_of_an_old_version_may_be_old() -> None:
    assert faults([*CALLS, call("2.3", "read_old", (50, 60), seen(1, "A", FIRST))]) == set()


@pytest.mark.parametrize(
    ("at", "found"), [(350, {Fault.STALE}), (250, set()), (150, {Fault.FUTURE})], ids=["stale", "right", "future"]
)
def test_read_by_the_clock(at: int, found: set[Fault]) -> None:
    assert faults([*CALLS, call("2.3", "read_then", (50, 60), seen(2, "B", SECOND), at=at)]) == found


def test_live_branch_on_a_stale_main_is_found() -> None:
    log = (entry(1, SETUP, "A", BranchEvent.CREATED, branch="live", is_live=True),)
    evidence = replace(SOUND, logs={**SOUND.logs, "live": log})
    result = {**seen(1, "A", SECOND), "branch": "live", "main": "B"}
    assert faults([*CALLS, call("2.3", "read_head", (50, 60), result)], evidence) == {Fault.STALE}
    assert faults([*CALLS, call("2.3", "read_head", (30, 60), result)], evidence) == set()


def test_handle_that_goes_back_is_found() -> None:
    newer = call("2.3", "read_kept", (70, 80), {**seen(3, "C", THIRD), "handle": 2})
    older = call("2.4", "read_kept", (90, 95), {**seen(2, "B", SECOND), "handle": 2})
    assert faults([*CALLS, newer, older]) == {Fault.BACKWARDS}
    assert faults([*CALLS, newer, replace(older, result={**older.result, "handle": 3})]) == set()


def test_branch_that_is_not_found_although_no_process_deleted_it_is_found() -> None:
    gone = call("2.3", "read_head", (50, 60), {}, branch="main", outcome=Outcome.REFUSED, code="branch_not_found")
    assert faults([*CALLS, gone]) == {Fault.STALE}
    deletion = call("3.1", "delete_branch", (55, 70), {"moves": {"main": 1}}, branch="main")
    deleted = with_log(*LOG, entry(4, "3.1", "C", BranchEvent.DELETED, is_deleted=True))
    assert faults([*CALLS, gone, deletion], deleted) == set()
    listed = call("2.4", "list_branches", (80, 90), {"branches": {"main": 3}})
    assert faults([*CALLS, deletion, listed], deleted) == {Fault.STALE}


def test_tags_are_there_from_when_they_are_confirmed_until_they_are_deleted() -> None:
    made = call("3.1", "create_tag", (50, 60), {"moves": {}, "tag": "t", "commit": "B"})
    empty = call("3.2", "list_tags", (65, 66), {"tags": {}})
    full = call("3.3", "list_tags", (65, 66), {"tags": {"t": "B"}})
    wrong = call("3.4", "list_tags", (65, 66), {"tags": {"t": "A"}})
    tagged = replace(SOUND, tags={"t": "B"})
    assert faults([*CALLS, made, full], tagged) == set()
    assert faults([*CALLS, made, empty], tagged) == {Fault.LOST}
    assert faults([*CALLS, made, wrong], tagged) == {Fault.FROM_NOWHERE}
    assert faults([*CALLS, made, full], SOUND) == {Fault.LOST}
    deleted = call("3.5", "delete_tag", (70, 80), {"moves": {}}, tag="t")
    assert faults([*CALLS, made, full, deleted], SOUND) == set()
    assert faults([*CALLS, made, full, deleted], tagged) == {Fault.STALE}


def test_unexpected_errors_are_found() -> None:
    broken = call("3.1", "read_head", (50, 60), {}, branch="main", outcome=Outcome.BROKEN, code="KeyError('x')")
    corrupt = call("3.2", "read_head", (50, 60), {}, branch="main", outcome=Outcome.REFUSED, code="corrupt")
    busy = call("3.3", "read_head", (50, 60), {}, branch="main", outcome=Outcome.REFUSED, code="busy")
    assert faults([*CALLS, broken]) == {Fault.BROKEN}
    assert faults([*CALLS, corrupt]) == {Fault.BROKEN}
    assert faults([*CALLS, busy]) == set()


def test_recorder_writes_down_calls_and_answers(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 4)
    with recorder.calling("read_head", branch="main") as answer:
        answer.result |= {"version": 7}
    with recorder.calling("commit"):
        raise BranchNotFoundError("there is no branch 'x'", hint="look")
    with recorder.calling("commit"):
        raise StorageUnavailableError("no answer", hint="try again")
    with recorder.calling("commit"):
        raise KeyError("x")
    with pytest.raises(KeyboardInterrupt), recorder.calling("gc"):
        raise KeyboardInterrupt  # ends the process before it can write the answer, as a kill does
    calls = read_calls(tmp_path)
    assert [each.actor for each in calls] == ["4.1", "4.2", "4.3", "4.4", "4.5"]
    assert [each.outcome for each in calls] == ["done", "refused", "unknown", "broken", "unknown"]
    assert (calls[0].kind, calls[0].asked, calls[0].result) == ("read_head", {"branch": "main"}, {"version": 7})
    assert calls[1].code == "branch_not_found"
    assert calls[4].ended is None
    assert all(each.ended is not None and each.began < each.ended for each in calls[:4])


def test_rows_after_changes() -> None:
    changes = [
        Change(Do.APPEND, (1000,)),
        Change(Do.UPSERT, (1, 2)),
        Change(Do.UPDATE, (3, 4)),
        Change(Do.DELETE, (5,)),
    ]
    assert marked_tables.applied({3: "a", 5: "b"}, changes, "m") == {1000: "m", 1: "m", 2: "m", 3: "m"}
    assert marked_tables.applied({1: "a", 1000: "b"}, [Change(Do.PRUNE)], "m") == {1: "a"}
