"""docs/s3-permissions.md: the S3 actions that each operation uses, seen by a proxy, and a key that may only read."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import StorageDeniedError
from tests.conftest import Location
from tests.docs.pages import ROOT
from tests.faults.proxy import Plan, Proxy, proxy_before
from tests.s3_server import READER

PAGE = ROOT / "docs" / "s3-permissions.md"
ORDERS = pa.table({"id": [1, 2, 3], "amount": [1.0, 2.0, 3.0]})


def _action(request: str) -> str:
    """Return the action that Amazon's S3 checks for a request."""
    method, _, path = request.partition(" ")
    query = path.partition("?")[2]
    match method:
        case "GET" if "list-type" in query:
            return "s3:ListBucket"
        case "GET" | "HEAD":
            return "s3:GetObject"
        case "DELETE" if "uploadId" in query:
            return "s3:AbortMultipartUpload"
        case "POST" if query.startswith("delete"):
            return "s3:DeleteObject"
        case "DELETE":
            return "s3:DeleteObject"
        case _:
            return "s3:PutObject"


@contextmanager
def _recorded(proxy: Proxy) -> Iterator[set[str]]:
    proxy.plan, used = Plan(), set[str]()
    yield used
    used.update(_action(request) for request in proxy.plan.seen)


def _needed(task: str) -> set[str]:
    """Return the actions that the page's table lists for a task."""
    (row,) = re.findall(rf"^\| {task}[^|]*\|(.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return set(re.findall(r"`(s3:\w+)`", row))


@pytest.mark.xdist_group("s3")
def test_operations_use_the_actions_of_the_page(s3_location: Location) -> None:
    with proxy_before(s3_location.storage_options["aws_endpoint"]) as proxy:
        options = {**s3_location.storage_options, "aws_endpoint": proxy.endpoint}
        with _recorded(proxy) as write:
            repo = ab.init(s3_location / "lake", storage_options=options)
            repo.load("shop.orders", ORDERS, primary_key=["id"])
            repo.branch_create("dev")
            repo.update("shop.orders", {"amount": "amount + 1"}, "id = 1", branch="dev")
            repo.merge("dev")
            with repo.begin_run() as run, run.transaction() as tx:
                tx.delete("shop.orders", "id = 3")
            repo.tag_create("v1")
        with _recorded(proxy) as read:
            reader = ab.open(s3_location / "lake", storage_options=options)
            assert reader["shop.orders"].count_rows() == 2
            reader.list_commits()
            reader.sql("SELECT sum(amount) FROM shop.orders", "dev")
            list(reader.diff("main~2", "main").iter_rows())
            assert reader.doctor().is_clean
        with _recorded(proxy) as gc:
            repo.gc()
    assert read == _needed("Read")
    assert write == _needed("Write")
    assert gc == _needed("Garbage collection")


@pytest.mark.xdist_group("s3")
def test_key_that_may_only_read_reads_and_is_refused_to_write(s3_location: Location) -> None:
    repo = ab.init(s3_location / "lake", storage_options=s3_location.storage_options)
    repo.load("shop.orders", ORDERS, primary_key=["id"])
    reader = ab.open(s3_location / "lake", storage_options={**s3_location.storage_options, **READER})
    assert reader["shop.orders"].count_rows() == 3
    assert reader.sql("SELECT sum(amount) AS s FROM shop.orders").to_pylist() == [{"s": 6.0}]
    for refused in (
        lambda: reader.append("shop.orders", [{"id": 4, "amount": 4.0}]),
        lambda: reader.branch_create("dev"),
        reader.gc,
    ):
        with pytest.raises(StorageDeniedError):
            refused()
    assert repo["shop.orders"].count_rows() == 3
