"""Commits and branches as they are shown."""

from typing import TYPE_CHECKING

from anabranch.cli.output import count
from anabranch.display import short_id
from anabranch.repo.log.entries import BranchMode

if TYPE_CHECKING:
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.refs.branches import BranchInfo

__all__ = ["commit_document", "mode_text", "short_id", "subject"]


def subject(commit: "GraphCommit") -> str:
    """The first line of a commit's message."""
    return commit.message.strip().partition("\n")[0]


def commit_document(commit: "GraphCommit") -> dict[str, object]:
    return {
        "id": commit.graph_commit_id,
        "branch": commit.branch,
        "version": commit.manifest_version,
        "parent_id": commit.parent_commit_id,
        "merged_parent_id": commit.merged_parent_commit_id,
        "actor": commit.actor_id,
        "created_at": commit.created,
        "kind": commit.kind,
        "message": commit.message,
        "metadata": commit.metadata,
        "tables": commit.tables,
    }


def mode_text(branch: "BranchInfo") -> str:
    """How a branch sees its source, and how many tables a live one does not take from it."""
    own = f", {count(len(branch.own_tables), 'own table')}" if branch.mode is BranchMode.LIVE else ""
    return f"{branch.mode.value}{own}"
