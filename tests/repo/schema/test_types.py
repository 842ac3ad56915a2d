"""The types that a schema can name are those that Lance can store, each with one spelling."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.column_types import canonical_type, is_widening, show_type, to_arrow
from anabranch.errors import InvalidInputError

SPELLINGS = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "decimal(10, 2)": pa.decimal128(10, 2),
    "decimal(40, 2)": pa.decimal256(40, 2),
    "decimal256(10, 2)": pa.decimal256(10, 2),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "fixed_size_binary(16)": pa.binary(16),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32[ms]": pa.time32("ms"),
    "time64[us]": pa.time64("us"),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[ns, tz=Europe/Berlin]": pa.timestamp("ns", "Europe/Berlin"),
    "timestamp[us, tz=+01:00]": pa.timestamp("us", "+01:00"),
    "duration[ms]": pa.duration("ms"),
    "list<int32>": pa.list_(pa.int32()),
    "list<int32 not null>": pa.list_(pa.field("item", pa.int32(), nullable=False)),
    "list<list<string>>": pa.list_(pa.list_(pa.string())),
    "large_list<string>": pa.large_list(pa.string()),
    "vector(8)": pa.list_(pa.float32(), 8),
    "fixed_size_list<float16, 8>": pa.list_(pa.float16(), 8),
    "struct<a: int32, b: string not null>": pa.struct([("a", pa.int32()), pa.field("b", pa.string(), nullable=False)]),
    "struct<`odd name`: list<struct<x: date32>>>": pa.struct([("odd name", pa.list_(pa.struct([("x", pa.date32())])))]),
    "map<string, int32>": pa.map_(pa.string(), pa.int32()),
    "dictionary<int8, string>": pa.dictionary(pa.int8(), pa.string()),
    "null": pa.null(),
    "extension<arrow.uuid>": pa.uuid(),
    "extension<arrow.json>": pa.json_(),
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_type_has_one_spelling(text: str) -> None:
    assert to_arrow(text) == SPELLINGS[text]
    assert show_type(SPELLINGS[text]) == text
    assert canonical_type(text) == text


@pytest.mark.parametrize("text", [text for text in SPELLINGS if "`" not in text])
def test_a_type_can_be_spelt_as_arrow_does(text: str) -> None:
    assert canonical_type(str(SPELLINGS[text])) == text


def test_all_these_types_can_be_stored(repo: ab.Repository) -> None:
    columns = {f"c{number}": text for number, text in enumerate(SPELLINGS)}
    desired = {"tables": {"b": {"all": {"columns": {"id": "int64", **columns}}}}}
    repo.schema_apply(desired)
    with repo.transaction() as tx:
        tx.append("b.all", pa.table({"id": [1]}))
    assert repo.snapshot()["b.all"].to_arrow().num_rows == 1
    assert repo.schema_show().to_dict() == desired
    assert repo.schema_plan(desired).is_empty


class _Celsius(pa.ExtensionType):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(pa.float32(), "test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def test_extension_type_of_another_library_is_shown_by_its_name() -> None:
    assert show_type(pa.list_(_Celsius())) == "list<extension<test.celsius>>"


@pytest.mark.parametrize(
    "text", ["date", "double", " list< int32  not   null >", "vector( 8 )", "timestamp", "decimal(5)"]
)
def test_other_spellings_are_understood(text: str) -> None:
    expected = {
        "date": "date32",
        "double": "float64",
        "vector( 8 )": "vector(8)",
        "timestamp": "timestamp[us]",
        "decimal(5)": "decimal(5, 0)",
    }
    assert canonical_type(text) == expected.get(text, "list<int32 not null>")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("decmal", "did you mean decimal(10, 2)?"),
        ("int", "did you mean int64?"),
        ("varchar(20)", "did you mean string?"),
        ("datetime", "did you mean timestamp[us, tz=UTC]?"),
        ("list<int>", "did you mean int64?"),
        ("timestamp[us, tz=]", "did you mean timestamp[us, tz=UTC]?"),
        ("time32[us]", "did you mean time64[us]?"),
        ("vector", "did you mean vector(128)?"),
        ("list<fixed_size_list<int8, 0>>", "did you mean fixed_size_list<float32, 128>?"),
        ("decimal(x)", "did you mean decimal(10, 2)?"),
        ("", "use a type such as int64, string or timestamp[us, tz=UTC]"),
    ],
)
def test_an_unknown_type_is_refused_with_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        canonical_type(text)
    assert (caught.value.problem, caught.value.hint) == (f"unknown type {text!r}", hint)


@pytest.mark.parametrize(
    "text",
    [
        "int64 int64",
        "list<int64",
        "list<>",
        "struct<a>",
        "struct<: int8>",
        "struct<a: int8, a: int8>",
        "map<string>",
        "decimal(0, 0)",
        "decimal(77, 0)",
        "decimal(4, 5)",
        "vector(0)",
        "vector(1000001)",
        "fixed_size_binary(999999999)",
        "fixed_size_list<int8, 999999999>",
        "fixed_size_list<int8>",
        "fixed_size_list<int8 not null, 4>",
        "dictionary<string, string>",
        "timestamp[h]",
        "duration[us, tz=UTC]",
        "list<" * 1000,
    ],
)
def test_invalid_types_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        canonical_type(text)


WIDENINGS = [
    ("int32", "int64"),
    ("uint32", "int64"),
    ("int32", "float64"),
    ("int64", "decimal(19, 0)"),
    ("float32", "float64"),
    ("decimal(10, 2)", "decimal(12, 2)"),
    ("decimal(10, 2)", "decimal(12, 4)"),
    ("decimal(10, 2)", "decimal(50, 4)"),
    ("string", "large_string"),
    ("fixed_size_binary(4)", "binary"),
    ("date32", "timestamp[us]"),
    ("date32", "date64"),
    ("duration[s]", "duration[us]"),
    ("timestamp[s]", "timestamp[us]"),
    ("time32[s]", "time64[us]"),
    ("list<int32>", "large_list<int64>"),
    ("vector(4)", "list<float64>"),
    ("struct<a: int32 not null>", "struct<a: int64>"),
    ("dictionary<int8, string>", "string"),
    ("null", "string"),
]


@pytest.mark.parametrize(("before", "after"), WIDENINGS)
def test_a_wider_type_loses_nothing_and_a_narrower_one_may(before: str, after: str) -> None:
    assert is_widening(to_arrow(before), to_arrow(after))
    assert not is_widening(to_arrow(after), to_arrow(before))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int64", "float64"),
        ("uint64", "int64"),
        ("int64", "uint64"),
        ("int32", "decimal(9, 0)"),
        ("uint64", "decimal(19, 0)"),
        ("decimal(10, 2)", "decimal(11, 4)"),
        ("date32", "timestamp[ns]"),
        ("timestamp[us]", "timestamp[ns]"),
        ("timestamp[us]", "timestamp[us, tz=UTC]"),
        ("int64", "string"),
        ("list<string>", "vector(2)"),
        ("vector(4)", "vector(2)"),
        ("struct<a: int32>", "struct<b: int32>"),
    ],
)
def test_type_that_does_not_hold_every_value_is_not_a_widening(before: str, after: str) -> None:
    assert not is_widening(to_arrow(before), to_arrow(after))


def test_lance_casts_to_every_wider_type(repo: ab.Repository) -> None:
    def schema(kinds: list[str]) -> dict[str, Any]:
        columns = {f"c{number}": kind for number, kind in enumerate(kinds)}
        return {"tables": {"b": {"t": {"columns": {"id": "int64", **columns}}}}}

    before, after = schema([one for one, _ in WIDENINGS]), schema([other for _, other in WIDENINGS])
    repo.schema_apply(before)
    arrow = repo.snapshot_of("main")["b.t"].schema
    values = {field.name: pa.array([_value(field.type), None], field.type) for field in arrow}
    with repo.transaction() as tx:
        tx.append("b.t", pa.table(values, schema=arrow))
    result = repo.schema_apply(after)
    assert len(result.plan.steps) == len(WIDENINGS)
    assert repo.schema_show().to_dict() == after
    found = repo.snapshot_of("main")["b.t"].to_arrow().to_pylist()
    assert found[1] == dict.fromkeys(arrow.names)
    # A date is the beginning of its day now; everything else equals what it was.
    moved = {name for name, value in found[0].items() if value != values[name][0].as_py()}
    assert moved == {f"c{WIDENINGS.index(('date32', 'timestamp[us]'))}"}


def _value(kind: pa.DataType) -> object:
    """Some value of a type."""
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        return "word"
    if pa.types.is_null(kind):
        return None
    if pa.types.is_fixed_size_binary(kind):
        return b"four"
    if pa.types.is_struct(kind):
        return {"a": 7}
    if pa.types.is_fixed_size_list(kind):
        return [1.0, 2.0, 3.0, 4.0]
    if pa.types.is_list(kind):
        return [1, 2]
    return Decimal("1.25") if pa.types.is_decimal(kind) else 7
