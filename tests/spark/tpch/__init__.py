"""The tables and the 22 queries of TPC-H. The rows come from `tpchgen-cli`, the queries from the specification."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["KEYS", "QUERIES", "find_generator", "generate"]

KEYS: Mapping[str, list[str]] = {
    "customer": ["c_custkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
    "nation": ["n_nationkey"],
    "orders": ["o_orderkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "region": ["r_regionkey"],
    "supplier": ["s_suppkey"],
}
QUERIES: Mapping[str, str] = {file.stem: file.read_text() for file in sorted(Path(__file__).parent.glob("q*.sql"))}


def find_generator() -> str | None:
    """The program that makes the rows, from this environment or from the PATH."""
    return shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpchgen-cli")


def generate(generator: str, folder: Path, scale: float) -> None:
    """Write each table as one parquet file."""
    arguments = [generator, "parquet", "--scale-factor", str(scale), "--output-dir", str(folder)]
    subprocess.run(arguments, check=True, capture_output=True)
