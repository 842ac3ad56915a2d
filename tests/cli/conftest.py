"""The command line in this process, and a dataset to use it on."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from anabranch.cli.main import create_app
from tests.conftest import Place


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code, and what it said where."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one document on stdout."""
        assert (self.code, self.err) == (0, ""), self
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The error in the one document on stderr."""
        assert self.code != 0
        assert self.out == ""
        found = json.loads(self.err)
        assert list(found) == ["error"]
        assert list(found["error"]) == ["code", "message", "hint", "retryable"]
        return dict(found["error"])


Run = Callable[..., Ran]


@pytest.fixture
def run() -> Run:
    """Run `anabranch` with these arguments."""

    def run(*args: str, env: dict[str, str] | None = None) -> Ran:
        result = CliRunner().invoke(create_app(), list(args), env=env)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def table(place: Place) -> str:
    """A dataset with two versions: three rows, then a fourth in a fragment of its own."""
    uri, options = place / "t.lance", place.storage_options or None
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), uri, enable_stable_row_ids=True, storage_options=options)
    lance.write_dataset(pa.table({"id": [4]}), uri, mode="append", storage_options=options)
    return uri


@pytest.fixture
def reach(place: Place) -> list[str]:
    """The storage options that reach the dataset, as arguments."""
    return [part for key, value in place.storage_options.items() for part in ("-o", f"{key}={value}")]
