"""What a procedure is: its parameters, the columns of its answer, and one call of it."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.json_values import json_value
from anabranch.repo.repository import Repository

_TEXT, _LONG, _FLAG = pa.string(), pa.int64(), pa.bool_()
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: the repository, the default branch of the session, and the arguments that are not null."""

    repository: Repository
    branch: str
    arguments: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.arguments.get(name, default)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter by its type in SQL. Without `is_required` it may be left out, and is null."""

    name: str
    type: str = "STRING"
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure: what it takes, what its rows look like, and the function that does it."""

    description: str
    parameters: tuple[Parameter, ...]
    columns: pa.Schema
    run: Callable[[Call], Rows]


def required(*names: str) -> tuple[Parameter, ...]:
    """Return required parameters of text."""
    return tuple(Parameter(name, is_required=True) for name in names)


def optional(*names: str, **typed: str) -> tuple[Parameter, ...]:
    """Return parameters that may be left out, of text unless a type is given."""
    return (*(Parameter(name) for name in names), *(Parameter(name, kind) for name, kind in typed.items()))


def columns(texts: Sequence[str], *, longs: Sequence[str] = (), flags: Sequence[str] = ()) -> pa.Schema:
    """Return the columns of an answer by their types."""
    return pa.schema(
        [*((name, _TEXT) for name in texts), *((name, _LONG) for name in longs), *((name, _FLAG) for name in flags)]
    )


def as_json(value: Any) -> str | None:
    """Return a value as JSON text, None for null."""
    return None if value is None else json.dumps(json_value(value), ensure_ascii=False)
