"""Whether a function can be called with an output's inputs and parameters."""

from collections.abc import Callable, Collection, Sequence
from inspect import Parameter, signature
from typing import Any

from anabranch.pipelines.declarations import SourceLocation
from anabranch.pipelines.parameters import RESERVED

__all__ = ["check_signature"]

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def check_signature(
    function: Callable[..., Any], *, inputs: Sequence[str], parameters: Collection[str], location: SourceLocation
) -> tuple[str, ...]:
    """The names of what it takes besides its inputs; refuse a function that takes anything else than it gets."""
    name = getattr(function, "__name__", repr(function))
    taken = signature(function).parameters.values()
    frames = [each for each in taken if each.kind in _POSITIONAL]
    is_open = any(each.kind is Parameter.VAR_POSITIONAL for each in taken)
    needed = sum(each.default is Parameter.empty for each in frames)
    if len(inputs) < needed or (len(inputs) > len(frames) and not is_open):
        shown = ", ".join(each.name for each in frames) or "none"
        location.fail(
            f"{name}() takes {len(frames)} inputs ({shown}), and {len(inputs)} are declared"
            f" ({', '.join(inputs) or 'none'})",
            hint="let it take one DataFrame for each input, in their order; parameters come after a '*'",
        )
    options = tuple(each.name for each in taken if each.kind is Parameter.KEYWORD_ONLY)
    for option in options:
        if option not in parameters and option != RESERVED:
            known = ", ".join(parameters) or "none"
            location.fail(
                f"{name}() takes {option!r}, which is not a parameter of the pipeline",
                hint=f"declare it; the parameters are {known}",
            )
    return options
