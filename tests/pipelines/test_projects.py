"""Projects: a folder of models, read with its headers and its YAML; what is wrong is refused by file and line."""

import json
import textwrap

import pytest

import anabranch as ab
from anabranch.errors import InvalidPipelineError, ObjectNotFoundError, StepFailedError
from tests.command_line import invoke
from tests.pipelines.conftest import ORDERS, WriteProject, orders

GOOD = "SELECT id, amount FROM bronze.orders\n"
HEADER = "-- ---\n-- {}\n-- ---\n" + GOOD
MODEL = "models/gold/a.sql"


def bad(text: str, line: int, problem: str, *, path: str = MODEL) -> tuple[dict[str, str], str, int, str]:
    """Describe a project with one file that is wrong: in which line, and what is reported about it."""
    return {path: text}, path, line, problem


# Nine lists of nine: a part that repeats another is cheap to write, and 387 million values to read.
BOMB = "name: shop\nparameters:\n  a0: &a0 [x]\n" + "".join(
    f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
BAD_PROJECTS = {
    "a cycle": (
        {"models/gold/a.sql": "SELECT * FROM gold.b", "models/gold/b.sql": "SELECT * FROM gold.a"},
        "models/gold/a.sql",
        1,
        "gold.a reads gold.b reads gold.a",
    ),
    "an unknown table": bad("\nSELECT * FROM gold.nothing", 1, "'gold.a' reads 'gold.nothing', which is neither"),
    "a model twice": (
        {"models/gold/a.sql": GOOD, "models/other/gold.a.sql": GOOD},
        "models/other/gold.a.sql",
        1,
        "the output 'gold.a' is declared twice, first at",
    ),
    "an unknown check": bad(HEADER.format("checks: [{positive: id}]"), 2, "'positive' of 'gold.a' is not known"),
    "a check without its column": bad(
        HEADER.format("checks: [{freshness: {within: 1 day}}]"), 2, "the check 'freshness' of 'gold.a' has no 'column'"
    ),
    "an age that cannot be read": bad(
        HEADER.format("checks: [{freshness: {column: day, within: soon}}]"), 2, "'freshness' of 'gold.a' is 'soon'"
    ),
    "a check of an unknown table": bad(
        HEADER.format("checks: [{relations: {column: id, to: gold.none}}]"), 2, "reads 'gold.none', which is neither"
    ),
    "bounds in the wrong order": bad(HEADER.format("checks: [{row_count: {min: 9, max: 3}}]"), 2, "has the bounds"),
    "a null among the accepted values": bad(
        HEADER.format("checks: [{accepted_values: {column: id, values: [1, null]}}]"), 2, "is empty"
    ),
    "an unknown setting": bad(HEADER.format("keys: id"), 2, "a model has no setting 'keys'"),
    "YAML that does not parse": bad("-- ---\n-- key: id\n-- checks: [\n-- ---\n" + GOOD, 3, "the YAML does not parse"),
    "a setting twice": bad("-- ---\n-- key: id\n-- key: id\n-- ---\n" + GOOD, 3, "'key' is given twice"),
    "a Python object in YAML": bad(HEADER.format("key: !!python/object/apply:os.system [ls]"), 2, "the tag"),
    "a Python name in YAML": bad(HEADER.format("key: !!python/name:os.system"), 2, "the YAML does not parse"),
    "a header that is not closed": bad("-- ---\n-- key: id\n" + GOOD, 3, "the header is not closed by '-- ---'"),
    "a setting in both places": (
        {MODEL: HEADER.format("key: id"), "models/gold/a.yml": "write: upsert\nkey: id\n"},
        "models/gold/a.yml",
        2,
        "'key' is also in the header of",
    ),
    "YAML without a model": (
        {MODEL: GOOD, "models/gold/b.yml": "key: id"},
        "models/gold/b.yml",
        1,
        "there is no model beside the file",
    ),
    "an unknown way to write": bad(HEADER.format("write: merge"), 2, "a model cannot be written by 'merge'"),
    "a view": bad(HEADER.format("materialized: view"), 2, "a model cannot be materialized as 'view'"),
    "incremental over two tables": bad(
        "-- ---\n-- materialized: incremental\n-- ---\nSELECT o.id FROM bronze.orders o, bronze.customers c",
        2,
        "'gold.a' is incremental, and reads 2 tables",
    ),
    "an upsert without a key": bad(HEADER.format("write: upsert"), 1, "an upsert needs a primary key"),
    "an unknown engine": bad(HEADER.format("engine: polars"), 2, "the engine is 'polars'"),
    "SQL that does not parse": bad("SELECT id\nFROM bronze.orders\nWHERE (id", 3, "syntax error"),
    "SQL that writes": bad("DELETE FROM bronze.orders", 1, "DELETE is not allowed"),
    "a template": bad("SELECT *\nFROM {{ ref('orders') }}", 2, 'near "{"'),
    "another ref": bad("SELECT * FROM bronze.orders AT 'main~1'", 1, "'bronze.orders' is read as of 'main~1'"),
    "a table without a bucket": bad("SELECT *\nFROM orders", 2, "table name 'orders'"),
    "an unknown parameter": bad("SELECT $since AS day", 1, "the SQL names the parameter '$since'"),
    "a parameter of Spark's SQL": bad("SELECT :since AS day", 1, 'syntax error at or near ":"'),
    "a model without a bucket": bad(GOOD, 1, "the bucket of the model 'a' is not known", path="models/a.sql"),
    "Python without a function": bad("x = 1\n", 1, "the file defines no function 'model'", path="models/gold/a.py"),
    "Python that raises": bad("\n1 / 0\n", 2, "ZeroDivisionError", path="models/gold/a.py"),
    "Python with other inputs": bad(
        "# ---\n# inputs: [bronze.orders]\n# ---\ndef model(): ...\n", 1, "takes 0 inputs", path="models/gold/a.py"
    ),
    "a check in SQL that does not parse": (
        {MODEL: GOOD, "checks/none.sql": "SELECT *\nFROM gold.a WHERE WHERE"},
        "checks/none.sql",
        2,
        "syntax error",
    ),
    "a project without a name": bad("engine: duckdb\n", 1, "the project has no name", path="anabranch.yml"),
    "a project with an unknown setting": bad(
        "name: shop\nmodels: {}\n", 2, "the project has no setting 'models'", path="anabranch.yml"
    ),
    "a project with an unknown engine": bad("name: a\nengine: dask\n", 2, "the engine is 'dask'", path="anabranch.yml"),
    "a parameter of an unknown type": bad(
        "name: shop\nparameters:\n  day: {type: week}\n", 3, "the parameter 'day' is 'week'", path="anabranch.yml"
    ),
    "a parameter that is a list": bad(
        "name: shop\nparameters:\n  day: [1]\n", 3, "the parameter 'day' is [1]", path="anabranch.yml"
    ),
    "a date that does not exist": bad(
        "name: shop\nparameters:\n  day: 2026-02-31\n", 3, "'2026-02-31' is not a value", path="anabranch.yml"
    ),
    "YAML that grows without end": bad(
        BOMB,
        0,
        "the YAML has too many parts",
        path="anabranch.yml",
    ),
    "no models": bad("name: shop\n", 1, "the pipeline 'shop' has no outputs", path="anabranch.yml"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_PROJECTS)
def test_bad_project_is_refused_by_file_and_line(lake: ab.Repository, write_project: WriteProject, case: str) -> None:
    files, path, line, problem = BAD_PROJECTS[case]
    folder, before = write_project(files), lake.snapshot_of("main").id
    with pytest.raises(InvalidPipelineError) as caught:
        ab.Pipeline.load(folder).run(lake)
    assert caught.value.problem.startswith(f"{folder / path}:{line or ''}"), caught.value.problem
    assert problem in caught.value.problem
    assert caught.value.hint
    assert lake.snapshot_of("main").id == before
    assert not lake.run_list()


def test_folder_without_project_file_is_refused(lake: ab.Repository, write_project: WriteProject) -> None:
    folder = write_project({MODEL: GOOD})
    with pytest.raises(ObjectNotFoundError, match=r"models/anabranch\.yml does not exist"):
        ab.Pipeline.load(folder / "models")
    answer = invoke("pipeline", "run", str(folder / "nothing"), "--repo", lake.uri)
    assert (answer.code, "nor a project" in answer.err) == (3, True)


def test_missing_parameter_is_refused(lake: ab.Repository, write_project: WriteProject) -> None:
    project = "name: shop\nengine: duckdb\nparameters:\n  day: {type: date}\n  least: 3\n"
    folder = write_project({"anabranch.yml": project, MODEL: "SELECT $day AS day, $least AS least"})
    answer = invoke("pipeline", "run", str(folder), "--repo", lake.uri)
    assert answer.code == 2
    assert f"error: {folder}/anabranch.yml:1: the parameter 'day' has no value" in answer.err
    bad_value = invoke("pipeline", "run", str(folder), "--param", "day=today", "--repo", lake.uri)
    assert "the parameter 'day' is 'today'" in bad_value.err
    assert invoke("pipeline", "run", str(folder), "--param", "day=2026-01-02", "--repo", lake.uri).code == 0


def test_models_are_named_by_their_files(lake: ab.Repository, write_project: WriteProject) -> None:
    folder = write_project(
        {
            "anabranch.yml": "name: shop\nengine: duckdb\nbucket: silver\n",
            "models/a.sql": GOOD,
            "models/gold/b.sql": "SELECT * FROM silver.a",
            "models/gold/deep/gold.c.sql": "SELECT * FROM gold.b",
            "models/gold/d.sql": "-- ---\n-- table: mart.e\n-- ---\nSELECT * FROM gold.c",
            "models/gold/README.md": "Not a model.",
            "models/gold/.hidden.sql": "SELEC",
        }
    )
    for path in (folder, folder / "anabranch.yml", f"{folder}/"):
        plan = ab.Pipeline.load(path).plan(lake)
        assert [step.key for step in plan.steps] == ["silver.a", "gold.b", "gold.c", "mart.e"]


def test_incremental_model_reads_new_rows_only(lake: ab.Repository, write_project: WriteProject) -> None:
    """One without a key appends, one with a key replaces; a Python model gets the new rows, too."""
    folder = write_project(
        {
            "models/gold/appended.sql": "-- ---\n-- materialized: incremental\n-- ---\n" + GOOD,
            "models/gold/replaced.sql": "-- ---\n-- materialized: incremental\n-- key: id\n-- ---\n" + GOOD,
            "models/gold/counted.py": """\
                # ---
                # inputs: [bronze.orders, bronze.customers]
                # incremental: bronze.orders
                # write: append
                # ---
                import pyarrow as pa

                def model(orders, customers):
                    "Count what each run saw."
                    return pa.table({"orders": [orders.num_rows], "customers": [customers.num_rows]})
                """,
        }
    )
    pipeline = ab.Pipeline.load(folder)
    assert pipeline.outputs["gold.counted"].description == "Count what each run saw."
    first = pipeline.run(lake, branch="dev")
    assert {output.key: output.rows for output in first.outputs} == {
        "gold.appended": 20,
        "gold.replaced": 20,
        "gold.counted": 1,
    }
    with lake.transaction("dev") as tx:
        tx.append(ORDERS, orders(100, 102))
        tx.update(ORDERS, {"amount": "7000"}, where="id = 3")
    second = pipeline.run(lake, branch="dev")
    assert [output.rows for output in second.outputs] == [23, 2, 22]
    counts = lake.snapshot_of("dev")["gold.counted"].to_arrow().to_pylist()
    assert counts == [{"orders": 20, "customers": 3}, {"orders": 3, "customers": 3}]
    replaced = {row["id"]: row["amount"] for row in lake.snapshot_of("dev")["gold.replaced"].to_arrow().to_pylist()}
    assert (replaced[3], replaced[101], len(replaced)) == (7000.0, 101.0, 22)


def test_failed_model_names_its_file_and_publishes_nothing(lake: ab.Repository, write_project: WriteProject) -> None:
    folder = write_project(
        {
            MODEL: GOOD,
            "models/gold/b.sql": "SELECT nosuch FROM gold.a",
            "models/gold/c.py": "def model():\n    return 7\n",
        }
    )
    before = lake.snapshot_of("main").id
    for name, reason in {"b.sql": 'column "nosuch" not found', "c.py": "returned int"}.items():
        with pytest.raises(StepFailedError) as caught:
            ab.Pipeline.load(folder).run(lake, select=[f"+{name[0]}"])
        assert caught.value.problem.startswith(f"{folder}/models/gold/{name}:1: building 'gold.{name[0]}' failed: ")
        assert reason in caught.value.problem
        assert "run again" in caught.value.hint
    assert lake.snapshot_of("main").id == before


def test_project_is_made_again_from_what_the_commit_recorded(lake: ab.Repository, write_project: WriteProject) -> None:
    header = "-- ---\n-- key: id\n-- checks:\n--   - freshness: {column: at, within: 1 hour}\n-- ---\n"
    files = {
        MODEL: header + "SELECT id, CAST(now() AS TIMESTAMP) AS at FROM bronze.orders",
        "models/gold/n.py": "# ---\n# inputs: [bronze.orders]\n# ---\nimport pyarrow as pa\n\n"
        "def model(orders): return pa.table({'n': [orders.num_rows]})\n",
    }
    folder = write_project(files)
    done = ab.Pipeline.load(folder).run(lake)
    (folder / MODEL).write_text("no SQL at all")
    again = ab.Pipeline.recorded(lake, "main").reproduce(lake, "main")
    assert again.has_same_source
    assert {output.key: output.is_same for output in again.outputs} == {"gold.a": False, "gold.n": True}
    # How old the data is was checked then, and is not checked again.
    assert done.checks == ("gold.a: freshness (at within 1 hour)",)
    assert again.run.checks == ()
    reported = json.loads(lake.get_commit("main").metadata["pipeline.outputs"])
    assert (reported["gold.n"]["engine"], reported["gold.n"]["kind"]) == ("duckdb", "python")


def test_duckdb_can_be_named_in_a_program(lake: ab.Repository) -> None:
    pipeline = ab.Pipeline("here", parameters={"least": 5}, engine="duckdb")
    pipeline.sql("gold.a", "SELECT id, amount FROM bronze.orders WHERE id >= $least", checks=[{"unique": "id"}])

    @pipeline.table("gold.b", inputs=["gold.a"], checks=[{"row_count": {"min": 15}}])
    def b(rows, *, least):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        return rows.slice(0, 20 - least)

    done = pipeline.run(lake)
    assert [output.rows for output in done.outputs] == [15, 15]
    assert done.checks == ("gold.a: unique (id)", "gold.b: row_count (min 15)")
    with pytest.raises(InvalidPipelineError, match=r"test_projects\.py:\d+: the check 'uniqe' of 'gold.c'"):
        pipeline.sql("gold.c", "SELECT 1 AS one", checks=[{"uniqe": "id"}])
    with pytest.raises(InvalidPipelineError, match="takes 'spark', and its engine is DuckDB"):
        pipeline.table("gold.d")(lambda *, spark: spark)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT 1.5 AS n, 'a' AS name", "column 'n' has type decimal"),
        ("SELECT 1e30 AS n, 'a' AS name", "column 'n' has type float64, and a value does not fit into int32"),
        ("SELECT '7' AS n, 'a' AS name", "column 'n'"),
        ("SELECT 7 AS n, 'a' AS name, 1 AS more", "column 'more'"),
    ],
)
def test_appended_rows_must_fit_the_table(lake: ab.Repository, sql: str, problem: str) -> None:
    first = ab.Pipeline("grow", engine="duckdb")
    first.sql("gold.a", "SELECT 1 AS n, 'x' AS name", write="append")
    first.run(lake)
    fitting = ab.Pipeline("grow", engine="duckdb")
    fitting.sql("gold.a", "SELECT 'y' AS name, 2::BIGINT AS n", write="append")
    fitting.run(lake)
    other = ab.Pipeline("grow", engine="duckdb")
    other.sql("gold.a", sql, write="append")
    with pytest.raises(StepFailedError, match=problem):
        other.run(lake)
    assert lake.snapshot_of("main")["gold.a"].to_arrow().to_pylist() == [{"n": 1, "name": "x"}, {"n": 2, "name": "y"}]


