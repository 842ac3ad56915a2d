"""The Spark session of the user, or one started on first use. Find Java, stop jobs, register views.

Also how this package reaches the workers of a cluster, and how its Spark catalog, a jar, reaches a session. On one
machine workers run the same Python and find it by themselves. Elsewhere it is sent along, as a zip file. The libraries
that it needs, which have compiled parts, must be installed there, at the versions that this package asks for.
"""

import hashlib
import importlib
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from anabranch.errors import InvalidInputError, InvalidNameError, MissingDependencyError
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.spark.options import FORMAT, pinned_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession

    from anabranch.spark.source import AnabranchSource


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

    It is the given session, else the running one, else a new one: on this machine, or at a master such as
    `spark://host:7077`, or at a Spark Connect server such as `sc://host:15002`. It is started once and kept.
    With a repository, its tables are in Spark SQL under the name of `catalog`, as in `SELECT * FROM lake.shop.orders`,
    and the session reaches it as the handle does, by the same credentials. `catalog=None` makes no catalog.
    """
    if isinstance(spark, Repository):
        spark, repo = None, spark
    # Of two threads that find no session, only one may start it.
    with _LOCK:
        session = spark or _running()
        if session is None:
            session = _start(master or _LOCAL, config)
        elif master is not None or config:
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
    """Return whether a session runs, or can be started here. A worker of Spark cannot start one."""
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
    """Make a session that of this thread, too: only there Spark looks for the format of a write."""
    java = getattr(session, "_jsparkSession", None)
    if java is not None:
        session._get_j_spark_session_class(session._jvm).setActiveSession(java)


def _start(master: str, config: Mapping[str, str] | None) -> "SparkSession":
    try:
        from pyspark.logger import PySparkLogger
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
    for name, value in {**defaults, **(config or {})}.items():
        builder = builder.config(name, value)
    # By itself Spark takes the first Python on the PATH for its workers, which need not have our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # PySpark would also write the errors of a query to stderr, as JSON.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        # Lance warns of every fork. The start of the JVM is one, but runs another program at once.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        return cast("SparkSession", builder.getOrCreate())


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
    """Make a temporary view `bucket__table` of every table of one snapshot. Return the names."""
    session = get_session(spark, repo=repo, catalog=None)
    snapshot = EngineAccess(repo).published_snapshot_of(ref or repo.branch)
    names = {key: key.replace(".", "__") for key in snapshot}
    _refuse_equal(names)
    for key, name in names.items():
        options = pinned_options(repo, snapshot[key])
        session.read.format(FORMAT).options(**options).load().createOrReplaceTempView(name)
    return sorted(names.values())


def _refuse_equal(names: dict[str, str]) -> None:
    """Refuse two tables with the same view: Spark ignores case, and both parts of a name may contain `_`."""
    seen: dict[str, str] = {}
    for key, name in names.items():
        other = seen.setdefault(name.lower(), key)
        if other != key:
            raise InvalidNameError(
                f"the tables '{other}' and '{key}' would both be the view {name}",
                hint="rename one, or load them one by one",
            )


# Spark also finds the format by this name.
_FORMAT_MODULE = "pyspark_anabranch"
_PACKAGES = ("anabranch", _FORMAT_MODULE)
_SHIPPED = "_anabranch_is_shipped"
_LENT = "_anabranch_credentials"
# Not below "spark.": Spark copies all such settings into the properties of each job, and writes those that were set
# after the session started to its event log as they are. 'secret' makes SET hide the value.
_LENT_SETTING = "anabranch.secret."


def ship(session: "SparkSession") -> None:
    """Send this package to the workers of a session, and register the format, once for each session."""
    context = getattr(session, "_sc", None)
    # Workers of a Connect server may run here, too, but its session does not know it.
    is_local = context is not None and str(context.master).startswith("local")
    if is_local or getattr(session, _SHIPPED, False):
        return
    session.addArtifacts(str(zipped_package()), pyfile=True)
    # Formats that Spark finds by their name do not take such files along; those that are registered do.
    _register(session, _source())
    setattr(session, _SHIPPED, True)


def lend(session: "SparkSession", location: str, storage_options: Mapping[str, str]) -> None:
    """Lend the storage options of a repository to a session, so that queries need not name them.

    They are sent inside the registered format, and as a setting of the session for the source in the jar. They are not
    sent as options of queries, which a Spark Connect server writes to its event log.
    """
    lent: dict[str, Mapping[str, str]] = getattr(session, _LENT, {})
    if not storage_options or lent.get(location) == storage_options:
        return
    known = {**lent, location: dict(storage_options)}
    source = _source()
    # A class of its own is sent as a whole; one that can be imported is sent as its name.
    _register(session, type(source.__name__, (source,), {"credentials": known, "__module__": __name__}))
    # The catalog and the source in the jar read them from the settings of the session.
    digest = hashlib.sha256(location.encode()).hexdigest()[:16]
    text = json.dumps({"repo": location, "storage_options": dict(storage_options)})
    session.conf.set(f"{_LENT_SETTING}{digest}", text)
    setattr(session, _LENT, known)


def ship_by_value(module: ModuleType) -> None:
    """Send the functions of a module to the workers as a whole, because they cannot import it."""
    cloudpickle: Any = importlib.import_module("pyspark.cloudpickle")
    cloudpickle.register_pickle_by_value(module)


def _register(session: Any, source: "type[AnabranchSource]") -> None:
    """Register the format of Python, also beside the format of the same name in the jar.

    Spark refuses to register the name of a source in Java, unless it knows one of Python already. The jar leaves
    writes, changes and streams to the latter, so both are needed.
    """
    java = getattr(session, "_jsparkSession", None)
    if java is None:  # Spark Connect
        session.dataSource.register(source)
        return
    udf: Any = importlib.import_module("pyspark.sql.udf")
    context = session.sparkContext
    wrapped = udf._wrap_function(context, source)
    python = context._jvm.org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource
    java.sessionState().dataSourceManager().registerDataSource(source.name(), python(wrapped))


def _source() -> "type[AnabranchSource]":
    source: type[AnabranchSource] = importlib.import_module(_FORMAT_MODULE).DefaultSource
    return source


def zipped_package() -> Path:
    """Write this package to a zip file. Its name depends on its content, because Spark accepts each name only once."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            _add(archive, resources.files(package), package)
    data = content.getvalue()
    name = f"anabranch-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    file = Path(tempfile.mkdtemp(prefix="anabranch-")) / name
    file.write_bytes(data)
    return file


