"""Answers in both forms, and progress in a terminal."""

import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.output import Answer, Output
from anabranch.cli.texts import Table
from anabranch.display import human_size
from anabranch.json_values import json_value
from anabranch.storage.requests import Progress


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (2**63, "9223372036854775808"),
        (2**64 - 1, "18446744073709551615"),
        (Colour.RED, "red"),
        (datetime(2026, 11, 15, 10, tzinfo=UTC), "2026-11-15T10:00:00Z"),
        (datetime(2026, 11, 15, 10, 0, 0, 250, tzinfo=timezone(timedelta(hours=2))), "2026-11-15T08:00:00.000250Z"),
        ({"a": (1, [2])}, {"a": [1, [2]]}),
    ],
)
def test_values_have_one_form_in_json(value: object, expected: object) -> None:
    assert json_value(value) == expected


def test_a_value_without_a_form_in_json_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="object does not have a form in JSON"):
        json_value(object())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_any_document_is_ascii_json(value: object) -> None:
    assert json.loads(json.dumps(json_value(value)).encode("ascii")) == json_value(value)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (999_999, "1.0 MB"), (10**18, "1000.0 PB")],
)
def test_sizes_are_for_people(size: int, text: str) -> None:
    assert human_size(size) == text


def test_a_table_in_a_pipe_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    path = "s3://bucket/" + "long/" * 60
    table = Table(columns=("path", "note"), rows=((path, None), ("[bold]x[/bold] :smile:", True)), title="files")
    Output(as_json=False).show(Answer({}, "two files", tables=[table]))
    shown = capsys.readouterr().out
    assert path in shown
    assert "[bold]x[/bold] :smile:" in shown
    assert shown.startswith("two files\n\nfiles\n")


def test_an_empty_table_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).show(Answer({}, tables=[Table(columns=("a",), rows=(), empty="no tags")]))
    assert capsys.readouterr().out == "no tags\n"


def test_json_shows_the_document_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).show(Answer({"a": "ü"}, "not shown"))
    shown = capsys.readouterr()
    assert (json.loads(shown.out), shown.err) == ({"a": "ü"}, "")


def test_progress_goes_nowhere_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for output in (Output(as_json=False), Output(as_json=True)):
        with output.progress("moving") as progress:
            progress(Progress(stage="files", done=1, total=2))
    assert capsys.readouterr() == ("", "")


# The work ends when the test has seen the bar, or at once.
WORK = """
import sys
from anabranch.cli.output import Output
from anabranch.storage.requests import Progress

with Output(as_json="--json" in sys.argv).progress("moving") as progress:
    progress(Progress(stage="files", done=1, total=2))
    if "--slow" in sys.argv:
        sys.stdin.read(1)
print("done")
"""


@pytest.mark.parametrize(
    ("flags", "has_bar"), [(["--slow"], True), ([], False), (["--json"], False)], ids=["slow", "fast", "json"]
)
def test_bar_is_shown_on_a_terminal_if_a_command_takes_long(flags: list[str], has_bar: bool) -> None:  # noqa: FBT001
    ours, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", WORK, *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=environment,
    ) as process:
        os.close(terminal)
        seen = ""
        while has_bar and "moving" not in seen:
            seen += os.read(ours, 65536).decode(errors="replace")
        out, _ = process.communicate(b"x")
        seen += drain(ours)
        os.close(ours)
    assert (process.returncode, out) == (0, b"done\n")
    assert ("moving" in seen and "50%" in seen) if has_bar else seen == ""


def drain(terminal: int) -> str:
    """What was written to a terminal whose other end is closed."""
    pieces = []
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux reports that the other end is closed and all is read
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces).decode(errors="replace")
