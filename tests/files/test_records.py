"""Where records begin and end: two ways that must agree, with Python's own CSV reader as the judge."""

import csv
import io
from collections.abc import Iterator

from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.files.formats import CsvOptions
from anabranch.files.records import Block, Dialect, iter_blocks

DIALECT = Dialect.of(CsvOptions())
VALUES = st.text(alphabet='ab,"\n', max_size=6)
TABLES = st.lists(st.lists(VALUES, min_size=2, max_size=3), max_size=12)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def cut(data: bytes, *, piece: int, block: int) -> list[Block]:
    return list(iter_blocks(pieces(data, piece), DIALECT, file="f", block_bytes=block))


@given(TABLES, st.integers(1, 20), st.integers(1, 40))
def test_good_records_are_found_at_their_lines_however_the_text_is_cut(
    table: list[list[str]], piece: int, block: int
) -> None:
    expected, text = [], ""
    for row in table:
        written = io.StringIO()
        csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(row)
        expected.append((written.getvalue(), text.count("\n") + 1))
        text += written.getvalue()
    blocks = cut(text.encode(), piece=piece, block=block)
    assert [bad for found in blocks for bad in found.bad] == []
    assert [(r.text.decode(), r.line) for found in blocks for r in found.records] == expected
    assert b"".join(found.data for found in blocks) == text.encode()


@example(text='""aa', piece=1, block=1)
@given(st.text(alphabet='a,"\n', max_size=60), st.integers(1, 20), st.integers(1, 40))
def test_any_text_is_cut_into_the_same_records(text: str, piece: int, block: int) -> None:
    """No line is lost, none is reported twice, and the size of the pieces does not matter."""
    data = text.encode()

    def reported(blocks: list[Block]) -> list[tuple[int, str, bool]]:
        good = [(r.line, r.text.decode().rstrip("\n"), True) for found in blocks for r in found.records]
        bad = [(b.line, b.text, False) for found in blocks for b in found.bad]
        return sorted(good + bad)

    whole = reported(cut(data, piece=max(len(data), 1), block=1 << 20))
    assert reported(cut(data, piece=piece, block=block)) == whole
    left = text
    for _, record, _ in whole:
        before, found, left = left.partition(record)
        assert found or not record
        assert not before.strip("\n")
    assert not left.strip("\n")
