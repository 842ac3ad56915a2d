"""The values that public methods return, for annotations and `isinstance`. `import anabranch` has the main classes.

Everything is loaded when it is first used: importing this module loads neither Lance nor Arrow.
"""

from typing import TYPE_CHECKING, Any

from anabranch.lazy import load_name

if TYPE_CHECKING:
    from anabranch.display import Listing
    from anabranch.drawing.commit_graph import LaneRow
    from anabranch.format.bases import BaseUsage, StorageReport, Usage
    from anabranch.format.clone.clone import CloneInfo as DatasetCloneInfo
    from anabranch.format.clone.clone import DroppedClone
    from anabranch.format.clone.holds import HoldChange, HoldOutcome
    from anabranch.format.clone.relocate import RelocateReport, UnexplainedBase
    from anabranch.format.doctor.findings import DoctorReport, Finding, FindingKind, Severity
    from anabranch.format.layout.listing import Layout, LayoutFile, LayoutKind, Total
    from anabranch.format.layout.manifest import BasePath
    from anabranch.format.refs.branch_deletion import DeletedBranch
    from anabranch.format.refs.branches import BranchInfo as DatasetBranchInfo
    from anabranch.format.refs.ref_files import RefList, UnreadableRef
    from anabranch.format.refs.tags import TagInfo as DatasetTagInfo
    from anabranch.format.refs.tags import VersionInfo
    from anabranch.format.retention import CleanupReason, CleanupReport, RemovedFile, UnusedInBase
    from anabranch.format.staging import IndexInfo, IndexKind
    from anabranch.format.staging.compaction import CompactReport
    from anabranch.format.tiering import BaseRemoval, MoveReport
    from anabranch.ids import TableKey
    from anabranch.pipelines.backfill import Backfill, BackfillProgress
    from anabranch.pipelines.plan import Plan as PipelinePlan
    from anabranch.pipelines.plan import Step as PipelineStep
    from anabranch.pipelines.provenance import BuiltOutput
    from anabranch.pipelines.reproduction import ComparedOutput, Reproduction
    from anabranch.pipelines.run import PipelineRun, StepProgress, StepState
    from anabranch.repo.clone.relocate import Relocation, Unexplained
    from anabranch.repo.gc.collection import CompactedTable, Compaction
    from anabranch.repo.gc.reports import (
        CollectedObject,
        FileGroup,
        GcReport,
        HolderKind,
        HolderStorage,
        RepositoryStorage,
        TableStorage,
        TableUsage,
    )
    from anabranch.repo.history.changes import CommitChanges
    from anabranch.repo.history.comparer import Choice, TableCounts
    from anabranch.repo.history.diff import RowChange, RowChangeKind, SchemaChange, TableChangeKind, TableDiff
    from anabranch.repo.history.drawings import CommitGraph
    from anabranch.repo.history.entities import EntityChange
    from anabranch.repo.history.lineage import EdgeKind, Lineage, LineageEdge, LineageNode, NodeKind
    from anabranch.repo.io.values import LoadMode
    from anabranch.repo.log.clones import CloneInfo, CloneKind, CloneState
    from anabranch.repo.log.entries import BranchEvent, BranchMode, CommitKind
    from anabranch.repo.log.history_tables import HistoryTables
    from anabranch.repo.log.run_state import CheckOutcome, CheckResult, RunPhase
    from anabranch.repo.merge.conflicts import ConflictKind, StrategyGap
    from anabranch.repo.merge.plan import CommitPlan, MergeOutcome, ReplayResult, TablePlan
    from anabranch.repo.refs.branches import BranchInfo, TableDrift
    from anabranch.repo.refs.reflog import Movement
    from anabranch.repo.refs.tags import TagInfo
    from anabranch.repo.runs.runs import RunInfo
    from anabranch.repo.schema.apply import SchemaApplied
    from anabranch.repo.schema.plan import SchemaPlan
    from anabranch.repo.schema.state import Column as SchemaColumn
    from anabranch.repo.schema.state import Index as SchemaIndex
    from anabranch.repo.schema.state import SchemaState, TableSchema
    from anabranch.repo.schema.steps import Step as SchemaStep
    from anabranch.repo.write.settle import ExternalWrite

