"""The same stream on a standalone cluster and over Spark Connect."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import anabranch as ab
from tests.spark.clusters import Cluster, connect_server, standalone_cluster
from tests.spark.feeds import add_file, batches, ids
from tests.spark.test_clusters import run

pytestmark = [pytest.mark.spark, pytest.mark.proof]


@pytest.mark.parametrize("start", [standalone_cluster, connect_server])
def test_workers_without_this_package_stream(
    tmp_path: Path, start: Callable[[Path], AbstractContextManager[Cluster]]
) -> None:
    repo, feed = ab.init(tmp_path / "lake"), tmp_path / "feed"
    feed.mkdir()
    add_file(feed, 0, 1)
    add_file(feed, 2, 3)
    with start(tmp_path / "cluster") as cluster:
        told = (cluster.master, repo.uri, str(feed), str(tmp_path / "checkpoint"))
        run("stream_files", *told, environment=cluster.environment)
        add_file(feed, 4)
        run("stream_files", *told, environment=cluster.environment)
    assert ids(repo) == [0, 1, 2, 3, 4]
    assert [epoch for _, epoch in batches(repo)] == ["0", "1", "2"]
    assert len({query for query, _ in batches(repo)}) == 1
