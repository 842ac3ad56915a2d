"""A stream with `format("anabranch")` on a standalone cluster, whose workers do not have this package.

Over Spark Connect the Python workers of such a streaming query do not find the files of the session (Spark 4.3). There,
streams are written by name, which `test_clusters` tests.
"""

from pathlib import Path

import pytest

import anabranch as ab
from tests.spark.clusters import standalone_cluster
from tests.spark.feeds import add_file, batches, ids
from tests.spark.test_clusters import run

pytestmark = [pytest.mark.spark, pytest.mark.proof]


def test_workers_without_this_package_stream(tmp_path: Path) -> None:
    repo, feed = ab.init(tmp_path / "lake"), tmp_path / "feed"
    feed.mkdir()
    add_file(feed, 0, 1)
    add_file(feed, 2, 3)
    with standalone_cluster(tmp_path / "cluster") as cluster:
        reported = (cluster.master, repo.uri, str(feed), str(tmp_path / "checkpoint"))
        run("stream_files", *reported, environment=cluster.environment)
        add_file(feed, 4)
        run("stream_files", *reported, environment=cluster.environment)
    assert ids(repo) == [0, 1, 2, 3, 4]
    assert [epoch for _, epoch in batches(repo)] == ["0", "1", "2"]
    assert len({query for query, _ in batches(repo)}) == 1
