"""Follow a table, one commit in each batch, and write down each batch; be killed once a batch is written down.

Spark has not noted that batch by then, so that the next run has to read it again.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame

import anabranch as ab
from tests.processes import kill_this_process
from tests.spark.following import follow, write_down


def main(options: str, key: str, since: str, folder: str, last: str) -> None:
    def write_and_die(frame: DataFrame, number: int) -> None:
        write_down(frame, Path(folder) / f"{number}.json")
        if number == int(last):
            kill_this_process()

    reader = ab.spark_session().readStream.format("anabranch").options(since=since, maxCommitsPerBatch="1")
    follow(reader.options(**json.loads(options)).load(key), write_and_die, checkpoint=f"{folder}/checkpoint")


if __name__ == "__main__":
    main(*sys.argv[1:])
