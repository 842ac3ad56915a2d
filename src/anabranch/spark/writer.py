"""Rows of Spark as one commit: workers write data files, the driver publishes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.errors import InvalidInputError
from anabranch.format import staging
from anabranch.format.staging import WrittenFragment
from anabranch.format.staging.incoming import fit_rows
from anabranch.repo.draft import Draft
from anabranch.repo.transaction import Transaction
from anabranch.spark.options import OpenRepository, WriteOptions
from anabranch.spark.types import as_columns, new_columns

__all__ = ["CommitWriter"]


@dataclass
class _Written(WriterCommitMessage):
    fragments: tuple[str, ...]


class CommitWriter(DataSourceArrowWriter):
    """Makes the table ready before the job begins, writes on the workers, and commits when all have written.

    Spark makes it in one process, has it write in others, and commit in one more; so it holds values only. A job that
    fails leaves data files that nobody refers to.
    """

    def __init__(
        self, options: WriteOptions, given: StructType, *, is_overwrite: bool, open_repository: OpenRepository
    ) -> None:
        if is_overwrite and options.is_upsert:
            raise InvalidInputError("an upsert keeps the other rows", hint="use the mode 'append' with it")
        self._options = options
        self._given = given
        self._is_overwrite = is_overwrite
        self._open_repository = open_repository
        with self._begin() as tx:  # without changes, so that it publishes nothing
            self._draft = self._prepare(tx)
        existing = self._draft.pin.schema
        self._columns = new_columns(given, existing) if is_overwrite else existing
        self._fitted(as_columns(iter(()), given, self._columns))  # refuses wrong types before the job begins

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows = self._fitted(as_columns(iterator, self._given, self._columns))
        written = staging.write_fragments(self._draft.pin, rows, for_overwrite=self._is_overwrite)
        return _Written(fragments=tuple(fragment.to_json() for fragment in written))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [
            WrittenFragment.from_json(text)
            for message in messages
            if isinstance(message, _Written)
            for text in message.fragments
        ]
        with self._begin() as tx:
            if self._is_overwrite:
                tx.overwrite_fragments(self._draft, written, schema=self._columns)
            elif self._options.is_upsert:
                tx.upsert_fragments(self._draft, written, columns=self._given.names)
            else:
                tx.append_fragments(self._draft, written)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: what no commit refers to does not exist, and garbage collection removes its files."""

    def _begin(self) -> Transaction:
        options, place = self._options, self._options.place
        repository = self._open_repository(place.repository, actor=options.actor, storage_options=place.storage_options)
        if options.run is not None:
            return repository.run_get(options.run).transaction(message=options.message, metadata=options.metadata)
        return repository.transaction(options.branch, message=options.message, metadata=options.metadata, kind="load")

    def _prepare(self, tx: Transaction) -> Draft:
        key, wanted = self._options.place.key, self._options.primary_key
        if key not in tx:
            draft = tx.prepare_new(key, new_columns(self._given), primary_key=wanted)
        else:
            draft = tx.prepare(key)
            if wanted and wanted != draft.primary_key:
                found = ", ".join(draft.primary_key) or "no columns"
                raise InvalidInputError(
                    f"the primary key of '{key}' is {found}, not {', '.join(wanted)}",
                    hint="leave the option 'primaryKey' out",
                )
        if self._options.is_upsert and not draft.primary_key:
            raise InvalidInputError(
                f"table '{key}' has no primary key", hint="append the rows, or make the table with one"
            )
        return draft

    def _fitted(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The rows in the table's columns, with nulls where they are missing."""
        rows = fit_rows(reader, self._columns)
        return pa.RecordBatchReader.from_batches(rows.schema, rows.batches)
