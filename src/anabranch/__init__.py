"""Git-style branches, commits, diffs and merges for a whole lake of Lance tables.

Everything but the errors is loaded when it is first used: importing this package loads no Lance, no Arrow and no JVM.
The values that methods return are in `anabranch.types`.
"""

from typing import TYPE_CHECKING, Any

from anabranch import errors, types
from anabranch.errors import *  # noqa: F403 - all of them, so that programs write `except ab.ConflictError`

if TYPE_CHECKING:
    from anabranch.bootstrap import clone_repository as clone
    from anabranch.bootstrap import doctor
    from anabranch.bootstrap import init_repository as init
    from anabranch.bootstrap import open_repository as open  # noqa: A004 - the name that users of git expect
    from anabranch.bootstrap import relocate_repository as relocate
    from anabranch.files.formats import CsvOptions
    from anabranch.format.dataset import Dataset
    from anabranch.format.dataset import open_dataset as dataset
    from anabranch.format.staging import ColumnChange, VectorOptions
    from anabranch.pipelines.pipeline import Pipeline
    from anabranch.repo.history.diff import Diff
    from anabranch.repo.io.export import ExportReport
    from anabranch.repo.io.prepared_table import LoadReport
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.merge.conflict_types import Conflict
    from anabranch.repo.merge.plan import MergePlan, MergeResult
    from anabranch.repo.repository import Repository
    from anabranch.repo.run import Run
    from anabranch.repo.snapshot import Snapshot, Table
    from anabranch.repo.transaction import Transaction
    from anabranch.sample_lake import make_demo as demo
    from anabranch.spark.session import get_session as spark_session
    from anabranch.spark.session import register_tables as tables
    from anabranch.storage.requests import Progress
    from anabranch.warnings import DurabilityWarning, ExternalWriteWarning

__version__ = "0.1.0"
__all__ = [
    "ColumnChange",
    "Conflict",
    "CsvOptions",
    "Dataset",
    "Diff",
    "DurabilityWarning",
    "ExportReport",
    "ExternalWriteWarning",
    "GraphCommit",
    "LoadReport",
    "MergePlan",
    "MergeResult",
    "Pipeline",
    "Progress",
    "Repository",
    "Run",
    "Snapshot",
    "Table",
    "Transaction",
    "VectorOptions",
    "clone",
    "dataset",
    "demo",
    "doctor",
    "errors",
    "init",
    "open",
    "relocate",
    "spark_session",
    "tables",
    "types",
]
__all__ += errors.__all__
__all__.sort()

# The names by module, as in `types`.
_NAMES = {
    "anabranch.bootstrap": "clone=clone_repository doctor init=init_repository"
    " open=open_repository relocate=relocate_repository",
    "anabranch.files.formats": "CsvOptions",
    "anabranch.format.dataset": "Dataset dataset=open_dataset",
    "anabranch.format.staging": "ColumnChange VectorOptions",
    "anabranch.pipelines.pipeline": "Pipeline",
    "anabranch.repo.history.diff": "Diff",
    "anabranch.repo.io.export": "ExportReport",
    "anabranch.repo.io.prepared_table": "LoadReport",
    "anabranch.repo.log.entries": "GraphCommit",
    "anabranch.repo.merge.conflict_types": "Conflict",
    "anabranch.repo.merge.plan": "MergePlan MergeResult",
    "anabranch.repo.repository": "Repository",
    "anabranch.repo.run": "Run",
    "anabranch.repo.snapshot": "Snapshot Table",
    "anabranch.repo.transaction": "Transaction",
    "anabranch.sample_lake": "demo=make_demo",
    "anabranch.spark.session": "spark_session=get_session tables=register_tables",
    "anabranch.storage.requests": "Progress",
    "anabranch.warnings": "DurabilityWarning ExternalWriteWarning",
}


def __getattr__(name: str) -> Any:
    return types.load_name(__name__, _NAMES, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
