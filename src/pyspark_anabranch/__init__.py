"""How Spark finds `format("anabranch")`: it looks for modules called `pyspark_*` and takes their `DefaultSource`."""

from anabranch.bootstrap import open_repository
from anabranch.spark.source import AnabranchSource


class DefaultSource(AnabranchSource):
    open_repository = staticmethod(open_repository)
