"""Whether one version of a table grew out of another, step by step."""

import lance

from anabranch.errors import NotFoundError
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.pin import Pin
from anabranch.format.staging.settling import shown_version

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
    """Return the version that another one was made from, in whichever home; None where that is unknown.

    An ordinary version that was settled was made from the version that it shows.
    """
    try:
        with lance_errors(pin.home.uri, pin.home.storage_options):
            step = pin.open().read_transaction(pin.version)
    except TypeError:
        return None  # Lance cannot show a compaction that touched indices
    except NotFoundError:
        return None  # collected
    shown = None if step is None else shown_version(step.transaction_properties or {})
    if shown is not None:
        return Pin(home=pin.home, version=shown)
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
