"""The program that the Spark catalog starts beside each JVM: `python -m pyspark_anabranch.gateway SOCKET`."""

import sys

from anabranch.bootstrap import open_repository
from anabranch.spark.gateway.server import serve

if __name__ == "__main__":
    serve(sys.argv[1], open_repository)
