"""What a repository asks of its engines: one that answers SQL, one that rewrites data on many machines."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.format.staging import Pin, RewriteTask, RewrittenFragments
    from anabranch.repo.repository import Repository
    from anabranch.repo.snapshots import Snapshot

__all__ = ["Parameters", "Rewriter", "SqlEngine"]

Parameters = Sequence[Any] | Mapping[str, Any]


class SqlEngine(Protocol):
    def query(
        self,
        repository: "Repository",
        sql: str,
        *,
        ref: str,
        params: Parameters | None = None,
        snapshot: "Snapshot | None" = None,
    ) -> "pa.RecordBatchReader":
        """Begin one query over tables as a ref has them; whoever reads it may stop at any time.

        Where a snapshot is given, that is what the ref stands for, whether others can see it or not.
        """
        ...


class Rewriter(Protocol):
    def rewrite(self, pin: "Pin", tasks: "Sequence[RewriteTask]") -> "list[RewrittenFragments]":
        """Do the tasks of a compaction of one version, wherever there is room."""
        ...
