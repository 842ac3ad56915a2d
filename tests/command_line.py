"""The command line in this process."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from anabranch.cli.main import create_app


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command left: its exit code, and its output on both streams."""

    code: int
    out: str
    err: str


def invoke(
    *args: str, env: Mapping[str, str] | None = None, typed: str | None = None, is_coloured: bool = False
) -> Answer:
    """Run `anabranch` with these arguments; what it does not handle is raised here."""
    code: int | str | None = 0
    with CliRunner().isolation(input=typed, env=env, color=is_coloured) as (out, err, _):
        try:
            _command().main(args=list(args), prog_name="anabranch")
        except SystemExit as end:
            code = end.code
        out_bytes, err_bytes = out.getvalue(), err.getvalue()
    assert isinstance(code, int)
    return Answer(code=code, out=_text(out_bytes), err=_text(err_bytes))


@cache
def _command() -> Any:
    """All commands, put together once: Typer's runner would do so for every call, and that is most of what it costs."""
    return get_command(create_app())


def _text(printed: bytes) -> str:
    return printed.decode().replace("\r\n", "\n")
