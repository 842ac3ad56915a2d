"""Which outputs a plan has: by name, with what is before and after them, and by what changed."""

import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError
from tests.pipelines.conftest import ORDERS, WriteProject, orders

FILES = {
    "models/silver/orders.sql": "SELECT id, customer, amount FROM bronze.orders",
    "models/silver/customers.sql": "SELECT id, name FROM bronze.customers",
    "models/gold/revenue.sql": "SELECT customer, sum(amount) AS revenue FROM silver.orders GROUP BY customer",
    "models/gold/best.py": "# ---\n# inputs: [gold.revenue, silver.customers]\n# ---\n"
    "def model(revenue, customers):\n    return revenue.slice(0, 1)\n",
    "models/gold/orders.sql": "SELECT count(*) AS n FROM silver.orders",
}
ALL = ["silver.customers", "silver.orders", "gold.orders", "gold.revenue", "gold.best"]


@pytest.fixture
def built(lake: ab.Repository, write_project: WriteProject) -> ab.Repository:
    """The lake, after all models were built once on main."""
    ab.Pipeline.load(write_project(FILES)).run(lake)
    return lake


SELECTED: list[tuple[list[str], list[str], list[str]]] = [
    ([], [], ALL),
    (["gold.best"], [], ["gold.best"]),
    (["best"], [], ["gold.best"]),
    (["+best"], [], ["silver.customers", "silver.orders", "gold.revenue", "gold.best"]),
    (["silver.orders+"], [], ["silver.orders", "gold.orders", "gold.revenue", "gold.best"]),
    (["+revenue+"], [], ["silver.orders", "gold.revenue", "gold.best"]),
    (["silver.*"], [], ["silver.customers", "silver.orders"]),
    (["*e*"], ["gold.*"], ["silver.customers", "silver.orders"]),
    (["best", "revenue"], [], ["gold.revenue", "gold.best"]),
    ([], ["silver.customers+"], ["silver.orders", "gold.orders", "gold.revenue"]),
]


def test_outputs_are_selected_by_name(built: ab.Repository, write_project: WriteProject) -> None:
    pipeline = ab.Pipeline.load(write_project(FILES))
    for select, exclude, found in SELECTED:
        plan = pipeline.plan(built, select=select, exclude=exclude)
        assert [step.key for step in plan.steps] == found, (select, exclude)


@pytest.mark.parametrize(
    ("options", "problem", "hint"),
    [
        ({"select": ["orders"]}, "'orders' may be gold.orders or silver.orders", "write the bucket"),
        ({"select": ["revenu"]}, "'revenu' matches no output", "did you mean 'revenue'"),
        ({"select": ["bronze.*"]}, r"'bronze.\*' matches no output", "the outputs are"),
        ({"exclude": ["nothing"]}, "'nothing' matches no output", "the outputs are"),
        ({"select": ["++best"]}, r"'\+\+best' cannot be read", "write it like"),
        ({"select": [""]}, "'' cannot be read", "write it like"),
        ({"select": ["state:new"]}, "the state 'new' is not known", "state:changed"),
        ({"select": ["best"], "since": "main"}, "'since' is 'main'", "state:changed"),
        ({"select": ["best"], "only": ["gold.best"]}, "both 'only' and 'select'", "leave one out"),
        ({"select": "best"}, "select is 'best'", "give a list"),
    ],
)
def test_bad_selection_is_refused(
    lake: ab.Repository, write_project: WriteProject, options: dict[str, list[str]], problem: str, hint: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem) as caught:
        ab.Pipeline.load(write_project(FILES)).plan(lake, **options)  # type: ignore[arg-type]
    assert hint in caught.value.hint


def test_changed_code_and_changed_inputs_are_selected(built: ab.Repository, write_project: WriteProject) -> None:
    def changed(files: dict[str, str], *, branch: str = "main", since: str | None = None) -> list[str]:
        pipeline = ab.Pipeline.load(write_project(files, name="changed"))
        plan = pipeline.plan(built, branch=branch, select=["state:changed"], since=since)
        return [step.key for step in plan.steps]

    assert changed(FILES) == []
    # The branch dev has none of the tables, a branch of main all of them.
    assert changed(FILES, branch="dev") == changed(FILES, branch="dev", since="main") == ALL
    built.branch_create("feature")
    assert changed(FILES, branch="feature") == []
    other = {**FILES, "models/gold/best.py": FILES["models/gold/best.py"].replace("0, 1", "0, 2")}
    other["models/silver/customers.sql"] = "SELECT id, upper(name) AS name FROM bronze.customers"
    assert changed(other) == ["silver.customers", "gold.best"]
    # Checks do not change the rows, beside the model or in its header.
    checked = {**FILES, "models/gold/revenue.yml": "checks: [{unique: customer}]"}
    header = "-- ---\n-- checks: [{unique: id}]\n-- ---\n"
    checked["models/silver/orders.sql"] = header + FILES["models/silver/orders.sql"]
    assert changed(checked) == []
    written = {**FILES, "models/silver/orders.sql": header.replace("checks: [{unique: id}]", "write: append")}
    written["models/silver/orders.sql"] += FILES["models/silver/orders.sql"]
    assert changed(written) == ["silver.orders"]
    with built.transaction() as tx:
        tx.append(ORDERS, orders(50, 51))
    assert changed(FILES) == ["silver.orders"]
    assert changed(FILES, since="main~1") == ["silver.orders"]
    assert changed(FILES, branch="feature") == []


def test_run_of_nothing_changed_publishes_nothing(built: ab.Repository, write_project: WriteProject) -> None:
    before = built.snapshot_of("main").id
    done = ab.Pipeline.load(write_project(FILES)).run(built, select=["state:changed+"])
    assert (done.commit_id, done.outputs, done.checks) == (None, (), ())
    assert built.snapshot_of("main").id == before


def test_selected_output_without_its_inputs_is_refused(lake: ab.Repository, write_project: WriteProject) -> None:
    with pytest.raises(ab.errors.InvalidPipelineError, match=r"'gold\.revenue' reads 'silver\.orders'") as caught:
        ab.Pipeline.load(write_project(FILES)).plan(lake, select=["revenue"])
    assert caught.value.hint == "select '+gold.revenue', which includes what it reads"
