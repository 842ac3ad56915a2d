"""Writes: the driver begins one, tasks write data files, and the driver publishes them as one commit.

The state of a write stays in the process of the driver. Tasks get their arguments as JSON.
"""

import base64
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from anabranch.errors import BusyError, InvalidExpressionError
from anabranch.format import staging
from anabranch.format.staging import Addresses, VersionRef, WrittenFragment
from anabranch.repo.io.prepared_table import LoadMode, prepare_table
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess, StreamBatch, table_writes
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.staged_table import StagedTable, WrittenChange
from anabranch.spark.gateway.requests import Request, branch_of, name_of, schema_from_text, schema_to_text
from anabranch.spark.gateway.scans import push_predicate
from anabranch.spark.gateway.tables import TableDefinition, parse_definition
from anabranch.spark.options import version_ref_from_json, version_ref_to_json
from anabranch.spark.source import FragmentWriter, PreparedTable
from anabranch.spark.types import struct_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """A begun write: its table, its mode, and the message of its commit."""

    repository: Repository
    branch: str
    message: str
    metadata: Mapping[str, str]
    table: PreparedTable
    read: VersionRef | None
    where: str | None


# The begun writes of this process that have not ended. Threads share it: each use is one atomic operation.
_WRITES: dict[str, _Write] = {}


def has_begun() -> bool:
    """Return whether a write was begun in this process and has not ended."""
    return bool(_WRITES)


def _get_write(request: Request) -> _Write:
    found = _WRITES.get(request["write"])
    if found is None:
        raise BusyError("the process that began this write has ended", hint="run the statement again")
    return found


def begin_write(request: Request) -> dict[str, Any]:
    """Prepare a table for rows. Return the id of the write, and the arguments of its tasks.

    `mode` is append, upsert, overwrite, change (rows by their address in `version_ref`), create, replace or
    create_or_replace; the last three have a `definition`. With `filters`, rows that they match are removed in the same
    commit.
    """
    name = name_of(request)
    branch, mode, given = branch_of(name), request["mode"], struct_from_json(request["schema"])
    defined = parse_definition(request["definition"]) if request.get("definition") else None
    prepared_at = time.time()
    with request.repository.transaction(branch) as tx:  # without changes, so that it publishes nothing
        staged_table = _prepare(tx, str(name.key), mode, defined)
        # A table that is created here has no rows to overwrite: its rows are appended to the empty version.
        is_overwrite = mode in {"overwrite", "replace", "create_or_replace"} and staged_table.origin is not None
        table = PreparedTable.of(
            staged_table,
            given,
            mode=LoadMode.OVERWRITE if is_overwrite else LoadMode.UPSERT if mode == "upsert" else LoadMode.APPEND,
            columns=None if defined is None else defined.schema,
            prepared_at=prepared_at,
        )
    key = uuid4().hex
    _WRITES[key] = _Write(
        repository=request.repository,
        branch=branch,
        message=request["message"],
        metadata=request.get("metadata", {}),
        table=table,
        read=version_ref_from_json(request["version_ref"], request.storage_options) if mode == "change" else None,
        where=_where(request, staged_table.version_ref),
    )
    return {"write": key, "writer": _writer_to_json(table.writer, request["schema"])}


def write_rows(request: Request) -> dict[str, Any]:
    """Write the rows of the request as data files. Return their fragments."""
    writer = _writer_from_json(request["writer"], request.storage_options)
    return {"fragments": list(writer.write(iter(request.read_rows()), request.repository))}


def write_moved(request: Request) -> dict[str, Any]:
    """Write rows that replace others.

    The columns of a row are followed by its id, and by the address and the key values of the replaced row.
    """
    writer, keys = _writer_from_json(request["writer"], request.storage_options), request["primary_key"]
    moved = _MovedRows(writer=writer, keys=keys, gone=BitMap64())
    with EngineAccess(request.repository).keep_files(since=writer.prepared_at):
        written = staging.write_moved_rows(writer.version_ref, moved.read(iter(request.read_rows())))
    return {
        "moved": [fragment.to_json() for fragment in written],
        "addresses": _encode(moved.gone),
        "rekeyed": moved.rekeyed,
    }


def write_addresses(request: Request) -> dict[str, Any]:
    """Read the addresses of deleted rows, which are the first column of the rows of the request."""
    gone = BitMap64()
    for batch in request.read_rows():
        gone.update(batch.column(0).to_pylist())
    return {"addresses": _encode(gone)}


def commit_write(request: Request) -> dict[str, Any]:
    """Publish the files of all tasks as one commit. Return its id, None if nothing changed."""
    write = _get_write(request)
    tasks: Sequence[Mapping[str, Any]] = request["tasks"]
    fresh = _fresh(tasks)
    with write.repository.transaction(write.branch, message=write.message, metadata=write.metadata) as tx:
        # Rows are only added, so concurrent changes of other rows do not matter.
        if write.read is None and write.where is None:
            write.table.take_in(tx, fresh)
        else:
            table_writes(tx).replace_fragments(write.table.staged_table, _change(write, tasks, fresh))
    _WRITES.pop(request["write"], None)
    return {"commit": None if tx.published is None else tx.published.graph_commit_id}


def commit_batch(request: Request) -> dict[str, Any]:
    """Publish one batch of a stream as one commit, unless the branch has it already."""
    write = _get_write(request)
    fragments, table = _fresh(request["tasks"]), write.table
    if fragments or table.writer.is_overwrite:
        EngineAccess(write.repository).publish_batch(
            StreamBatch(query=request["query"], epoch=request["epoch"], table=table.staged_table.key),
            lambda tx: table.take_in(tx, fragments),
            branch=write.branch,
            message=write.message,
            metadata=write.metadata,
        )
    _WRITES.pop(request["write"], None)
    return {}


