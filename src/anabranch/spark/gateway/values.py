"""Pins, splits and schemas as JSON. The catalog keeps them as text and hands them back; it does not look inside."""

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from anabranch.format.home import Home
from anabranch.format.splits import Split
from anabranch.format.staging import VersionRef

__all__ = [
    "version_ref_from_json",
    "version_ref_to_json",
    "schema_from_text",
    "schema_to_text",
    "split_from_json",
    "split_to_json",
]


def version_ref_to_json(version_ref: VersionRef) -> dict[str, Any]:
    home = version_ref.home
    return {
        "root": home.root,
        "branch": home.branch,
        # As text: staged versions are larger than the integers that every JSON reader keeps exact.
        "version": str(version_ref.version),
        "recorded_root": home.recorded_root,
    }


def version_ref_from_json(found: Mapping[str, Any], storage_options: Mapping[str, str]) -> VersionRef:
    home = Home.at(found["root"], storage_options).on(found["branch"])
    home = replace(home, recorded_root=found["recorded_root"])
    return VersionRef(home=home, version=int(found["version"]))


def split_to_json(split: Split) -> dict[str, Any]:
    return {"fragments": list(split.fragments), "offset": split.offset, "rows": split.rows}


def split_from_json(found: Mapping[str, Any]) -> Split:
    return Split(fragments=tuple(found["fragments"]), offset=found["offset"], rows=found["rows"])


def schema_to_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def schema_from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
