"""Every SQL statement of the catalog, on main and on a branch: one commit each, and none on the other branch."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

import anabranch as ab
from anabranch.spark.tasks import spark_errors
from tests.conftest import Location
from tests.lake_templates import Cast, build
from tests.spark.conftest import add_catalog, slow
from tests.spark.statements import SOME_STATEMENTS, STATEMENTS, Call, FrameWrite, Read, Table, Write, fill_items

pytestmark = pytest.mark.spark

Step = Write | FrameWrite | Call | Read

# How statements name the tables of a branch.
BRANCH_NAMINGS = ("branch in the name", "branch in the name after USE", "default branch after USE")


@dataclass(frozen=True)
class Runner:
    """Runs statements on one branch, and checks what each did to both branches."""

    spark: SparkSession
    repo: ab.Repository
    catalog: str
    naming: str
    words: dict[str, str]

    @property
    def branch(self) -> str:
        return "main" if self.naming == "main" else "dev"

    def run(self, step: Step) -> None:
        default = "dev" if self.naming.startswith("default") else "main"
        self.spark.sql(f"SET spark.sql.catalog.{self.catalog}.branch = {default}")
        before = self._heads()
        match step:
            case Read():
                self._check_answer(step, self._sql(self._fill(step.sql)))
                assert self._heads() == before
                return
            case Write():
                message = self._fill(step.sql)
                assert self._sql(message) == []
            case FrameWrite():
                message = step.message
                with spark_errors():
                    step.act(self.spark, self._name(step.table.key))
            case Call():
                message = ""
                (row,) = self._sql(self._fill(step.sql))
                expected = {name: self._fill(str(value)) for name, value in step.answer.items()}
                assert {name: str(row[name]) for name in expected} == expected
        after = self._heads()
        commit = self.repo.get_commit(after.pop(self.branch))
        assert commit.parent_commit_id == before.pop(self.branch)
        assert commit.message == message if isinstance(step, Write) else commit.message.startswith(message)
        assert after == before
        self._check_tables(step)

    def _heads(self) -> dict[str, str]:
        return {branch: self.repo.head_commit_id_for_branch(branch) for branch in ("main", "dev")}

    def _sql(self, text: str) -> list[Row]:
        with spark_errors():
            return self.spark.sql(text).collect()

    def _fill(self, text: str) -> str:
        """Put the names of this run into a statement."""
        text = re.sub(r"\{system\.(\w+)\}", rf"{self.catalog}.system.\1", text)
        text = re.sub(r"\{(\w+\.\w+)\}", lambda found: self._name(found[1]), text)
        argument = ", branch => 'dev'" if self.naming.startswith("branch") else ""
        for word, value in {**self.words, "branch": argument}.items():
            text = text.replace("{" + word + "}", value)
        return text

    def _name(self, key: str) -> str:
        bucket, _, table = key.partition(".")
        name = table if "USE" in self.naming and bucket == "s" else f"{self.catalog}.{key}"
        return f"{name}.branch_dev" if self.naming.startswith("branch") else name

    def _check_answer(self, step: Read, found: list[Row]) -> None:
        if step.rows is not None:
            assert found == step.rows, step.sql
        for word in step.words:
            assert self._fill(word) in str(found), step.sql

    def _check_tables(self, step: Write | FrameWrite | Call) -> None:
        snapshot = self.repo.snapshot_of(self.branch)
        if isinstance(step, Write) and step.gone is not None:
            assert step.gone not in snapshot
        if step.table is not None:
            assert _read(snapshot, step.table.key) == step.table


def _read(snapshot: ab.Snapshot, key: str) -> Table:
    table = snapshot[key]
    rows: list[tuple[Any, ...]] = [tuple(row.values()) for row in table.to_arrow().to_pylist()]
    columns, primary_key = " ".join(table.schema.names), " ".join(table.primary_key)
    return Table(key=key, rows=sorted(rows, key=lambda row: row[:2]), columns=columns, primary_key=primary_key)


@contextmanager
def make_runner(spark: SparkSession, repo: ab.Repository, naming: str, folder: Path) -> Iterator[Runner]:
    """Add the repository to the session as a catalog, with the current bucket `s` if names need it."""
    catalog = add_catalog(repo)
    file = folder / "items.csv"
    file.write_text("id;v\n20;t\n21;u\n")
    branch = "main" if naming == "main" else "dev"
    first = repo.snapshot_of(branch).commit
    words = {
        "lake": catalog,
        "ref": branch,
        "file": str(file),
        "first": first.graph_commit_id,
        "version": str(repo.branch_get(branch).version),
        "time": str(repo.branch_get("dev").created_at),
    }
    before = spark.sql("SELECT current_catalog(), current_schema()").first()
    assert before is not None
    if "USE" in naming:
        spark.sql(f"USE {catalog}.s")
    try:
        yield Runner(spark, repo, catalog, naming, words)
    finally:
        spark.sql(f"USE {before[0]}.{before[1]}")


@pytest.mark.parametrize("naming", ["main", *map(slow, BRANCH_NAMINGS)])
def test_each_statement_is_one_commit_on_its_branch(
    spark: SparkSession, cast: Cast, tmp_path: Path, naming: str
) -> None:
    with make_runner(spark, cast(fill_items), naming, tmp_path) as runner:
        for step in STATEMENTS:
            runner.run(step)
    assert runner.repo.doctor(rows=True).is_clean


@pytest.mark.local
def test_each_statement_on_a_branch_with_each_naming_in_turn(spark: SparkSession, cast: Cast, tmp_path: Path) -> None:
    with make_runner(spark, cast(fill_items), "default branch after USE", tmp_path) as runner:
        for step, naming in zip(STATEMENTS, cycle(BRANCH_NAMINGS), strict=False):
            replace(runner, naming=naming).run(step)
    assert runner.repo.doctor(rows=True).is_clean


@pytest.mark.xdist_group("s3")
def test_statements_of_each_kind_on_s3(spark: SparkSession, s3_location: Location, tmp_path: Path) -> None:
    with make_runner(spark, build(s3_location, fill_items), "branch in the name", tmp_path) as runner:
        for step in SOME_STATEMENTS:
            runner.run(step)
    assert runner.repo.doctor(rows=True).is_clean
