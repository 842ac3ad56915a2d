"""Write the parts of the reference that follow from the code: commands, Python, and the routes of the service.

Run it after a change of any of them; a test tells when that was forgotten.
"""

import ast
import dataclasses
import functools
import html
import importlib
import inspect
import re
import sys
import tempfile
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anabranch

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- from the code: begin -->", "<!-- from the code: end -->"
# Told once, above all commands.
_SHARED = ("--repo", "--actor", "--storage-option", "--json")
# Classes of ours that public ones hold or hand on, and that are no business of whoever uses them.
_INTERNAL = {
    *("ArrowDataset", "Choice", "DeclaredCheck", "Draft", "FileGroup", "HistoryTables", "Home", "Index", "ObjectInfo"),
    *("ObjectStore", "Output", "Part", "Pin", "Place", "RowSide", "Scan", "SchemaState", "Source", "Statement"),
    *("TableFeed", "VectorOptions"),
}


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
    top, *sections = re.split(r"^(?=### `anabranch )", page, flags=re.MULTILINE)
    by_hand = dict(_hand_written(section) for section in sections)
    parts = [top.rstrip()]
    for typed, command in commands().items():
        heading = "## Commands for one dataset\n\n" if typed == "anabranch dataset show" else ""
        told = [f"{heading}### `{typed}`", BEGIN, _told(typed, command), END, by_hand.get(typed, "")]
        parts.append("\n\n".join(part for part in told if part))
    return "\n\n".join(parts) + "\n"


def _hand_written(section: str) -> tuple[str, str]:
    heading, _, body = section.partition("\n")
    body = body.replace("\n## Commands for one dataset", "")
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
        names += f" {_code(parameter.metavar)}" if parameter.metavar else ""
        default = None if parameter.is_flag else parameter.default
    told = "required" if parameter.required else "" if default in (None, "", ()) else f"`{default}`"
    repeated = (
        " Repeatable." if getattr(parameter, "multiple", False) and "repeat" not in parameter.help.lower() else ""
    )
    return f"| {names} | {_cell(parameter.help or '')}{repeated} | {told} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    """Code in a cell of a table, where a line between alternatives would end the cell."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


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

    with tempfile.TemporaryDirectory() as folder:
        described = create_app(Settings(data=Path(folder))).openapi()["paths"]
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
    classes, functions = public_classes(), public_functions()
    values = [each for each in reachable([*classes, *functions.values()]) if each not in classes]
    parts = [
        _INTRODUCTION,
        "## Functions",
        *(_function(name, function, level=3) for name, function in functions.items()),
        "## Classes",
        *(_class(each, f"ab.{each.__name__}") for each in classes),
        "## What they return",
        *(_class(each, _name(each, values)) for each in values),
        "## Errors",
        _errors(),
    ]
    return "\n\n".join(parts) + "\n"


def public_classes() -> list[type]:
    """The classes that `anabranch` offers by name."""
    return [value for name in anabranch.__all__ if inspect.isclass(value := getattr(anabranch, name))]


def public_functions() -> dict[str, Any]:
    """The functions that `anabranch` offers, by the name that users type."""
    found = {f"ab.{name}": getattr(anabranch, name) for name in anabranch.__all__}
    return {name: value for name, value in found.items() if inspect.isfunction(value)}


_INTRODUCTION = """# Python

All that `import anabranch as ab` offers, from the code itself. Names that begin with an underscore, and modules that
are not named here, may change at any time. `scripts/reference.py` writes this page.

In the examples, `ab` is `anabranch`, `pa` is `pyarrow`, and `repo` is the open repository `shop` with one table of
three orders, `shop.orders`. All of them are run by a test."""


def _function(name: str, function: Any, *, level: int) -> str:
    told = _docstring(function)
    return f"{'#' * level} `{name}`\n\n```python\n{_signature(name, function)}\n```\n\n{told}"


def _signature(name: str, function: Any) -> str:
    found = inspect.signature(function)
    parameters = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    plain = [each.replace(annotation=_type(each.annotation)) for each in parameters]
    shown = inspect.Signature(plain, return_annotation=_type(found.return_annotation))
    text = name + re.sub(r"<function .*?> at 0x\w+>|<function .*? at 0x\w+>", "...", str(shown))
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


def _bound(annotation: Any, each: type) -> Any:
    """An annotation of a generic class as it is meant in one that says what its type variables stand for."""
    variables = getattr(annotation, "__parameters__", ())
    if not variables or inspect.isclass(annotation):
        return annotation
    meant = {
        variable: argument
        for base in each.__mro__
        for generic in vars(base).get("__orig_bases__", ())
        for variable, argument in zip(
            getattr(typing.get_origin(generic), "__parameters__", ()), typing.get_args(generic), strict=False
        )
    }
    return annotation[tuple(meant.get(variable, variable) for variable in variables)]


def _name(each: type, others: list[type]) -> str:
    """What a class is called; with its module where two are called the same."""
    is_alone = sum(other.__name__ == each.__name__ for other in others) == 1
    return each.__name__ if is_alone else f"{each.__module__}.{each.__name__}"


