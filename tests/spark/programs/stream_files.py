"""Stream a folder of files into a table with the session of a given master, until there are no more."""

import sys

import anabranch as ab


def main(master: str, uri: str, feed: str, checkpoint: str) -> None:
    repo = ab.open(uri)
    spark = ab.spark_session(master=master, repo=repo)
    source = spark.readStream.schema("id long, v string").option("maxFilesPerTrigger", "1").json(feed)
    writer = source.writeStream.format("anabranch").option("repo", repo.uri).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start("s.streamed").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
