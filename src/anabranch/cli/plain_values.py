"""The values of arguments and options, converted without pydantic if they are plain.

Typer converts each value by pydantic, whose import takes longer than the work of a short command. Text, whole numbers
and lists of text need no such help. Any other value, and any wrong one, is left to Typer, so that errors are the same.
"""

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["PlainCommand", "PlainGroup"]

_OTHER = object()


class PlainCommand(TyperCommand):
    """A command that converts plain values without pydantic."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_values(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands that converts plain values without pydantic."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_values(super().get_params(ctx))


def _with_plain_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        # Where Typer keeps its own conversion, once it has made one.
        if getattr(parameter, "_runtime_param", _OTHER) is None:
            parameter._runtime_param = _PlainValues(parameter)
    return parameters


class _PlainValues:
    """Stands in for Typer's conversion of one parameter until there is a value that is not plain."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        found = _convert(value, self._parameter)
        if found is not _OTHER:
            return found
        # Typer makes its own conversion only while this is None.
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _convert(value: Any, parameter: Any) -> Any:
    """Return a value as Typer would, or `_OTHER` if it is not plain."""
    described = parameter.type_descriptor
    if value is None:
        return () if parameter.nargs == -1 or getattr(parameter, "multiple", False) else None
    if described.annotation is str and isinstance(value, str):
        return value
    if described.annotation == list[str] and isinstance(value, list | tuple):
        return list(value) if all(isinstance(item, str) for item in value) else _OTHER
    if described.annotation is int:
        return _number(value, described.parameter_info)
    return _OTHER


def _number(value: Any, limits: Any) -> Any:
    # Only plain digits: int() also accepts spaces, underscores and digits of other scripts, which are left to Typer.
    if not isinstance(value, int | str) or not re.fullmatch("-?[0-9]{1,18}", str(value)):
        return _OTHER
    number = int(value)
    is_low = limits.min is not None and number < limits.min
    is_high = limits.max is not None and number > limits.max
    return _OTHER if is_low or is_high or limits.clamp else number