def abort_write(request: Request) -> dict[str, Any]:
    """Forget a write. Its files belong to no commit, and garbage collection removes them."""
    _WRITES.pop(request["write"], None)
    return {}


def delete_where(request: Request) -> dict[str, Any]:
    """Delete the rows that filters match without a job, if Lance can apply them exactly. Return whether it can."""
    name = name_of(request)
    branch, key = branch_of(name), str(name.key)
    snapshot = EngineAccess(request.repository).published_snapshot_of(branch)
    where = _exact(request["filters"], snapshot[key].schema)
    if where is None or request.get("dry_run"):
        return {"can_delete": where is not None}
    with request.repository.transaction(branch, message=request["message"]) as tx:
        tx.delete(key, where)
    return {"can_delete": True}


def _prepare(tx: Transaction, key: str, mode: str, defined: TableDefinition | None) -> StagedTable:
    if defined is None:
        return prepare_table(tx, key, mode=LoadMode.UPSERT if mode == "upsert" else LoadMode.APPEND)
    if mode == "replace" or (mode == "create_or_replace" and key in tx):
        # A table that is replaced gets the key of the new definition.
        return replace(prepare_table(tx, key, mode=LoadMode.OVERWRITE), primary_key=defined.primary_key)
    return prepare_table(
        tx,
        key,
        mode=LoadMode.APPEND,
        primary_key=defined.primary_key,
        new_schema=lambda: defined.schema,
        must_be_new=True,
    )


def _fresh(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fragments of new rows of all tasks."""
    return [text for task in tasks for text in task.get("fragments", ())]


def _change(write: _Write, tasks: Sequence[Mapping[str, Any]], fresh: Sequence[str]) -> WrittenChange:
    staged_table = write.table.staged_table
    addresses = _decode([text for task in tasks for text in task.get("addresses", ())])
    # The tasks of an overwrite by condition only add rows. The rows to delete are found here.
    if write.where is not None:
        addresses = staging.find_rows(staged_table.version_ref, write.where)
    moved = [text for task in tasks for text in task.get("moved", ())]
    change = WrittenChange(
        read=staged_table.version_ref if write.read is None else write.read,
        addresses=addresses,
        moved=tuple(map(WrittenFragment.from_json, moved)),
        fresh=tuple(map(WrittenFragment.from_json, fresh)),
        may_repeat_keys=bool(fresh) or any(task.get("rekeyed") for task in tasks),
    )
    staging.require_files(staged_table.version_ref, [*change.moved, *change.fresh])
    return change


@dataclass(slots=True, kw_only=True)
class _MovedRows:
    """Collects the addresses of replaced rows, and counts changed keys, while the rows of `write_moved` are read."""

    writer: FragmentWriter
    keys: Sequence[str]
    gone: BitMap64
    rekeyed: int = 0

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, Addresses]]:
        width = len(self.writer.given.names)
        for batch in batches:
            row_ids, addresses = batch.column(width), batch.column(width + 1)
            self.gone.update(addresses.to_pylist())
            for number, key in enumerate(self.keys):
                old, new = batch.column(width + 2 + number), batch.column(self.writer.given.names.index(key))
                # Only a row whose key changes can collide with another row, so other updates need no search for
                # repeated keys.
                self.rekeyed += pc.sum(pc.not_equal(old, new)).as_py() or 0
            rows = pa.RecordBatch.from_arrays(batch.columns[:width], names=self.writer.given.names)
            for fitted in self.writer.fitted(iter([rows])):
                yield fitted, row_ids.to_numpy().astype(np.uint64)


def _where(request: Request, version_ref: VersionRef) -> str | None:
    filters = request.get("filters")
    if filters is None:
        return None
    where = _exact(filters, version_ref.schema)
    if where is None:
        raise InvalidExpressionError(
            "the condition of the overwrite cannot be decided by the table itself",
            hint="compare columns with literals, or delete the rows first",
        )
    return where


def _exact(filters: Sequence[Mapping[str, Any]], schema: pa.Schema) -> str | None:
    """Return filters as one predicate, or None unless Lance decides all of them exactly as Spark does."""
    pushed = [push_predicate(found, schema) for found in filters]
    # A predicate that is not exact matches too many rows. For a scan Spark filters again, here they would be deleted.
    if any(one is None or not one.is_exact for one in pushed):
        return None
    return " AND ".join(one.sql for one in pushed if one is not None) or "true"


def _writer_to_json(writer: FragmentWriter, schema: str) -> dict[str, Any]:
    return {
        "version_ref": version_ref_to_json(writer.version_ref),
        "schema": schema,
        "columns": schema_to_text(writer.columns),
        "is_overwrite": writer.is_overwrite,
        "prepared_at": writer.prepared_at,
    }


def _writer_from_json(found: Mapping[str, Any], storage_options: Mapping[str, str]) -> FragmentWriter:
    return FragmentWriter(
        version_ref=version_ref_from_json(found["version_ref"], storage_options),
        given=struct_from_json(found["schema"]),
        columns=schema_from_text(found["columns"]),
        is_overwrite=found["is_overwrite"],
        prepared_at=found["prepared_at"],
    )


def _encode(addresses: BitMap64) -> list[str]:
    addresses.run_optimize()
    return [base64.b64encode(addresses.serialize()).decode()] if addresses else []


def _decode(texts: Sequence[str]) -> Addresses:
    merged = BitMap64()
    for text in texts:
        merged |= BitMap64.deserialize(base64.b64decode(text))
    return np.fromiter(merged, dtype=np.uint64, count=len(merged))