__all__ = [
    "Backfill",
    "BackfillProgress",
    "BasePath",
    "BaseRemoval",
    "BaseUsage",
    "BranchEvent",
    "BranchInfo",
    "BranchMode",
    "BuiltOutput",
    "CheckOutcome",
    "CheckResult",
    "Choice",
    "CleanupReason",
    "CleanupReport",
    "CloneInfo",
    "CloneKind",
    "CloneState",
    "CollectedObject",
    "CommitChanges",
    "CommitGraph",
    "CommitKind",
    "CommitPlan",
    "CompactReport",
    "CompactedTable",
    "Compaction",
    "ComparedOutput",
    "ConflictKind",
    "DatasetBranchInfo",
    "DatasetCloneInfo",
    "DatasetTagInfo",
    "DeletedBranch",
    "DoctorReport",
    "DroppedClone",
    "EdgeKind",
    "EntityChange",
    "ExternalWrite",
    "FileGroup",
    "Finding",
    "FindingKind",
    "GcReport",
    "HistoryTables",
    "HoldChange",
    "HoldOutcome",
    "HolderKind",
    "HolderStorage",
    "IndexInfo",
    "IndexKind",
    "LaneRow",
    "Layout",
    "LayoutFile",
    "LayoutKind",
    "Lineage",
    "LineageEdge",
    "LineageNode",
    "Listing",
    "LoadMode",
    "MergeOutcome",
    "MoveReport",
    "Movement",
    "NodeKind",
    "PipelinePlan",
    "PipelineRun",
    "PipelineStep",
    "RefList",
    "RelocateReport",
    "Relocation",
    "RemovedFile",
    "ReplayResult",
    "RepositoryStorage",
    "Reproduction",
    "RowChange",
    "RowChangeKind",
    "RunInfo",
    "RunPhase",
    "SchemaApplied",
    "SchemaChange",
    "SchemaColumn",
    "SchemaIndex",
    "SchemaPlan",
    "SchemaState",
    "SchemaStep",
    "Severity",
    "StepProgress",
    "StepState",
    "StorageReport",
    "StrategyGap",
    "TableChangeKind",
    "TableCounts",
    "TableDiff",
    "TableDrift",
    "TableKey",
    "TablePlan",
    "TableSchema",
    "TableStorage",
    "TableUsage",
    "TagInfo",
    "Total",
    "Unexplained",
    "UnexplainedBase",
    "UnreadableRef",
    "UnusedInBase",
    "Usage",
    "VersionInfo",
]

