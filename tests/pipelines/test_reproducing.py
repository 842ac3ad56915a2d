"""A recorded run is done again on what it read then, and compared with what it made."""

from textwrap import dedent

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.cli.output import DIFFERENT
from anabranch.errors import InvalidInputError, ObjectNotFoundError
from anabranch.storage import open_store
from tests.command_line import invoke
from tests.conftest import Location
from tests.lake_templates import build
from tests.pipelines.conftest import HEAD, ORDERS, WriteFile, anabranch, fill_lake, orders

pytestmark = pytest.mark.spark

THREE = """
    pipeline.sql("silver.orders", "SELECT * FROM bronze.orders WHERE id >= :least", primary_key=["id"])
    pipeline.sql(
        "silver.seen", "SELECT id FROM bronze.orders", write="append", incremental=["bronze.orders"]
    )
    pipeline.sql(
        "gold.days", "SELECT day, sum(amount) AS total FROM silver.orders GROUP BY day", primary_key=["day"]
    )
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> ab.Repository:
    """One for all tests; each makes a branch of its own."""
    return build(Location(root=str(tmp_path_factory.mktemp("recorded"))), fill_lake)


@pytest.fixture(scope="module")
def recorded(lake: ab.Repository, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The second run of a pipeline on dev; dev has moved on since, and main too."""
    file = tmp_path_factory.mktemp("recorded") / "shop.py"
    file.write_text(HEAD + dedent(THREE))
    pipeline = ab.Pipeline.load(file)
    pipeline.run(lake, branch="dev")
    with lake.transaction("dev") as tx:
        tx.append(ORDERS, orders(20, 25))
    done = pipeline.run(lake, branch="dev", parameters={"least": 5})
    for branch in ("main", "dev"):
        with lake.transaction(branch) as tx:
            tx.delete(ORDERS, "id < 10")
    return str(done.commit_id)


def test_a_run_done_again_gives_the_same(lake: ab.Repository, recorded: str) -> None:
    heads = {branch.name: branch.version for branch in lake.branch_list()}
    code, found = anabranch("pipeline", "run", "--reproduce", recorded, "--repo", lake.uri)
    assert (code, found["same"], found["same_source"]) == (0, True, True)
    assert found["branch"] == f"reproduce/{recorded[:14].lower()}"
    again = lake.snapshot_of(found["branch"])
    assert again["silver.orders"].count_rows() == 20
    assert again["silver.seen"].count_rows() == 25
    assert again.commit.metadata["pipeline.parameters"] == lake.get_commit(recorded).metadata["pipeline.parameters"]
    # No other branch has moved.
    now = {branch.name: branch.version for branch in lake.branch_list() if branch.name != found["branch"]}
    assert now == heads


def test_after_a_change_of_the_code_it_reports_what_differs(
    lake: ab.Repository, recorded: str, write_file: WriteFile
) -> None:
    changed = THREE.replace("sum(amount)", "CASE WHEN day = '2026-01-03' THEN 0.0 ELSE sum(amount) END")
    changed = changed.replace("id >= :least", "id >= :least + 1")
    file = write_file(changed, name="changed.py")
    code, found = anabranch(
        "pipeline", "run", str(file), "--reproduce", recorded, "--branch", "again", "--repo", lake.uri
    )
    assert (code, found["same"], found["same_source"], found["branch"]) == (DIFFERENT, False, False, "again")
    counts = {each["key"]: (each["inserted"], each["updated"], each["deleted"]) for each in found["outputs"]}
    # Order 5, of the first day, is gone; so the total of that day is another, and that of the third is 0 now.
    assert counts == {"silver.orders": (0, 0, 1), "silver.seen": (0, 0, 0), "gold.days": (0, 2, 0)}
    assert lake.diff(recorded, "again", tables=["gold.days"]).summary()["gold.days"].updated == 2
    shown = invoke("diff", recorded, "again", "--repo", lake.uri, "--stat").out
    assert "gold.days" in shown


def test_an_output_that_is_gone_or_new_in_the_code_is_reported(
    lake: ab.Repository, recorded: str, write_file: WriteFile
) -> None:
    text = """
        pipeline.sql("silver.middle", "SELECT * FROM bronze.orders WHERE id >= :least")
        pipeline.sql("silver.orders", "SELECT * FROM silver.middle", primary_key=["id"])
        pipeline.sql("gold.other", "SELECT 1 AS one")
    """
    again = ab.Pipeline.load(write_file(text, name="other.py")).reproduce(lake, recorded)
    assert {output.key: (output.is_same, output.is_missing) for output in again.outputs} == {
        "silver.orders": (True, False),
        "silver.seen": (False, True),
        "gold.days": (False, True),
    }
    assert "gold.other" not in lake.snapshot_of(again.branch)
    assert "silver.middle" in lake.snapshot_of(again.branch)


def test_what_no_pipeline_made_cannot_be_done_again(lake: ab.Repository, recorded: str) -> None:
    branches = [branch.name for branch in lake.branch_list()]
    code, found = anabranch("pipeline", "run", "--reproduce", "dev", "--repo", lake.uri)
    assert (code, found["error"]["code"]) == (2, "invalid_input")
    with pytest.raises(InvalidInputError, match="was not made by a pipeline"):
        ab.Pipeline.recorded(lake, "main")
    store, path = open_store(lake.uri), f"_pipelines/{lake.get_commit(recorded).metadata['pipeline.source_hash']}.py"
    text = store.get(path)
    store.put(path, text + b"# and more")
    try:
        with pytest.raises(ObjectNotFoundError, match="the text of the pipeline 'shop'"):
            ab.Pipeline.recorded(lake, recorded)
    finally:
        store.put(path, text)
    assert [branch.name for branch in lake.branch_list()] == branches
