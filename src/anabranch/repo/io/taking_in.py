"""Written rows become part of a transaction."""

from collections.abc import Sequence

import pyarrow as pa

from anabranch.format.staging import WrittenFragment
from anabranch.repo.io.values import LoadMode
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.staged_table import StagedTable

__all__ = ["take_in"]


def take_in(
    tx: Transaction, mode: LoadMode, draft: StagedTable, fragments: Sequence[WrittenFragment], schema: pa.Schema
) -> None:
    """Stage rows that were written for a prepared table and have values in the columns of a schema."""
    match mode:
        case LoadMode.APPEND:
            tx.append_fragments(draft, fragments)
        case LoadMode.UPSERT:
            tx.upsert_fragments(draft, fragments, columns=schema.names)
        case LoadMode.OVERWRITE:
            tx.overwrite_fragments(draft, fragments, schema=schema)
