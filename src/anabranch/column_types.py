"""Column types: their text, such as `int64` or `list<string>`, and whether a type holds all values of another one."""

import re
from collections.abc import Callable

import pyarrow as pa

from anabranch.errors import InvalidInputError
from anabranch.hints import closest

_types = pa.types
_NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_OTHERS = ("string", "large_string", "binary", "large_binary", "date32", "date64", "null")
_UNITS: dict[str, tuple[str, ...]] = {"timestamp": ("s", "ms", "us", "ns"), "duration": ("s", "ms", "us", "ns")}
_UNITS |= {"time32": ("s", "ms"), "time64": ("us", "ns")}
_TIMED = [f"{name}[{unit}]" for name, units in _UNITS.items() for unit in units]
_SIMPLE = {name: pa.type_for_alias(name) for name in ("bool", *_NUMBERS, *_OTHERS, *_TIMED)}
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
# Other spellings, most of them from Arrow.
_ALIASES = {
    "boolean": "bool",
    "date": "date32",
    "double": "float64",
    "float": "float32",
    "halffloat": "float16",
    "large_utf8": "large_string",
    "timestamp": "timestamp[us]",
    "utf8": "string",
    "date32[day]": "date32",
    "date64[ms]": "date64",
}
_EXTENSIONS: dict[str, Callable[[], pa.DataType]] = {"arrow.json": pa.json_, "arrow.uuid": pa.uuid}
# Suggestions for unknown types, by names that are similar or that other systems use.
_SUGGESTIONS = {
    **{name: name for name in ("bool", *_NUMBERS, *_OTHERS, "time32[ms]", "time64[us]", "duration[us]")},
    **dict.fromkeys(("int", "integer", "bigint", "long"), "int64"),
    **dict.fromkeys(("str", "text", "varchar", "char"), "string"),
    **dict.fromkeys(("decimal", "numeric"), "decimal(10, 2)"),
    **dict.fromkeys(("timestamp", "datetime", "timestamptz"), "timestamp[us, tz=UTC]"),
    **dict.fromkeys(("list", "array"), "list<string>"),
    **dict.fromkeys(("vector", "embedding"), "vector(128)"),
    "smallint": "int16",
    "real": "float32",
    "bytes": "binary",
    "blob": "large_binary",
    "time": "time64[us]",
    "duration": "duration[us]",
    "large_list": "large_list<string>",
    "fixed_size_list": "fixed_size_list<float32, 128>",
    "fixed_size_binary": "fixed_size_binary(16)",
    "struct": "struct<a: int64, b: string>",
    "map": "map<string, int64>",
    "dictionary": "dictionary<int32, string>",
    "uuid": "extension<arrow.uuid>",
    "json": "extension<arrow.json>",
}
# The parser is recursive, so a text from a user must not decide how deep it goes.
_MAX_DEPTH = 32
_MAX_DIGITS, _MAX_DIGITS_256 = 38, 76
# For larger sizes Arrow may abort the process instead of raising an error.
_MAX_SIZE = 1_000_000
_NOT_NULL = " not null"
_EXTENSION = re.compile(r"extension<([^<>]+)>")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def canonical_type(text: str) -> str:
    """Return the canonical spelling of a type. Raise InvalidInputError for an unknown or unsupported type."""
    text = text.strip()
    # An extension type of another library can be compared as text, but not built here.
    return text if _EXTENSION.fullmatch(text) else show_type(to_arrow(text))


def to_arrow(text: str) -> pa.DataType:
    """Parse a type. The spelling of Arrow is accepted, too."""
    return _TypeParser(text.strip()).read()


def show_type(kind: pa.DataType) -> str:
    """Return the text of a type, in the spelling that `to_arrow` parses."""
    # First, because extension types in Python, such as the blobs of Lance, cannot be hashed.
    if isinstance(kind, pa.BaseExtensionType):
        return f"extension<{kind.extension_name}>"
    if kind in _NAMES:
        return _NAMES[kind]
    if _types.is_decimal(kind):
        return _show_decimal(kind)
    if _types.is_fixed_size_binary(kind):
        return f"fixed_size_binary({kind.byte_width})"
    if _types.is_dictionary(kind):
        return f"dictionary<{show_type(kind.index_type)}, {show_type(kind.value_type)}>"
    return _show_nested(kind) if _types.is_nested(kind) else str(kind)


