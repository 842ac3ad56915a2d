"""All tables of a snapshot as views of a Spark session."""

from typing import TYPE_CHECKING

from anabranch.errors import InvalidNameError
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.spark.options import FORMAT, pinned_options
from anabranch.spark.session import get_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register_tables"]


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
