"""What a long proof did: printed, and appended as one line of JSON to the file that ANABRANCH_PROOF_LOG names."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def record_proof(proof: str, counts: Mapping[str, Any], *, seconds: float) -> None:
    line = json.dumps({"proof": proof, **counts, "seconds": round(seconds, 1)})
    print(line)  # noqa: T201 - a proof reports what it did
    if path := os.environ.get("ANABRANCH_PROOF_LOG"):
        with Path(path).open("a") as log:
            log.write(f"{line}\n")