def _show_decimal(kind: pa.DataType) -> str:
    # `decimal` alone means 128 bits up to 38 digits and 256 bits above, so only another width needs its name.
    is_usual = pa.types.is_decimal128(kind) or (pa.types.is_decimal256(kind) and kind.precision > _MAX_DIGITS)
    return f"decimal{'' if is_usual else kind.bit_width}({kind.precision}, {kind.scale})"


def _show_nested(kind: pa.DataType) -> str:
    if _types.is_fixed_size_list(kind):
        if kind.value_field.nullable and _types.is_float32(kind.value_type):
            return f"vector({kind.list_size})"
        return f"fixed_size_list<{_show_field(kind.value_field)}, {kind.list_size}>"
    if _types.is_large_list(kind):
        return f"large_list<{_show_field(kind.value_field)}>"
    if _types.is_list(kind):
        return f"list<{_show_field(kind.value_field)}>"
    if _types.is_map(kind):
        return f"map<{show_type(kind.key_type)}, {_show_field(kind.item_field)}>"
    if _types.is_struct(kind):
        return f"struct<{', '.join(map(_show_named_field, kind))}>"
    return str(kind)


def _show_named_field(field: pa.Field) -> str:
    name = field.name if _PLAIN_NAME.fullmatch(field.name) else f"`{field.name}`"
    return f"{name}: {_show_field(field)}"


def _show_field(field: pa.Field) -> str:
    return show_type(field.type) + ("" if field.nullable else _NOT_NULL)


