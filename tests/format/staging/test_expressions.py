"""Expressions that Lance would not survive are refused before it sees them."""

import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.errors import InvalidExpressionError
from anabranch.format.staging.expressions import enclosed

DEEP = "id" + " + 1" * 3_000 + " > 0"


@pytest.mark.proof  # it takes Lance half a minute to die
def test_deep_arithmetic_ends_a_process_of_lance(tmp_path: Path) -> None:
    """If this fails, Lance has learned it, and the limit can go."""
    lance.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "t.lance")
    program = "import lance, sys; lance.dataset(sys.argv[1]).count_rows(sys.argv[2])"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "t.lance"), DEEP], capture_output=True)
    assert done.returncode < 0


def test_deep_arithmetic_is_refused() -> None:
    with pytest.raises(InvalidExpressionError, match="3000 arithmetic operations"):
        enclosed(DEEP)


@pytest.mark.parametrize(
    "wide",
    [
        f"id IN ({', '.join(str(-number) for number in range(5_000))})",
        " OR ".join(f"id = {number}" for number in range(1_000)),
        f"name = '{'a + b ' * 1_000}'",
        "id" + " + 1" * 300 + " > 0",
    ],
)
def test_wide_expressions_are_not_deep(wide: str) -> None:
    assert enclosed(wide).startswith("(")
