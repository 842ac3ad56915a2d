"""Compile the Spark catalog into the jar that the package contains. Hatchling runs this when it builds a wheel.

Run it by itself after a change of the Java sources: python scripts/build_catalog.py
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SPARK = "4.3"
_ROOT = Path(__file__).parent.parent
SOURCES = _ROOT / "src" / "spark-catalog"
JAR = _ROOT / "src" / "anabranch" / "spark" / "jars" / f"anabranch-spark-{SPARK}.jar"
_IN_WHEEL = f"anabranch/spark/jars/{JAR.name}"
_NO_COMPILER = (
    "There is no Java compiler, so the Spark catalog is left out: install a JDK of Java 17 or newer "
    "(Debian: openjdk-17-jdk-headless) and build again. Everything but Spark SQL works without it."
)

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # not a build: the script runs by itself
    BuildHookInterface = object


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Compiles the jar for a wheel. An editable installation reads it from the source folder."""

    def dependencies(self) -> list[str]:
        """Name what the build needs: Spark's own jars, to compile against."""
        return [f"pyspark=={SPARK}.*"] if find_compiler() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if find_compiler() is None:
            self.app.display_warning(_NO_COMPILER)
            return
        build(JAR)
        build_data["force_include"][str(JAR)] = _IN_WHEEL


def find_compiler() -> str | None:
    """The Java compiler of JAVA_HOME, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("javac", path=f"{home}/bin") if home else shutil.which("javac")


def build(jar: Path) -> None:
    """Compile the sources against the jars of PySpark, and put the jar in place when it is complete."""
    compiler, spark = find_compiler(), find_spec("pyspark")
    if compiler is None:
        raise SystemExit(_NO_COMPILER)
    if spark is None or spark.origin is None:
        raise SystemExit(f"PySpark is not installed: pip install 'pyspark=={SPARK}.*'")
    sources = sorted(map(str, SOURCES.rglob("*.java")))
    with tempfile.TemporaryDirectory() as folder:
        options = [
            "--release",
            "17",
            "-Xlint:all,-classfile,-path,-processing,-serial",
            "-Werror",
            "-encoding",
            "UTF-8",
        ]
        classpath = str(Path(spark.origin).parent / "jars" / "*")
        if subprocess.run([compiler, *options, "-cp", classpath, "-d", folder, *sources]).returncode:
            raise SystemExit("The Spark catalog does not compile.")
        jar.parent.mkdir(exist_ok=True)
        unfinished = jar.with_suffix(".tmp")
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            _add_files(archive, Path(folder), "*.class")
            _add_files(archive, SOURCES, "META-INF/services/*")
        unfinished.replace(jar)


def _add_files(archive: zipfile.ZipFile, folder: Path, pattern: str) -> None:
    for file in sorted(folder.rglob(pattern)):
        # A fixed time: the same sources make the same file.
        entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, file.read_bytes())


if __name__ == "__main__":
    build(JAR)
    sys.stdout.write(f"{JAR.relative_to(_ROOT)}: {JAR.stat().st_size:,} bytes\n")
