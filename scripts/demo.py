"""Show the whole story on a fresh lake: each step shows what a user types, its output, and how long it took.

Each command is a process of its own, as in a shell, so that the times are those that a user sees. A command that needs
Spark starts it, too.
"""

import argparse
import contextlib
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Spark's JVM runs for less than a minute here: its second compiler would cost more than it gains.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Shows that a folder was made by this demo, so that it may be removed. The Makefile has the name, too.
MARK = ".made-by-make-demo"
SHOP = Path(__file__).resolve().parents[1] / "examples" / "shop"


@dataclass(frozen=True, slots=True)
class Shell:
    """Commands as they are typed in a shell."""

    title: str
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Python as it is typed, and what to show of its result."""

    title: str
    source: str
    result: str


# Without Spark, on the sample lake.
SAMPLE: list[Shell | Code] = [
    Shell("A sample lake: a small shop with branches, a tag and a pipeline run", ("anabranch demo .",)),
    Shell("Everything that happened in it", ("anabranch log --graph",)),
    Shell("What the branch sale changed, row by row", ("anabranch diff main...sale --rows",)),
    Shell(
        "Merge it: one cell was changed on both sides, and the higher price wins",
        ("anabranch conflicts sale", "anabranch merge sale --resolve price=max", "anabranch show"),
    ),
    Shell("Where a report came from", ("anabranch lineage report.customer_value",)),
]
# On Spark, in the same lake.
SPARK: list[Shell | Code] = [
    Shell(
        "The files of a larger shop",
        ("python $SHOP/generate.py --orders $ORDERS --late $LATE --seed 7 --out $FILES",),
    ),
    Shell(
        "Load them: each load is one commit. Spark reads the large files",
        (
            "anabranch load bronze.customers $FILES/customers.csv --primary-key id",
            "anabranch load bronze.products $FILES/products.csv --primary-key id --type 'price=decimal(10, 2)'",
            "anabranch load bronze.orders $FILES/orders --primary-key id --engine spark",
            "anabranch load bronze.events $FILES/events --primary-key id --engine spark",
        ),
    ),
    Shell("A branch to work on: one small file, however large the lake is", ("anabranch branch create dev",)),
    Shell(
        "A pipeline of five tables on Spark, built on the branch: all tables are published at once, if the checks pass",
        ("anabranch pipeline run $SHOP/pipeline.py --branch dev",),
    ),
    Shell("What the branch has that main does not have", ("anabranch diff main dev",)),
    Shell("Where a table came from", ("anabranch lineage gold.customer_value --ref dev",)),
    Shell(
        "Late orders, and two of the tables again: of the orders, only the new ones are read",
        (
            "anabranch load bronze.orders $FILES/late-orders --branch dev",
            "anabranch pipeline run $SHOP/pipeline.py --branch dev --only silver.orders --only gold.daily_revenue",
        ),
    ),
    Shell(
        "What that changed, row by row",
        (
            "anabranch diff dev~1 dev",
            "anabranch diff dev~1 dev --rows --table gold.daily_revenue --limit 6",
        ),
    ),
    Shell("The history of one table", ("anabranch table history gold.daily_revenue --ref dev",)),
    Shell(
        "SQL across branches and time: revenue before and after the late orders",
        (
            'anabranch sql "SELECT channel, sum(before.revenue) AS before, sum(now.revenue) AS now'
            " FROM gold.daily_revenue AT 'dev' AS now LEFT JOIN gold.daily_revenue AT 'dev~2' AS before"
            ' USING (day, channel) GROUP BY channel ORDER BY channel"',
        ),
    ),
    Shell("Merge the branch: all five tables and the late orders, as one commit", ("anabranch merge dev",)),
    Shell(
        "Back in time: the tables of main before the merge, and now",
        ("anabranch table list --ref main~1", "anabranch table list"),
    ),
    Code(
        "A mistake, and how to undo it",
        """
        repo = ab.open("lake", actor="ada")
        repo.delete("gold.daily_revenue", "orders > 0", message="Oops")
        now = repo.table("gold.daily_revenue").count_rows()
        before = repo.table("gold.daily_revenue", ref="main~1").count_rows()
        repo.undo()
        again = repo.table("gold.daily_revenue").count_rows()
        """,
        'f"{now} rows; one commit ago {before}; after the undo {again}"',
    ),
    Code(
        "Bad input is refused with what was wrong, and changes nothing",
        """
        try:
            repo.append("bronze.products", repo["bronze.products"].to_arrow(limit=1))
        except ab.AnabranchError as err:
            refusal = err
        """,
        'f"{refusal.code}: {refusal}"',
    ),
    Code(
        "Vector search: products that viewers of one product may like",
        """
        events = repo["bronze.events"]
        viewed = events.to_arrow(where="id = 0").to_pylist()[0]
        close = events.nearest("embedding", viewed["embedding"], k=6).column("product_id").to_pylist()
        """,
        "f\"viewers of product {viewed['product_id']} may like {sorted(set(close) - {viewed['product_id']})}\"",
    ),
    Code(
        "Any Lance tool reads the tables, too",
        """
        import lance
        plain = lance.dataset("lake/tables/bronze/orders.lance")
        """,
        'f"plain pylance sees {plain.count_rows()} orders"',
    ),
    Shell("The branch is not needed any more", ("anabranch branch delete dev",)),
    Shell(
        "What it costs: a deleted branch can be restored for a day, then gc frees its space",
        ("anabranch storage", "anabranch gc --dry-run"),
    ),
]
STEPS = [*SAMPLE, *SPARK]


def main() -> None:
    parser = argparse.ArgumentParser(description="Show the story on a fresh lake.")
    parser.add_argument("folder", nargs="?", default="demo-lake", help="a folder that is new or made by this demo")
    parser.add_argument("--orders", type=int, default=1_000_000)
    given = parser.parse_args()

    os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
    began = time.perf_counter()
    folder = choose_folder(Path(given.folder))
    tell(folder.absolute(), orders=given.orders)
    print(f"\nThat took {time.perf_counter() - began:.0f} seconds. Now try it yourself:")
    print(f"\n    cd {folder} && source {os.path.relpath(sys.prefix, folder)}/bin/activate && anabranch status")


def choose_folder(wanted: Path) -> Path:
    """Return the folder for the lake, which is then new or empty. A folder that this demo did not make is kept."""
    for number in itertools.count(1):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        if (folder / MARK).is_file():
            shutil.rmtree(folder)
            print(f"Removed {folder}, which this demo made before.")
            return folder
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return folder
        print(f"Kept {folder}: this demo did not make it.")
    raise AssertionError("the loop above does not end")


def tell(folder: Path, *, orders: int) -> None:
    """Run all steps in a new or empty folder."""
    import anabranch as ab

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as files, contextlib.chdir(folder):
        variables = {
            "FILES": files,
            "SHOP": os.path.relpath(SHOP),
            "ORDERS": str(orders),
            "LATE": str(max(1, orders // 50)),
        }
        names: dict[str, Any] = {"ab": ab}
        for number, step in enumerate(STEPS, 1):
            print(f"\n{number}. {step.title}\n", flush=True)
            match step:
                case Shell():
                    for command in step.commands:
                        _run_shell(command, variables)
                case Code():
                    _run_code(step, names)
            # After the first step, which needs an empty folder.
            Path(MARK).touch()


def _run_shell(command: str, variables: dict[str, str]) -> None:
    shown = command
    for name in ("SHOP", "ORDERS", "LATE"):
        shown = shown.replace(f"${name}", variables[name])
    print(textwrap.fill(shown, 116, initial_indent="    $ ", subsequent_indent="        "), flush=True)
    program, *arguments = shlex.split(shown.replace("$FILES", variables["FILES"]))
    started = [sys.executable] if program == "python" else [sys.executable, "-m", "anabranch.cli.main"]
    with _timed():
        ended = subprocess.run([*started, *arguments], check=False, capture_output=True, text=True)
        if ended.returncode:
            sys.exit(f"\n{ended.stderr.strip()}")
        print("", *(f"    {line.rstrip()}" for line in ended.stdout.rstrip().splitlines()), sep="\n")


def _run_code(step: Code, names: dict[str, Any]) -> None:
    source = textwrap.dedent(step.source).strip()
    print(textwrap.indent(source, "    >>> "), flush=True)
    with _timed():
        exec(source, names)
        print(f"\n    {eval(step.result, names)}")


@contextlib.contextmanager
def _timed() -> Iterator[None]:
    began = time.perf_counter()
    yield
    print(f"    ({time.perf_counter() - began:.1f} s)\n", flush=True)


if __name__ == "__main__":
    main()
