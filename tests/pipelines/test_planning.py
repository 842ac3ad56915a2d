"""What a run would do, found out without doing it."""

from datetime import date

import pytest

import anabranch as ab
from tests.pipelines.conftest import WriteFile

FIVE = """
    pipeline.sql("gold.best", "SELECT * FROM gold.revenue ORDER BY revenue DESC LIMIT 1")

    @pipeline.table("gold.revenue", inputs=["silver.orders", "silver.customers"], primary_key=["name"], write="upsert")
    def revenue(orders, customers, *, since):
        "What each customer paid."

    pipeline.sql("silver.orders", "SELECT * FROM bronze.orders WHERE day >= :since AND amount >= :least")
    pipeline.sql("silver.customers", "SELECT id, upper(name) AS name FROM bronze.customers")
    pipeline.sql("silver.log", "SELECT * FROM bronze.orders", write="append", incremental=["bronze.orders"])
    pipeline.check("rows", "SELECT * FROM gold.revenue WHERE revenue < 0")
    pipeline.check("names", "SELECT * FROM silver.customers WHERE name IS NULL")

    @pipeline.check("enough")
    def enough(snapshot):
        return True
"""


def test_steps_come_after_what_they_read(lake: ab.Repository, write_file: WriteFile) -> None:
    plan = ab.Pipeline.load(write_file(FIVE)).plan(lake, branch="dev", parameters={"least": "3"})
    assert [step.key for step in plan.steps] == [
        "silver.orders",
        "silver.customers",
        "silver.log",
        "gold.revenue",
        "gold.best",
    ]
    revenue = plan.steps[3]
    assert revenue.after == ("silver.orders", "silver.customers")
    assert (revenue.creates, revenue.output.write.value, revenue.output.kind) == (True, "upsert", "python")
    assert (revenue.output.options, revenue.output.description) == (("since",), "What each customer paid.")
    assert plan.tables_read == ("bronze.orders", "bronze.customers")
    assert plan.parameters == {"since": "2026-01-01", "least": 3}
    assert [check.name for check in plan.checks] == ["rows", "names", "enough"]
    assert (plan.pipeline, plan.branch) == ("shop", "dev")


def test_chosen_outputs_read_the_branch(lake: ab.Repository, write_file: WriteFile) -> None:
    pipeline = ab.Pipeline.load(write_file(FIVE))
    with pytest.raises(ab.errors.InvalidPipelineError, match=r"'gold.best' reads 'gold.revenue'"):
        pipeline.plan(lake, only=["gold.best"])
    plan = pipeline.plan(lake, only=["silver.customers"])
    assert [step.key for step in plan.steps] == ["silver.customers"]
    # Of the checks those that may fail by it; what a function reads is not known.
    assert [check.name for check in plan.checks] == ["names", "enough"]
    both = pipeline.plan(lake, only=["gold.revenue", "silver.orders", "silver.customers"])
    assert [step.key for step in both.steps] == ["silver.orders", "silver.customers", "gold.revenue"]


def test_a_table_that_is_there_is_not_created(lake: ab.Repository, write_file: WriteFile) -> None:
    text = 'pipeline.sql("bronze.customers", "SELECT DISTINCT customer AS id FROM bronze.orders", primary_key=["id"])'
    (step,) = ab.Pipeline.load(write_file(text)).plan(lake).steps
    assert not step.creates


@pytest.mark.parametrize(
    ("declared", "given", "found"),
    [
        ("date(2026, 1, 1)", "2026-02-03", date(2026, 2, 3)),
        ("date(2026, 1, 1)", date(2026, 2, 3), date(2026, 2, 3)),
        ("1", "-7", -7),
        ("1.5", "2", 2.0),
        ("1.5", 2, 2.0),
        ("True", "false", False),
        ("bool", "TRUE", True),
        ("'x'", "7", "7"),
        ("str", "a=b", "a=b"),
    ],
)
def test_values_take_the_type_of_their_parameter(
    lake: ab.Repository, write_file: WriteFile, declared: str, given: object, found: object
) -> None:
    head = "from datetime import date\nimport anabranch as ab\n"
    head += f'pipeline = ab.Pipeline("p", parameters={{"x": {declared}}})\n'
    pipeline = ab.Pipeline.load(write_file('pipeline.sql("gold.a", "SELECT :x AS x")\n', head=head))
    value = pipeline.plan(lake, parameters={"x": given}).parameters["x"]
    assert (value, type(value)) == (found, type(found))


def test_a_pipeline_can_be_declared_in_a_program(lake: ab.Repository) -> None:
    pipeline = ab.Pipeline("here")
    pipeline.sql("gold.a", "SELECT * FROM bronze.orders")
    plan = pipeline.plan(lake)
    assert plan.source.name == "test_planning.py"
    assert b"declared in a program" in plan.source.content
    with pytest.raises(ab.errors.InvalidPipelineError, match=r"test_planning\.py:\d+: the output 'gold.a' is declared"):
        pipeline.sql("gold.a", "SELECT 1")


def test_a_file_can_use_what_python_offers(lake: ab.Repository, write_file: WriteFile) -> None:
    """Classes look up their annotations in their module, and loops declare many outputs."""
    text = """
        from __future__ import annotations

        from dataclasses import dataclass

        import anabranch as ab

        @dataclass
        class Region:
            name: str

        pipeline = ab.Pipeline("regions")
        for region in [Region("north"), Region("south")]:
            pipeline.sql(f"gold.{region.name}", f"SELECT * FROM bronze.orders WHERE '{region.name}' <> ''")
        """
    plan = ab.Pipeline.load(write_file(text, head="")).plan(lake)
    assert [step.key for step in plan.steps] == ["gold.north", "gold.south"]


@pytest.mark.s3
def test_file_may_be_in_an_object_store(lake: ab.Repository, location: object, write_file: WriteFile) -> None:
    from anabranch.storage import open_store

    text = write_file(FIVE).read_bytes()
    open_store(lake.uri, lake.storage_options).put("programs/shop.py", text)
    pipeline = ab.Pipeline.load(f"{lake.uri}/programs/shop.py", storage_options=lake.storage_options)
    assert len(pipeline.plan(lake).steps) == 5
