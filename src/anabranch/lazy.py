"""Names of a package that are loaded when they are first used, so that importing the package is cheap."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def load_name(package: str, locations: Mapping[str, tuple[str, str]], name: str) -> Any:
    """Return what a package exports under a name, and set it there, so that the next access finds it.

    `locations` has the module of each name, and its name there. Call this from the `__getattr__` of the package.
    """
    # An AttributeError, so that hasattr() and getattr() with a default work as for any module.
    if name not in locations:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    module, attribute = locations[name]
    value = getattr(import_module(module), attribute)
    setattr(sys.modules[package], name, value)
    return value
