"""The parameters of a pipeline: declared by a default or a type, given as values or as text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from math import isfinite
from typing import Any, NoReturn

from anabranch.json_values import json_value
from anabranch.pipelines.declarations import SourceLocation

__all__ = ["RESERVED", "Parameter", "bind_parameters", "declare_parameters", "written"]

# A function gets the session by this name.
RESERVED = "spark"

_FLAGS = {"true": True, "false": False}
_CONVERSIONS: dict[type, Callable[[str], object]] = {
    str: str,
    int: int,
    float: lambda text: _checked_float(text),
    bool: lambda text: _FLAGS[text.lower()],
    date: date.fromisoformat,
}
_KINDS = ", ".join(kind.__name__ for kind in _CONVERSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    kind: type
    default: Any = None
    is_required: bool = False


def declare_parameters(given: Mapping[str, Any], location: SourceLocation) -> dict[str, Parameter]:
    """Read the declared parameters of a pipeline: a default, or a type for those that must be given."""
    return {name: _declare(name, value, location) for name, value in given.items()}


def _declare(name: object, value: Any, location: SourceLocation) -> Parameter:
    # Functions get parameters as keyword arguments, so a name must be an identifier, and the session has one of them.
    if not isinstance(name, str) or not name.isidentifier() or name == RESERVED:
        location.fail(f"a parameter cannot be called {name!r}", hint="use a name such as 'since'")
    is_required = isinstance(value, type)
    kind = value if is_required else type(value)
    if kind not in _CONVERSIONS or not _is_finite(value):
        location.fail(f"the parameter {name!r} is {value!r}", hint=f"use a value or a type of {_KINDS}")
    return Parameter(name=name, kind=kind, default=None if is_required else value, is_required=is_required)


def bind_parameters(
    declared: Mapping[str, Parameter], given: Mapping[str, Any], location: SourceLocation
) -> dict[str, Any]:
    """The value of each parameter; refuse unknown ones, missing ones and values that are not of their type."""
    for name in given:
        if name not in declared:
            known = f"the parameters are {', '.join(declared)}" if declared else "it takes none"
            location.fail(f"the pipeline has no parameter {name!r}", hint=known)
    for parameter in declared.values():
        if parameter.is_required and parameter.name not in given:
            location.fail(
                f"the parameter {parameter.name!r} has no value", hint=f"give it, such as {parameter.name}=VALUE"
            )
    return {
        name: _converted(parameter, given[name], location) if name in given else parameter.default
        for name, parameter in declared.items()
    }


def _converted(parameter: Parameter, value: Any, location: SourceLocation) -> Any:
    kind = parameter.kind
    # Not `isinstance`: a bool is also an int, and a datetime is also a date.
    if type(value) is kind and _is_finite(value):
        return value
    # A whole number is often written without a point, and it is the same value.
    if kind is float and type(value) is int:
        return float(value)
    try:
        return _CONVERSIONS[kind](value) if isinstance(value, str) else _refuse(parameter, value, location)
    except (ValueError, KeyError):
        _refuse(parameter, value, location)


def _checked_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


def _is_finite(value: Any) -> bool:
    """Whether it can be recorded, which JSON cannot hold of every number."""
    return not isinstance(value, float) or isfinite(value)


def _refuse(parameter: Parameter, value: Any, location: SourceLocation) -> NoReturn:
    location.fail(f"the parameter {parameter.name!r} is {value!r}", hint=f"give a {parameter.kind.__name__}")


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON holds them; each is read back by its parameter's type."""
    return {name: json_value(value) for name, value in values.items()}
