"""What is public in Python: what `anabranch` offers by name, and all that one comes to from there."""

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from typing import Any

import anabranch

__all__ = [
    "FOR_ENGINES",
    "classes_in",
    "exported_name",
    "public_classes",
    "public_fields",
    "public_functions",
    "public_members",
    "public_values",
    "reachable",
    "value_of",
]

# Classes that public ones of datasets and pipelines hold or return, and that users do not need.
_INTERNAL = {"DeclaredCheck", "Home", "Output", "Report", "Source", "Statement"}
# Properties of public classes that only the other layers of the package read.
FOR_ENGINES = {"Dataset.home", "Snapshot.entries", "Table.version_ref"}


def public_classes() -> list[type]:
    """The classes that `anabranch` offers by name, without the errors, which have a section of their own."""
    found = [getattr(anabranch, name) for name in anabranch.__all__]
    return [each for each in found if inspect.isclass(each) and not issubclass(each, anabranch.AnabranchError)]


@functools.cache
def exported_name(each: type) -> str:
    """Return the name by which `anabranch` or `anabranch.types` exports a class, or else its own."""
    for module in (anabranch, anabranch.types):
        for name in dir(module):
            if getattr(module, name) is each:
                return str(name)
    return each.__name__


def public_functions() -> dict[str, Any]:
    """The functions that `anabranch` offers, by the name that users type."""
    found = {f"ab.{name}": getattr(anabranch, name) for name in anabranch.__all__}
    return {name: value for name, value in found.items() if inspect.isfunction(value)}


def public_values() -> list[type]:
    """All public classes: those named in `anabranch` and `anabranch.types`, and what these hold and return."""
    named = [getattr(anabranch.types, name) for name in dir(anabranch.types)]
    return reachable([*public_classes(), *public_functions().values(), *named])


def public_fields(each: Any) -> list[tuple[str, Any]]:
    """The fields of a value, with their types as they are written."""
    if not dataclasses.is_dataclass(each):
        return []
    return [(one.name, one.type) for one in dataclasses.fields(each) if not one.name.startswith("_")]


def public_members(each: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class, those it inherits from other classes of ours too.

    Class methods of values that are only returned are left out: users do not create these values.
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
            plain = property(plain.func) if isinstance(plain, functools.cached_property) else plain
            is_public = not name.startswith("_") and f"{base.__name__}.{name}" not in FOR_ENGINES
            if is_public and (inspect.isfunction(plain) or isinstance(plain, property)):
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
    held = [(hints, each.__module__) for _, hints in public_fields(each)]
    meant = [(generic, each.__module__) for generic in vars(each).get("__orig_bases__", ()) if inspect.isclass(each)]
    found = {one for annotation, module in [*returned, *held, *meant] for one in classes_in(annotation, module)}
    ours = [one for one in found if one.__module__.startswith("anabranch.") and one.__name__ not in _INTERNAL]
    return sorted(ours, key=lambda one: (one.__name__, one.__module__))


def classes_in(annotation: Any, module: str) -> Iterator[type]:
    """Yield the classes that an annotation names. It is a type, or text if the type is known to type checkers only."""
    if isinstance(annotation, str):
        for word in re.findall(r"[\w.]+", annotation):
            value = value_of(word, module)
            if inspect.isclass(value):
                yield value
    elif inspect.isclass(annotation) and not typing.get_args(annotation):
        yield annotation
    elif inspect.isclass(typing.get_origin(annotation)):
        yield typing.get_origin(annotation)
    for part in typing.get_args(annotation):
        yield from classes_in(part, module)


def value_of(word: str, module: str) -> Any:
    """Return what a word of an annotation means in a module, None if that is unknown."""
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
