"""Ref files as bytes: read in both spellings, checked as strictly as by Lance, and written in Lance's form.

The specification spells the fields in snake case, Lance in camel case. Lance refuses the former, a number given as a
string, a byte order mark and more, and one file that it refuses stops every listing and every deletion of a branch.
"""

import json
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, NoReturn, TypeVar
from uuid import uuid4

from anabranch.ids import MAIN
from anabranch.warnings import UnreadableRefWarning

# Lance stores versions and sizes as unsigned 64-bit numbers.
_U64 = 1 << 64
# The form of time that Lance accepts. `fromisoformat` accepts more.
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:?[0-9]{2})")
_BOM = "\ufeff"

Info = TypeVar("Info")


class RefKind(StrEnum):
    """The kind of a ref file. The value is its name in messages."""

    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefFile(Generic[Info]):
    """One ref file: its contents, None if it cannot be read, and the problem for which Lance refuses it, if any."""

    path: str
    name: str
    data: bytes
    info: Info | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRef:
    """A ref file that cannot be read: its path below the dataset root, its name, and the reason."""

    path: str
    name: str
    problem: str


class RefList(list[Info], Generic[Info]):
    """The refs that can be read, by name; `unreadable` are the files that cannot."""

    unreadable: tuple[UnreadableRef, ...] = ()

    @classmethod
    def of(cls, files: "tuple[RefFile[Info], ...]") -> "RefList[Info]":
        """Separate readable and unreadable refs."""
        made = cls(file.info for file in files if file.info is not None)
        made.unreadable = tuple(
            UnreadableRef(path=file.path, name=file.name, problem=file.problem or "it cannot be read")
            for file in files
            if file.info is None
        )
        return made


def warn_unreadable(refs: RefList[Info], root: str) -> RefList[Info]:
    """Warn the caller's caller of the files that could not be read, and return the list."""
    for ref in refs.unreadable:
        warnings.warn(
            f"{ref.path!r} in {root!r} cannot be read: {ref.problem}; run doctor with repair",
            UnreadableRefWarning,
            stacklevel=3,
        )
    return refs


def parse_ref(data: bytes) -> dict[str, Any]:
    """Read the fields of a ref file under the specification's names; raise ValueError if it has none."""
    try:
        fields = json.loads(data)
    # A file of nothing but brackets exceeds the depth of Python's parser.
    except (RecursionError, ValueError):
        raise ValueError("it is not JSON" if data else "it is empty") from None
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    return {_snake_case(key): value for key, value in fields.items()}


def whole_number(value: object) -> int:
    """Read a number that another tool may have written as text; raise ValueError for anything else."""
    number = None
    # A bool is an int in Python.
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(OverflowError, ValueError):
            number = int(value)
    if number is None or (isinstance(value, float) and number != value):
        raise ValueError(f"{value!r} is not a whole number")
    if not 0 <= number < _U64:
        raise ValueError(f"{value!r} is out of range")
    return number


def metadata_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Read the metadata of a ref, whose values are texts; raise ValueError if it is not an object."""
    found = fields.get("metadata") or {}
    if not isinstance(found, dict):
        raise ValueError("its metadata is not an object")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items()}


def branch_name_of(value: object) -> str | None:
    """Read the name of a branch in a ref; None is main, which some tools spell out."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{value!r} is not a branch name")
    return None if value in (None, "", MAIN) else value


def ref_problem(data: bytes, kind: RefKind) -> str | None:
    """Return why Lance refuses a ref file, or None if it reads it."""
    try:
        fields = _strict_fields(data)
    except ValueError as err:
        return str(err)
    for key, (required, rule) in _RULES[kind].items():
        if key not in fields:
            if required:
                return f"it has no field {key!r}"
        elif problem := rule(fields[key]):
            return f"its field {key!r} {problem}"
    return None


def _strict_fields(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if text.startswith(_BOM):
        raise ValueError("it starts with a byte order mark")
    try:
        # Python accepts NaN and repeated keys, which Lance refuses.
        fields = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_duplicates)
        # Python also accepts the escape of half a surrogate pair, which cannot be encoded.
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair") from None
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("it is not JSON" if text else "it is empty") from None
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    return fields


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"it has the number {text}, which is not JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ValueError(f"it has the field {twice!r} twice")
    return dict(pairs)


