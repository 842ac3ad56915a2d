"""Where Spark enters: its format, and the process that the Spark catalog starts beside each JVM.

Spark looks for modules called `pyspark_*` and takes their `DefaultSource` for `format("anabranch")`.
"""

import sys

from anabranch.bootstrap import open_repository
from anabranch.spark.source import AnabranchSource


class DefaultSource(AnabranchSource):
    open_repository = staticmethod(open_repository)


def serve_gateway() -> None:
    """Serve the requests of a Spark catalog, with the arguments SOCKET [IDLE_SECONDS]."""
    from anabranch.spark.gateway.server import serve

    serve(sys.argv[1], open_repository, idle_seconds=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