class _TypeParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def read(self) -> pa.DataType:
        found = self.read_type(depth=0)
        if self._position < len(self._text):
            raise self._unknown(self._text)
        return found

    def read_type(self, *, depth: int) -> pa.DataType:
        """Parse the type at the current position."""
        if depth > _MAX_DEPTH:
            raise InvalidInputError("the type is nested too deeply", hint=f"use at most {_MAX_DEPTH} levels")
        name = self._take(r"[A-Za-z_][A-Za-z0-9_]*")
        if name is None:
            raise self._unknown(self._text)
        match name:
            case "list" | "large_list" | "fixed_size_list" | "struct" | "map" | "dictionary" | "extension":
                return self._read_nested(name, depth=depth)
            # Without a unit, `timestamp` is an alias and the others are unknown.
            case "timestamp" | "duration" | "time32" | "time64" if self._text.startswith("[", self._position):
                return self._read_timed(name)
            case "decimal" | "decimal128" | "decimal256":
                return self._read_decimal(name)
            case "vector":
                return pa.list_(pa.float32(), self._read_size())
            case "fixed_size_binary":
                return pa.binary(self._read_size())
        return self._read_simple(name)

    def _read_simple(self, name: str) -> pa.DataType:
        # Arrow spells dates with their unit, which has only one value.
        suffix = self._take(r"\[(?:day|ms)\]") if name in {"date32", "date64"} else None
        known = _ALIASES.get(name + (suffix or ""), name + (suffix or ""))
        if known not in _SIMPLE:
            raise self._unknown(name)
        return _SIMPLE[known]

    def _read_nested(self, name: str, *, depth: int) -> pa.DataType:
        self._expect("<", name)
        if name == "extension":
            return self._read_extension()
        if name == "struct":
            return self._read_struct(depth=depth)
        if name == "map":
            key = self._read_field("key", depth=depth)
            self._expect(",", name)
            item = self._read_field("value", depth=depth)
            self._expect(">", name)
            # Arrow refuses a map whose keys are nullable.
            return pa.map_(key.with_nullable(False), item)  # noqa: FBT003 - Arrow's signature
        if name == "dictionary":
            return self._read_dictionary(depth=depth)
        self._take(r"(?:item|element|\$data\$)\s*:")  # the spelling of Arrow
        item = self._read_field("item", depth=depth)
        if name == "fixed_size_list":
            return self._read_fixed_size_list(item)
        self._expect(">", name)
        return pa.list_(item) if name == "list" else pa.large_list(item)

    def _read_fixed_size_list(self, item: pa.Field) -> pa.DataType:
        """Parse what follows the items of the list: its size."""
        size = self._checked_size(self._take(r"\d{1,9}"), "fixed_size_list") if self._take(",") else None
        self._expect(">", "fixed_size_list")
        if not item.nullable:
            raise InvalidInputError(
                f"type {self._text!r} has items that are not null, which Lance does not support",
                hint="leave 'not null' out",
            )
        # Arrow writes the size behind the type: `fixed_size_list<item: float>[4]`.
        return pa.list_(item, size if size is not None else self._read_size())

    def _read_struct(self, *, depth: int) -> pa.DataType:
        fields: list[pa.Field] = []
        while not self._take(">"):
            if fields:
                self._expect(",", "struct")
            # A name with spaces or separators is quoted, as `show_type` writes it.
            name = self._take(r"`[^`]+`|[^\s:<>,`]+")
            if name is None:
                raise self._unknown("struct")
            self._expect(":", "struct")
            fields.append(self._read_field(name.strip("`"), depth=depth))
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            raise InvalidInputError(
                f"type {self._text!r} has two fields with the same name", hint="use a different name for each field"
            )
        return pa.struct(fields)

    def _read_dictionary(self, *, depth: int) -> pa.DataType:
        values_first = self._take(r"values\s*=") is not None  # the spelling of Arrow
        first = self.read_type(depth=depth + 1)
        self._expect(",", "dictionary")
        self._take(r"indices\s*=")
        second = self.read_type(depth=depth + 1)
        self._take(r",\s*ordered=[01]")
        self._expect(">", "dictionary")
        index, values = (second, first) if values_first else (first, second)
        if not pa.types.is_integer(index):
            raise InvalidInputError(
                f"type {self._text!r} has dictionary indices of type {show_type(index)}, expected integers",
                hint="write it as dictionary<int32, string>",
            )
        return pa.dictionary(index, values)

    def _read_extension(self) -> pa.DataType:
        name = self._take(r"[^<>]+")
        self._expect(">", "extension")
        if name not in _EXTENSIONS:
            raise InvalidInputError(
                f"unknown extension type extension<{name}>", hint="create the column with the library of that type"
            )
        return _EXTENSIONS[name]()

    def _read_field(self, name: str, *, depth: int) -> pa.Field:
        return pa.field(name, self.read_type(depth=depth + 1), nullable=self._take(r"not\s+null\b") is None)

    def _read_timed(self, name: str) -> pa.DataType:
        unit, _, rest = (self._take(r"\[[^\]]*\]") or "").strip("[]").partition(",")
        zone = re.fullmatch(r"\s*tz\s*=\s*([^\s=]+)\s*", rest) if rest else None
        plain = _SIMPLE.get(f"{name}[{unit.strip()}]")
        if plain is None or (rest and (zone is None or name != "timestamp")):
            raise self._unknown(name)
        return plain if zone is None else pa.timestamp(plain.unit, tz=zone.group(1))

    def _read_decimal(self, name: str) -> pa.DataType:
        inside = self._take(r"\(\s*\d+\s*(?:,\s*-?\d+\s*)?\)")
        if inside is None:
            raise self._unknown("decimal")
        precision, _, scale = inside.strip("()").partition(",")
        digits, decimals = int(precision), int(scale or 0)
        max_digits = _MAX_DIGITS if name == "decimal128" else _MAX_DIGITS_256
        if not 1 <= digits <= max_digits or not 0 <= decimals <= digits:
            raise InvalidInputError(
                f"type {self._text!r} has {digits} digits, {decimals} of them after the decimal point",
                hint=f"use 1 to {max_digits} digits, and at most as many after the decimal point",
            )
        is_small = name != "decimal256" and digits <= _MAX_DIGITS
        return pa.decimal128(digits, decimals) if is_small else pa.decimal256(digits, decimals)

    def _read_size(self) -> int:
        inside = self._take(r"\(\s*\d{1,9}\s*\)|\[\s*\d{1,9}\s*\]")
        return self._checked_size(inside and inside.strip("()[] "), self._text)

    def _checked_size(self, digits: str | None, near: str) -> int:
        size = int(digits or 0)
        if not size:
            raise self._unknown(near)
        if size > _MAX_SIZE:
            raise InvalidInputError(f"type {self._text!r} has size {size}", hint=f"use at most {_MAX_SIZE}")
        return size

    def _take(self, pattern: str) -> str | None:
        """Consume the next piece of text and the spaces around it if it matches a pattern, else return None."""
        found = re.compile(rf"\s*({pattern})\s*").match(self._text, self._position)
        if found is None:
            return None
        self._position = found.end()
        return found.group(1)

    def _expect(self, character: str, name: str) -> None:
        if self._take(re.escape(character)) is None:
            raise self._unknown(name)

    def _unknown(self, near: str) -> InvalidInputError:
        return InvalidInputError(f"unknown type {self._text!r}", hint=_suggestion(near))