@pytest.mark.s3
def test_project_may_be_in_an_object_store(lake: ab.Repository, location: object) -> None:
    from anabranch.storage import open_store

    store = open_store(lake.uri, lake.storage_options)
    store.put("programs/shop/anabranch.yml", b"name: shop\nengine: duckdb\n")
    store.put("programs/shop/models/gold/a.sql", textwrap.dedent(GOOD).encode())
    pipeline = ab.Pipeline.load(f"{lake.uri}/programs/shop", storage_options=lake.storage_options)
    assert [output.rows for output in pipeline.run(lake).outputs] == [20]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_models_of_both_engines_are_one_commit(lake: ab.Repository, write_project: WriteProject) -> None:
    folder = write_project(
        {
            "anabranch.yml": "name: shop\nengine: spark\nparameters: {least: 5}\n",
            "models/silver/orders.sql": "-- ---\n-- key: id\n-- checks: [{unique: id}]\n-- ---\n"
            "SELECT id, amount FROM bronze.orders WHERE id >= :least",
            "models/gold/total.sql": "-- ---\n-- engine: duckdb\n-- ---\n"
            "SELECT sum(amount) AS total FROM silver.orders",
            "models/gold/double.py": "# ---\n# inputs: [gold.total]\n# ---\n"
            "def model(total):\n    return total.selectExpr('2 * total AS double')\n",
        }
    )
    done = ab.Pipeline.load(folder).run(lake)
    assert [(output.key, output.engine, output.rows) for output in done.outputs] == [
        ("silver.orders", "spark", 15),
        ("gold.total", "duckdb", 1),
        ("gold.double", "spark", 1),
    ]
    assert lake.snapshot_of("main")["gold.double"].to_arrow().to_pylist() == [{"double": 2.0 * sum(range(5, 20))}]
    assert len(lake.list_commits("main")[0].tables) == 3
