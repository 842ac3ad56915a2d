"""Git-style branches, commits, diffs and merges for a whole lake of Lance tables.

Everything but the errors is loaded when it is first used: importing this package loads no Lance, no Arrow and no JVM.
The values that methods return are in `anabranch.types`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch import errors
from anabranch.errors import *  # noqa: F403 - all of them, so that programs write `except ab.ConflictError`
from anabranch.lazy import load_name

if TYPE_CHECKING:
    from anabranch import types
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
    from anabranch.repo.io.values import ExportReport, LoadReport
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.merge.conflicts import Conflict
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

_PUBLIC = {
    "ColumnChange": ("anabranch.format.staging", "ColumnChange"),
    "Conflict": ("anabranch.repo.merge.conflicts", "Conflict"),
    "CsvOptions": ("anabranch.files.formats", "CsvOptions"),
    "Dataset": ("anabranch.format.dataset", "Dataset"),
    "Diff": ("anabranch.repo.history.diff", "Diff"),
    "DurabilityWarning": ("anabranch.warnings", "DurabilityWarning"),
    "ExportReport": ("anabranch.repo.io.values", "ExportReport"),
    "ExternalWriteWarning": ("anabranch.warnings", "ExternalWriteWarning"),
    "GraphCommit": ("anabranch.repo.log.entries", "GraphCommit"),
    "LoadReport": ("anabranch.repo.io.values", "LoadReport"),
    "MergePlan": ("anabranch.repo.merge.plan", "MergePlan"),
    "MergeResult": ("anabranch.repo.merge.plan", "MergeResult"),
    "Pipeline": ("anabranch.pipelines.pipeline", "Pipeline"),
    "Progress": ("anabranch.storage.requests", "Progress"),
    "Repository": ("anabranch.repo.repository", "Repository"),
    "Run": ("anabranch.repo.run", "Run"),
    "Snapshot": ("anabranch.repo.snapshot", "Snapshot"),
    "Table": ("anabranch.repo.snapshot", "Table"),
    "Transaction": ("anabranch.repo.transaction", "Transaction"),
    "VectorOptions": ("anabranch.format.staging", "VectorOptions"),
    "clone": ("anabranch.bootstrap", "clone_repository"),
    "dataset": ("anabranch.format.dataset", "open_dataset"),
    "demo": ("anabranch.sample_lake", "make_demo"),
    "doctor": ("anabranch.bootstrap", "doctor"),
    "init": ("anabranch.bootstrap", "init_repository"),
    "open": ("anabranch.bootstrap", "open_repository"),
    "relocate": ("anabranch.bootstrap", "relocate_repository"),
    "spark_session": ("anabranch.spark.session", "get_session"),
    "tables": ("anabranch.spark.session", "register_tables"),
}


def __getattr__(name: str) -> Any:
    if name == "types":
        return import_module("anabranch.types")
    return load_name(__name__, _PUBLIC, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
