"""Changes staged on a pinned version: complete versions that are found only by their id.

Every recipe takes a version ref and returns another one. The version, its siblings and the ordinary history of the
home stay as they are until `settle` makes a version the next ordinary one. `VersionRef` is in `home`.

The public names of the modules are names of this package. They are loaded when they are first used, so that a command
that opens no table does not wait for Lance.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.format.home import VersionRef as VersionRef
    from anabranch.format.staging.columns import *  # noqa: F403 - the names are searched for below
    from anabranch.format.staging.compaction import *  # noqa: F403
    from anabranch.format.staging.expressions import *  # noqa: F403
    from anabranch.format.staging.fragments import *  # noqa: F403
    from anabranch.format.staging.indices import *  # noqa: F403
    from anabranch.format.staging.key_hashes import *  # noqa: F403
    from anabranch.format.staging.keys import *  # noqa: F403
    from anabranch.format.staging.manifests import *  # noqa: F403
    from anabranch.format.staging.rows import *  # noqa: F403
    from anabranch.format.staging.schema_notes import *  # noqa: F403
    from anabranch.format.staging.settle_version import *  # noqa: F403

# The search order of names. The first two do not load Lance, and each of the others loads those before it.
_MODULES = (
    "manifests",
    "settle_version",
    "expressions",
    "schema_notes",
    "fragments",
    "rows",
    "key_hashes",
    "keys",
    "columns",
    "indices",
    "compaction",
)


def __getattr__(name: str) -> Any:
    # Modules of this package are not searched for in one another.
    for module in () if name.startswith("_") or name in _MODULES else _MODULES:
        found = getattr(import_module(f"{__name__}.{module}"), name, None)
        if found is not None:
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
