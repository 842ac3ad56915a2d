"""Data rewritten by Spark's workers without becoming Spark's rows."""

from collections.abc import Sequence

from anabranch.format.staging import RewriteTask, RewrittenFragments, VersionRef, rewrite_fragments
from anabranch.spark.tasks import do_on_workers

__all__ = ["SparkRewriter"]


class SparkRewriter:
    """Does the tasks of compactions on the workers of the running session, or of one that it starts."""

    def rewrite(self, version_ref: VersionRef, tasks: Sequence[RewriteTask]) -> list[RewrittenFragments]:
        def work(task: bytes) -> bytes:
            return rewrite_fragments(version_ref, RewriteTask(task)).data

        return [RewrittenFragments(result) for result in do_on_workers(work, [task.data for task in tasks])]
