"""Rows of a load that share a primary key: kept by their last, or found in their files."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import KeyConflictError
from anabranch.files.rows import Part, iter_parts
from anabranch.format import scan, staging
from anabranch.format.staging import WrittenFragment
from anabranch.repo.io.values import LoadTask
from anabranch.repo.write.staged_table import StagedTable

__all__ = ["explain_repeated", "keep_last"]

_POSITION = "__position"
_MOST_SHOWN = 5


def keep_last(
    draft: StagedTable, fragments: Sequence[WrittenFragment], *, overwrites: pa.Schema | None
) -> tuple[tuple[WrittenFragment, ...], int]:
    """Written rows without those that a later one of the same key replaces, and how many these were.

    Where there are any, the others are written again. `overwrites` is the rows' schema, if they bring their own.
    """
    pin, keys = draft.pin, draft.primary_key
    if not fragments:
        return (), 0
    if overwrites is None:
        before, staged = pin, staging.append_fragments(pin, fragments)
    else:
        before, staged = None, staging.overwrite_fragments(pin, fragments, schema=overwrites)

    def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        if before is None:
            return scan.iter_batches(staged, columns=columns)
        return iter(scan.read_appended(before, staged, columns=columns))

    given = pa.Table.from_batches(read(keys), schema=pa.schema([staged.schema.field(name) for name in keys]))
    positions = pa.array(np.arange(len(given), dtype=np.int64))
    last = given.append_column(_POSITION, positions).group_by(list(keys)).aggregate([(_POSITION, "max")])
    repeated = len(given) - len(last)
    if not repeated:
        return tuple(fragments), 0
    is_kept = np.zeros(len(given), dtype=bool)
    is_kept[last.column(f"{_POSITION}_max").to_numpy()] = True

    def kept() -> Iterator[pa.RecordBatch]:
        at = 0
        for batch in read(None):
            yield batch.filter(pa.array(is_kept[at : at + len(batch)]))
            at += len(batch)

    reader = pa.RecordBatchReader.from_batches(staged.schema, kept())
    return staging.write_fragments(pin, reader, for_overwrite=overwrites is not None), repeated


def explain_repeated(error: KeyConflictError, task: LoadTask, keys: Sequence[str]) -> KeyConflictError:
    """Say where a repeated key stands in the files."""
    tables = [part.table.select(keys) for part in _parts(task)]
    given = pa.concat_tables(tables) if tables else task.schema.empty_table().select(keys)
    counted = given.group_by(list(keys)).aggregate([([], "count_all")])
    repeated = counted.filter(pc.greater(counted.column("count_all"), 1))
    if not len(repeated):
        return error  # it is about keys that the table has already
    key = {name: repeated.column(name)[0] for name in keys}
    places: list[tuple[str, int | None]] = []
    for part in _parts(task):
        is_such = np.ones(len(part.table), dtype=bool)
        for name, value in key.items():
            is_such &= pc.equal(part.table.column(name), value).to_numpy()
        places.extend(
            (part.file, int(part.parsed.lines[row]) if part.parsed is not None else None)
            for row in np.flatnonzero(is_such)
        )
    said = [file if line is None else f"{file}, line {line}" for file, line in places[:_MOST_SHOWN]]
    shown = " and ".join(said) + (" and others" if len(places) > _MOST_SHOWN else "")
    values = {name: value.as_py() for name, value in key.items()}
    return KeyConflictError(
        f"{len(repeated)} keys occur more than once, such as {values}: {shown}",
        hint="keep one row for each key, or let the last one win with on_duplicate='last'",
        details=_detail(places, values),
    )


def _detail(places: Sequence[tuple[str, int | None]], key: Mapping[str, object]) -> dict[str, object]:
    """Where the second row of a key stands: the first is a good one."""
    file, line = places[1] if len(places) > 1 else (None, None)
    return {"file": file, "line": line, "reason": f"the key {key} occurs more than once"}


def _parts(task: LoadTask) -> Iterator[Part]:
    return iter_parts(task.files, task.reading, task.parsed_schema)
