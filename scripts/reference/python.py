"""The page of all that `import anabranch` offers."""

import inspect
import re
import typing
from typing import Any

from scripts.reference.markdown import cell, code, first_paragraph, paragraphs
from scripts.reference.public import (
    exported_name,
    public_classes,
    public_fields,
    public_functions,
    public_members,
    public_values,
    value_of,
)

import anabranch

__all__ = ["write_python"]

_INTRODUCTION = """# Python

All that `import anabranch as ab` offers, from the code itself. Names that begin with an underscore, and modules that
are not named here, may change at any time. `python -m scripts.reference` writes this page.

`ab` has the functions, the main classes and all errors (`except ab.ConflictError`). `ab.types` has the values that
methods return, for annotations and `isinstance`: `from anabranch.types import BranchInfo`. Methods that list return
lists, and those whose names begin with `iter_` read as they are iterated. Fields and properties that hold several
values are tuples. A time is an integer that ends in `_at`, in microseconds since 1970, and a `datetime` in UTC
of the same name without `_at`.

In the examples, `ab` is `anabranch`, `pa` is `pyarrow`, and `repo` is the open repository `shop` with one table of
three orders, `shop.orders`. All of them are run by a test."""


def write_python() -> str:
    """The page of all public functions and classes, and of the values that they return."""
    classes, functions = public_classes(), public_functions()
    values = [each for each in public_values() if each not in classes]
    parts = [
        _INTRODUCTION,
        "## Functions",
        *(_function(name, function, level=3) for name, function in functions.items()),
        "## Classes",
        *(_class(each, f"ab.{exported_name(each)}") for each in classes),
        "## Values: `ab.types`",
        *(_class(each, f"ab.types.{exported_name(each)}") for each in sorted(values, key=exported_name)),
        "## Errors",
        _errors(),
    ]
    return "\n\n".join(parts) + "\n"


def _function(name: str, function: Any, *, level: int) -> str:
    docs = _docstring(function)
    return f"{'#' * level} `{name}`\n\n```python\n{_signature(name, function)}\n```\n\n{docs}"


def _signature(name: str, function: Any) -> str:
    found = inspect.signature(function)
    parameters = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    module = function.__module__
    plain = [each.replace(annotation=_type(each.annotation, module)) for each in parameters]
    shown = inspect.Signature(plain, return_annotation=_type(found.return_annotation, module))
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


def _type(annotation: Any, module: str | None = None) -> Any:
    """Return the text of an annotation. Names that its module gives to longer types are replaced by these."""
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    if isinstance(annotation, str) and module is not None:
        text = re.sub(r"\b[A-Z]\w+", lambda word: _meaning(word[0], module), text)
    text = re.sub(r"\b(?:collections\.abc|typing|datetime|os|pathlib|anabranch)(?:\.\w+)*\.(?=[A-Za-z])", "", text)
    text = re.sub(r"~(?=[A-Z])", "", text)  # how Python prints a type variable
    return _Text(text.replace("'", "").replace('"', ""))


def _meaning(word: str, module: str) -> str:
    value = value_of(word, module)
    return inspect.formatannotation(value) if typing.get_args(value) else word


def _bound(annotation: Any, each: type) -> Any:
    """An annotation of a generic class with its type variables replaced."""
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


def _class(each: type, name: str) -> str:
    short = exported_name(each)
    parts = [f"### `{name}`", _docstring(each)]
    fields = public_fields(each)
    if fields:
        rows = [f"| `{key}` | {code(_type(_bound(docs, each)))} |" for key, docs in fields]
        parts.append("\n".join(["| Field | Type |", "|---|---|", *rows]))
    if issubclass(each, str):
        parts.append("One of " + ", ".join(f"`{member.value}`" for member in typing.cast(Any, each)) + ".")
    for key, member in public_members(each):
        if isinstance(member, property):
            returns = _type(_bound(inspect.signature(typing.cast(Any, member.fget)).return_annotation, each))
            parts.append(f"#### `{short}.{key}`\n\n```python\n{key}: {returns}\n```\n\n{_docstring(member)}")
        else:
            parts.append(_function(f"{short}.{key}", member, level=4))
    return "\n\n".join(part for part in parts if part)


def _docstring(value: Any) -> str:
    docs = inspect.cleandoc(value.__doc__ or "")
    prose, arrow, examples = docs.partition(">>> ")
    text = paragraphs(prose.strip()) if prose.strip() else ""
    return f"{text}\n\n```python\n{arrow}{examples.rstrip()}\n```" if arrow else text


def _errors() -> str:
    from anabranch import errors

    rows = []
    for name in errors.__all__:
        error = getattr(errors, name)
        if inspect.isclass(error) and issubclass(error, anabranch.AnabranchError):
            parent = error.__mro__[1].__name__
            rows.append(f"| `{name}` | `{error.code}` | `{parent}` | {cell(first_paragraph(error.__doc__ or ''))} |")
    heads = ["| Error | Code | Is a | Meaning |", "|---|---|---|---|"]
    return "\n".join(["Each is in `ab` and in `ab.errors`.", "", *heads, *rows])
