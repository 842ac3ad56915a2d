"""A page of the guide, and a reader who runs everything on it and compares what comes out with what it shows."""

import contextlib
import io
import json
import os
import re
import shlex
import string
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from tests.command_line import invoke
from tests.server.conftest import process, wait_until_healthy

ROOT = Path(__file__).parents[2]
HOME, SERVED, TOKEN = "/home/ada", "http://127.0.0.1:8000", "ab_…"
# A shell finds this Python and what it has installed, and our own `curl`: not every machine has one that is new enough.
SHELL_PATH = f"{Path(__file__).parent / 'programs'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
# Runs blocks of Python, one after the other, in another interpreter.
_SESSION = """
import contextlib, io, json, sys
names = {}
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(json.loads(line), names)
    print(json.dumps(printed.getvalue()), flush=True)
"""
_FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NEEDS = re.compile(r"<!-- needs: (\w+) -->")
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
# What is different each time a reader follows a page, and how wide it makes a table.
_MASKS = (
    (r"\b01[0-9A-HJKMNP-TV-Z]{24}\b|\b01[0-9A-HJKMNP-TV-Z]{12}\b", "<id>"),
    (r"\b01[0-9a-hjkmnp-tv-z]{12}\b", "<id>"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", "<time>"),
    (r"\d+(\.\d+)? ([kMG]?B)\b", "<size>"),
    (r"\b\d+(\.\d+)? s\b", "<seconds>"),
    (r"\bab_\S+", "<token>"),
    (r"\bbr_[0-9a-z]{13}\b", "<branch>"),
    (r"\b\d+ files\b", "<files>"),
    (r"─+", "─"),
    (r"[ \t]+", " "),
    (r"^ | $", ""),
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: what is to be done, or a file to be made, and what a page shows of the result."""

    language: str
    title: str | None
    text: str
    line: int
    section: str
    needs: str | None = None
    shown: str | None = None


def read_blocks(page: Path) -> list[Block]:
    """The blocks of a page that are to be run; a block of `text` is what the Python above it prints."""
    text = page.read_text(encoding="utf-8")
    blocks: list[Block] = []
    for found in _FENCE.finditer(text):
        language, title, body = found.groups()
        if language == "text" and blocks and text[: found.start()].rstrip().endswith("```"):
            blocks[-1] = replace(blocks[-1], shown=body)
            continue
        section = text[: found.start()].rpartition("\n## ")[2]
        needs = _NEEDS.search(section)
        line = text[: found.start()].count("\n") + 2
        blocks.append(
            Block(
                language=language,
                title=title,
                text=body,
                line=line,
                section=section.partition("\n")[0],
                needs=needs and needs[1],
            )
        )
    return blocks


@dataclass(kw_only=True)
class Reader:
    """A reader who follows a page, in a folder and a shell of their own.

    The package is the one of this process, or the one that is installed in the environment with the folder `bin`.
    """

    folder: Path
    bin: Path | None = None
    env: dict[str, str] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)
    running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    served: str = SERVED
    token: str = TOKEN

    def follow(self, page: Path, blocks: Iterable[Block]) -> int:
        """Run the blocks in their order; return how many there were to do."""
        done = 0
        with self.running, contextlib.chdir(self.folder):
            for block in blocks:
                for shown, output, line in self._do(page, block):
                    done += 1
                    if shown is not None:
                        where = f"{page.name}:{line} shows\n{shown}\nand what came out is\n{output}"
                        assert _matches(shown, self._as_shown(output)), where
        return done

    def _do(self, page: Path, block: Block) -> Iterator[tuple[str | None, str, int]]:
        if block.title is not None:
            (Path.cwd() / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            text = "\n" * (block.line - 1) + block.text
            printed = self._run_python(text, page) if self.bin is None else self._run_installed_python(text)
            yield block.shown, printed, block.line
        elif block.language == "console":
            commands = list(_COMMAND.finditer(block.text))
            ends = [command.start() for command in commands[1:]] + [len(block.text)]
            for command, end in zip(commands, ends, strict=True):
                shown = block.text[command.end() : end].strip("\n")
                output = self._run(command[1].replace("\\\n", ""), fails=shown.startswith("error:"))
                yield shown or None, output, block.line + block.text[: command.start()].count("\n")

    def _run_python(self, text: str, page: Path) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(text, str(page), "exec"), self.names)  # noqa: S102 - our own text
        return printed.getvalue()

    def _run_installed_python(self, text: str) -> str:
        session = self._session
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(json.dumps(text) + "\n")
        session.stdin.flush()
        line = session.stdout.readline()
        assert line, f"the interpreter ended with {session.wait()}, after\n{text.strip()}"
        printed: str = json.loads(line)
        return printed

    @cached_property
    def _session(self) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        return self.running.enter_context(
            subprocess.Popen([self._python, "-c", _SESSION], stdin=pipe, stdout=pipe, text=True)
        )

    @property
    def _python(self) -> str:
        return sys.executable if self.bin is None else str(self.bin / "python")

    def _run(self, command: str, *, fails: bool) -> str:
        command = command.replace(SERVED, self.served).replace(TOKEN, self.token)
        words = shlex.split(string.Template(command).safe_substitute(self.env), comments=True)
        match words:
            case ["export", *pairs]:
                self.env |= {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
                return ""
            case ["cd", folder]:
                os.chdir(folder)
                return ""
            case ["anabranch", "serve", *arguments]:
                return self._serve(arguments)
            case ["anabranch", *arguments] if self.bin is None and not {"|", ">", "<"} & set(words):
                answer = invoke(*arguments, env=self.env)
                assert (answer.code != 0) == fails, f"{command} exits with {answer.code}\n{answer.out}{answer.err}"
                return answer.out + answer.err
            case _:
                return self._run_in_shell(command)

    def _run_in_shell(self, command: str) -> str:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            env={**self.env, "PATH": SHELL_PATH if self.bin is None else f"{self._commands}:{SHELL_PATH}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    @cached_property
    def _commands(self) -> str:
        """A folder with the installed command alone: `curl` of the pages needs the Python of this process."""
        assert self.bin is not None
        folder = self.running.enter_context(tempfile.TemporaryDirectory())
        os.symlink(self.bin / "anabranch", os.path.join(folder, "anabranch"))
        return folder

    def _serve(self, arguments: list[str]) -> str:
        """Serve in a process of its own, at another port than that of the page; return its output until it serves."""
        at = arguments.index("--data")
        data, others = Path(arguments[at + 1]), [*arguments[:at], *arguments[at + 2 :]]
        started, self.served = self.running.enter_context(process(data, *others, python=self._python))
        assert started.stdout is not None
        output = ""
        for line in started.stdout:
            output += line
            if line.startswith("token: "):
                self.token = line.split()[1]
            if line.startswith("serving "):
                break
        wait_until_healthy(self.served, started)
        return output

    def _as_shown(self, output: str) -> str:
        return output.replace(str(self.folder), HOME).replace(self.served, SERVED).replace(self.token, TOKEN)


def _matches(shown: str, output: str) -> bool:
    """Whether a page shows an output; a line of three dots means any lines.

    Rows that differ come in any order, and so lines may do, too.
    """
    if sorted(_masked(shown).splitlines()) == sorted(_masked(output).splitlines()):
        return True
    pattern = r"(?:\n.*)*".join(re.escape(part) for part in f"\n{_masked(shown)}".split("\n..."))
    return re.fullmatch(pattern, f"\n{_masked(output)}") is not None


def _masked(text: str) -> str:
    for pattern, mask in _MASKS:
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    return text.strip("\n")