def _class(each: type, name: str) -> str:
    parts = [f"### `{name}`", _docstring(each)]
    fields = public_fields(each)
    if fields:
        rows = [f"| `{key}` | {_code(_type(_bound(told, each)))} |" for key, told in fields]
        parts.append("\n".join(["| | |", "|---|---|", *rows]))
    if issubclass(each, str):
        parts.append("One of " + ", ".join(f"`{member.value}`" for member in typing.cast(Any, each)) + ".")
    for key, member in public_members(each):
        if isinstance(member, property):
            returns = _type(_bound(inspect.signature(typing.cast(Any, member.fget)).return_annotation, each))
            parts.append(f"#### `{each.__name__}.{key}`\n\n```python\n{key}: {returns}\n```\n\n{_docstring(member)}")
        else:
            parts.append(_function(f"{each.__name__}.{key}", member, level=4))
    return "\n\n".join(part for part in parts if part)


def _docstring(value: Any) -> str:
    told = inspect.cleandoc(value.__doc__ or "")
    prose, arrow, examples = told.partition(">>> ")
    text = _paragraphs(prose.strip()) if prose.strip() else ""
    return f"{text}\n\n```python\n{arrow}{examples.rstrip()}\n```" if arrow else text


def public_fields(each: Any) -> list[tuple[str, Any]]:
    """The fields of a value, with their types as they are written."""
    if not dataclasses.is_dataclass(each):
        return []
    return [(one.name, one.type) for one in dataclasses.fields(each) if not one.name.startswith("_")]


def public_members(each: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class, those it inherits from other classes of ours too.

    How a value is made is nobody's business: of those that are only returned, class methods are left out.
    """
    is_returned = each.__name__ not in anabranch.__all__
    ours = [base for base in each.__mro__ if base.__module__.startswith("anabranch")]
    found: dict[str, Any] = {}
    for base in reversed(ours):
        for name, member in vars(base).items():
            is_maker = isinstance(member, classmethod | staticmethod)
            plain = member.__func__ if is_maker else member
            if is_maker and (is_returned or name == "of"):
                continue
            if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)):
                found[name] = plain
    return sorted(found.items())


def reachable(begin: list[Any]) -> list[type]:
    """These classes and all of ours that they and these functions return or hold, errors aside."""
    found: dict[Any, None] = {}
    waiting = list(begin)
    while waiting:
        each = waiting.pop(0)
        if each not in found:
            found[each] = None
            waiting += _mentioned(each)
    classes = [each for each in found if inspect.isclass(each) and not issubclass(each, Exception)]
    return sorted(classes, key=lambda one: (one.__name__, one.__module__))


def _mentioned(each: Any) -> list[type]:
    members = [member for _, member in public_members(each)] if inspect.isclass(each) else [each]
    functions: list[Any] = [one.fget if isinstance(one, property) else one for one in members]
    taken = vars(each).get("__getitem__") if inspect.isclass(each) else None
    functions += [] if taken is None else [taken]
    returned = [(inspect.signature(function).return_annotation, function.__module__) for function in functions]
    held = [(told, each.__module__) for _, told in public_fields(each)]
    found = {one for annotation, module in [*returned, *held] for one in _classes_in(annotation, module)}
    ours = [one for one in found if one.__module__.startswith("anabranch.") and one.__name__ not in _INTERNAL]
    return sorted(ours, key=lambda one: (one.__name__, one.__module__))


def _classes_in(annotation: Any, module: str) -> Iterator[type]:
    """The classes that an annotation names, be it a type or text that is a type only for a type checker."""
    if isinstance(annotation, str):
        for word in re.findall(r"[\w.]+", annotation):
            value = _value_of(word, module)
            if inspect.isclass(value):
                yield value
    elif inspect.isclass(annotation) and not typing.get_args(annotation):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _classes_in(part, module)


def _value_of(word: str, module: str) -> Any:
    first, *rest = word.split(".")
    value = vars(sys.modules[module]).get(first, _imported_for_types(module).get(first))
    for name in rest:
        value = getattr(value, name, None)
    return value


@functools.cache
def _imported_for_types(module: str) -> dict[str, Any]:
    """What a module imports for type checkers alone."""
    found: dict[str, Any] = {}
    for statement in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for each in statement.body:
                if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("anabranch"):
                    source = importlib.import_module(each.module or "")
                    found |= {one.asname or one.name: getattr(source, one.name, None) for one in each.names}
    return found


def _errors() -> str:
    from anabranch import errors

    rows = []
    for name in errors.__all__:
        error = getattr(errors, name)
        if inspect.isclass(error) and issubclass(error, anabranch.AnabranchError):
            parent = error.__mro__[1].__name__
            rows.append(f"| `{name}` | `{error.code}` | `{parent}` | {_cell(_first(error.__doc__ or ''))} |")
    return "\n".join(["All are in `ab.errors`.", "", "| | code | is a | |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    main()
