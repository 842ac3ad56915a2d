"""Git-style branches, commits, diffs and merges for a whole lake of Lance tables.

Everything is loaded when it is first asked for: importing this package loads no Lance, no Arrow and no JVM.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch import errors
    from anabranch.errors import AnabranchError
    from anabranch.format.dataset import Dataset
    from anabranch.format.dataset import open_dataset as dataset

__version__ = "0.1.0"
__all__ = ["AnabranchError", "Dataset", "dataset", "errors"]

_PUBLIC = {
    "AnabranchError": ("anabranch.errors", "AnabranchError"),
    "Dataset": ("anabranch.format.dataset", "Dataset"),
    "dataset": ("anabranch.format.dataset", "open_dataset"),
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("anabranch.errors")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
