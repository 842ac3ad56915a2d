"""Bad pipelines are refused before Spark starts, and the file and the line are named."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import BranchNotFoundError, InvalidPipelineError, ObjectNotFoundError
from tests.pipelines.bad_files import BAD_FILES
from tests.pipelines.conftest import WriteFile

PROJECT = Path(__file__).parents[2]
GOOD = 'pipeline.sql("gold.a", "SELECT * FROM bronze.orders WHERE day >= :since")\n'


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_pipeline_is_refused_by_file_and_line(lake: ab.Repository, write_file: WriteFile, case: str) -> None:
    text, line, message = BAD_FILES[case]
    file = write_file(text)
    with pytest.raises(InvalidPipelineError) as caught:
        ab.Pipeline.load(file).plan(lake)
    assert caught.value.problem.startswith(f"{file}:{line}: "), caught.value.problem
    assert message.format(file=file) in caught.value.problem
    assert caught.value.hint


def test_no_bad_pipeline_loads_spark(lake: ab.Repository, write_file: WriteFile) -> None:
    """By the command line, in a process of its own: neither PySpark is imported nor a Java started."""
    files = {case: str(write_file(text, name=f"{n}.py")) for n, (case, (text, _, _)) in enumerate(BAD_FILES.items())}
    good = str(write_file(GOOD, name="good.py"))
    calls = [
        *([file] for file in files.values()),
        [good, "--param", "until=1"],
        [good, "--param", "least=many"],
        [good, "--only", "gold.b"],
        [good, "--branch", "nowhere"],
        [good, "--dry-run"],
    ]
    script = f"""
import contextlib, io, json, sys
from anabranch.cli.main import main
found = []
for call in json.loads({json.dumps(calls)!r}):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["pipeline", "run", *call, "--repo", {lake.uri!r}])
        except SystemExit as end:
            found.append([end.code, "pyspark" in sys.modules, err.getvalue()])
print(json.dumps(found))
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=PROJECT, check=False)
    assert answer.returncode == 0, answer.stderr
    *bad, dry = json.loads(answer.stdout)
    assert [loaded for _, loaded, _ in bad] == [False] * len(bad)
    assert [code for code, _, _ in bad] == [2] * (len(bad) - 1) + [3]
    for (_, _, message), (_, line, _) in zip(bad, BAD_FILES.values(), strict=False):
        assert f".py:{line}: " in message
    assert dry == [0, False, ""]
    assert lake.run_list() == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"until": "x"}, "has no parameter 'until'"),
        ({"least": "many"}, "the parameter 'least' is 'many'"),
        ({"least": 1.5}, "the parameter 'least' is 1.5"),
        ({"least": True}, "the parameter 'least' is True"),
        ({"since": 7}, "the parameter 'since' is 7"),
        ({"since": None}, "the parameter 'since' is None"),
    ],
)
def test_wrong_values_of_parameters_are_refused(
    lake: ab.Repository, write_file: WriteFile, given: dict[str, object], message: str
) -> None:
    file = write_file(GOOD)
    with pytest.raises(InvalidPipelineError) as caught:
        ab.Pipeline.load(file).plan(lake, parameters=given)
    assert caught.value.problem.startswith(f"{file}:3: ")
    assert message in caught.value.problem


def test_a_required_parameter_must_be_given(lake: ab.Repository, write_file: WriteFile) -> None:
    head = 'import anabranch as ab\npipeline = ab.Pipeline("p", parameters={"day": str})\n'
    file = write_file('pipeline.sql("gold.a", "SELECT :day AS day")\n', head=head)
    with pytest.raises(InvalidPipelineError, match="2: the parameter 'day' has no value"):
        ab.Pipeline.load(file).plan(lake)
    assert ab.Pipeline.load(file).plan(lake, parameters={"day": "x"}).parameters == {"day": "x"}


@pytest.mark.parametrize("given", ["nan", "-inf", float("inf"), "many", pytest.param(10**400, id="huge")])
def test_a_number_that_cannot_be_recorded_is_refused(lake: ab.Repository, write_file: WriteFile, given: object) -> None:
    head = 'import anabranch as ab\npipeline = ab.Pipeline("p", parameters={"share": 0.5})\n'
    file = write_file('pipeline.sql("gold.a", "SELECT :share AS share")\n', head=head)
    with pytest.raises(InvalidPipelineError, match="2: the parameter 'share' is"):
        ab.Pipeline.load(file).plan(lake, parameters={"share": given})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "declares no pipeline"),
        ('import anabranch as ab\na, b = ab.Pipeline("a"), ab.Pipeline("b")\n', "declares 2 pipelines"),
    ],
)
def test_a_file_declares_one_pipeline(write_file: WriteFile, text: str, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        ab.Pipeline.load(write_file(text, head=""))


def test_a_pipeline_without_outputs_does_nothing(lake: ab.Repository, write_file: WriteFile) -> None:
    with pytest.raises(InvalidPipelineError, match=r"shop\.py:3: the pipeline 'shop' has no outputs"):
        ab.Pipeline.load(write_file("")).plan(lake)


def test_an_output_that_is_not_declared_cannot_be_chosen(lake: ab.Repository, write_file: WriteFile) -> None:
    with pytest.raises(InvalidPipelineError, match=r"has no output 'gold\.b'"):
        ab.Pipeline.load(write_file(GOOD)).plan(lake, only=["gold.b"])


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"there is no file '.*nothing\.py'"):
        ab.Pipeline.load(tmp_path / "nothing.py")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    with pytest.raises(InvalidPipelineError, match="is not UTF-8"):
        ab.Pipeline.load(tmp_path / "latin.py")


def test_a_branch_that_is_not_there(lake: ab.Repository, write_file: WriteFile) -> None:
    with pytest.raises(BranchNotFoundError):
        ab.Pipeline.load(write_file(GOOD)).plan(lake, branch="nowhere")
