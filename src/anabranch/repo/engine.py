"""What a repository asks of its engines: one that answers SQL, others that move data on many machines."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.format.staging import Pin, RewriteTask, RewrittenFragments
    from anabranch.repo.io.values import LoadTask, OnProgress, WrittenRows
    from anabranch.repo.repository import Repository
    from anabranch.repo.snapshot import Snapshot

__all__ = ["Loader", "Parameters", "Rewriter", "SqlEngine"]

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


class Loader(Protocol):
    def write(self, task: "LoadTask", *, on_progress: "OnProgress") -> "WrittenRows":
        """Write the rows of many files as data files, wherever there is room; publish nothing."""
        ...

    def write_frame(self, frame: Any, pin: "Pin", schema: "pa.Schema", *, for_overwrite: bool) -> "WrittenRows":
        """Like `write`, for the rows of a DataFrame of the engine."""
        ...

    def columns_of(self, frame: Any) -> "pa.Schema":
        """The columns of a table that a DataFrame would make."""
        ...
