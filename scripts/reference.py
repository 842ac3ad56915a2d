"""Write the parts of the reference that follow from the code: commands, Python, and the routes of the service.

Run it after a change of any of them; a test tells when that was forgotten.
"""

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- from the code: begin -->", "<!-- from the code: end -->"
# Told once, above all commands.
_SHARED = ("--repo", "--actor", "--storage-option", "--json")


def main() -> None:
    """Rewrite the pages; with --check only say which of them are not what the code says."""
    changed = {name: text for name, text in written().items() if (DOCS / name).read_text(encoding="utf-8") != text}
    for name, text in changed.items():
        print(f"docs/{name}")
        if "--check" not in sys.argv:
            (DOCS / name).write_text(text, encoding="utf-8")
    sys.exit(1 if changed and "--check" in sys.argv else 0)


def written() -> dict[str, str]:
    """The pages as the code wants them, by name."""
    return {
        "cli.md": write_commands((DOCS / "cli.md").read_text(encoding="utf-8")),
        "http.md": write_routes((DOCS / "http.md").read_text(encoding="utf-8")),
        "api.md": write_python(),
    }


# Commands


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
    """The page with a section for each command: first what the code says, then what was written by hand below it."""
    top, *sections = re.split(r"^(?=## `anabranch )", page, flags=re.MULTILINE)
    by_hand = dict(_hand_written(section) for section in sections)
    parts = [top.rstrip()]
    for typed, command in commands().items():
        heading = "# Commands for one dataset\n\n" if typed == "anabranch dataset show" else ""
        told = [f"{heading}## `{typed}`", BEGIN, _told(typed, command), END, by_hand.get(typed, "")]
        parts.append("\n\n".join(part for part in told if part))
    return "\n\n".join(parts) + "\n"


def _hand_written(section: str) -> tuple[str, str]:
    heading, _, body = section.partition("\n")
    body = body.replace("\n# Commands for one dataset", "")
    after = body.rpartition(END)[2]
    return heading.strip("#` "), after.strip()


def _told(typed: str, command: Any) -> str:
    own = [each for each in command.params if not set(each.opts) & {*_SHARED, "--help"} and not each.hidden]
    shared = [name for name in _SHARED if any(name in each.opts for each in command.params)]
    arguments = [each for each in own if each.param_type_name == "argument"]
    usage = " ".join([typed, *map(_argument, arguments), *(["[OPTIONS]"] if len(own) > len(arguments) else [])])
    parts = [f"    {usage}", _paragraphs(command.help)]
    if own:
        parts.append("\n".join(["| | | by default |", "|---|---|---|", *map(_row, own)]))
    if shared:
        parts.append(f"Also {_listed(shared)}, see [what every command takes](#what-every-command-takes).")
    if command.epilog:
        examples = [line.strip() for line in command.epilog.splitlines() if line.startswith("  ")]
        parts.append("\n".join(["```sh", *examples, "```"]))
    return "\n\n".join(parts)


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        names, default = f"`{_argument(parameter).strip('[]')}`", parameter.default
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        names += f" `{parameter.metavar}`" if parameter.metavar else ""
        default = None if parameter.is_flag else parameter.default
    told = "required" if parameter.required else "" if default in (None, "", ()) else f"`{default}`"
    repeated = (
        " Repeatable." if getattr(parameter, "multiple", False) and "repeat" not in parameter.help.lower() else ""
    )
    return f"| {names} | {_cell(parameter.help or '')}{repeated} | {told} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _first(text: str) -> str:
    return text.split("\n\n")[0]


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


# Routes of the service


def routes() -> list[tuple[str, str, str]]:
    """Every endpoint: its method, its path, and what it does in one line."""
    from anabranch.server.app import create_app
    from anabranch.server.settings import Settings

    described = create_app(Settings(data=Path("nowhere"))).openapi()["paths"]
    return [
        (method.upper(), path, told.get("description") or told.get("summary") or "")
        for path, methods in described.items()
        for method, told in methods.items()
    ]


def write_routes(page: str) -> str:
    """The page with the table of all endpoints between its marks."""
    rows = [f"| `{method} {path}` | {_cell(_first(told))} |" for method, path, told in routes()]
    table = "\n".join(["| | |", "|---|---|", *rows])
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


# Python


def write_python() -> str:
    """The page of all public functions and classes, and of the values that they return."""
    import anabranch

    functions, classes = [], []
    for name in anabranch.__all__:
        value = getattr(anabranch, name)
        if inspect.isclass(value):
            classes.append(value)
        elif inspect.isfunction(value):
            functions.append(_function(f"ab.{name}", value, level=3))
    values = [each for each in reachable(classes) if each not in classes]
    parts = [
        _INTRODUCTION,
        "## Functions",
        *functions,
        "## Classes",
        *(_class(each, f"ab.{each.__name__}") for each in classes),
        "## What they return",
        *(_class(each, each.__name__) for each in values),
        "## Errors",
        _errors(),
    ]
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = """# Python

All that `import anabranch as ab` offers, from the code itself. Names that begin with an underscore, and modules that are
not named here, may change at any time. `scripts/reference.py` writes this page."""


