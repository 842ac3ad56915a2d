"""Lakes for the tests of the UI."""

import json
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

import anabranch as ab
from anabranch.errors import CheckFailedError
from anabranch.repo.write.publish_checks import Check

HOSTILE = "<img src=x onerror=alert(1)>"
RIGHT_TO_LEFT = "\u202eevil\u202c"

__all__ = ["HOSTILE", "RIGHT_TO_LEFT", "hostile_lake", "shop"]


def shop(path: Path) -> ab.Repository:
    """A lake with two tables, three branches, a tag, a merge and a conflict."""
    repository = ab.init(path, actor="ada", durability="none")
    with repository.transaction(message="Load the shop") as tx:
        _create_tables(tx)
    repository.tag_create("v1.0", description="the first orders")
    repository.branch_create("dev", description="try other prices")
    repository.update("shop.orders", {"amount": "9.5"}, "id = 2", branch="dev", message="Cups cost more")
    repository.append("shop.orders", [{"id": 4, "item": "jug", "amount": 30.0}], branch="dev", message="Sell jugs")
    repository.branch_create("fix")
    repository.delete("shop.orders", "id = 3", branch="fix", message="No pots")
    repository.merge("fix", "main", message="Merge fix")
    repository.update("shop.orders", {"amount": "7.0"}, "id = 2", message="Cups cost less")
    repository.branch_create("preview", mode="live", description="follows main")
    _run_totals(repository, "Too early", [{"sold": 19.5}, {"sold": -1.0}])
    _run_totals(repository, "Nightly", [{"sold": 19.5}])
    return repository


def _run_totals(repository: ab.Repository, message: str, rows: list[dict[str, object]]) -> None:
    """Make the totals by a run with three checks. It fails if a total is negative."""
    checks: dict[str, Check] = {
        "totals exist": "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM shop.totals)",
        "no negative totals": "SELECT sold FROM shop.totals WHERE sold < 0",
        "a total for each order": lambda snapshot: len(snapshot["shop.totals"]) > 0,
    }
    record = _pipeline("shop.totals", "shop.orders", input_id=repository.snapshot().id)
    with (
        suppress(CheckFailedError),
        repository.begin_run("main", message=message, metadata=record, checks=checks) as run,
        run.transaction() as tx,
    ):
        tx.create_table("shop.totals", pa.schema([("sold", pa.float64())]))
        tx.append("shop.totals", rows)


def _pipeline(table: str, source: str, *, name: str = "nightly", input_id: str = "") -> dict[str, str]:
    """Return what a pipeline records in the commit that it publishes."""
    step = {"inputs": [source], "write": "rebuild", "kind": "sql", "rows": 1, "seconds": 0.5, "code_hash": "c0de" * 16}
    return {
        "pipeline": name,
        "pipeline.file": f"{name}.py",
        "pipeline.source_hash": "5a1e" * 16,
        "pipeline.input": input_id,
        "pipeline.parameters": json.dumps({"day": name}),
        "pipeline.outputs": json.dumps({table: step}),
    }


def _orders() -> list[dict[str, object]]:
    return [
        {"id": 1, "item": "tea", "amount": 12.5},
        {"id": 2, "item": "cup", "amount": 8.0},
        {"id": 3, "item": "pot", "amount": 25.0},
    ]


def _create_tables(tx: ab.Transaction) -> None:
    schema = pa.schema([("id", pa.int64()), ("item", pa.string()), ("amount", pa.float64())])
    tx.create_table("shop.orders", schema, primary_key=["id"])
    tx.append("shop.orders", _orders())
    tx.create_table("shop.customers", pa.schema([("id", pa.int64()), ("name", pa.string())]), primary_key=["id"])
    tx.append("shop.customers", [{"id": 1, "name": "Grace"}, {"id": 2, "name": "Linus"}])


def hostile_lake(path: Path) -> ab.Repository:
    """A lake in which every text that a user can choose attacks a page that shows it."""
    repository = ab.init(path, actor=HOSTILE, durability="none")
    rows = [
        {"id": HOSTILE, HOSTILE: HOSTILE, "long": "x" * 100_000},
        {"id": RIGHT_TO_LEFT, HOSTILE: RIGHT_TO_LEFT, "long": "</td></table><script>alert(1)</script>"},
    ]
    repository.load("evil.rows", rows, primary_key=["id"], message=f"{HOSTILE} {RIGHT_TO_LEFT}")
    repository.branch_create("dev", description=HOSTILE)
    repository.update("evil.rows", {"long": "'<b>bold</b>'"}, "true", branch="dev", message=HOSTILE)
    repository.tag_create("v1", description=HOSTILE)
    record = _pipeline("evil.rows", "evil.rows", name=HOSTILE)
    passing = {HOSTILE: f"SELECT '{HOSTILE}' FROM evil.rows WHERE false"}
    failing = {**passing, RIGHT_TO_LEFT: "SELECT id FROM evil.rows"}
    for checks in (failing, passing):
        with (
            suppress(CheckFailedError),
            repository.begin_run("dev", message=HOSTILE, metadata=record, checks=checks) as run,
            run.transaction(message=HOSTILE) as tx,
        ):
            tx.update("evil.rows", {"long": "'again'"}, "true")
    return repository
