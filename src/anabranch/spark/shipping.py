"""How this package reaches the workers of a cluster, and how its Spark catalog, a jar, reaches a session.

On one machine workers run the same Python and find it by themselves. Elsewhere it is sent along, as a zip file. The
libraries that it needs, which have compiled parts, must be installed there, at the versions that this package asks for.
"""

import hashlib
import importlib
import io
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.repo.repository import Repository
    from anabranch.spark.source import AnabranchSource


# By this name Spark, too, finds the format.
_FORMAT_MODULE = "pyspark_anabranch"
_PACKAGES = ("anabranch", _FORMAT_MODULE)
_SHIPPED = "_anabranch_is_shipped"
_LENT = "_anabranch_credentials"
# Not below "spark.": Spark copies all such settings into the properties of each job, and writes those that were set
# after the session started to its event log as they are. 'secret' makes SET hide the value.
_LENT_SETTING = "anabranch.secret."


def ship(session: "SparkSession") -> None:
    """Let a session's workers import this package, and its driver know the format; once for each session."""
    if getattr(session, _SHIPPED, False) or _is_local(session):
        return
    session.addArtifacts(str(zipped_package()), pyfile=True)
    # Formats that Spark finds by their name do not take such files along; those that are registered do.
    _register(session, _source())
    setattr(session, _SHIPPED, True)


def lend(session: "SparkSession", location: str, storage_options: Mapping[str, str]) -> None:
    """Let a session reach a repository by these options, so that queries need not name them.

    They travel inside the registered format, and as a setting of the session for the source in the jar. Options of
    a query do not: a Spark Connect server writes those down, as they are, in its log of events.
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
    """Let workers get the functions of a module whole, which they cannot import."""
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


def _is_local(session: Any) -> bool:
    """Whether workers run here; a Connect server may, but its session does not know it."""
    context = getattr(session, "_sc", None)
    return context is not None and str(context.master).startswith("local")


def zipped_package() -> Path:
    """This package as a zip file; its name changes with its content, because Spark takes each name once."""
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
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HAS_JAR = "_anabranch_has_jar"


def find_jar() -> Path | None:
    """The jar with the catalog, or None if this installation was built without a Java compiler."""
    folder = Path(str(resources.files("anabranch.spark"))) / _JARS
    return next(iter(sorted(folder.glob("anabranch-spark-*.jar"))), None)


def catalog_settings() -> dict[str, str]:
    """The settings with which a new session knows the catalog's class."""
    jar = find_jar()
    return {} if jar is None else {"spark.jars": str(jar)}


def add_catalog(session: "SparkSession", name: str, repo: "Repository") -> None:
    """Make the tables of a repository known in Spark SQL under a name, unless this installation has no jar.

    The catalog gets the storage options as they were lent to the session (`shipping.lend`).
    """
    if not _NAME.fullmatch(name):
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