def _function(name: str, function: Any, *, level: int) -> str:
    told = _docstring(function)
    return f"{'#' * level} `{name}`\n\n```python\n{_signature(name, function)}\n```\n\n{told}"


def _signature(name: str, function: Any) -> str:
    found = inspect.signature(function)
    parameters = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    plain = [each.replace(annotation=_type(each.annotation)) for each in parameters]
    shown = inspect.Signature(plain, return_annotation=_type(found.return_annotation))
    text = re.sub(r"'(\x00[^']*)'", r"\1", str(shown)).replace("\x00", "")
    text = f"{name}{text}"
    if len(text) <= 110:
        return text
    inside, _, returns = text[len(name) + 1 :].rpartition(")")
    return f"{name}(\n    {_one_per_line(inside)}\n){returns}"


def _one_per_line(parameters: str) -> str:
    depth, parts, begin = 0, [], 0
    for at, character in enumerate(parameters):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(parameters[begin:at].strip())
            begin = at + 1
    return ",\n    ".join([*parts, parameters[begin:].strip()])


class _Text(str):
    """An annotation that is shown as it stands, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _type(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:collections\.abc|typing|datetime|os|pathlib|anabranch)(?:\.\w+)*\.(?=[A-Za-z])", "", text)
    return _Text(text.replace("'", "").replace('"', ""))


def _class(each: type, name: str) -> str:
    parts = [f"### `{name}`", _docstring(each)]
    fields = public_fields(each)
    if fields:
        parts.append("\n".join(["| | |", "|---|---|", *(f"| `{key}` | `{_type(told)}` |" for key, told in fields)]))
    if issubclass(each, str):
        parts.append("One of " + ", ".join(f"`{member.value}`" for member in typing.cast(Any, each)) + ".")
    for key, member in public_members(each):
        if isinstance(member, property):
            returns = _type(inspect.signature(typing.cast(Any, member.fget)).return_annotation)
            parts.append(f"#### `{each.__name__}.{key}`\n\n```python\n{key}: {returns}\n```\n\n{_docstring(member)}")
        else:
            parts.append(_function(f"{each.__name__}.{key}", member, level=4))
    return "\n\n".join(parts)


def _docstring(value: Any) -> str:
    told = inspect.cleandoc(value.__doc__ or "")
    prose, arrow, examples = told.partition(">>> ")
    text = _paragraphs(prose.strip()) if prose.strip() else ""
    return f"{text}\n\n```python\n{arrow}{examples.rstrip()}\n```" if arrow else text


def public_fields(each: type) -> list[tuple[str, Any]]:
    """The fields of a value, with their types as they are written."""
    if not dataclasses.is_dataclass(each):
        return []
    return [(one.name, one.type) for one in dataclasses.fields(each) if not one.name.startswith("_")]


def public_members(each: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class, those it inherits from other classes of ours too."""
    ours = [base for base in each.__mro__ if base.__module__.startswith("anabranch")]
    found: dict[str, Any] = {}
    for base in reversed(ours):
        for name, member in vars(base).items():
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)):
                found[name] = plain
    return sorted(found.items())


def reachable(classes: list[type]) -> list[type]:
    """These classes and all of ours that their methods return or their fields hold, errors aside."""
    found: dict[type, None] = {}
    waiting = list(classes)
    while waiting:
        each = waiting.pop(0)
        if each in found:
            continue
        found[each] = None
        waiting += sorted(_mentioned(each) - set(found), key=lambda one: one.__name__)
    return sorted((each for each in found if not issubclass(each, Exception)), key=lambda one: one.__name__)


def _mentioned(each: type) -> set[type]:
    texts = [str(_type(told)) for _, told in public_fields(each)]
    for _, member in public_members(each):
        function = member.fget if isinstance(member, property) else member
        texts.append(str(_type(inspect.signature(typing.cast(Any, function)).return_annotation)))
    names = {word for text in texts for word in re.findall(r"\b[A-Z]\w+", text)}
    return {value for name in names if (value := _named(name, each)) is not None}


def _named(name: str, user: type) -> type | None:
    """The class of ours that a module means by a name."""
    for module in [sys.modules[base.__module__] for base in user.__mro__] + list(sys.modules.values()):
        value = getattr(module, "__dict__", {}).get(name)
        if inspect.isclass(value) and value.__module__.startswith("anabranch.") and value.__name__ == name:
            return value
    return None


def _errors() -> str:
    from anabranch import errors

    rows = []
    for name in errors.__all__:
        error = getattr(errors, name)
        if inspect.isclass(error):
            parent = error.__mro__[1].__name__
            rows.append(f"| `{name}` | `{error.code}` | `{parent}` | {_cell(_first(error.__doc__ or ''))} |")
    return "\n".join(["All are in `ab.errors`.", "", "| | code | is a | |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    main()
