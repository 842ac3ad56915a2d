"""How fast files become a table, and how much memory that takes, beside raw pylance writing the same rows.

Every contestant runs in a process of its own, by turns, so that its peak memory is its own. Imports, and the start of
Spark's session, are not timed. The findings go into the section of this benchmark in RESULTS.md.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from _comparison import bold, to_section, working_folder, write_section

import anabranch as ab

KEY = "bench.orders"
SEED = 7
FILES = 8
CUSTOMERS = 5000
ROWS_AT_ONCE = 250_000
HEADS = ("what", "s", "Mrows/s", "against raw pylance", "peak RSS", "aim")
MOST_MEGABYTES = 600
RAW = "raw pylance: parquet to a dataset"


@dataclass(frozen=True, slots=True)
class Run:
    seconds: float
    peak_megabytes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--unrecorded", action="store_true", help="leave RESULTS.md as it is")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.contestant is not None:
        sys.stdout.write(json.dumps(take_part(chosen.contestant, Path(chosen.folder))))
        return
    with working_folder(chosen.folder) as folder:
        generate(folder, rows=chosen.rows)
        runs: dict[str, list[Run]] = {name: [] for name in CONTESTANTS}
        for _ in range(chosen.rounds):
            for name in CONTESTANTS:
                runs[name].append(run_apart(name, folder))
        section = report(runs, rows=chosen.rows, rounds=chosen.rounds, folder=folder)
    sys.stdout.write(section)
    if not chosen.unrecorded:
        write_section("load", section)


def generate(folder: Path, *, rows: int) -> None:
    """The same rows as CSV and as parquet, in some files each."""
    rng = np.random.default_rng(SEED)
    names = pa.array([f"customer {number}" for number in range(CUSTOMERS)])
    for kind in ("csv", "parquet"):
        (folder / kind).mkdir()
    bounds = [rows * number // FILES for number in range(FILES + 1)]
    for number in range(FILES):
        with (
            pa_csv.CSVWriter(folder / f"csv/{number}.csv", SCHEMA) as text,
            pa_parquet.ParquetWriter(folder / f"parquet/{number}.parquet", SCHEMA) as parquet,
        ):
            for start in range(bounds[number], bounds[number + 1], ROWS_AT_ONCE):
                part = make_rows(start, min(start + ROWS_AT_ONCE, bounds[number + 1]), rng, names)
                text.write_table(part)
                parquet.write_table(part)


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.float64()),
        ("quantity", pa.int64()),
        ("customer", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("paid", pa.bool_()),
        ("note", pa.string()),
    ]
)


def make_rows(start: int, end: int, rng: np.random.Generator, names: pa.Array) -> pa.Table:
    count = end - start
    columns = [
        np.arange(start, end),
        np.round(rng.random(count) * 1000, 2),
        rng.integers(1, 100, count),
        names.take(pa.array(rng.integers(0, CUSTOMERS, count))),
        pa.array(rng.integers(18_000, 20_000, count).astype("int32"), pa.date32()),
        pa.array(rng.integers(1_600_000_000_000_000, 1_700_000_000_000_000, count), pa.timestamp("us")),
        pa.array(rng.random(count) < 0.5),
        names.take(pa.array(rng.integers(0, CUSTOMERS, count))),
    ]
    return pa.table(columns, schema=SCHEMA)


def write_raw(folder: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for file in sorted((folder / "parquet").iterdir()):
            yield from pa_parquet.ParquetFile(file).iter_batches()

    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    lance.write_dataset(reader, folder / "out/raw.lance", enable_stable_row_ids=True)


def load(folder: Path, kind: str, **options: object) -> None:
    repo = ab.init(folder / "out/lake")
    repo.load(KEY, folder / kind, **options)  # type: ignore[arg-type]


CONTESTANTS: Mapping[str, Callable[[Path], None]] = {
    RAW: write_raw,
    "parquet": lambda folder: load(folder, "parquet"),
    "parquet, with a primary key": lambda folder: load(folder, "parquet", primary_key=["id"]),
    "CSV, types given": lambda folder: load(folder, "csv", schema=SCHEMA),
    "CSV, types found": lambda folder: load(folder, "csv"),
    "CSV, types given, on Spark": lambda folder: load(folder, "csv", schema=SCHEMA, engine="spark"),
}


def take_part(name: str, folder: Path) -> dict[str, float]:
    if name.endswith("on Spark"):
        ab.spark_session(config={"spark.driver.memory": "2g"}).range(10).count()
    began = time.perf_counter()
    CONTESTANTS[name](folder)
    took = time.perf_counter() - began
    return {"seconds": took, "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def run_apart(name: str, folder: Path) -> Run:
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / "out").mkdir()
    command = [sys.executable, __file__, "--contestant", name, "--folder", str(folder)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603 - this file
    return Run(**json.loads(answer.stdout))


def report(runs: Mapping[str, list[Run]], *, rows: int, rounds: int, folder: Path) -> str:
    took = {name: statistics.median(run.seconds for run in found) for name, found in runs.items()}
    lines = []
    for name, found in runs.items():
        peak = max(run.peak_megabytes for run in found)
        lines.append(
            (
                name,
                f"{took[name]:.1f}",
                f"{rows / took[name] / 1e6:.2f}",
                f"{took[name] / took[RAW]:.2f}x",
                bold(f"{peak:.0f} MB", when=name != RAW and peak >= MOST_MEGABYTES),
                "-" if name == RAW else f"below {MOST_MEGABYTES} MB",
            )
        )
    size = {kind: sum(file.stat().st_size for file in (folder / kind).iterdir()) / 1e6 for kind in ("csv", "parquet")}
    about = [
        f"{rows:,} rows of 8 columns in {FILES} files: {size['csv']:.0f} MB of CSV, {size['parquet']:.0f} MB of",
        f"parquet. Medians of {rounds} rounds, each contestant in a process of its own, by turns; the highest peak of",
        "memory, which on Spark is that of the Python driver. *Types found* reads the input twice.",
    ]
    packages = ("pylance", "pyarrow", "pyspark")
    return to_section("Loading (`load.py`)", about, lines, heads=HEADS, packages=packages, folder=folder)


if __name__ == "__main__":
    main()
