"""The session: started when needed, once; the user's own where there is one."""

import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import InvalidInputError, MissingDependencyError
from anabranch.spark.session import require_java
from tests.spark.conftest import options

pytestmark = pytest.mark.spark


def test_a_running_session_is_used(spark: SparkSession) -> None:
    assert ab.spark_session() is spark
    assert ab.spark_session(spark) is spark


def test_a_thread_gets_the_session_and_can_write_with_it(spark: SparkSession, lake: ab.Repository) -> None:
    """Spark knows formats by a thread's active session, and a new thread has none."""

    def work() -> bool:
        session = ab.spark_session()
        frame = session.range(200, 205).selectExpr("id", "'new' AS v")
        frame.write.format("anabranch").mode("append").options(**options(lake)).save("s.orders")
        return session is spark

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(work).result()
    assert lake.snapshot_of("main")["s.orders"].count_rows() == 105


@pytest.mark.parametrize("given", [{"master": "local[1]"}, {"config": {"spark.driver.memory": "9g"}}])
def test_a_running_session_keeps_its_settings(spark: SparkSession, given: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="there is a Spark session already"):
        ab.spark_session(**given)  # type: ignore[arg-type]


def test_the_defaults_are_sober(spark: SparkSession) -> None:
    names = ("spark.sql.session.timeZone", "spark.sql.execution.arrow.pyspark.enabled", "spark.ui.enabled")
    assert [spark.conf.get(name) for name in names] == ["UTC", "true", "false"]
    assert spark.sparkContext.master == "local[*]"


def test_workers_run_the_same_python(spark: SparkSession) -> None:
    def report_python(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        for _ in batches:
            yield pyarrow.record_batch({"python": [sys.executable]})

    found = {row.python for row in spark.range(4, numPartitions=2).mapInArrow(report_python, "python string").collect()}
    assert found == {sys.executable}


def test_without_java_the_error_names_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError) as caught:
        require_java({"PATH": str(tmp_path)})
    assert caught.value.problem == "Spark needs Java, and there is no java on the PATH"
    assert "openjdk-17-jre-headless" in caught.value.hint
    with pytest.raises(MissingDependencyError, match=f"JAVA_HOME is '{tmp_path}', and has no bin/java"):
        require_java({"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(("printed", "version"), [("11.0.2", "11"), ("1.8.0_402", "8")])
def test_an_old_java_is_refused(tmp_path: Path, printed: str, version: str) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{printed}\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(MissingDependencyError, match=f"Java 17 or newer, and .* is {version}"):
        require_java({"PATH": f"{tmp_path}:/bin:/usr/bin"})


def test_a_program_without_java_ends_with_the_clear_error(tmp_path: Path) -> None:
    program = "import anabranch as ab\ntry:\n    ab.spark_session()\nexcept ab.AnabranchError as err:\n    print(err)"
    answer = subprocess.run(
        [sys.executable, "-c", program], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith("Spark needs Java, and there is no java on the PATH; install Java 17")


def test_what_is_shipped_is_the_whole_package() -> None:
    from anabranch.spark.session import zipped_package

    file = zipped_package()
    assert zipped_package().name == file.name  # the same code makes the same file
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
    source = Path(ab.__file__).parent.parent
    code = {
        str(path.relative_to(source))
        for name in ("anabranch", "pyspark_anabranch")
        for path in (source / name).rglob("*.py")
    }
    assert names >= code
    assert not any("__pycache__" in name for name in names)
