"""The command line in this process, and a dataset and a repository to use it on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.config import ACTOR_VARIABLE, BRANCH_VARIABLE, REPOSITORY_VARIABLE, remember
from tests.command_line import Answer, invoke
from tests.conftest import Location
from tests.lake_templates import Cast


class Ran(Answer):
    """What a command left, and its JSON documents."""

    @property
    def document(self) -> dict[str, Any]:
        """The one document on stdout."""
        assert (self.code, self.err) == (0, ""), self
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The error in the one document on stderr; conflicts of a merge come with it."""
        assert self.code != 0
        assert self.out == ""
        found = json.loads(self.err)
        assert list(found) == ["error"]
        details = ["conflict_count", "conflicts"] if found["error"]["code"] == "merge_conflict" else []
        assert list(found["error"]) == ["code", "message", "hint", "retryable", *details]
        return dict(found["error"])


Run = Callable[..., Ran]

ORDERS = "in_c_sales.orders"
CUSTOMERS = "in_c_sales.customers"
ORDERS_SCHEMA = pa.schema([("id", pa.int64()), ("item", pa.string()), ("price", pa.float64())])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh folder to work in, and an environment that names nothing."""
    for variable in (REPOSITORY_VARIABLE, BRANCH_VARIABLE, ACTOR_VARIABLE, "ANABRANCH_STORAGE_OPTIONS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def location(location: Location, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """The location, with its storage options in the environment, as users of object stores have them."""
    if location.storage_options:
        pairs = [f"{key}={value}" for key, value in location.storage_options.items()]
        monkeypatch.setenv("ANABRANCH_STORAGE_OPTIONS", " ".join(pairs))
    return location


@pytest.fixture
def run() -> Run:
    """Run `anabranch` with these arguments."""

    def run(*args: str, env: dict[str, str] | None = None, typed: str | None = None) -> Ran:
        answer = invoke(*args, env=env, typed=typed)
        return Ran(code=answer.code, out=answer.out, err=answer.err)

    return run


@pytest.fixture
def table(location: Location) -> str:
    """A dataset with two versions: three rows, then a fourth in a fragment of its own."""
    uri, options = location / "t.lance", location.storage_options or None
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), uri, enable_stable_row_ids=True, storage_options=options)
    lance.write_dataset(pa.table({"id": [4]}), uri, mode="append", storage_options=options)
    return uri


@pytest.fixture
def reach(location: Location) -> list[str]:
    """The storage options that reach the dataset, as arguments."""
    return [part for key, value in location.storage_options.items() for part in ("-o", f"{key}={value}")]


@pytest.fixture
def cli(run: Run, reach: list[str]) -> Run:
    """Run `anabranch` with these arguments and the storage options that the location needs."""

    def cli(*args: str, env: dict[str, str] | None = None, typed: str | None = None) -> Ran:
        return run(*args, *reach, env=env, typed=typed)

    return cli


@pytest.fixture
def lake(cast: Cast, folder: Path) -> ab.Repository:
    """A repository that the folder remembers.

    Orders were loaded on main, which dev was made from; then dev changed a price, and main got customers.
    """
    repo = cast(fill_lake)
    remember(repository=repo.uri, branch=repo.branch, folder=folder)
    return repo


def fill_lake(repo: ab.Repository) -> None:
    with repo.transaction(message="Load orders\n\nFrom the till.", kind="load", metadata={"run": "r7"}) as tx:
        tx.create_table(ORDERS, ORDERS_SCHEMA, primary_key=["id"])
        tx.append(ORDERS, orders())
    repo.branch_create("dev", description="prices")
    bob = ab.open(repo.uri, actor="bob", storage_options=repo.storage_options)
    with bob.transaction("dev", message="Fix a price") as tx:
        tx.delete(ORDERS, "id = 3")
    with repo.transaction(message="Add customers") as tx:
        tx.create_table(CUSTOMERS, pa.schema([("name", pa.string())]))


def orders() -> pa.Table:
    values = {"id": [1, 2, 3], "item": ["tea", None, "salt"], "price": [1.5, 2.0, None]}
    return pa.table(values, schema=ORDERS_SCHEMA)


def short(repo: ab.Repository, ref: str) -> str:
    """What the command line shows of a commit's id."""
    return repo.snapshot_of(ref).id[:14]