def _number_rule(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"is {json.dumps(value)}, expected a number"
    return None if 0 <= value < _U64 else f"is {value}, which is out of range"


def _seconds_rule(value: object) -> str | None:
    problem = _number_rule(value)
    if problem is None and isinstance(value, int) and value > datetime.max.replace(tzinfo=UTC).timestamp():
        return f"is {value}, which is out of range"  # Lance lists it, and no date can show it
    return problem


def _text_rule(value: object) -> str | None:
    return None if value is None or _is_text(value) else f"is {json.dumps(value)}, expected a string"


def _is_text(value: object) -> bool:
    """Return whether a value is a string that UTF-8 can encode: half of a surrogate pair is not."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def _time_rule(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return f"is {json.dumps(value)}, expected a time such as 2026-11-15T10:00:00Z"
    try:
        datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (OverflowError, ValueError):
        return f"is {value!r}, which is out of range"
    return None


def _metadata_rule(value: object) -> str | None:
    if isinstance(value, dict) and all(_is_text(text) for pair in value.items() for text in pair):
        return None
    return "is not an object of strings"


def _identifier_rule(value: object) -> str | None:
    pairs = value.get("version_mapping") if isinstance(value, dict) else None
    if isinstance(pairs, list) and all(_is_fork(pair) for pair in pairs):
        return None
    return "does not list pairs of a version and an id"


def _is_fork(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and _number_rule(pair[0]) is None and _is_text(pair[1])


# By field: whether Lance requires it, and what Lance requires of it.
_RULES: dict[RefKind, dict[str, tuple[bool, Callable[[object], str | None]]]] = {
    RefKind.BRANCH: {
        "parentBranch": (False, _text_rule),
        "identifier": (False, _identifier_rule),
        "parentVersion": (True, _number_rule),
        "createAt": (True, _seconds_rule),
        "manifestSize": (True, _number_rule),
        "metadata": (False, _metadata_rule),
    },
    RefKind.TAG: {
        "branch": (False, _text_rule),
        "version": (True, _number_rule),
        "createdAt": (False, _time_rule),
        "updatedAt": (False, _time_rule),
        "manifestSize": (True, _number_rule),
        "metadata": (False, _metadata_rule),
    },
}


def usable_fields(data: bytes, kind: RefKind) -> dict[str, Any]:
    """Return those fields of a ref file, under Lance's names, that Lance accepts as they are."""
    try:
        fields = parse_ref(data)
    except ValueError:
        return {}
    camel = {camel_case(key): value for key, value in fields.items()}
    return {key: camel[key] for key, (_, rule) in _RULES[kind].items() if key in camel and rule(camel[key]) is None}


def encode_ref(fields: Mapping[str, Any]) -> bytes:
    """Encode fields, given by Lance's names, in Lance's form."""
    return json.dumps(fields, indent=2).encode()


def encode_branch(
    *,
    parent_branch: str | None,
    parent_version: int,
    created_at: datetime,
    manifest_size: int,
    parent_ref: bytes,
    damaged: bytes = b"",
) -> bytes:
    """Write a branch's metadata. All but the parent comes from the damaged file, where that is usable."""
    found = usable_fields(damaged, RefKind.BRANCH)
    # Lance identifies a branch by the forks that led to it, so the lineage of the parent is continued.
    lineage = lineage_of(damaged) or [*lineage_of(parent_ref), [parent_version, uuid4().hex]]
    return encode_ref(
        {
            "parentBranch": parent_branch,
            "identifier": {"version_mapping": lineage},
            "parentVersion": parent_version,
            "createAt": found.get("createAt", int(created_at.timestamp())),
            "manifestSize": found.get("manifestSize", manifest_size),
            "metadata": found.get("metadata", {}),
        }
    )


def lineage_of(data: bytes) -> list[list[Any]]:
    """Return Lance's record of the forks that led to a branch: pairs of a version and an id."""
    identifier = usable_fields(data, RefKind.BRANCH).get("identifier") or {}
    return list(identifier.get("version_mapping") or [])


def camel_case(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(part.capitalize() for part in others)


def _snake_case(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
