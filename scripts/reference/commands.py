"""The page of all commands."""

import re
from collections.abc import Iterator
from typing import Any

from scripts.reference.markdown import BEGIN, END, cell, code, listed, paragraphs

__all__ = ["commands", "write_commands"]

# Described once, above all commands.
_SHARED = ("--repo", "--actor", "--storage-option", "--json")


def commands() -> dict[str, Any]:
    """Every command by what is typed for it, in the order of the help."""
    from typer.main import get_command

    from anabranch.cli.main import create_app

    return dict(_iter_commands(get_command(create_app()), "anabranch"))


def _iter_commands(command: Any, typed: str) -> Iterator[tuple[str, Any]]:
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from _iter_commands(below, f"{typed} {name}")
        else:
            yield f"{typed} {name}", below


def write_commands(page: str) -> str:
    """The page with a section for each command: first the text from the code, then the text written by hand."""
    top, *sections = re.split(r"^(?=### `anabranch )", page, flags=re.MULTILINE)
    by_hand = dict(_hand_written(section) for section in sections)
    parts = [top.rstrip()]
    for typed, command in commands().items():
        heading = "## Commands for one dataset\n\n" if typed == "anabranch dataset show" else ""
        section = [f"{heading}### `{typed}`", BEGIN, _described(typed, command), END, by_hand.get(typed, "")]
        parts.append("\n\n".join(part for part in section if part))
    return "\n\n".join(parts) + "\n"


def _hand_written(section: str) -> tuple[str, str]:
    heading, _, body = section.partition("\n")
    body = body.replace("\n## Commands for one dataset", "")
    after = body.rpartition(END)[2]
    return heading.strip("#` "), after.strip()


def _described(typed: str, command: Any) -> str:
    own = [each for each in command.params if not set(each.opts) & {*_SHARED, "--help"} and not each.hidden]
    shared = [name for name in _SHARED if any(name in each.opts for each in command.params)]
    arguments = [each for each in own if each.param_type_name == "argument"]
    usage = " ".join([typed, *map(_argument, arguments), *(["[OPTIONS]"] if len(own) > len(arguments) else [])])
    parts = [f"    {usage}", paragraphs(command.help)]
    if own:
        parts.append("\n".join(["| Argument or option | Meaning | Default |", "|---|---|---|", *map(_row, own)]))
    if shared:
        parts.append(f"Also {listed(shared)}, see [what every command takes](#what-every-command-takes).")
    if command.epilog:
        examples = [line.strip() for line in command.epilog.splitlines() if line.startswith("  ")]
        parts.append("\n".join(["```sh", *examples, "```"]))
    return "\n\n".join(parts)


def _argument(argument: Any) -> str:
    # The metavar of an argument that can be repeated has dots already, and some have brackets: "[TABLE]...".
    name = str(argument.metavar or argument.name.upper()).strip("[].")
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        names, default = f"`{_argument(parameter).strip('[]')}`", parameter.default
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        names += f" {code(parameter.metavar)}" if parameter.metavar else ""
        default = None if parameter.is_flag else parameter.default
    shown = "required" if parameter.required else "" if default in (None, "", ()) else f"`{default}`"
    repeated = (
        " Repeatable." if getattr(parameter, "multiple", False) and "repeat" not in parameter.help.lower() else ""
    )
    return f"| {names} | {cell(parameter.help or '')}{repeated} | {shown} |"
