"""The values that public methods return, for annotations and `isinstance`. `import anabranch` has the main classes.

Everything is loaded when it is first used: importing this module loads neither Lance nor Arrow.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # With `as`, which exports a name to type checkers.
    from anabranch.display import Listing as Listing
    from anabranch.format.bases import BaseUsage as BaseUsage
    from anabranch.format.bases import StorageReport as StorageReport
    from anabranch.format.bases import Usage as Usage
    from anabranch.format.clone import holds as _holds
    from anabranch.format.clone.holds import DroppedClone as DroppedClone
    from anabranch.format.clone.relocate import HoldChange as HoldChange
    from anabranch.format.clone.relocate import HoldOutcome as HoldOutcome
    from anabranch.format.clone.relocate import RelocateReport as RelocateReport
    from anabranch.format.clone.relocate import UnexplainedBase as UnexplainedBase
    from anabranch.format.doctor.findings_and_repairs import DoctorReport as DoctorReport
    from anabranch.format.doctor.findings_and_repairs import Finding as Finding
    from anabranch.format.doctor.findings_and_repairs import FindingKind as FindingKind
    from anabranch.format.doctor.findings_and_repairs import Severity as Severity
    from anabranch.format.layout.listing import Layout as Layout
    from anabranch.format.layout.listing import LayoutFile as LayoutFile
    from anabranch.format.layout.listing import LayoutKind as LayoutKind
    from anabranch.format.layout.listing import Total as Total
    from anabranch.format.layout.manifest import BasePath as BasePath
    from anabranch.format.refs import refs as _refs
    from anabranch.format.refs.branches import DeletedBranch as DeletedBranch
    from anabranch.format.refs.ref_files import RefList as RefList
    from anabranch.format.refs.ref_files import UnreadableRef as UnreadableRef
    from anabranch.format.refs.refs import VersionInfo as VersionInfo
    from anabranch.format.retention import CleanupReason as CleanupReason
    from anabranch.format.retention import CleanupReport as CleanupReport
    from anabranch.format.retention import RemovedFile as RemovedFile
    from anabranch.format.retention import UnusedInBase as UnusedInBase
    from anabranch.format.staging import IndexInfo as IndexInfo
    from anabranch.format.staging import IndexKind as IndexKind
    from anabranch.format.staging.compaction import CompactReport as CompactReport
    from anabranch.format.tiering import BaseRemoval as BaseRemoval
    from anabranch.format.tiering import MoveReport as MoveReport
    from anabranch.ids import TableKey as TableKey
    from anabranch.pipelines import plan as _pipeline_plan
    from anabranch.pipelines.backfill import Backfill as Backfill
    from anabranch.pipelines.backfill import BackfillProgress as BackfillProgress
    from anabranch.pipelines.provenance import BuiltOutput as BuiltOutput
    from anabranch.pipelines.reproduction import ComparedOutput as ComparedOutput
    from anabranch.pipelines.reproduction import Reproduction as Reproduction
    from anabranch.pipelines.run import PipelineRun as PipelineRun
    from anabranch.pipelines.run import StepProgress as StepProgress
    from anabranch.pipelines.run import StepState as StepState
    from anabranch.repo.gc.collection import CompactedTable as CompactedTable
    from anabranch.repo.gc.collection import Compaction as Compaction
    from anabranch.repo.gc.collection import GcReport as GcReport
    from anabranch.repo.gc.roots import HolderKind as HolderKind
    from anabranch.repo.gc.storage_report import FileGroup as FileGroup
    from anabranch.repo.gc.storage_report import HolderStorage as HolderStorage
    from anabranch.repo.gc.storage_report import RepositoryStorage as RepositoryStorage
    from anabranch.repo.gc.storage_report import TableStorage as TableStorage
    from anabranch.repo.gc.storage_report import TableUsage as TableUsage
    from anabranch.repo.gc.sweep_and_purge import CollectedObject as CollectedObject
    from anabranch.repo.history.changes import CommitChanges as CommitChanges
    from anabranch.repo.history.commit_graph import CommitGraph as CommitGraph
    from anabranch.repo.history.commit_graph import LaneRow as LaneRow
    from anabranch.repo.history.comparer import Choice as Choice
    from anabranch.repo.history.comparer import TableCounts as TableCounts
    from anabranch.repo.history.diff import RowChange as RowChange
    from anabranch.repo.history.diff import RowChangeKind as RowChangeKind
    from anabranch.repo.history.diff import TableChangeKind as TableChangeKind
    from anabranch.repo.history.diff import TableDiff as TableDiff
    from anabranch.repo.history.entities import EntityChange as EntityChange
    from anabranch.repo.history.lineage import EdgeKind as EdgeKind
    from anabranch.repo.history.lineage import Lineage as Lineage
    from anabranch.repo.history.lineage import LineageEdge as LineageEdge
    from anabranch.repo.history.lineage import LineageNode as LineageNode
    from anabranch.repo.history.lineage import NodeKind as NodeKind
    from anabranch.repo.history.table_history import SchemaChange as SchemaChange
    from anabranch.repo.io.clone import Relocation as Relocation
    from anabranch.repo.io.clone import Unexplained as Unexplained
    from anabranch.repo.io.prepared_table import LoadMode as LoadMode
    from anabranch.repo.log.clones import CloneInfo as CloneInfo
    from anabranch.repo.log.clones import CloneKind as CloneKind
    from anabranch.repo.log.clones import CloneState as CloneState
    from anabranch.repo.log.entries import BranchEvent as BranchEvent
    from anabranch.repo.log.entries import BranchMode as BranchMode
    from anabranch.repo.log.entries import CheckOutcome as CheckOutcome
    from anabranch.repo.log.entries import CheckResult as CheckResult
    from anabranch.repo.log.entries import CommitKind as CommitKind
    from anabranch.repo.log.entries import RunPhase as RunPhase
    from anabranch.repo.log.history_tables import HistoryTables as HistoryTables
    from anabranch.repo.merge.conflict_types import ConflictKind as ConflictKind
    from anabranch.repo.merge.conflict_types import StrategyGap as StrategyGap
    from anabranch.repo.merge.plan import CommitPlan as CommitPlan
    from anabranch.repo.merge.plan import MergeOutcome as MergeOutcome
    from anabranch.repo.merge.plan import ReplayResult as ReplayResult
    from anabranch.repo.merge.plan import TablePlan as TablePlan
    from anabranch.repo.refs.branches import BranchInfo as BranchInfo
    from anabranch.repo.refs.branches import TableDrift as TableDrift
    from anabranch.repo.refs.reset_and_undo import Movement as Movement
    from anabranch.repo.refs.tags import TagInfo as TagInfo
    from anabranch.repo.runs.runs import RunInfo as RunInfo
    from anabranch.repo.schema import plan as _schema_plan
    from anabranch.repo.schema import state as _schema_state
    from anabranch.repo.schema.apply import SchemaApplied as SchemaApplied
    from anabranch.repo.schema.apply import SchemaPlan as SchemaPlan
    from anabranch.repo.schema.state import SchemaState as SchemaState
    from anabranch.repo.schema.state import TableSchema as TableSchema
    from anabranch.repo.write.settle import ExternalWrite as ExternalWrite

    # An import under another name exports nothing, so these are assigned.
    DatasetBranchInfo = _refs.BranchInfo
    DatasetCloneInfo = _holds.CloneInfo
    DatasetTagInfo = _refs.TagInfo
    PipelinePlan = _pipeline_plan.Plan
    PipelineStep = _pipeline_plan.Step
    SchemaColumn = _schema_state.Column
    SchemaIndex = _schema_state.Index
    SchemaStep = _schema_plan.Step

# The names by module: NAME, or NAME=ATTRIBUTE if it has another name there.
_NAMES = {
    "anabranch.display": "Listing",
    "anabranch.format.bases": "BaseUsage StorageReport Usage",
    "anabranch.format.clone.holds": "DatasetCloneInfo=CloneInfo DroppedClone",
    "anabranch.format.clone.relocate": "HoldChange HoldOutcome RelocateReport UnexplainedBase",
    "anabranch.format.doctor.findings_and_repairs": "DoctorReport Finding FindingKind Severity",
    "anabranch.format.layout.listing": "Layout LayoutFile LayoutKind Total",
    "anabranch.format.layout.manifest": "BasePath",
    "anabranch.format.refs.branches": "DeletedBranch",
    "anabranch.format.refs.ref_files": "RefList UnreadableRef",
    "anabranch.format.refs.refs": "DatasetBranchInfo=BranchInfo DatasetTagInfo=TagInfo VersionInfo",
    "anabranch.format.retention": "CleanupReason CleanupReport RemovedFile UnusedInBase",
    "anabranch.format.staging": "IndexInfo IndexKind",
    "anabranch.format.staging.compaction": "CompactReport",
    "anabranch.format.tiering": "BaseRemoval MoveReport",
    "anabranch.ids": "TableKey",
    "anabranch.pipelines.backfill": "Backfill BackfillProgress",
    "anabranch.pipelines.plan": "PipelinePlan=Plan PipelineStep=Step",
    "anabranch.pipelines.provenance": "BuiltOutput",
    "anabranch.pipelines.reproduction": "ComparedOutput Reproduction",
    "anabranch.pipelines.run": "PipelineRun StepProgress StepState",
    "anabranch.repo.io.clone": "Relocation Unexplained",
    "anabranch.repo.gc.collection": "CompactedTable Compaction GcReport",
    "anabranch.repo.gc.storage_report": "FileGroup HolderStorage RepositoryStorage TableStorage TableUsage",
    "anabranch.repo.gc.roots": "HolderKind",
    "anabranch.repo.gc.sweep_and_purge": "CollectedObject",
    "anabranch.repo.history.changes": "CommitChanges",
    "anabranch.repo.history.comparer": "Choice TableCounts",
    "anabranch.repo.history.diff": "RowChange RowChangeKind TableChangeKind TableDiff",
    "anabranch.repo.history.table_history": "SchemaChange",
    "anabranch.repo.history.commit_graph": "CommitGraph LaneRow",
    "anabranch.repo.history.entities": "EntityChange",
    "anabranch.repo.history.lineage": "EdgeKind Lineage LineageEdge LineageNode NodeKind",
    "anabranch.repo.io.prepared_table": "LoadMode",
    "anabranch.repo.log.clones": "CloneInfo CloneKind CloneState",
    "anabranch.repo.log.entries": "BranchEvent BranchMode CheckOutcome CheckResult CommitKind RunPhase",
    "anabranch.repo.log.history_tables": "HistoryTables",
    "anabranch.repo.merge.conflict_types": "ConflictKind StrategyGap",
    "anabranch.repo.merge.plan": "CommitPlan MergeOutcome ReplayResult TablePlan",
    "anabranch.repo.refs.branches": "BranchInfo TableDrift",
    "anabranch.repo.refs.reset_and_undo": "Movement",
    "anabranch.repo.refs.tags": "TagInfo",
    "anabranch.repo.runs.runs": "RunInfo",
    "anabranch.repo.schema.apply": "SchemaApplied SchemaPlan",
    "anabranch.repo.schema.plan": "SchemaStep=Step",
    "anabranch.repo.schema.state": "SchemaColumn=Column SchemaIndex=Index SchemaState TableSchema",
    "anabranch.repo.write.settle": "ExternalWrite",
}


def load_name(package: str, names: Mapping[str, str], name: str) -> Any:
    """Return what a package exports under a name, and set it there, so that the next access finds it.

    `names` are the names by module, as above. Call this from the `__getattr__` of the package.
    """
    for module, listed in names.items():
        for each in listed.split():
            exported, _, attribute = each.partition("=")
            if exported == name:
                value = getattr(import_module(module), attribute or name)
                setattr(sys.modules[package], name, value)
                return value
    # An AttributeError, so that hasattr() and getattr() with a default work as for any module.
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    # `__all__` is not assigned, because type checkers could not read its value, and would then export nothing.
    return __dir__() if name == "__all__" else load_name(__name__, _NAMES, name)


def __dir__() -> list[str]:
    return sorted(each.partition("=")[0] for listed in _NAMES.values() for each in listed.split())
