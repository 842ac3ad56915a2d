"""A small table to stage on, and how to inspect it."""

from collections.abc import Iterable
from typing import Any

import lance
import pyarrow as pa

from anabranch.format.home import Home
from anabranch.format.staging import VersionRef, append, create_empty
from tests.conftest import Location

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.float64()),
        ("s", pa.string()),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
    ]
)


def rows(ids: Iterable[int], v: float | None = 0.0) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": i, "v": v, "s": f"s{i}", "st": {"a": i, "b": [f"b{i}"]} if i % 2 else None} for i in ids], schema=SCHEMA
    )


def new_table(location: Location, *ids: Iterable[int]) -> VersionRef:
    """A staged table with one fragment for each list of ids."""
    version_ref = create_empty(Home.at(location / "t.lance", location.storage_options), SCHEMA)
    for part in ids:
        version_ref = append(version_ref, rows(part))
    return version_ref


def contents(version_ref: VersionRef, *columns: str, where: str | None = None) -> list[dict[str, Any]]:
    """The rows in the order of their ids, after Lance's own check of the version."""
    dataset: Any = version_ref.open()
    dataset.validate()
    found: list[dict[str, Any]] = dataset.to_table(columns=list(columns) or None, filter=where).to_pylist()
    return sorted(found, key=lambda row: row["id"]) if not columns or "id" in columns else found


def ids(version_ref: VersionRef, where: str | None = None) -> list[int]:
    return [row["id"] for row in contents(version_ref, "id", where=where)]


def row_ids(version_ref: VersionRef) -> dict[int, int]:
    found = version_ref.open().scanner(columns=["id"], with_row_id=True).to_table()
    return dict(zip(found.column("id").to_pylist(), found.column("_rowid").to_pylist(), strict=True))


def raw(version_ref: VersionRef) -> lance.LanceDataset:
    """The home as any Lance reader sees it."""
    return lance.dataset(version_ref.home.uri, storage_options=version_ref.home.lance_options())


def covered(version_ref: VersionRef) -> dict[str, set[int]]:
    """Each index and the fragments it covers."""
    return {
        found.name: {fragment for segment in found.segments for fragment in segment.fragment_ids}
        for found in version_ref.open().describe_indices()
    }


def fragment_ids(version_ref: VersionRef) -> set[int]:
    return {fragment.fragment_id for fragment in version_ref.open().get_fragments()}