def _suggestion(near: str) -> str:
    name = re.match(r"\w*", near.lower())
    found = closest(name[0] if name else "", _SUGGESTIONS, n=1)
    return (
        f"did you mean {_SUGGESTIONS[found[0]]}?"
        if found
        else "use a type such as int64, string or timestamp[us, tz=UTC]"
    )


# For floats of a number of bits, the largest integer type that they represent exactly, in bits.
_EXACT_BITS = {16: 8, 32: 16, 64: 32}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


def is_widening(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether every value of `before` is a value of `after`, so that no value can be lost or fail to convert."""
    if before == after or _types.is_null(before):
        return True
    # A dictionary is only an encoding: its values decide.
    if _types.is_dictionary(before):
        return is_widening(before.value_type, after)
    return any(is_before(before) and keeps(before, after) for is_before, keeps in _WIDENINGS)


def _keeps_integers(before: pa.DataType, after: pa.DataType) -> bool:
    bits, is_signed = before.bit_width, _types.is_signed_integer(before)
    if _types.is_integer(after):
        if is_signed == _types.is_signed_integer(after):
            return bool(after.bit_width >= bits)
        # A wider signed type holds all unsigned values. No unsigned type holds negative ones.
        return not is_signed and bool(after.bit_width > bits)
    if _types.is_floating(after):
        return bool(bits <= _EXACT_BITS[after.bit_width])
    if _types.is_decimal(after):
        # The largest unsigned integer of 64 bits has 20 digits, the largest signed one has 19.
        digits = _DIGITS[bits] + (1 if bits == 64 and not is_signed else 0)
        return bool(after.precision - after.scale >= digits)
    return False


def _keeps_dates(before: pa.DataType, after: pa.DataType) -> bool:
    if _types.is_timestamp(after):
        # Nanosecond timestamps end in the year 2262, so they cannot hold every date.
        return after.tz is None and after.unit != "ns"
    return bool(_types.is_date64(after) and _types.is_date32(before))


def _keeps_items(before: pa.DataType, after: pa.DataType) -> bool:
    if not _is_list(after) or not _keeps_field(before.value_field, after.value_field):
        return False
    if _types.is_fixed_size_list(after):
        return _types.is_fixed_size_list(before) and bool(after.list_size == before.list_size)
    # The offsets of a large list may be larger than the 32 bits of a list.
    return bool(_types.is_large_list(after) or not _types.is_large_list(before))


def _keeps_fields(before: pa.DataType, after: pa.DataType) -> bool:
    if not _types.is_struct(after) or [f.name for f in before] != [f.name for f in after]:
        return False
    return all(_keeps_field(one, other) for one, other in zip(before, after, strict=True))


def _keeps_field(before: pa.Field, after: pa.Field) -> bool:
    return (after.nullable or not before.nullable) and is_widening(before.type, after.type)


def _is_list(kind: pa.DataType) -> bool:
    return bool(_types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind))


def _is_finer(before: pa.DataType, after: pa.DataType) -> bool:
    units = _UNITS["timestamp"]
    return units.index(after.unit) >= units.index(before.unit)


# For a kind of type: whether every value of such a type is a value of another one.
_WIDENINGS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]], ...] = (
    (_types.is_integer, _keeps_integers),
    (_types.is_floating, lambda old, new: _types.is_floating(new) and new.bit_width >= old.bit_width),
    (
        _types.is_decimal,
        lambda old, new: (
            _types.is_decimal(new) and new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        ),
    ),
    (_types.is_string, lambda _, new: _types.is_large_string(new)),
    (_types.is_binary, lambda _, new: _types.is_large_binary(new)),
    (_types.is_fixed_size_binary, lambda _, new: _types.is_large_binary(new) or _types.is_binary(new)),
    (_types.is_date, _keeps_dates),
    # In nanoseconds, 64 bits hold only 292 years in each direction, but a time of day.
    (
        _types.is_timestamp,
        lambda old, new: _types.is_timestamp(new) and new.tz == old.tz and new.unit != "ns" and _is_finer(old, new),
    ),
    (_types.is_duration, lambda old, new: _types.is_duration(new) and new.unit != "ns" and _is_finer(old, new)),
    (_types.is_time, lambda old, new: _types.is_time(new) and _is_finer(old, new)),
    (_is_list, _keeps_items),
    (_types.is_struct, _keeps_fields),
)
