"""Every public write of a transaction, as something that can be done to the lake."""

import pyarrow as pa

import anabranch as ab
from anabranch.format import staging
from anabranch.ids import TableKey
from anabranch.repo.runs.engine_access import table_writes
from anabranch.repo.write.staged_table import WrittenChange
from anabranch.repo.write.table_changes import add_columns
from tests.faults.writes import Write, in_transaction, names
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, table

NEW = "in_c_sales.new"


def _change_tables(tx: ab.Transaction) -> None:
    changes = {
        TableKey.parse(key): lambda staged_table: add_columns(staged_table, {"w": "1"}) for key in (ORDERS, CUSTOMERS)
    }
    table_writes(tx).change_tables(changes)


def _create_tables(tx: ab.Transaction) -> None:
    table_writes(tx).create_tables({TableKey.parse(NEW): (SCHEMA, ["id"])})


def _prepare_new(tx: ab.Transaction) -> None:
    prepared = table_writes(tx).prepare_new(NEW, SCHEMA, primary_key=["id"])
    table_writes(tx).append_fragments(prepared, staging.write_fragments(prepared.version_ref, table(1)))


def _append_fragments(tx: ab.Transaction) -> None:
    prepared = table_writes(tx).prepare(ORDERS)
    table_writes(tx).append_fragments(prepared, staging.write_fragments(prepared.version_ref, table(7)))


def _upsert_fragments(tx: ab.Transaction) -> None:
    prepared = table_writes(tx).prepare(ORDERS)
    table_writes(tx).upsert_fragments(
        prepared, staging.write_fragments(prepared.version_ref, table(2, 7, v="new")), columns=["id", "v"]
    )


def _overwrite_fragments(tx: ab.Transaction) -> None:
    prepared = table_writes(tx).prepare(ORDERS)
    written = staging.write_fragments(prepared.version_ref, table(7), for_overwrite=True)
    table_writes(tx).overwrite_fragments(prepared, written, schema=SCHEMA)


def _replace_fragments(tx: ab.Transaction) -> None:
    prepared = table_writes(tx).prepare(ORDERS)
    change = WrittenChange(
        read=prepared.version_ref,
        addresses=staging.find_rows(prepared.version_ref, "id = 2"),
        moved=(),
        fresh=staging.write_fragments(prepared.version_ref, table(7, v="new")),
        may_repeat_keys=True,
    )
    table_writes(tx).replace_fragments(prepared, change)


def _create(tx: ab.Transaction) -> None:
    tx.create_table(NEW, SCHEMA, primary_key=["id"])
    tx.append(NEW, table(1))


def _commit(repo: ab.Repository) -> None:
    tx = repo.transaction(message="written")
    tx.append(ORDERS, table(7))
    tx.commit()


def _described(tx: ab.Transaction) -> None:
    tx.append(ORDERS, table(7))
    tx.add_metadata({"why": "because"})


TRANSACTION_WRITES: dict[str, list[Write]] = {
    "add_columns": [in_transaction(lambda tx: tx.add_columns(ORDERS, {"w": "id * 2"}))],
    "add_metadata": [in_transaction(_described)],
    "alter_columns": [in_transaction(lambda tx: tx.alter_columns(CUSTOMERS, [ab.ColumnChange(path="v", name="w")]))],
    "annotate": [in_transaction(lambda tx: tx.annotate(ORDERS, {"owner": "ada"}))],
    "append": [
        in_transaction(lambda tx: tx.append(ORDERS, table(7))),
        in_transaction(lambda tx: tx.append(CUSTOMERS, table(7)), branch="dev"),
        in_transaction(lambda tx: tx.append(ORDERS, table(7)), branch="live"),
    ],
    "commit": [Write(act=_commit)],
    "compact": [in_transaction(lambda tx: tx.compact(ORDERS))],
    "create_table": [in_transaction(_create), in_transaction(_create, branch="dev")],
    "delete": [in_transaction(lambda tx: tx.delete(ORDERS, "id < 3"))],
    "drop_columns": [in_transaction(lambda tx: tx.drop_columns(CUSTOMERS, ["v"]))],
    "drop_index": [in_transaction(lambda tx: tx.drop_index(ORDERS, "v_idx"))],
    "drop_table": [in_transaction(lambda tx: tx.drop_table(ORDERS))],
    "index": [in_transaction(lambda tx: tx.index(CUSTOMERS, "id"))],
    "overwrite": [in_transaction(lambda tx: tx.overwrite(ORDERS, pa.table({"id": [7], "w": [1.5]})))],
    "rename_table": [in_transaction(lambda tx: tx.rename_table(ORDERS, NEW))],
    "set_primary_key": [in_transaction(lambda tx: tx.set_primary_key(CUSTOMERS, ["id"]))],
    "update": [in_transaction(lambda tx: tx.update(ORDERS, {"v": "'x'"}, where="id > 2"))],
    "upsert": [in_transaction(lambda tx: tx.upsert(ORDERS, table(2, 7, v="new")))],
}
TABLE_WRITES: dict[str, list[Write]] = {
    "append_fragments": [in_transaction(_append_fragments)],
    "compact": [],  # Transaction.compact is the same
    "overwrite_fragments": [in_transaction(_overwrite_fragments)],
    "prepare": [in_transaction(_append_fragments, branch="dev")],
    "prepare_new": [in_transaction(_prepare_new)],
    "replace_fragments": [in_transaction(_replace_fragments)],
    "upsert_fragments": [in_transaction(_upsert_fragments)],
    "change_tables": [in_transaction(_change_tables)],
    "create_tables": [in_transaction(_create_tables)],
}
TRANSACTION_READS = names("base_commit_id branch rollback tables")
