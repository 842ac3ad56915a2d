"""`anabranch blame`."""

import anabranch as ab
from tests.cli.conftest import ORDERS, Run


def keyed(lake: ab.Repository) -> None:
    with lake.transaction(message="Set a key") as tx:
        tx.set_primary_key(ORDERS, ["id"])
    with lake.transaction(message="Raise a price", metadata={}) as tx:
        tx.update(ORDERS, {"price": "9.0"}, where="id = 2")


def test_rows_are_shown_with_their_commits(cli: Run, lake: ab.Repository) -> None:
    keyed(lake)
    found = cli("blame", ORDERS, "--json").document
    assert found["columns"] == ["id", "commit_id", "committed_at", "actor", "message"]
    assert {row["id"]: row["message"] for row in found["rows"]}[2] == "Raise a price"
    assert found["has_more"] is False
    (line,) = [text for text in cli("blame", ORDERS, "--where", "id = 2").out.splitlines() if "Raise a price" in text]
    assert lake.head_commit_id_for_branch("main")[:5] in line


def test_cells_are_shown_with_their_commits(cli: Run, lake: ab.Repository) -> None:
    keyed(lake)
    found = cli("blame", ORDERS, "--cells", "--limit", "2", "--json").document
    assert found["has_more"] is True
    columns = [row["column"] for row in found["rows"]]
    assert columns == ["id", "id", "item", "item", "price", "price"]
    assert len({(row["id"], row["column"]) for row in found["rows"]}) == 6
    prices = cli("blame", ORDERS, "-c", "price", "--where", "id = 2", "--json").document["rows"]
    assert [row["message"] for row in prices] == ["Raise a price"]
    older = cli("blame", ORDERS, "-c", "price", "--where", "id = 2", "--ref", "main~1", "--json").document["rows"]
    assert older[0]["message"] != "Raise a price"


def test_what_cannot_be_blamed_is_refused(cli: Run, lake: ab.Repository) -> None:
    refused = cli("blame", "in_c_sales.nope", "--json")
    assert (refused.code, refused.error["code"]) == (3, "table_not_found")