def _add(archive: zipfile.ZipFile, folder: Traversable, path: str) -> None:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        inside = f"{path}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                _add(archive, entry, inside)
        elif entry.name.endswith((".py", ".typed")):
            # A fixed time: the same code makes the same file.
            archive.writestr(zipfile.ZipInfo(inside, date_time=(1980, 1, 1, 0, 0, 0)), entry.read_bytes())


CATALOG_CLASS = "io.anabranch.spark.AnabranchCatalog"
_JARS = "jars"
_CATALOG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HAS_JAR = "_anabranch_has_jar"


def find_jar() -> Path | None:
    """Return the jar with the catalog, or None if this installation was built without a Java compiler."""
    folder = Path(str(resources.files("anabranch.spark"))) / _JARS
    return next(iter(sorted(folder.glob("anabranch-spark-*.jar"))), None)


def catalog_settings() -> dict[str, str]:
    """Return the settings that let a new session find the class of the catalog."""
    jar = find_jar()
    return {} if jar is None else {"spark.jars": str(jar)}


def add_catalog(session: "SparkSession", name: str, repo: Repository) -> None:
    """Make the tables of a repository known in Spark SQL under a name, unless this installation has no jar.

    The catalog gets the storage options as they were lent to the session (`lend`).
    """
    if not _CATALOG_NAME.fullmatch(name):
        raise InvalidInputError(f"the catalog name {name!r} is not a name of SQL", hint="use letters, digits and '_'")
    jar = find_jar()
    if jar is None:
        return
    prefix = f"spark.sql.catalog.{name}"
    wanted = {f"{prefix}.repo": repo.uri}
    if getattr(session, "_sc", None) is not None:  # over Spark Connect, this Python is not on the driver's machine
        wanted[f"{prefix}.driverPython"] = sys.executable
    if repo.actor is not None:
        wanted[f"{prefix}.actor"] = repo.actor
    conf: Any = session.conf
    known = conf.get(f"{prefix}.repo", None)
    # Spark loads a catalog once for each session: after that, a changed setting would have no effect.
    if known is not None and known != repo.uri:
        raise InvalidInputError(
            f"the catalog {name!r} of this session is the repository at {known}",
            hint=f"give another name, as in spark_session(repo, catalog='{name}2')",
        )
    _add_jar(session, jar)
    # The class comes last: as soon as it is set, Spark may load the catalog with the other settings.
    for setting, value in {**wanted, prefix: CATALOG_CLASS}.items():
        conf.set(setting, value)


def _add_jar(session: Any, jar: Path) -> None:
    """Add the jar to a session that began without it."""
    if getattr(session, _HAS_JAR, False):
        return
    context = getattr(session, "_sc", None)
    if context is None:  # Spark Connect
        session.addArtifacts(str(jar))
    # A session that this package started has the jar already, from `catalog_settings`.
    elif jar.name not in context.getConf().get("spark.jars", ""):
        session.sql(f"ADD JAR '{jar}'")
    setattr(session, _HAS_JAR, True)
