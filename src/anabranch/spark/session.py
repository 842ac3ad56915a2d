"""The Spark session: the one of the user, or one started on first use. Find Java, stop jobs, register views."""

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from anabranch.errors import InvalidInputError, InvalidNameError, MissingDependencyError
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.spark.options import FORMAT, pinned_options
from anabranch.spark.shipping import add_catalog, catalog_settings, lend, ship

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession


_OLDEST = 17
_INSTALL = (
    f"install Java {_OLDEST} or newer, such as Debian's openjdk-17-jre-headless, and let JAVA_HOME name it if it is "
    "not on the PATH"
)


def require_java(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse to start Spark without a Java that it can use; its own message would be a stack trace."""
    home = environment.get("JAVA_HOME")
    wanted = os.path.join(home, "bin", "java") if home else "java"
    program = shutil.which(wanted, path=environment.get("PATH", os.defpath))
    if program is None:
        where = f"JAVA_HOME is {home!r}, and has no bin/java" if home else "there is no java on the PATH"
        raise MissingDependencyError(f"Spark needs Java, and {where}", hint=_INSTALL)
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found above
    # Java prints its version to standard error. Up to Java 8 the number begins with '1.'.
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if found is None or int(found[1]) < _OLDEST:
        version = found[1] if found else "of an unknown version"
        raise MissingDependencyError(
            f"Spark needs Java {_OLDEST} or newer, and {program!r} is {version}", hint=_INSTALL
        )


_LOCAL = "local[*]"
_LOCK = threading.Lock()

_SETTINGS = {
    "spark.app.name": "anabranch",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Times go to Python and back in UTC (see `types`). Another zone of the session would shift them.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def get_session(
    spark: "SparkSession | Repository | None" = None,
    *,
    repo: Repository | None = None,
    catalog: str | None = "lake",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return a session that can read and write tables on all its workers.

    It is the given one, else the one that runs already, else a new one: on this machine, or at a master such as
    `spark://host:7077`, or at a Spark Connect server such as `sc://host:15002`. It is started once and kept.
    With a repository, its tables are in Spark SQL under the name of `catalog`, as in `SELECT * FROM lake.shop.orders`,
    and the session reaches it as the handle does, by the same credentials. `catalog=None` makes no catalog.
    """
    if isinstance(spark, Repository):
        spark, repo = None, spark
    settings = dict(config or {})
    # Of two threads that find no session, only one may start it.
    with _LOCK:
        session = spark or _running()
        if session is None:
            session = _start(master or _LOCAL, settings)
        elif master is not None or settings:
            raise InvalidInputError(
                "there is a Spark session already, which keeps its master and settings",
                hint="leave them out, or stop the session first",
            )
        _make_active(session)
        ship(session)
        if repo is not None:
            lend(session, repo.uri, repo.storage_options)
            if catalog is not None:
                add_catalog(session, catalog, repo)
        return session


def can_start() -> bool:
    """Whether a session runs, or could be started here; one of Spark's own workers starts none."""
    if find_spec("pyspark") is None:
        return False
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        return False
    if _running() is not None:
        return True
    try:
        require_java()
    except MissingDependencyError:
        return False
    return True


def _running() -> "SparkSession | None":
    # Without the import there is no session, and the import itself takes long.
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()  # this thread's own, else the process's
    except PySparkRuntimeError:
        return None


def _make_active(session: Any) -> None:
    """Make a session the one of this thread, too: Spark looks there alone for the format of what is to be written."""
    java = getattr(session, "_jsparkSession", None)
    if java is not None:
        session._get_j_spark_session_class(session._jvm).setActiveSession(java)


def _start(master: str, settings: Mapping[str, str]) -> "SparkSession":
    try:
        from pyspark.sql import SparkSession
    except ImportError as err:
        raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'") from err
    builder: Any = SparkSession.builder
    if master.startswith("sc://"):
        defaults: dict[str, str] = {"spark.sql.session.timeZone": "UTC"}
        builder = builder.remote(master)
    else:
        require_java()
        defaults = {**_SETTINGS, **catalog_settings(), **(_local_settings() if master.startswith("local") else {})}
        builder = builder.master(master)
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    # By itself Spark takes the first Python on the PATH for its workers, which need not have our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _log_errors_once()
    with warnings.catch_warnings():
        # Lance warns of every fork, and the JVM's start is one; what it forks becomes another program at once.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        return cast("SparkSession", builder.getOrCreate())


def _log_errors_once() -> None:
    """Keep PySpark from also writing to stderr, as JSON, what it raises about a query."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def _local_settings() -> dict[str, str]:
    """Return the settings of a local session: only this machine reaches the driver, which does all the work."""
    logging = resources.files("anabranch.spark") / "log4j2.properties"
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        # Errors are raised. Java would also log each in a hundred lines.
        "spark.log.level": "FATAL",
        # The default of Spark is 200 partitions, which is for clusters: on one machine each costs more than it saves.
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 1)),
    }


@contextmanager
def stoppable(session: "SparkSession", name: str) -> Iterator[None]:
    """Allow the jobs that this thread starts inside to be stopped by a name.

    Over Connect these are tags of the session. In this process they are tags of the context: those of the session do
    not reach the jobs by which rows go to Python and back.
    """
    if _is_connect(session):
        session.addTag(name)
    else:
        session.sparkContext.addJobTag(name)
    try:
        yield
    finally:
        if _is_connect(session):
            session.removeTag(name)
        else:
            session.sparkContext.removeJobTag(name)


def stop_jobs(session: "SparkSession", name: str) -> None:
    if _is_connect(session):
        session.interruptTag(name)
    else:
        session.sparkContext.cancelJobsWithTag(name)


def _is_connect(session: "SparkSession") -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def register_tables(spark: "SparkSession", repo: Repository, *, ref: str | None = None) -> list[str]:
    """Make a temporary view `bucket__table` of every table, all as one snapshot has them; return their names."""
    session = get_session(spark, repo=repo, catalog=None)
    snapshot = EngineAccess(repo).published_snapshot_of(ref or repo.branch)
    names = {key: key.replace(".", "__") for key in snapshot}
    _refuse_equal(names)
    for key, name in names.items():
        options = pinned_options(repo, snapshot[key])
        session.read.format(FORMAT).options(**options).load().createOrReplaceTempView(name)
    return sorted(names.values())


def _refuse_equal(names: dict[str, str]) -> None:
    """Refuse two tables of one name: Spark does not know upper from lower case, and `_` may be part of both halves."""
    seen: dict[str, str] = {}
    for key, name in names.items():
        other = seen.setdefault(name.lower(), key)
        if other != key:
            raise InvalidNameError(
                f"the tables '{other}' and '{key}' would both be the view {name}",
                hint="rename one, or load them one by one",
            )