# The module of each name, and its name there.
_LOCATIONS = {
    "Backfill": ("anabranch.pipelines.backfill", "Backfill"),
    "BackfillProgress": ("anabranch.pipelines.backfill", "BackfillProgress"),
    "BasePath": ("anabranch.format.layout.manifest", "BasePath"),
    "BaseRemoval": ("anabranch.format.tiering", "BaseRemoval"),
    "BaseUsage": ("anabranch.format.bases", "BaseUsage"),
    "BranchEvent": ("anabranch.repo.log.entries", "BranchEvent"),
    "BranchInfo": ("anabranch.repo.refs.branches", "BranchInfo"),
    "BranchMode": ("anabranch.repo.log.entries", "BranchMode"),
    "BuiltOutput": ("anabranch.pipelines.provenance", "BuiltOutput"),
    "CheckOutcome": ("anabranch.repo.log.run_state", "CheckOutcome"),
    "CheckResult": ("anabranch.repo.log.run_state", "CheckResult"),
    "Choice": ("anabranch.repo.history.comparer", "Choice"),
    "CleanupReason": ("anabranch.format.retention", "CleanupReason"),
    "CleanupReport": ("anabranch.format.retention", "CleanupReport"),
    "CloneInfo": ("anabranch.repo.log.clones", "CloneInfo"),
    "CloneKind": ("anabranch.repo.log.clones", "CloneKind"),
    "CloneState": ("anabranch.repo.log.clones", "CloneState"),
    "CollectedObject": ("anabranch.repo.gc.reports", "CollectedObject"),
    "CommitChanges": ("anabranch.repo.history.changes", "CommitChanges"),
    "CommitGraph": ("anabranch.repo.history.drawings", "CommitGraph"),
    "CommitKind": ("anabranch.repo.log.entries", "CommitKind"),
    "CommitPlan": ("anabranch.repo.merge.plan", "CommitPlan"),
    "CompactReport": ("anabranch.format.staging.compaction", "CompactReport"),
    "CompactedTable": ("anabranch.repo.gc.collection", "CompactedTable"),
    "Compaction": ("anabranch.repo.gc.collection", "Compaction"),
    "ComparedOutput": ("anabranch.pipelines.reproduction", "ComparedOutput"),
    "ConflictKind": ("anabranch.repo.merge.conflicts", "ConflictKind"),
    "DatasetBranchInfo": ("anabranch.format.refs.branches", "BranchInfo"),
    "DatasetCloneInfo": ("anabranch.format.clone.clone", "CloneInfo"),
    "DatasetTagInfo": ("anabranch.format.refs.tags", "TagInfo"),
    "DeletedBranch": ("anabranch.format.refs.branch_deletion", "DeletedBranch"),
    "DoctorReport": ("anabranch.format.doctor.findings", "DoctorReport"),
    "DroppedClone": ("anabranch.format.clone.clone", "DroppedClone"),
    "EdgeKind": ("anabranch.repo.history.lineage", "EdgeKind"),
    "EntityChange": ("anabranch.repo.history.entities", "EntityChange"),
    "ExternalWrite": ("anabranch.repo.write.settle", "ExternalWrite"),
    "FileGroup": ("anabranch.repo.gc.reports", "FileGroup"),
    "Finding": ("anabranch.format.doctor.findings", "Finding"),
    "FindingKind": ("anabranch.format.doctor.findings", "FindingKind"),
    "GcReport": ("anabranch.repo.gc.reports", "GcReport"),
    "HistoryTables": ("anabranch.repo.log.history_tables", "HistoryTables"),
    "HoldChange": ("anabranch.format.clone.holds", "HoldChange"),
    "HoldOutcome": ("anabranch.format.clone.holds", "HoldOutcome"),
    "HolderKind": ("anabranch.repo.gc.reports", "HolderKind"),
    "HolderStorage": ("anabranch.repo.gc.reports", "HolderStorage"),
    "IndexInfo": ("anabranch.format.staging", "IndexInfo"),
    "IndexKind": ("anabranch.format.staging", "IndexKind"),
    "LaneRow": ("anabranch.drawing.commit_graph", "LaneRow"),
    "Layout": ("anabranch.format.layout.listing", "Layout"),
    "LayoutFile": ("anabranch.format.layout.listing", "LayoutFile"),
    "LayoutKind": ("anabranch.format.layout.listing", "LayoutKind"),
    "Lineage": ("anabranch.repo.history.lineage", "Lineage"),
    "LineageEdge": ("anabranch.repo.history.lineage", "LineageEdge"),
    "LineageNode": ("anabranch.repo.history.lineage", "LineageNode"),
    "Listing": ("anabranch.display", "Listing"),
    "LoadMode": ("anabranch.repo.io.values", "LoadMode"),
    "MergeOutcome": ("anabranch.repo.merge.plan", "MergeOutcome"),
    "MoveReport": ("anabranch.format.tiering", "MoveReport"),
    "Movement": ("anabranch.repo.refs.reflog", "Movement"),
    "NodeKind": ("anabranch.repo.history.lineage", "NodeKind"),
    "PipelinePlan": ("anabranch.pipelines.plan", "Plan"),
    "PipelineRun": ("anabranch.pipelines.run", "PipelineRun"),
    "PipelineStep": ("anabranch.pipelines.plan", "Step"),
    "RefList": ("anabranch.format.refs.ref_files", "RefList"),
    "RelocateReport": ("anabranch.format.clone.relocate", "RelocateReport"),
    "Relocation": ("anabranch.repo.clone.relocate", "Relocation"),
    "RemovedFile": ("anabranch.format.retention", "RemovedFile"),
    "ReplayResult": ("anabranch.repo.merge.plan", "ReplayResult"),
    "RepositoryStorage": ("anabranch.repo.gc.reports", "RepositoryStorage"),
    "Reproduction": ("anabranch.pipelines.reproduction", "Reproduction"),
    "RowChange": ("anabranch.repo.history.diff", "RowChange"),
    "RowChangeKind": ("anabranch.repo.history.diff", "RowChangeKind"),
    "RunInfo": ("anabranch.repo.runs.runs", "RunInfo"),
    "RunPhase": ("anabranch.repo.log.run_state", "RunPhase"),
    "SchemaApplied": ("anabranch.repo.schema.apply", "SchemaApplied"),
    "SchemaChange": ("anabranch.repo.history.diff", "SchemaChange"),
    "SchemaColumn": ("anabranch.repo.schema.state", "Column"),
    "SchemaIndex": ("anabranch.repo.schema.state", "Index"),
    "SchemaPlan": ("anabranch.repo.schema.plan", "SchemaPlan"),
    "SchemaState": ("anabranch.repo.schema.state", "SchemaState"),
    "SchemaStep": ("anabranch.repo.schema.steps", "Step"),
    "Severity": ("anabranch.format.doctor.findings", "Severity"),
    "StepProgress": ("anabranch.pipelines.run", "StepProgress"),
    "StepState": ("anabranch.pipelines.run", "StepState"),
    "StorageReport": ("anabranch.format.bases", "StorageReport"),
    "StrategyGap": ("anabranch.repo.merge.conflicts", "StrategyGap"),
    "TableChangeKind": ("anabranch.repo.history.diff", "TableChangeKind"),
    "TableCounts": ("anabranch.repo.history.comparer", "TableCounts"),
    "TableDiff": ("anabranch.repo.history.diff", "TableDiff"),
    "TableDrift": ("anabranch.repo.refs.branches", "TableDrift"),
    "TableKey": ("anabranch.ids", "TableKey"),
    "TablePlan": ("anabranch.repo.merge.plan", "TablePlan"),
    "TableSchema": ("anabranch.repo.schema.state", "TableSchema"),
    "TableStorage": ("anabranch.repo.gc.reports", "TableStorage"),
    "TableUsage": ("anabranch.repo.gc.reports", "TableUsage"),
    "TagInfo": ("anabranch.repo.refs.tags", "TagInfo"),
    "Total": ("anabranch.format.layout.listing", "Total"),
    "Unexplained": ("anabranch.repo.clone.relocate", "Unexplained"),
    "UnexplainedBase": ("anabranch.format.clone.relocate", "UnexplainedBase"),
    "UnreadableRef": ("anabranch.format.refs.ref_files", "UnreadableRef"),
    "UnusedInBase": ("anabranch.format.retention", "UnusedInBase"),
    "Usage": ("anabranch.format.bases", "Usage"),
    "VersionInfo": ("anabranch.format.refs.tags", "VersionInfo"),
}


def __getattr__(name: str) -> Any:
    return load_name(__name__, _LOCATIONS, name)


def __dir__() -> list[str]:
    return sorted(__all__)
