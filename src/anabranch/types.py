"""The values that public methods return, for annotations and `isinstance`. `import anabranch` has the main classes.

Everything is loaded when it is first used: importing this module loads neither Lance nor Arrow.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.display import Listing
    from anabranch.format.bases import BaseUsage, StorageReport, Usage
    from anabranch.format.clone.holds import CloneInfo as DatasetCloneInfo
    from anabranch.format.clone.holds import DroppedClone
    from anabranch.format.clone.relocate import HoldChange, HoldOutcome, RelocateReport, UnexplainedBase
    from anabranch.format.doctor.findings import DoctorReport, Finding, FindingKind, Severity
    from anabranch.format.layout.listing import Layout, LayoutFile, LayoutKind, Total
    from anabranch.format.layout.manifest import BasePath
    from anabranch.format.refs.branches import DeletedBranch
    from anabranch.format.refs.ref_files import RefList, UnreadableRef
    from anabranch.format.refs.refs import BranchInfo as DatasetBranchInfo
    from anabranch.format.refs.refs import TagInfo as DatasetTagInfo
    from anabranch.format.refs.refs import VersionInfo
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
    from anabranch.repo.clone.clone import Relocation, Unexplained
    from anabranch.repo.gc.collection import CompactedTable, Compaction, GcReport
    from anabranch.repo.gc.measurement import FileGroup, HolderStorage, RepositoryStorage, TableStorage, TableUsage
    from anabranch.repo.gc.roots import HolderKind
    from anabranch.repo.gc.sweep import CollectedObject
    from anabranch.repo.history.changes import CommitChanges
    from anabranch.repo.history.commit_graph import CommitGraph, LaneRow
    from anabranch.repo.history.comparer import Choice, TableCounts
    from anabranch.repo.history.diff import RowChange, RowChangeKind, SchemaChange, TableChangeKind, TableDiff
    from anabranch.repo.history.entities import EntityChange
    from anabranch.repo.history.lineage import EdgeKind, Lineage, LineageEdge, LineageNode, NodeKind
    from anabranch.repo.io.values import LoadMode
    from anabranch.repo.log.clones import CloneInfo, CloneKind, CloneState
    from anabranch.repo.log.entries import BranchEvent, BranchMode, CheckOutcome, CheckResult, CommitKind, RunPhase
    from anabranch.repo.log.history_tables import HistoryTables
    from anabranch.repo.merge.conflicts import ConflictKind, StrategyGap
    from anabranch.repo.merge.plan import CommitPlan, MergeOutcome, ReplayResult, TablePlan
    from anabranch.repo.refs.branches import BranchInfo, TableDrift
    from anabranch.repo.refs.reset_and_undo import Movement
    from anabranch.repo.refs.tags import TagInfo
    from anabranch.repo.runs.runs import RunInfo
    from anabranch.repo.schema.apply import SchemaApplied, SchemaPlan
    from anabranch.repo.schema.plan import Step as SchemaStep
    from anabranch.repo.schema.state import Column as SchemaColumn
    from anabranch.repo.schema.state import Index as SchemaIndex
    from anabranch.repo.schema.state import SchemaState, TableSchema
    from anabranch.repo.write.homes import ExternalWrite

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

# The names by module: NAME, or NAME=ATTRIBUTE if it has another name there.
_NAMES = {
    "anabranch.display": "Listing",
    "anabranch.format.bases": "BaseUsage StorageReport Usage",
    "anabranch.format.clone.holds": "DatasetCloneInfo=CloneInfo DroppedClone",
    "anabranch.format.clone.relocate": "HoldChange HoldOutcome RelocateReport UnexplainedBase",
    "anabranch.format.doctor.findings": "DoctorReport Finding FindingKind Severity",
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
    "anabranch.repo.clone.clone": "Relocation Unexplained",
    "anabranch.repo.gc.collection": "CompactedTable Compaction GcReport",
    "anabranch.repo.gc.measurement": "FileGroup HolderStorage RepositoryStorage TableStorage TableUsage",
    "anabranch.repo.gc.roots": "HolderKind",
    "anabranch.repo.gc.sweep": "CollectedObject",
    "anabranch.repo.history.changes": "CommitChanges",
    "anabranch.repo.history.comparer": "Choice TableCounts",
    "anabranch.repo.history.diff": "RowChange RowChangeKind SchemaChange TableChangeKind TableDiff",
    "anabranch.repo.history.commit_graph": "CommitGraph LaneRow",
    "anabranch.repo.history.entities": "EntityChange",
    "anabranch.repo.history.lineage": "EdgeKind Lineage LineageEdge LineageNode NodeKind",
    "anabranch.repo.io.values": "LoadMode",
    "anabranch.repo.log.clones": "CloneInfo CloneKind CloneState",
    "anabranch.repo.log.entries": "BranchEvent BranchMode CheckOutcome CheckResult CommitKind RunPhase",
    "anabranch.repo.log.history_tables": "HistoryTables",
    "anabranch.repo.merge.conflicts": "ConflictKind StrategyGap",
    "anabranch.repo.merge.plan": "CommitPlan MergeOutcome ReplayResult TablePlan",
    "anabranch.repo.refs.branches": "BranchInfo TableDrift",
    "anabranch.repo.refs.reset_and_undo": "Movement",
    "anabranch.repo.refs.tags": "TagInfo",
    "anabranch.repo.runs.runs": "RunInfo",
    "anabranch.repo.schema.apply": "SchemaApplied SchemaPlan",
    "anabranch.repo.schema.plan": "SchemaStep=Step",
    "anabranch.repo.schema.state": "SchemaColumn=Column SchemaIndex=Index SchemaState TableSchema",
    "anabranch.repo.write.homes": "ExternalWrite",
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
    return load_name(__name__, _NAMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
