"""The figures of a run, on disk."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from _operations import Cost, Measured

__all__ = ["DELAY_SECONDS", "LATENCY", "BySize", "Figures", "read_figures", "write_figures"]

LATENCY = "latency"
DELAY_SECONDS = 0.03

BySize = dict[int, list[Measured]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured on each axis, and where."""

    axes: dict[str, BySize] = field(default_factory=dict)
    machine: str = ""
    rounds: int = 0


def _path(root: Path) -> Path:
    return root / "benchmarks" / "growth.json"


def read_figures(root: Path) -> Figures:
    """What was measured last, or nothing."""
    if not _path(root).exists():
        return Figures()
    text = json.loads(_path(root).read_text())
    axes = {
        name: {int(size): [_measured(one) for one in found] for size, found in sizes.items()}
        for name, sizes in text["axes"].items()
    }
    return Figures(axes=axes, machine=text["machine"], rounds=text["rounds"])


def _measured(found: dict[str, object]) -> Measured:
    ours, peer = (None if found[side] is None else Cost(**found[side]) for side in ("ours", "peer"))  # type: ignore[arg-type]
    return Measured(operation=str(found["operation"]), ours=ours, peer=peer)  # type: ignore[arg-type]


def write_figures(figures: Figures, root: Path) -> None:
    text = asdict(figures)
    for sizes in text["axes"].values():
        for found in sizes.values():
            for one in found:
                for cost in (one["ours"], one["peer"] or {}):
                    cost.update({name: round(value, 3) for name, value in cost.items()})
    _path(root).parent.mkdir(parents=True, exist_ok=True)
    _path(root).write_text(json.dumps(text, indent=1) + "\n")
