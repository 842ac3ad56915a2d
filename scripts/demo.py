"""Tell the whole story on a fresh lake: each step shows what a user would type, and how long it took."""

import argparse
import contextlib
import io
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

# Spark's JVM lives for a minute or two here: its second compiler would cost more than it gains.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SHOP = Path(__file__).resolve().parents[1] / "examples" / "shop"


@dataclass(frozen=True, slots=True)
class Shell:
    """Commands as they are typed in a shell; those of `anabranch` run in this process, and share its Spark."""

    title: str
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Python as it is typed, and what to show of its result."""

    title: str
    source: str
    result: str


STEPS: list[Shell | Code] = [
    Shell(
        "The files of a shop: who bought what, and what people looked at",
        ("python $SHOP/generate.py --orders $ORDERS --late $LATE --seed 7 --out $FILES",),
    ),
    Shell("A lake in an empty folder", ("anabranch init",)),
    Code(
        "Spark on this machine, for all that follows; the command line would start it by itself",
        "spark = ab.spark_session()",
        'f"Spark {spark.version} on {spark.sparkContext.master}"',
    ),
    Shell(
        "Load the files on Spark: each load is one commit",
        (
            "anabranch load bronze.customers $FILES/customers.csv --primary-key id --engine spark",
            "anabranch load bronze.products $FILES/products.csv --primary-key id --type 'price=decimal(10, 2)'",
            "anabranch load bronze.orders $FILES/orders --primary-key id --engine spark",
            "anabranch load bronze.events $FILES/events --primary-key id --engine spark",
        ),
    ),
    Shell("A branch to work on: one small file, however large the lake is", ("anabranch branch create dev",)),
    Shell(
        "A pipeline of five tables, built on the branch: all of it becomes visible at once, if the checks hold",
        ("anabranch pipeline run $SHOP/pipeline.py --branch dev",),
    ),
    Shell("What the branch has that main has not", ("anabranch diff main dev",)),
    Shell("Where a table came from", ("anabranch lineage gold.customer_value --ref dev",)),
    Shell(
        "Orders that come late, and two of the tables once more: of the orders, only the new ones are read",
        (
            "anabranch load bronze.orders $FILES/late-orders --branch dev",
            "anabranch pipeline run $SHOP/pipeline.py --branch dev --only silver.orders --only gold.daily_revenue",
        ),
    ),
    Shell(
        "What that changed, row by row",
        (
            "anabranch diff dev~1 dev --stat",
            "anabranch diff dev~1 dev --rows --table gold.daily_revenue --limit 6",
        ),
    ),
    Shell("How a table came to be what it is", ("anabranch table history gold.daily_revenue --ref dev",)),
    Shell(
        "SQL across branches and time: revenue before and after the late orders",
        (
            'anabranch sql "SELECT channel, sum(before.revenue) AS before, sum(now.revenue) AS now'
            " FROM gold.daily_revenue AT 'dev' AS now LEFT JOIN gold.daily_revenue AT 'dev~2' AS before"
            ' USING (day, channel) GROUP BY channel ORDER BY channel"',
        ),
    ),
    Code(
        "Meanwhile, somebody on main changes a price that was changed on the branch, too",
        """
        repo = ab.open(".", actor="ada")
        with repo.transaction("dev", message="A little more") as tx:
            tx.update("bronze.products", {"price": "price + 1"}, where="id = 7")
        with repo.transaction("main", message="Twice as much") as tx:
            tx.update("bronze.products", {"price": "price * 2"}, where="id = 7")
        prices = {ref: repo.entity_at("bronze.products", 7, ref=ref)["price"] for ref in ("main~1", "dev", "main")}
        """,
        "f\"it was {prices['main~1']}; on dev it is {prices['dev']} now, on main {prices['main']}\"",
    ),
    Shell(
        "Bring the branch into main: all five tables, the late orders, and one cell that both sides changed",
        (
            "anabranch conflicts dev",
            "anabranch merge dev --resolve price=max",
            "anabranch show",
        ),
    ),
    Shell(
        "Back in time: main before the merge, and now", ("anabranch table list --ref main~1", "anabranch table list")
    ),
    Code(
        "A mistake, seen from the past, and taken back",
        """
        with repo.transaction(message="Oops") as tx:
            tx.delete("gold.daily_revenue", "orders > 0")
        now = repo.snapshot_of("main")["gold.daily_revenue"].count_rows()
        before = repo.snapshot_of("main~1")["gold.daily_revenue"].count_rows()
        repo.undo()
        again = repo.snapshot_of("main")["gold.daily_revenue"].count_rows()
        """,
        'f"{now} rows; one commit ago {before}; after the undo {again}"',
    ),
    Code(
        "Bad input is refused with what was wrong, and changes nothing",
        """
        try:
            with repo.transaction(message="Twice the same product") as tx:
                tx.append("bronze.products", repo.snapshot()["bronze.products"].to_arrow(limit=1))
        except ab.AnabranchError as err:
            refusal = err
        """,
        'f"{refusal.code}: {refusal}"',
    ),
    Code(
        "What people who looked at one product may like: the events have vectors",
        """
        events = repo.snapshot()["bronze.events"]
        looked = events.to_arrow(where="id = 0").to_pylist()[0]
        close = events.nearest("embedding", looked["embedding"], k=6).column("product_id").to_pylist()
        """,
        "f\"who looked at product {looked['product_id']} may like {sorted(set(close) - {looked['product_id']})}\"",
    ),
    Code(
        "Any Lance tool reads the tables, too",
        """
        import lance
        plain = lance.dataset("tables/bronze/orders.lance")
        """,
        'f"plain pylance sees {plain.count_rows()} orders"',
    ),
    Shell("The branch has done its work", ("anabranch branch delete dev",)),
    Shell(
        "What it all costs: a deleted branch stays for a day, and can come back until gc frees what is its own",
        ("anabranch storage", "anabranch gc --dry-run"),
    ),
    Shell("Everything that happened", ("anabranch log --graph", "anabranch reflog --limit 3")),
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Tell the story on a fresh lake.")
    parser.add_argument("lake", nargs="?", default="demo-lake", help="the folder; what it holds is removed")
    parser.add_argument("--orders", type=int, default=1_000_000)
    given = parser.parse_args()
    import anabranch as ab

    os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
    began = time.perf_counter()
    try:
        tell(Path(given.lake).absolute(), orders=given.orders)
    except ab.errors.MissingDependencyError as err:
        sys.exit(f"\n{err.problem}\n{err.hint}")
    print(f"\nThat took {time.perf_counter() - began:.0f} seconds. The lake is yours to play with:")
    print(f"\n    cd {given.lake} && source ../.venv/bin/activate && anabranch status")


def tell(lake: Path, *, orders: int) -> None:
    """Run all steps in the folder of the lake, which is made anew."""
    import anabranch as ab

    shutil.rmtree(lake, ignore_errors=True)
    lake.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as files, contextlib.chdir(lake):
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


def _run_shell(command: str, variables: dict[str, str]) -> None:
    shown = command
    for name in ("SHOP", "ORDERS", "LATE"):
        shown = shown.replace(f"${name}", variables[name])
    print(textwrap.fill(shown, 116, initial_indent="    $ ", subsequent_indent="        "), flush=True)
    program, *arguments = shlex.split(shown.replace("$FILES", variables["FILES"]))
    with _timed():
        if program == "python":
            said = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout
        else:
            said = _run_anabranch(arguments)
        print("", *(f"    {line.rstrip()}" for line in said.rstrip().splitlines()), sep="\n")


def _run_anabranch(arguments: list[str]) -> str:
    """What the command says; where it fails, it has said why, and the story ends."""
    from anabranch.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            main(arguments)
        except SystemExit as end:
            if end.code:
                raise
    return said.getvalue()


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
