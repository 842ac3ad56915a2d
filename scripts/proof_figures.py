"""Report what proofs did: read the lines that they appended to a file, print a table, and put it into docs/proof.md."""

import argparse
import json
import os
import platform
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "proof.md"
BEGIN, END = "<!-- figures -->\n", "<!-- /figures -->\n"
HEADS = ("proof", "runs", "what they did", "minutes")


@dataclass
class Figures:
    """What all runs of one proof did."""

    runs: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, line: dict[str, Any]) -> None:
        self.runs += 1
        self.seconds += line.pop("seconds")
        self.counts.update({name: count for name, count in line.items() if isinstance(count, int)})
        self.kinds.update(line.get("by_kind", line.get("operations", {})))

    def to_row(self, proof: str) -> tuple[str, ...]:
        return proof, str(self.runs), _listed(self.counts), f"{self.seconds / 60:.1f}"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())


def gather(lines: Iterable[str]) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for text in lines:
        line = json.loads(text)
        proof = re.sub(r", part \d+ of \d+", "", line.pop("proof"))
        found.setdefault(proof, Figures()).add(line)
    return found


def to_table(figures: dict[str, Figures]) -> str:
    rows = [HEADS, ("---",) * len(HEADS), *(each.to_row(proof) for proof, each in sorted(figures.items()))]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    # Not a column: a list of forty numbers makes a row longer than a screen.
    kinds = "".join(f"- *{proof}*: {_listed(each.kinds)}\n" for proof, each in sorted(figures.items()) if each.kinds)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores; Python {platform.python_version()}"
    versions = ", ".join(f"{name} {version(name)}" for name in ("pylance", "pyarrow", "obstore", "hypothesis"))
    return f"{table}\nSteps by kind:\n\n{kinds}\n{machine}, {versions}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path, help="the file that ANABRANCH_PROOF_LOG named")
    table = to_table(gather(parser.parse_args().log.read_text().splitlines()))
    print(table)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
