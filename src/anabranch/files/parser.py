"""Convert blocks of text to rows of a schema, and separate the records that cannot be converted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.files.records import BadRecord, Block, Record

__all__ = ["Parsed", "Refusal", "parse_by_parts", "parsed_type", "refuse_nulls"]


@dataclass(frozen=True)
class Parsed:
    """The good rows of a block, and the bad records. `kept` are the good records, if not all are good."""

    block: Block
    table: pa.Table
    bad: tuple[BadRecord, ...] = ()
    kept: tuple[Record, ...] | None = None

    @cached_property
    def lines(self) -> tuple[int, ...]:
        """The line that each row begins at."""
        return tuple(record.line for record in (self.block.records if self.kept is None else self.kept))


def parsed_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to parse text as, from which Arrow casts to the type of a column."""
    if pa.types.is_dictionary(kind):
        return parsed_type(kind.value_type)
    return pa.float32() if pa.types.is_float16(kind) else kind


class Refusal(Exception):  # noqa: N818 - it never leaves this package
    """Some record of a part is bad; if the part is one record, for this reason."""


def parse_by_parts(block: Block, records: Sequence[Record], parse: Callable[[bytes], pa.Table]) -> Parsed:
    """Halve what does not work until the bad records stand alone, so that the others are parsed as they always are."""
    tables: list[pa.Table] = []
    kept: list[Record] = []
    bad: list[BadRecord] = []

    def try_part(part: Sequence[Record]) -> None:
        try:
            tables.append(parse(b"".join(record.text for record in part)))
            kept.extend(part)
        except Refusal as err:
            # A part that cannot be parsed and has one record: this is a bad one. Each costs log2(n) attempts.
            if len(part) == 1:
                bad.append(block.bad_record(part[0], str(err)))
                return
            middle = len(part) // 2
            try_part(part[:middle])
            try_part(part[middle:])

    whole = [
        # The last line of a file may have no end. Joined to another record, it would become one line with it.
        record if record.text.endswith((b"\n", b"\r")) else Record(record.text + b"\n", record.line)
        for record in records
    ]
    if whole:
        try_part(whole)
    # All records are bad. The table still needs its columns.
    table = pa.concat_tables(tables) if tables else parse(b"")
    return Parsed(block, table, tuple(bad), tuple(kept))


def refuse_nulls(parsed: Parsed, schema: pa.Schema) -> Parsed:
    """Take out rows without a value where a column needs one."""
    for field in schema:
        if field.nullable or not parsed.table.column(field.name).null_count:
            continue
        is_good = parsed.table.column(field.name).is_valid()
        # Rows and records are in the same order, so that a bad row leads to its line.
        records = parsed.block.records if parsed.kept is None else parsed.kept
        goods = is_good.to_pylist()
        reason = f"column {field.name!r} needs a value and has none"
        bad = tuple(parsed.block.bad_record(r, reason) for r, good in zip(records, goods, strict=True) if not good)
        parsed = Parsed(
            parsed.block,
            parsed.table.filter(pc.fill_null(is_good, fill_value=False)),
            tuple(sorted((*parsed.bad, *bad), key=lambda record: record.line)),
            tuple(r for r, good in zip(records, goods, strict=True) if good),
        )
    return parsed
