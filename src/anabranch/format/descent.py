"""Whether one version of a table grew out of another, step by step."""

import lance

from anabranch.errors import NotFoundError
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.pin import Pin

__all__ = ["descends_from", "step_back"]


def descends_from(later: Pin, earlier: Pin) -> bool:
    """Whether every step from one version to the other went on from the one before; else row ids may be used twice.

    Where a step cannot be told, the answer is no.
    """
    here = later
    while here != earlier:
        before = step_back(here)
        if before is None:
            return False
        here = before
    return True


def step_back(pin: Pin) -> Pin | None:
    """The version that another one went on from, in whichever home; None where that cannot be told."""
    try:
        with lance_errors(pin.home.uri, pin.home.storage_options):
            step = pin.open().read_transaction(pin.version)
    except TypeError:
        return None  # Lance cannot show a compaction that touched indices
    except NotFoundError:
        return None  # collected
    match None if step is None else step.operation:
        case lance.LanceOperation.Clone() as made:
            return Pin(home=pin.home.on(made.ref_name), version=made.ref_version)
        case lance.LanceOperation.Restore() as made:
            return Pin(home=pin.home, version=made.version)
        case None:
            return None
        case _ if step is not None and step.read_version:
            return Pin(home=pin.home, version=step.read_version)
    return None
