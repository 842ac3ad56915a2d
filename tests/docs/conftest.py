"""The lake of the examples."""

from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab

ORDERS = {"id": [1, 2, 3], "item": ["tea", "cup", "pot"], "amount": [12.5, 8.0, 40.0]}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ab.Repository:
    """A fresh repository `shop` in the current folder, with one table of three orders."""
    monkeypatch.chdir(tmp_path)
    repo = ab.init("shop", actor="ada")
    table = pa.table(ORDERS)
    with repo.transaction(message="Load the shop") as tx:
        tx.create_table("shop.orders", table.schema, primary_key=["id"])
        tx.append("shop.orders", table)
    return repo
