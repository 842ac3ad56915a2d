"""The Spark catalog of a session: the jar that has it, and the settings that name a repository."""

import re
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.repo.repository import Repository

__all__ = ["CATALOG_CLASS", "add_catalog", "catalog_settings", "find_jar"]

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
