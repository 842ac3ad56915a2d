"""What the Spark catalog starts beside each JVM: `python -m pyspark_anabranch.gateway SOCKET [IDLE_SECONDS]`."""

import sys

from anabranch.bootstrap import open_repository
from anabranch.spark.gateway.server import serve

if __name__ == "__main__":
    serve(sys.argv[1], open_repository, idle_seconds=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
