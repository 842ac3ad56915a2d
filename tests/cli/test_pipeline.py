"""`anabranch pipeline run FILE`, as far as it goes without Spark."""

from pathlib import Path

import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, Run

FILE = """\
import anabranch as ab

pipeline = ab.Pipeline("prices", parameters={"least": 1.5})
pipeline.sql(
    "out.dear", "SELECT * FROM in_c_sales.orders WHERE price >= :least", primary_key=["id"], description="What is dear."
)


@pipeline.table("out.items", inputs=["out.dear"], write="append", incremental=["out.dear"])
def items(dear):
    return dear.select("item")


pipeline.check("prices are there", "SELECT * FROM out.dear WHERE price IS NULL")
"""


@pytest.fixture
def file(folder: Path) -> str:
    (folder / "prices.py").write_text(FILE)
    return "prices.py"


def test_a_dry_run_shows_the_plan_and_does_nothing(cli: Run, lake: ab.Repository, file: str) -> None:
    before = lake.snapshot_of("dev").id
    shown = cli("pipeline", "run", file, "--branch", "dev", "--dry-run", "--param", "least=2", "--json").document
    assert (shown["pipeline"], shown["branch"], shown["parameters"]) == ("prices", "dev", {"least": "2.0"})
    assert shown["checks"] == ["prices are there"]
    assert shown["steps"] == [
        {
            "output": "out.dear",
            "kind": "sql",
            "engine": "spark",
            "write": "rebuild",
            "creates": True,
            "inputs": [ORDERS],
            "incremental": [],
            "after": [],
            "primary_key": ["id"],
            "description": "What is dear.",
        },
        {
            "output": "out.items",
            "kind": "python",
            "engine": "spark",
            "write": "append",
            "creates": True,
            "inputs": ["out.dear"],
            "incremental": ["out.dear"],
            "after": ["out.dear"],
            "primary_key": [],
            "description": "",
        },
    ]
    assert lake.snapshot_of("dev").id == before
    assert lake.run_list() == []


def test_people_read_the_plan_as_a_table(cli: Run, lake: ab.Repository, file: str) -> None:
    answer = cli("pipeline", "run", "--dry-run", file)
    assert (answer.code, answer.err) == (0, "")
    lines = [line.split() for line in answer.out.splitlines()]
    assert answer.out.startswith("prices on main: 2 steps; nothing was done\n")
    assert ["1", "out.dear", "sql", "rebuild", "(new", "table)", ORDERS] in lines
    assert ["2", "out.items", "python", "append", "(new", "table)", "out.dear", "(what", "is", "new)"] in lines
    assert ["least", "1.5"] in lines
    assert "prices are there" in answer.out
    # The word for it may be written, too, and only some outputs chosen.
    (step,) = cli("pipeline", "run", file, "--only", "out.dear", "--dry-run", "--json").document["steps"]
    assert step["output"] == "out.dear"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["prices.py", "--param", "most=1"], "invalid_pipeline", "prices.py:3: the pipeline has no parameter 'most'"),
        (["prices.py", "--param", "least=x"], "invalid_pipeline", "prices.py:3: the parameter 'least' is 'x'"),
        (["prices.py", "--param", "least"], "invalid_input", "--param number 1 is not of the form KEY=VALUE"),
        (["prices.py", "--only", "out.cheap"], "invalid_pipeline", "prices.py:3: the pipeline has no output"),
        (["prices.py", "--only", "out.items"], "invalid_pipeline", "prices.py:9: 'out.items' reads 'out.dear'"),
        (["prices.py", "--jobs", "0"], "usage", "--jobs"),
        (["--dry-run"], "invalid_input", "no pipeline is given"),
        (["--reproduce", "main", "--param", "least=2"], "invalid_input", "--param and --reproduce do not go together"),
        (["--reproduce", "main", "--only", "out.dear"], "invalid_input", "--only and --reproduce do not go together"),
        (["--reproduce", "main", "--dry-run"], "invalid_input", "--dry-run and --reproduce do not go together"),
        (["--reproduce", "main"], "invalid_input", "was not made by a pipeline"),
        (["prices.py", "--reproduce", "main"], "invalid_input", "was not made by a pipeline"),
    ],
)
def test_what_cannot_be_run_reports_why(
    cli: Run, lake: ab.Repository, file: str, args: list[str], code: str, message: str
) -> None:
    answer = cli("pipeline", "run", *args, "--json")
    assert (answer.error["code"], answer.code) == (code, 2)
    assert message in answer.error["message"]
    assert lake.run_list() == []


def test_a_file_that_is_not_there(cli: Run, lake: ab.Repository) -> None:
    answer = cli("pipeline", "run", "nothing.py", "--json")
    assert (answer.error["code"], answer.code) == ("object_not_found", 3)
    assert lake.run_list() == []


def test_pipelines_that_built_tables_are_listed(cli: Run, lake: ab.Repository) -> None:
    assert cli("pipeline", "list").out == "no pipelines\n"
    made = {"pipeline": "prices", "pipeline.file": "prices.py", "pipeline.outputs": f'{{"{ORDERS}": {{}}}}'}
    for _ in range(2):
        with lake.transaction(message="by a pipeline", metadata=made) as tx:
            tx.delete(ORDERS, "id = 1")
            tx.append(ORDERS, [{"id": 1, "item": "tea", "price": 1.5}])
    (listed,) = cli("pipeline", "--json").document["pipelines"]
    assert listed["commit_id"] == lake.snapshot_of("main").id
    assert (listed["pipeline"], listed["file"], listed["outputs"]) == ("prices", "prices.py", [ORDERS])
    assert "prices.py" in cli("pipeline", "list").out


def test_the_old_spelling_is_answered_with_the_new_one(run: Run) -> None:
    answer = run("run", "shop.py", "--branch", "dev")
    assert answer.code == 2
    assert "hint: use 'anabranch pipeline run shop.py --branch dev'" in answer.err
