"""The types of columns do not depend on where a file is cut into blocks."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.files.csv_reader import CsvReader
from anabranch.files.formats import CsvOptions
from anabranch.files.records import Block, Dialect
from anabranch.files.sources import find_files
from anabranch.files.type_inference import TypeInference

DIALECT = Dialect.of(CsvOptions())
VALUES = (
    *("12", "-3", "1.5", "1e3", "007", "9007199254740993", "true", "False", "1", "0", "x", ""),
    *("2026-01-02", "2026-01-02 03:04:05", "2026-01-02 03:04:05.5", "2026-01-02 03:04:05.123456789"),
    *("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+01:00", "10:40:00"),
)


def infer(file: Path, blocks: list[list[str]]) -> pa.DataType:
    """Return the type of one column from the values of some blocks, read one after the other."""
    (source,) = find_files([str(file)], format=None, storage_options={})
    reader = CsvReader(CsvOptions())
    inference = TypeInference(reader, pa.schema([]))
    inference.expect(reader.names_of(source))
    for values in blocks:
        text = "".join(f"{value},\n" for value in values).encode()
        inference.add(inference.look((source, Block(source.uri, text, 2, DIALECT))))
    return inference.schema().field("v").type


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inference") / "a.csv"
    path.write_text("v,empty\n")
    return path


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [
        ("12", "1.5", pa.float64()),
        ("1.5", "12", pa.float64()),
        ("12", "007", pa.string()),
        ("true", "1", pa.string()),
        ("2026-01-02", "2026-01-02 03:04:05", pa.timestamp("us")),
        ("2026-01-02 03:04:05", "2026-01-02", pa.timestamp("us")),
        ("2026-01-02 03:04:05.5", "2026-01-02 03:04:05.123456789", pa.timestamp("ns")),
        ("2026-01-02T03:04:05Z", "2026-01-02 03:04:05", pa.string()),
    ],
)
def test_values_of_later_blocks_count_as_those_of_the_first(
    file: Path, early: str, late: str, kind: pa.DataType
) -> None:
    assert infer(file, [[early] * 3, [late] * 3]) == kind
    assert infer(file, [[early] * 3 + [late] * 3]) == kind


@given(values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=8), cut=st.integers(0, 8))
def test_a_cut_does_not_change_the_type(file: Path, values: list[str], cut: int) -> None:
    parts = [part for part in (values[:cut], values[cut:]) if part]
    assert infer(file, parts) == infer(file, [values])
